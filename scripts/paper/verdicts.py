"""How norms compare in the runs, and the answers to the questions of the plan.

Every claim compares two norms in one number of `scripts.paper.compare`: how soon the
first reaches the other's best value, or how far apart they end. An answer adds the
exact test, for the questions and the seeds of `scripts.paper.claims.PLAN` only.

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

from lnrepro.config import PROTOCOLS
from lnrepro.errors import UserError
from scripts.paper import compare, protocols
from scripts.paper.axes import FIGURES
from scripts.paper.claims import LEVEL, PLAN, SEEDS, Claim, Question
from scripts.paper.compare import Pairs
from scripts.paper.records import RecordedRun, difference

# With fewer seeds an interval says nothing.
FEWEST_SEEDS = 3
# {kind of a claim: the function of its number}.
QUANTITIES = {"speed": compare.speed, "end": compare.end}
# {kind of a claim: the function that is tested}.
TESTED = {"speed": compare.log_speed, "end": compare.end}
# The data of the paper, by the experiment. It names none for the ConvNets.
PAPER_DATA = {figure.experiment: figure.paper_data for figure in FIGURES.values()}
NAN = float("nan")


class Verdict(NamedTuple):
    """A claim in numbers, under a protocol.

    Attributes:
      rates: the learning rates of the better norm and the baseline.
      seeds: number of seeds that ended with both norms.
      diverged: number of runs of both that ended in values that are not finite. Each is
        the worst of its pair.
      value: the number; NaN where all runs diverged, or no seed ended with both norms.
      low: lower end of its interval; NaN where there are fewer than `FEWEST_SEEDS`.
      high: upper end of its interval.
    """

    rates: tuple[float | None, ...] = ()
    seeds: int = 0
    diverged: int = 0
    value: float = NAN
    low: float = NAN
    high: float = NAN


class Row(NamedTuple):
    """A claim on a data set under each protocol that was run.

    Attributes:
      claim: the claim.
      data: the data set.
      verdicts: {protocol: verdict}.
      pairs: {protocol: the values of both norms}.
    """

    claim: Claim
    data: str
    verdicts: Mapping[str, Verdict]
    pairs: Mapping[str, Pairs]


class Answer(NamedTuple):
    """The answer to a question of the plan under a protocol.

    Attributes:
      question: the question.
      verdict: its numbers, of the seeds of the plan; those of no seed where there are
        no runs.
      p: the p-value after Holm's correction; None before the last pair.
      is_proxy: whether the data is not the paper's.
    """

    question: Question
    verdict: Verdict
    p: float | None
    is_proxy: bool

    @property
    def word(self) -> str:
        """Reproduced, contradicted or open."""
        if self.p is None or self.p > LEVEL:
            return "open"
        claim, value = self.question.claim, self.verdict.value
        agrees = value < 1 if claim.kind == "speed" else value * claim.sign < 0
        return "reproduced" if agrees else "contradicted"


def of_runs(runs: Iterable[RecordedRun], claims: Sequence[Claim]) -> list[Row]:
    """Return the verdicts about all claims that the runs have both norms for.

    Args:
      runs: the runs. Those that have neither finished nor diverged are left out.
      claims: the claims.

    Raises:
      UserError: a seed would be left out of a comparison.
    """
    ended, rows = [run for run in runs if run.ended], []
    for claim in claims:
        # Runs with the same settings may have other evaluations.
        about = [run for run in ended if claim.is_about(run)]
        about = [run for run in about if run.diverged or claim.curve(run)]
        for data in sorted({run.data for run in about}):
            row = Row(claim, data, {}, {})
            for protocol in PROTOCOLS:
                of_data = [run for run in about if run.data == data]
                own = [run for run in of_data if protocols.belongs(run, protocol)]
                if chosen := _chosen(claim, own, protocol):
                    curves = [compare.by_seed(norm, claim.curve) for norm in chosen]
                    row.pairs[protocol] = compare.paired(*curves, claim.sign)
                    numbers = judged(claim.kind, row.pairs[protocol])
                    row.verdicts[protocol] = numbers._replace(
                        rates=tuple(norm[0].rate for norm in chosen),
                        diverged=sum(run.diverged for norm in chosen for run in norm),
                    )
            if row.verdicts:
                rows.append(row)
    return rows


def answers(runs: Iterable[RecordedRun]) -> dict[str, list[Answer]]:
    """Return the answers to all questions, {protocol: answers in the plan's order}.

    Args:
      runs: the runs; only those with the seeds of the plan are looked at.

    Raises:
      UserError: a seed would be left out of a comparison, or a question has runs on
        several data sets.
    """
    fresh = [run for run in runs if run.config.seed in SEEDS]
    rows = {}
    for row in of_runs(fresh, [question.claim for question in PLAN]):
        if row.claim in rows:
            raise UserError(
                f"{row.claim.comparison}: give the runs on {row.data} alone"
            )
        rows[row.claim] = row
    found = {}
    for protocol in PROTOCOLS:
        answers = []
        for question in PLAN:
            claim, p = question.claim, None
            row = rows.get(claim, Row(claim, PAPER_DATA[claim.experiment], {}, {}))
            verdict = row.verdicts.get(protocol, Verdict())
            if verdict.seeds == len(SEEDS):
                p = compare.p_value(TESTED[claim.kind], row.pairs[protocol])
            is_proxy = row.data != PAPER_DATA[claim.experiment]
            answers.append(Answer(question, verdict, p, is_proxy))
        # A question that has not all of its pairs counts with p = 1.
        corrected = compare.holm([1 if a.p is None else a.p for a in answers])
        found[protocol] = [
            answer if answer.p is None else answer._replace(p=p)
            for answer, p in zip(answers, corrected, strict=True)
        ]
    return found


def _chosen(claim, runs, protocol):
    """Return (runs of the better norm, runs of the baseline) that count, or None.

    Constant learning rates come before decaying ones, then the number of seeds of the
    norm with fewer, then the length.

    Raises:
      UserError: runs with the same rate and length are in none or in another one.
    """
    # {what both norms share: {norm: seeds}}.
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        shared = dict(run.settings())
        if protocol == protocols.TUNED:
            # Each norm has a rate of its own.
            shared.pop("optimizer.learning_rate", None)
        groups[tuple(shared.items())][run.config.norm].append(run)
    pairs = [(of[claim.better], of[claim.baseline]) for of in groups.values()]
    pairs = [pair for pair in pairs if all(pair)]
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


def judged(kind: str, pairs: Pairs) -> Verdict:
    """Return the numbers of a verdict.

    Args:
      kind: the kind of the claim.
      pairs: the values of both norms; where there is none, the verdict has no number.
    """
    seeds = len(pairs.better)
    if not (seeds and len(pairs.steps)):
        return Verdict(seeds=seeds)
    quantity = QUANTITIES[kind]
    verdict = Verdict(seeds=seeds, value=quantity(pairs))
    if seeds < FEWEST_SEEDS:
        return verdict
    low, high = compare.interval(quantity, pairs)
    return verdict._replace(low=low, high=high)
