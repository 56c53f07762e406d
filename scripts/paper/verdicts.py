"""Whether runs support what the paper claims, with intervals over seeds.

    python -m scripts.paper.verdicts RUN_OR_FOLDER ... --into PAGE.md

Every claim compares two norms in one number of `scripts.paper.compare`: how soon the
first reaches the other's best value, or how far apart they end. A claim is supported
where the whole 95 % interval agrees with it, contradicted where the whole interval is
against it, and open otherwise.

Runs are seeds of one another where their settings and their number of steps are equal.
Both norms are compared at the same settings, number of steps and seeds. Only the
learning rates may differ, as `scripts.paper.protocols` says. Of several such
comparisons, a claim takes the one with constant learning rates, then the one with the
most seeds, then the longest, then the one that was found first. The other runs, such as
those that tried learning rates, are left out.
"""

import collections
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lnrepro.config import PROTOCOLS, SAME_RATE
from lnrepro.engine.command_line import Parser
from lnrepro.errors import ended
from scripts import markdown as md
from scripts import page_sections
from scripts.paper import compare, protocols
from scripts.paper.claims import CLAIMS, Claim
from scripts.paper.compare import Pairs
from scripts.paper.records import RecordedRun, find, settings

# With fewer seeds an interval says nothing.
FEWEST_SEEDS = 3
SUPPORTED, CONTRADICTED, OPEN = "supported", "contradicted", "open"
# Verdicts with a larger corrected p-value are marked.
LEVEL = 0.05
LEARNING_RATE = "optimizer.learning_rate"
# {kind of a claim: (the function, its value where there is no difference)}.
QUANTITIES = {"speed": (compare.speed, 1.0), "end": (compare.end, 0.0)}


class Verdict(NamedTuple):
    """The result of a claim under a protocol.

    Attributes:
      norms: the better norm and the baseline.
      rates: their learning rates.
      seeds: number of seeds that finished with both norms.
      diverged: number of runs of both that ended in values that are not finite.
      value: the number; infinite where the baseline's best is never reached, and NaN
        where no seed finished with both norms.
      low: lower end of its interval; NaN where there are fewer than `FEWEST_SEEDS`.
      high: upper end of its interval.
      p: p-value of `compare.p_value`, NaN as `low` is.
      ends: where the two norms end, for `disagreements`.
      word: supported, contradicted or open.
      unfinished: norms of which all runs diverged.
    """

    norms: tuple[str, str]
    rates: tuple[float | None, float | None]
    seeds: int
    diverged: int
    value: float
    low: float
    high: float
    p: float
    ends: tuple[float, float]
    word: str
    unfinished: tuple[str, ...] = ()


class Row(NamedTuple):
    """A claim on a data set under each protocol that was run.

    Attributes:
      claim: the claim.
      data: the data set.
      verdicts: {protocol: verdict}.
      pairs: {protocol: the values of a verdict}, where a seed has both norms.
    """

    claim: Claim
    data: str
    verdicts: Mapping[str, Verdict]
    pairs: Mapping[str, Pairs]


def of_runs(runs: Iterable[RecordedRun], claims: Sequence[Claim]) -> list[Row]:
    """Return the verdicts about all claims that the runs have both norms for.

    Args:
      runs: the runs. Those that have neither finished nor diverged are left out.
      claims: the claims.
    """
    ended = collections.defaultdict(list)
    for run in runs:
        if run.diverged or run.finished:
            ended[run.config.experiment, run.config.norm, run.data].append(run)
    rows = []
    for claim in claims:
        for data in sorted({data for experiment, _, data in ended}):
            better = ended[claim.experiment, claim.better, data]
            baseline = ended[claim.experiment, claim.baseline, data]
            row = Row(claim, data, {}, {})
            for protocol in PROTOCOLS:
                pair = _compared(claim, protocol, better, baseline)
                if pair:
                    _add_verdict(row, protocol, pair)
            if row.verdicts:
                rows.append(row)
    return rows


def _add_verdict(row, protocol, pair):
    """Add the verdict of a pair of lists of runs, unless no step is common."""
    claim = row.claim
    rates = tuple(protocols.rate(runs[0]) for runs in pair)
    n_diverged = sum(run.diverged for runs in pair for run in runs)
    ours, theirs = (
        by_seed([run for run in runs if not run.diverged], claim.metric)
        for runs in pair
    )
    norms = claim.better, claim.baseline
    nothing = _nothing(claim)._replace(rates=rates, diverged=n_diverged)
    if not ours.keys() & theirs.keys():
        without = [n for n, of in zip(norms, (ours, theirs), strict=True) if not of]
        row.verdicts[protocol] = nothing._replace(unfinished=tuple(without))
        return
    pairs = paired(ours, theirs, 1 if claim.best == "min" else -1)
    if len(pairs.steps):
        row.verdicts[protocol] = _judged(claim, nothing, pairs)
        row.pairs[protocol] = pairs


def _nothing(claim):
    """Return the verdict about a claim without runs."""
    nan = float("nan")
    norms = claim.better, claim.baseline
    return Verdict(norms, (None, None), 0, 0, nan, nan, nan, nan, (nan, nan), OPEN)


def numbers(claim: Claim, pairs: Pairs) -> str:
    """Return the number of a claim with its interval, as text.

    Args:
      claim: the claim.
      pairs: the values of both norms.
    """
    return number(_judged(claim, _nothing(claim), pairs), claim.kind)


def _judged(claim, verdict, pairs):
    """Return a verdict with its numbers and its word."""
    quantity, equal = QUANTITIES[claim.kind]
    n = len(pairs.better)
    verdict = verdict._replace(seeds=n, value=quantity(pairs), ends=compare.ends(pairs))
    if n < FEWEST_SEEDS:
        return verdict
    low, high = map(float, compare.interval(quantity, pairs))
    # A smaller share of the steps is always better.
    direction = 1 if claim.kind == "speed" else pairs.sign
    word = OPEN
    if max(direction * low, direction * high) < direction * equal:
        word = SUPPORTED
    elif min(direction * low, direction * high) > direction * equal:
        word = CONTRADICTED
    p = compare.p_value(quantity, pairs)
    return verdict._replace(low=low, high=high, p=p, word=word)


def _compared(claim, protocol, better, baseline):
    """Return the runs of both norms that a claim compares, or () if there are none."""
    pairs = []
    for ours in _seeds(claim, protocol, better):
        for theirs in _seeds(claim, protocol, baseline):
            is_one_rate = protocols.rate(ours[0]) == protocols.rate(theirs[0])
            if protocol == protocols.SAME and not is_one_rate:
                continue
            if _shared(ours[0]) == _shared(theirs[0]):
                pairs.append((ours, theirs))
    return max(pairs, key=_size, default=())


def _seeds(claim, protocol, runs):
    """Return the groups of runs of one norm that are seeds of one another."""
    groups = collections.defaultdict(list)
    for run in runs:
        # Runs with the same settings may have other evaluations.
        has_metric = run.diverged or any(run.values(claim.metric).values())
        if has_metric and claim.where(run.config) and protocols.belongs(run, protocol):
            groups[json.dumps(settings(run)), run.length].append(run)
    return groups.values()


def _shared(run):
    """Return the settings and the number of steps that both norms must share."""
    shared = settings(run)
    shared.pop(LEARNING_RATE, None)
    return shared, run.length


def _size(pair):
    """Return what decides between several comparisons; the largest is taken.

    Constant learning rates come before decaying ones, then the number of seeds, of
    which the norm with fewer counts first, then the length.
    """
    constant = all(protocols.is_constant(runs[0]) for runs in pair)
    n_seeds = [sum(run.config.get("seeds", 1) for run in runs) for runs in pair]
    return constant, min(n_seeds), sum(n_seeds), sum(runs[0].length for runs in pair)


# {seed: {step: value}}
Curves = Mapping[int, Mapping[int, float]]


def by_seed(runs: Iterable[RecordedRun], metric: str) -> Curves:
    """Return the values of a metric by seed and step.

    Args:
      runs: seeds of one another.
      metric: the name of the metric.
    """
    curves = {}
    for run in runs:
        for seed, values in run.values(metric).items():
            if values:
                curves[seed] = {record["step"]: value for record, value in values}
    return curves


def paired(better: Curves, baseline: Curves, sign: int) -> Pairs:
    """Return the values of the seeds and at the steps that both norms have.

    Args:
      better: the curves of `by_seed` of one norm.
      baseline: those of the other, with at least one seed in common.
      sign: 1 if smaller values are better, -1 otherwise.
    """
    seeds = sorted(better.keys() & baseline.keys())
    curves = [curves[seed] for curves in (better, baseline) for seed in seeds]
    steps = sorted(set.intersection(*map(set, curves)))
    values = np.array([[curve[step] for step in steps] for curve in curves])
    n = len(seeds)
    return Pairs(np.array(steps), values[:n], values[n:], sign)


# A verdict is known by its claim and its data set. What both protocols share is one.
Key = tuple[Claim, str, Verdict]


def corrected(rows: Iterable[Row]) -> dict[Key, float]:
    """Return the p-value of each verdict with Holm's correction for their number."""
    judged: dict[Key, float] = {}
    for row in rows:
        for verdict in row.verdicts.values():
            if verdict.seeds >= FEWEST_SEEDS:
                judged[row.claim, row.data, verdict] = verdict.p
    values = compare.holm(list(judged.values()))
    return dict(zip(judged, values, strict=True))


# What the columns of the two kinds of claims are called.
KINDS = {"speed": "steps to the other's best", "end": "difference at the end"}
HEAD = (
    "",
    "compared",
    "metric",
    "the paper",
    *(
        f"{protocol}: {what}"
        for protocol in PROTOCOLS
        for what in ("rates", *KINDS.values())
    ),
    "seeds",
    "data",
)


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the cells of the table, in the order of `HEAD`.

    The two kinds of claims about a pair of norms stand in one row of it.
    """
    p_values = corrected(rows)
    together = collections.defaultdict(dict)
    for row in rows:
        key = row.claim._replace(kind="", paper=""), row.data
        together[key][row.claim.kind] = row
    return [_cells(of_kind, p_values) for of_kind in together.values()]


def _cells(of_kind, p_values):
    """Return the cells of {kind: row}."""
    first = next(iter(of_kind.values()))
    claim, data = first.claim, first.data
    papers = dict.fromkeys(row.claim.paper for row in of_kind.values())
    found = [claim.part, f"{claim.better} against {claim.baseline}"]
    found += [metric(first), "; ".join(papers)]
    seeds = []
    for protocol in PROTOCOLS:
        verdict = first.verdicts.get(protocol)
        if verdict is None:
            found += ["", *("not run" if kind in of_kind else "" for kind in KINDS)]
            continue
        rates = [f"{rate:g}" if rate else "?" for rate in verdict.rates]
        found.append(rates[0] if rates[0] == rates[1] else ", ".join(rates))
        for kind in KINDS:
            row = of_kind.get(kind)
            found.append(_cell(row, row.verdicts[protocol], p_values) if row else "")
        note = f", {verdict.diverged} diverged" if verdict.diverged else ""
        seeds.append(f"{verdict.seeds}{note}")
    # Most often both protocols have the same seeds.
    return (*found, "; ".join(dict.fromkeys(seeds)), data)


def _cell(row, verdict, p_values):
    word = verdict.word
    # An interval that leaves a claim open needs no second test.
    if word != OPEN and p_values[row.claim, row.data, verdict] > LEVEL:
        word += " *"
    return f"{word}: {number(verdict, row.claim.kind)}"


def metric(row: Row) -> str:
    """Return the name of a row's metric."""
    return row.claim.metric.format(data=row.data.partition(" ")[0])


def quantity(row: Row) -> str:
    """Return what a row's number is."""
    return f"{metric(row)}, {KINDS[row.claim.kind]}"


def number(verdict: Verdict, kind: str) -> str:
    """Return a verdict's number with its interval, as text.

    Args:
      verdict: the verdict.
      kind: that of its claim.
    """
    if verdict.unfinished:
        return f"all runs of {' and '.join(verdict.unfinished)} diverged"
    if not verdict.seeds:
        return "no seed in common"
    text = _number(verdict.value, kind)
    if verdict.seeds >= FEWEST_SEEDS:
        text += f" ({_number(verdict.low, kind)} to {_number(verdict.high, kind)})"
    return text


def _number(value, kind):
    if np.isinf(value):
        return "never"
    return f"{100 * value:.0f} %" if kind == "speed" else f"{value:+.3g}"


def notes(rows: Sequence[Row]) -> list[str]:
    """Return what stands below the table, and a sentence for each disagreement."""
    n = len(corrected(rows))
    text = (
        "Rates: those of the two norms, one number where they are equal. tuned: each "
        f"norm has its own best rate. same_rate: both have {SAME_RATE:g}, or the one "
        "rate of their sweep. Intervals: paired bootstrap over seeds, with expanded "
        f"percentiles. {n} comparisons; *: a paired t-test does not reject equality at "
        f"{LEVEL:g} after Holm's correction for {n}. Only finished runs count."
    )
    return [text, *disagreements(rows)]


def disagreements(rows: Iterable[Row]) -> list[str]:
    """Return a sentence for each claim whose verdict depends on the protocol."""
    tuned_name, same_name = PROTOCOLS
    found = []
    for row in rows:
        tuned, same = map(row.verdicts.get, PROTOCOLS)
        if not (tuned and same) or tuned.word == same.word:
            continue
        if min(tuned.seeds, same.seeds) < FEWEST_SEEDS:
            continue
        ends = []
        for i, norm in enumerate(tuned.norms):
            if tuned.rates[i] != same.rates[i]:
                ends.append(
                    f"{norm} ends at {tuned.ends[i]:.4g} with {tuned.rates[i]:g} and "
                    f"at {same.ends[i]:.4g} with {same.rates[i]:g}"
                )
        found.append(
            f"{row.claim.part}, {row.claim.better} against {row.claim.baseline}, "
            f"{quantity(row)}: {tuned.word} under {tuned_name}, {same.word} under "
            f"{same_name}. The rates decide: {'; '.join(ends)}."
        )
    return found


def sentences(rows: Iterable[Row]) -> list[str]:
    """Return a sentence for each row and protocol, for below a figure."""
    found = []
    for row in rows:
        for protocol, verdict in row.verdicts.items():
            n_seeds = "1 seed" if verdict.seeds == 1 else f"{verdict.seeds} seeds"
            found.append(
                f"{row.claim.part}, {row.claim.better} against {row.claim.baseline}, "
                f"{quantity(row)}: {number(verdict, row.claim.kind)} ({protocol}, "
                f"{row.data}, {n_seeds})."
            )
    return found


def markdown(rows: Sequence[Row]) -> str:
    """Return the verdicts as a table in Markdown, with its notes."""
    text, *others = notes(rows)
    lines = [md.table(HEAD, cells(rows)), "", text, ""]
    lines += [f"- {sentence}" for sentence in others]
    return "\n".join(lines).rstrip() + "\n"


def main(argv: Sequence[str]) -> None:
    """Write the verdicts about runs into a page.

    Raises:
      UserError: a wrong flag, a path without runs, or a page without the lines.
    """
    parser = Parser(prog="python -m scripts.paper.verdicts", description=__doc__)
    add = parser.add_argument
    add("runs", nargs="+", type=pathlib.Path, help="as scripts/figures.py takes them")
    add("--into", required=True, type=pathlib.Path, metavar="PAGE")
    args = parser.parse_args(argv)
    rows = of_runs(find(args.runs), CLAIMS)
    page_sections.write(args.into, "scripts.paper.verdicts", markdown(rows))
    print(f"{len(rows)} verdicts are in {args.into}")


if __name__ == "__main__":
    ended(main, "writing verdicts")
