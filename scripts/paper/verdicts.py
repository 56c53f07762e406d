"""Whether runs support what the paper claims, with intervals over seeds.

Every claim compares two norms in one number of `scripts.paper.compare`: how soon the
first reaches the other's best value, or how far apart they end. A claim is supported
where the whole 95 % interval agrees with it, and contradicted where the whole interval
is against it, both "weakly" where the paired t-test does not reject equality after
Holm's correction for the number of verdicts. Otherwise it is open.

Runs are seeds of one another where their settings and their number of steps are equal.
Both norms are compared at the same settings, number of steps and seeds. Only the
learning rates may differ, as `scripts.paper.protocols` says. Of several such
comparisons, a claim takes the one with constant learning rates, then the one with the
most seeds, then the longest, then the one that was found first. The other runs, such as
those that tried learning rates, are left out. Runs with the rate and the length of a
comparison that are not in it are refused.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lnrepro.config import PROTOCOLS, SAME_RATE
from lnrepro.errors import UserError
from scripts import markdown as md
from scripts.paper import compare, protocols
from scripts.paper.claims import Claim
from scripts.paper.compare import Pairs
from scripts.paper.records import RecordedRun, difference

# With fewer seeds an interval says nothing.
FEWEST_SEEDS = 3
# Verdicts with a larger corrected p-value are weak.
LEVEL = 0.05
# {kind of a claim: (the function, its value where there is no difference)}.
QUANTITIES = {"speed": (compare.speed, 1.0), "end": (compare.end, 0.0)}
# {sides of no difference on which both ends of an interval are: word}.
WORDS = {(-1, -1): "supported", (1, 1): "contradicted"}
NAN = float("nan")
HEAD = ("claim", "the paper", "tuned", "same rate", "seeds", "data")


class Verdict(NamedTuple):
    """The result of a claim under a protocol.

    Attributes:
      rates: the learning rates of the better norm and the baseline.
      diverged: number of runs of both that ended in values that are not finite.
      seeds: number of seeds that finished with both norms.
      value: the number; infinite where the baseline's best is never reached.
      low: lower end of its interval; NaN where there are fewer than `FEWEST_SEEDS`.
      high: upper end of its interval.
      p: p-value of `compare.p_value`, with Holm's correction in a `Row`.
      word: supported, contradicted or open, by the interval.
      note: why there is no number.
    """

    rates: tuple[float | None, ...] = ()
    diverged: int = 0
    seeds: int = 0
    value: float = NAN
    low: float = NAN
    high: float = NAN
    p: float = NAN
    word: str = "open"
    note: str = ""

    @property
    def significant(self) -> bool:
        """Whether it is not open, and Holm's correction leaves it significant."""
        return self.word != "open" and self.p <= LEVEL


NOTHING = Verdict()


class Row(NamedTuple):
    """A claim on a data set under each protocol that was run.

    Attributes:
      claim: the claim.
      data: the data set.
      verdicts: {protocol: verdict}.
    """

    claim: Claim
    data: str
    verdicts: Mapping[str, Verdict]


def of_runs(runs: Iterable[RecordedRun], claims: Sequence[Claim]) -> list[Row]:
    """Return the verdicts about all claims that the runs have both norms for.

    Args:
      runs: the runs. Those that have neither finished nor diverged are left out.
      claims: the claims. Holm's correction is for their number.
    """
    ended = [run for run in runs if run.diverged or run.finished]
    rows = []
    for claim in claims:
        about = [run for run in ended if _has(claim, run)]
        for data in sorted({run.data for run in about}):
            verdicts = {}
            for protocol in PROTOCOLS:
                of_data = [run for run in about if run.data == data]
                own = [run for run in of_data if protocols.belongs(run, protocol)]
                pair = _chosen(claim, own, protocol)
                verdict = pair and _verdict(claim, *pair)
                if verdict:
                    verdicts[protocol] = verdict
            if verdicts:
                rows.append(Row(claim, data, verdicts))
    return _corrected(rows)


def _has(claim, run):
    # Runs with the same settings may have other evaluations.
    return claim.is_about(run) and (run.diverged or run.values(claim.metric))


def _comparisons(claim, runs, protocol):
    """Return (runs of the better norm, runs of the baseline) of all comparisons."""
    # {what both norms share: {norm: seeds}}.
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        shared = dict(run.settings())
        if protocol == protocols.TUNED:
            # Each norm has a rate of its own.
            shared.pop("optimizer.learning_rate", None)
        groups[tuple(shared.items())][run.config.norm].append(run)
    pairs = [(of[claim.better], of[claim.baseline]) for of in groups.values()]
    return [pair for pair in pairs if all(pair)]


def _chosen(claim, runs, protocol):
    """Return the comparison that counts, or None.

    Constant learning rates come before decaying ones, then the number of seeds of the
    norm with fewer, then the length.

    Raises:
      UserError: runs with the same rate and length are in none or in another one.
    """
    pairs = _comparisons(claim, runs, protocol)
    if not pairs:
        return None

    def size(pair):
        return _decay(pair[0][0]) is None, min(map(len, pair)), pair[0][0].length

    chosen = max(pairs, key=size)
    for own in chosen:
        for run in runs:
            if _kind(run) == _kind(own[0]) and run not in own:
                apart = run.settings(), own[0].settings()
                fields = difference(apart[0], apart[1:]) or difference(apart[1], apart)
                raise UserError(
                    f"{claim.comparison}: {run.folder} and {own[0].folder} are not "
                    f"alike ({fields}); give the runs of one of them"
                )
    return chosen


def _kind(run):
    return run.config.norm, run.rate, run.length, _decay(run)


def _decay(run):
    return run.config.get("optimizer", {}).get("decay")


def _verdict(claim, ours, theirs) -> Verdict | None:
    """Return the verdict about two lists of runs, None if no step is common."""
    n_diverged = sum(run.diverged for run in (*ours, *theirs))
    verdict = Verdict((ours[0].rate, theirs[0].rate), n_diverged)
    curves = {}
    for norm, runs in ((claim.better, ours), (claim.baseline, theirs)):
        finite = [run for run in runs if not run.diverged]
        curves[norm] = compare.by_seed(finite, claim.metric)
    lost = [norm for norm, of_norm in curves.items() if not of_norm]
    if lost:
        return verdict._replace(note=f"all runs of {' and '.join(lost)} diverged")
    if not set.intersection(*map(set, curves.values())):
        return verdict._replace(note="no seed in common")
    pairs = compare.paired(*curves.values(), claim.sign)
    return judged(claim.kind, pairs, verdict) if len(pairs.steps) else None


def judged(kind: str, pairs: Pairs, verdict: Verdict = NOTHING) -> Verdict:
    """Return a verdict with its numbers and its word.

    Args:
      kind: the kind of the claim.
      pairs: the values of both norms.
      verdict: the verdict without them.
    """
    quantity, equal = QUANTITIES[kind]
    n = len(pairs.better)
    verdict = verdict._replace(seeds=n, value=quantity(pairs))
    if n < FEWEST_SEEDS:
        return verdict
    low, high = compare.interval(quantity, pairs)
    # A smaller share of the steps is always better.
    sign = 1 if kind == "speed" else pairs.sign
    sides = tuple(np.sign(sign * (end - equal)) for end in (low, high))
    word = WORDS.get(sides, "open")
    p = compare.p_value(quantity, pairs)
    return verdict._replace(low=low, high=high, p=p, word=word)


def _corrected(rows):
    """Return the rows with Holm's correction of all p-values."""
    judged = compared(rows)
    values = compare.holm([verdict.p for _, _, verdict in judged])
    p_values = dict(zip(judged, values, strict=True))
    found = []
    for row in rows:
        verdicts = {}
        for protocol, verdict in row.verdicts.items():
            p = p_values.get((row.claim, row.data, verdict), NAN)
            verdicts[protocol] = verdict._replace(p=p)
        found.append(row._replace(verdicts=verdicts))
    return found


def compared(rows: Iterable[Row]) -> list[tuple[Claim, str, Verdict]]:
    """Return the verdicts with an interval; what both protocols share is one."""
    verdicts = {(r.claim, r.data, v): 0 for r in rows for v in r.verdicts.values()}
    return [key for key in verdicts if key[-1].seeds >= FEWEST_SEEDS]


def number(verdict: Verdict, kind: str) -> str:
    """Return a verdict's number with its interval, as text.

    Args:
      verdict: the verdict.
      kind: that of its claim.
    """
    if verdict.note:
        return verdict.note
    text = _number(verdict.value, kind)
    if kind == "speed" and np.isfinite(verdict.value):
        text += " %"
    if verdict.seeds >= FEWEST_SEEDS and np.isfinite(verdict.low):
        text += f" ({_number(verdict.low, kind)} to {_number(verdict.high, kind)})"
    return text


def _number(value, kind):
    if np.isinf(value):
        return "never"
    return f"{100 * value:.0f}" if kind == "speed" else f"{value:+.3g}"


def _cells(rows):
    """Return the cells of the claims of one comparison, in the order of `HEAD`."""
    seeds = []
    for row in rows:
        for verdict in row.verdicts.values():
            note = f", {verdict.diverged} diverged" if verdict.diverged else ""
            seeds.append(f"{verdict.seeds}{note}")
    results = [_cell(rows, protocol) for protocol in PROTOCOLS]
    # Most often all of them have the same seeds.
    joined = "; ".join(dict.fromkeys(seeds))
    papers = "<br>".join(dict.fromkeys(row.claim.paper for row in rows))
    return (rows[0].claim.comparison, papers, *results, joined, rows[0].data)


def _cell(rows, protocol):
    """Return the verdicts of one comparison under a protocol, a line for each."""
    rates = []
    lines = []
    for row in rows:
        verdict = row.verdicts.get(protocol)
        if verdict:
            lines.append(f"{_word(verdict)}: {number(verdict, row.claim.kind)}")
            rates = [f"{rate:g}" for rate in dict.fromkeys(verdict.rates) if rate]
    if not lines:
        return "not run"
    # Most rates are the common one.
    if rates and rates != [f"{SAME_RATE:g}"]:
        lines.append(f"lr {' and '.join(rates)}")
    return "<br>".join(lines)


def _word(verdict):
    if verdict.significant:
        return f"{verdict.word} *"
    return verdict.word if verdict.word == "open" else f"weakly {verdict.word}"


def markdown(rows: Sequence[Row]) -> str:
    """Return the verdicts as a table in Markdown, with a note below.

    It has a row for the claims that compare the same norms in the same metric.
    """
    n = len(compared(rows))
    comparisons = collections.defaultdict(list)
    for row in rows:
        comparisons[row.claim.comparison, row.data].append(row)
    note = (
        "First line: the share of the second norm's steps after which the first has "
        "the second's best value; never: it does not reach it. Second line: the end of "
        "the first minus that of the second. In brackets: 95 % interval over seeds. "
        f"*: significant after Holm's correction for {n} comparisons. weakly: the "
        "interval is on one side, but the difference is not significant. lr: the "
        f"learning rates of both norms, where they are not {SAME_RATE:g}."
    )
    return f"{md.table(HEAD, map(_cells, comparisons.values()))}\n\n{note}\n"
