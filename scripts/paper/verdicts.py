"""How norms compare in the runs, and the answers to the questions of the plan.

Every claim compares two norms in two numbers of `scripts.paper.compare`: how soon the
first reaches the other's best value, and how far apart they end. An answer is about one
of them. It adds the exact test, for the questions and the seeds of
`scripts.paper.claims.PLAN` only.

Runs are seeds of one another where their settings and their number of steps are equal.
Both norms are compared at the same settings, number of steps and seeds. Only the
learning rates may differ, as `scripts.paper.protocols` says. Of several such
comparisons, a claim takes the one with constant learning rates, then the one with the
most seeds, then the longest, then the one that was found first. The other runs, such as
those that tried learning rates, are left out. Runs with the rate and the length of a
comparison that are not in it are refused.
"""

import collections
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from lnrepro.errors import UserError
from lnrepro.sweeps import PROTOCOLS
from scripts.paper import compare, protocols
from scripts.paper.axes import FIGURES
from scripts.paper.claims import LEVEL, PLAN, SEEDS, Claim, Question
from scripts.paper.compare import Curves, Pairs
from scripts.paper.records import RATE, RecordedRun, difference

# With fewer seeds an interval says nothing.
FEWEST_SEEDS = 3
# {name of a number: its function}.
NUMBERS = {"speed": compare.speed, "end": compare.end}
# {name of a number: its factor, format and unit}.
FORMS = {"speed": (100, ".0f", " %"), "end": (1, "+.2g", "")}
# {name of a number: the function that is tested}.
TESTED = {"speed": compare.log_speed, "end": compare.end}
# The data of the paper, by the experiment. It names none for the ConvNets.
PAPER_DATA = {figure.experiment: figure.paper_data for figure in FIGURES.values()}
NAN = float("nan")


class Number(NamedTuple):
    """A number with its interval.

    Attributes:
      value: the number; NaN where all runs diverged, or no seed ended with both norms.
      low: lower end of its interval; NaN where there are fewer than `FEWEST_SEEDS`.
      high: upper end of its interval.
    """

    value: float = NAN
    low: float = NAN
    high: float = NAN

    def text(self, name: str) -> str:
        """Return it as text.

        Args:
          name: the one of `NUMBERS` that it is.
        """
        factor, form, unit = FORMS[name]
        value, low, high = (f"{factor * x:{form}}" for x in self)
        interval = "" if math.isnan(self.low) else f" ({low} to {high})"
        return f"{value}{unit}{interval}"


class Verdict(NamedTuple):
    """How two norms compare, under a protocol.

    Attributes:
      pairs: the values of both norms in the seeds that ended with both.
      numbers: {name: number}, of `NUMBERS`.
      rates: the learning rates of the better norm and the baseline.
      diverged: number of runs of both that ended in values that are not finite. Each is
        the worst of its pair.
    """

    pairs: Pairs
    numbers: Mapping[str, Number]
    rates: tuple[float | None, ...] = ()
    diverged: int = 0

    @property
    def seeds(self) -> int:
        """Number of seeds that ended with both norms."""
        return len(self.pairs.better)


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


class Answer(NamedTuple):
    """The answer to a question of the plan under a protocol.

    Attributes:
      question: the question.
      verdict: its numbers, of the seeds of the plan; those of no seed where there are
        no runs.
      p: the p-value after Holm's correction; 1 before the last pair.
      is_proxy: whether the data is not the paper's.
    """

    question: Question
    verdict: Verdict
    p: float
    is_proxy: bool

    @property
    def number(self) -> Number | None:
        """What the question is about; None before the last pair."""
        if self.verdict.seeds < len(SEEDS):
            return None
        return self.verdict.numbers[self.question.number]

    @property
    def data_note(self) -> str:
        """What stands behind an answer from data that is not the paper's."""
        return ", on other data" if self.number and self.is_proxy else ""

    @property
    def word(self) -> str:
        """Reproduced, contradicted, open or not finished."""
        if not self.number:
            return "not finished"
        if self.p > LEVEL:
            return "open"
        agrees = self.number.value * self.question.claim.sign < 0
        if self.question.number == "speed":
            agrees = self.number.value < 1
        return "reproduced" if agrees else "contradicted"


def of_runs(runs: Sequence[RecordedRun], claims: Iterable[Claim]) -> list[Row]:
    """Return the verdicts about all claims that the runs have both norms for.

    Args:
      runs: the runs. Those that have neither finished nor diverged are left out.
      claims: the claims.

    Raises:
      UserError: a seed would be left out of a comparison.
    """
    rows = []
    for claim in claims:
        about = [run for run in runs if run.ended and claim.is_about(run)]
        # Runs with the same settings may have other evaluations.
        about = [run for run in about if run.diverged or claim.curve(run)]
        for data in sorted({run.data for run in about}):
            own, found = [run for run in about if run.data == data], {}
            for protocol in PROTOCOLS:
                if chosen := _chosen(claim, own, protocol):
                    curves = [compare.by_seed(norm, claim.curve) for norm in chosen]
                    found[protocol] = of_pairs(*curves, claim.sign)._replace(
                        rates=tuple(norm[0].rate for norm in chosen),
                        diverged=sum(run.diverged for norm in chosen for run in norm),
                    )
            if found:
                rows.append(Row(claim, data, found))
    return rows


def answers(runs: Iterable[RecordedRun]) -> dict[str, list[Answer]]:
    """Return the answers to all questions, {protocol: answers in the plan's order}.

    Args:
      runs: the runs; only those with the seeds of the plan are looked at.

    Raises:
      UserError: a seed would be left out of a comparison, or a question has runs on
        several data sets.
    """
    fresh = [run for run in runs if run.seed in SEEDS]
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
            # A question that has not all of its pairs counts with p = 1.
            data, p = PAPER_DATA[question.claim.experiment], 1.0
            row = rows.get(question.claim, Row(question.claim, data, {}))
            verdict = row.verdicts.get(protocol, of_pairs({}, {}, 1))
            if verdict.seeds == len(SEEDS):
                p = compare.p_value(TESTED[question.number], verdict.pairs)
            answers.append(Answer(question, verdict, p, row.data != data))
        corrected = compare.holm([answer.p for answer in answers])
        pairs = zip(answers, corrected, strict=True)
        found[protocol] = [answer._replace(p=p) for answer, p in pairs]
    return found


def _chosen(claim, runs, protocol):
    """Return (runs of the better norm, runs of the baseline) that count, or ().

    Constant learning rates come before decaying ones, then the number of seeds of the
    norm with fewer, then the length.

    Raises:
      UserError: runs with the same rate and length are in none or in another one.
    """
    runs = [run for run in runs if protocols.belongs(run, protocol)]
    # {what both norms share: {norm: seeds}}.
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        # Each norm has a rate of its own.
        apart = RATE if protocol == protocols.TUNED else ""
        groups[run.settings(but=apart)][run.norm].append(run)
    pairs = [(of[claim.better], of[claim.baseline]) for of in groups.values()]

    def size(pair):
        *_, length, decay = _kind(pair[0][0])
        return decay is None, min(map(len, pair)), length

    chosen = max(filter(all, pairs), key=size, default=())
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
    decay = run.config.get("optimizer", {}).get("decay")
    return run.norm, run.rate, run.length, decay


def of_pairs(better: Curves, baseline: Curves, sign: int) -> Verdict:
    """Return how two norms compare in the seeds that both have.

    Args:
      better: the curves of one norm.
      baseline: those of the other.
      sign: 1 if smaller values are better, -1 otherwise.
    """
    pairs = compare.paired(better, baseline, sign)
    return Verdict(pairs, {name: measured(f, pairs) for name, f in NUMBERS.items()})


def measured(quantity: Callable[[Pairs], float], pairs: Pairs) -> Number:
    """Return a quantity with its interval.

    Args:
      quantity: such as `compare.speed`.
      pairs: the values of both norms; where there is none, the number is NaN.
    """
    if not len(pairs.steps):
        return Number()
    if len(pairs.better) < FEWEST_SEEDS:
        return Number(quantity(pairs))
    return Number(quantity(pairs), *compare.interval(quantity, pairs))
