"""Where each norm ends: means over the seeds of the last tenth of the evaluations."""

import collections
import math
from collections.abc import Iterable
from typing import NamedTuple

from scripts import markdown as md
from scripts.paper import compare, tables, verdicts
from scripts.paper.claims import CLAIMS, TRANSFER, Claim
from scripts.paper.records import RATE, RecordedRun, Settings, difference

# The norm that the others are compared with.
BASELINE = "none"


class End(NamedTuple):
    """The end of the runs of a norm with the same settings.

    Attributes:
      rate: the learning rate.
      seeds: number of runs that ended.
      diverged: how many of them diverged; the numbers below leave them out.
      mean: the mean over the seeds.
      deviation: the standard deviation over the seeds; 0 for one seed.
    """

    rate: float | None
    seeds: int
    diverged: int
    mean: float
    deviation: float

    @property
    def text(self) -> str:
        """Mean and deviation, and how many runs diverged."""
        note = f", {self.diverged} diverged" if self.diverged else ""
        if not self.deviation:
            return f"{self.mean:.4g}{note}"
        # Two digits of the deviation, and the mean with as many decimals.
        decimals = max(0, 1 - math.floor(math.log10(self.deviation)))
        return f"{self.mean:.{decimals}f} +- {self.deviation:.{decimals}f}{note}"


def _end(runs, curves) -> End | None:
    """Return the end of runs of a norm, None where none of them has finished."""
    finite = {seed: curve for seed, curve in curves.items() if curve}
    if not finite:
        return None
    values = compare.of_seeds(compare.paired(finite, finite, 1).better)
    deviation = values.std(ddof=1) if len(values) > 1 else 0.0
    diverged = len(curves) - len(finite)
    return End(runs[0].rate, len(curves), diverged, float(values.mean()), deviation)


def of_metric(metric: str, runs: Iterable[RecordedRun], sign: int) -> str:
    """Return the end of each norm, beside that of `BASELINE` at the same settings.

    An end is the mean and the standard deviation over seeds of the last tenth of the
    evaluations. The settings are those in which other runs differ.

    Args:
      metric: name of the metric.
      runs: the runs that have recorded it; those that have not ended are left out.
      sign: 1 if small values are better, -1 otherwise.
    """

    def curve(run):
        return run.curve(metric)

    def order(row):
        settings, norm, *_ = row
        return settings, norm != BASELINE, norm

    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        if run.ended:
            data = "data", run.data
            groups[data, *run.settings()][run.norm].append(run)
    rows = []
    for own, of_norm in groups.items():
        curves = {norm: compare.by_seed(of, curve) for norm, of in of_norm.items()}
        baseline = curves.get(BASELINE, {})
        for norm, found in curves.items():
            against = None
            if norm != BASELINE and found.keys() & baseline.keys():
                against = verdicts.of_pairs(found, baseline, sign)
            numbers = [tables.number(against, name) for name in verdicts.NUMBERS]
            if end := _end(of_norm[norm], found):
                about = difference(own, groups), norm, end.seeds, end.text
                rows.append((*about, *numbers))
    head = "settings", "norm", "seeds", "end", f"steps to {BASELINE}'s best"
    return md.table((*head, f"end minus {BASELINE}'s"), sorted(rows, key=order))


def by_rate(
    runs: Iterable[RecordedRun],
) -> dict[tuple[Claim, str, str, Settings], list[End]]:
    """Return the ends of each learning rate, the best first.

    The keys are the claim whose metric is compared, the data set, the norm, and the
    settings without the rate. A rate at which runs diverge comes after those at which
    fewer do.

    Args:
      runs: the runs; those that have not ended are left out.
    """
    groups = collections.defaultdict(list)
    for run in runs:
        about = [claim for claim in (TRANSFER, *CLAIMS) if claim.is_about(run)]
        if about and run.ended:
            own = run.data, run.norm, run.settings(but=RATE)
            groups[about[0], *own, run.rate].append(run)
    found = collections.defaultdict(list)
    for (claim, *of_norm, _), own in groups.items():
        if end := _end(own, compare.by_seed(own, claim.curve)):
            found[claim, *of_norm].append(end)
    for (claim, *_), ends in found.items():
        ends.sort(key=lambda end: (end.diverged, claim.sign * end.mean))
    return found


def rates(runs: Iterable[RecordedRun]) -> str:
    """Return the learning rates of each norm, the best first, with where they end.

    Runs of the same settings are compared, in the metric of the plan's question. The
    settings are those in which other runs on the data differ.

    Args:
      runs: the runs, such as those of a sweep over rates.
    """
    rows, found = [], by_rate(runs)
    for (claim, data, norm, own), ends in found.items():
        others = [of for *about, _, of in found if about == [claim, data]]
        texts = [f"{end.rate:g} ({end.text})" for end in ends]
        settings = difference(own, others)
        about = claim.experiment, data, settings, norm, claim.quantity
        rows.append((*about, "; ".join(texts)))
    head = ("experiment", "data", "settings", "norm", "metric", "rates, the best first")
    return md.table(head, sorted(rows))
