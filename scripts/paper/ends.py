"""Where each norm ends: means over the seeds of the last tenth of the evaluations."""

import collections
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from scripts.paper import compare, verdicts
from scripts.paper.claims import CLAIMS, TRANSFER, Claim
from scripts.paper.records import RecordedRun, difference
from scripts.paper.verdicts import Verdict

# The norm that the others are compared with.
BASELINE = "none"


class End(NamedTuple):
    """The end of the runs of a norm with the same settings.

    Attributes:
      norm: the norm.
      rate: the learning rate.
      seeds: number of runs that ended.
      diverged: how many of them diverged; the numbers below leave them out.
      mean: the mean over the seeds.
      deviation: the standard deviation over the seeds; None for one seed.
    """

    norm: str
    rate: float | None
    seeds: int
    diverged: int
    mean: float
    deviation: float | None

    @property
    def text(self) -> str:
        """Mean and deviation, and how many runs diverged."""
        note = f", {self.diverged} diverged" if self.diverged else ""
        if not self.deviation:
            return f"{self.mean:.4g}{note}"
        # Two digits of the deviation, and the mean with as many decimals.
        decimals = max(0, 1 - math.floor(math.log10(self.deviation)))
        return f"{self.mean:.{decimals}f} +- {self.deviation:.{decimals}f}{note}"


def of_metric(
    metric: str, runs: Iterable[RecordedRun], sign: int
) -> Iterator[tuple[str, End, Verdict | None]]:
    """Yield the end of each norm and setting in a metric.

    Args:
      metric: its name.
      runs: the runs; those that have not ended are left out.
      sign: 1 if small values are better, -1 otherwise.

    Yields:
      The settings in which other runs differ, as text; the end; and the verdict
      against `BASELINE` with the same settings, None where there is no seed of both.
    """

    def curve(run):
        return run.curve(metric)

    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        if run.ended:
            data = "data", run.data
            groups[data, *run.settings()][run.config.norm].append(run)
    settings = {own: difference(own, groups) for own in groups}
    for own in sorted(groups, key=settings.__getitem__):
        of_norm = groups[own]
        curves = {norm: compare.by_seed(of, curve) for norm, of in of_norm.items()}
        baseline = curves.get(BASELINE, {})
        for norm in sorted(curves, key=lambda norm: (norm != BASELINE, norm)):
            against = None
            if norm != BASELINE and curves[norm].keys() & baseline.keys():
                against = verdicts.of_pairs(curves[norm], baseline, sign)
            if end := _end(of_norm[norm], curves[norm]):
                yield settings[own], end, against


def _end(runs, curves) -> End | None:
    """Return the end of runs of a norm, None where none of them has finished."""
    finite = {seed: curve for seed, curve in curves.items() if curve}
    if not finite:
        return None
    values = compare.of_seeds(compare.paired(finite, finite, 1).better)
    deviation = values.std(ddof=1) if len(values) > 1 else None
    n_diverged = len(curves) - len(finite)
    norm, rate = runs[0].config.norm, runs[0].rate
    mean = float(values.mean())
    return End(norm, rate, len(curves), n_diverged, mean, deviation)


def by_rate(
    runs: Iterable[RecordedRun],
) -> dict[tuple[Claim, str, int, str], list[End]]:
    """Return the ends of each learning rate, the best first.

    The keys are the claim whose metric is compared, the data set, the number of steps
    and the norm. A rate at which runs diverge comes after those at which fewer do.

    Args:
      runs: the runs; those that have not ended are left out.
    """
    claims = [TRANSFER, *CLAIMS]
    groups = collections.defaultdict(list)
    for run in runs:
        about = [claim for claim in claims if claim.is_about(run)]
        if about and run.ended:
            norm = run.config.norm
            groups[about[0], run.data, run.length, norm, run.rate].append(run)
    found = collections.defaultdict(list)
    for (claim, *of_norm, _), own in groups.items():
        if end := _end(own, compare.by_seed(own, claim.curve)):
            found[claim, *of_norm].append(end)
    for (claim, *_), ends in found.items():
        ends.sort(key=lambda end: (end.diverged, claim.sign * end.mean))
    return found
