"""How soon one norm reaches what another one has, and how far apart they end.

The one definition of a speed-up: the mean over the seeds, evaluation by evaluation, of
the first norm; the first step at which it is at or better than the best such mean of
the other.

Both norms are compared seed by seed, since runs of one seed share their batches. Shape
letters: S seeds, T evaluations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from scripts.paper.records import RecordedRun

RESAMPLES = 10_000
# The end of a run is the mean over this fraction of its evaluations.
END = 0.1
# {seed: {step: value}}
Curves = Mapping[int, Mapping[int, float]]


def by_seed(runs: Iterable[RecordedRun], metric: str) -> Curves:
    """Return the values of a metric in runs that are seeds of one another."""
    curves = {}
    for run in runs:
        if values := run.values(metric):
            curves[run.config.seed] = {record["step"]: y for record, y in values}
    return curves


class Pairs(NamedTuple):
    """Values of two norms with the same seeds at the same steps.

    Attributes:
      steps: [T].
      better: [S, T], the norm that is claimed to be better.
      baseline: [S, T], the other one.
      sign: 1 if smaller values are better, -1 otherwise.
    """

    steps: np.ndarray
    better: np.ndarray
    baseline: np.ndarray
    sign: int

    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of each norm over the seeds, [T], so that less is better."""
        return self.sign * self.better.mean(0), self.sign * self.baseline.mean(0)

    def best(self) -> int:
        """Return where the mean of the baseline is best."""
        return int(np.argmin(self.means()[1]))


def paired(better: Curves, baseline: Curves, sign: int) -> Pairs:
    """Return the values of the seeds, one at least, and the steps that both norms have.

    Args:
      better: the curves of one norm.
      baseline: those of the other.
      sign: 1 if smaller values are better, -1 otherwise.
    """
    seeds = sorted(better.keys() & baseline.keys())
    curves = [curves[seed] for curves in (better, baseline) for seed in seeds]
    steps = sorted(set.intersection(*map(set, curves)))
    values = np.array([[curve[step] for step in steps] for curve in curves])
    n = len(seeds)
    return Pairs(np.array(steps), values[:n], values[n:], sign)


def speed(pairs: Pairs) -> float:
    """Return when the first norm reaches the best that the other has.

    It is a share of the other's steps, and infinite where that is never reached.
    """
    ours, theirs = pairs.means()
    best = pairs.best()
    reached = ours <= theirs[best]
    if not reached.any():
        return np.inf
    return float(pairs.steps[reached.argmax()] / pairs.steps[best])


def end(pairs: Pairs) -> float:
    """Return the mean of the first norm at the end minus that of the other."""
    return float(of_seeds(pairs.better - pairs.baseline).mean())


def of_seeds(values: np.ndarray) -> np.ndarray:
    """Return the end of each seed, [S], of values [S, T]."""
    n = max(1, round(END * values.shape[1]))
    return values[:, -n:].mean(1)


def interval(quantity: Callable[[Pairs], float], pairs: Pairs) -> tuple[float, float]:
    """Return the 95 % interval of a quantity by the paired bootstrap.

    Seeds are drawn with replacement, the same ones for both norms, and the quantity is
    computed again. Of few seeds, the middle 95 % of these values are too narrow: of
    five normal ones they hold the true mean in 84 % of the cases. So the percentiles
    are expanded until a mean's interval is as wide as Student's (Hesterberg 2015, What
    Teachers Should Know About the Bootstrap, section 5.3). It then holds it in 93 %.
    `scipy.stats.bootstrap` interpolates between values, of which some are infinite.

    Args:
      quantity: `speed` or `end`.
      pairs: the values of at least two seeds.
    """
    n = len(pairs.better)
    draws = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    # The quantities depend on which seeds were drawn, not on their order. Few seeds
    # give few different draws.
    draws, counts = np.unique(np.sort(draws), axis=0, return_counts=True)
    values = []
    for rows in draws:
        drawn = pairs._replace(better=pairs.better[rows], baseline=pairs.baseline[rows])
        values.append(quantity(drawn))
    tail = stats.norm.cdf(np.sqrt(n / (n - 1)) * stats.t.ppf(0.025, n - 1))
    values = np.repeat(values, counts)
    low, high = np.quantile(values, (tail, 1 - tail), method="inverted_cdf")
    return float(low), float(high)


def p_value(quantity: Callable[[Pairs], float], pairs: Pairs) -> float:
    """Return the p-value of the paired t-test that a quantity shows no difference.

    It assumes that the differences of the seeds are normal. A permutation test assumes
    less, but with five seeds its smallest p-value is 2 / 2^5, and no correction for
    several comparisons could ever let a claim through.

    For `end` these are the differences at the end. For `speed` they are those at the
    step where the other norm is best: being ahead there is having been there sooner.
    """
    differences = pairs.better - pairs.baseline
    if quantity is end:
        differences = of_seeds(differences)
    else:
        differences = differences[:, pairs.best()]
    # The test is not defined for differences that are all equal.
    if np.allclose(differences, differences[0], rtol=1e-9, atol=0):
        return float(differences[0] == 0)
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values with Holm's correction for their number (Holm 1979)."""
    order = np.argsort(p_values)
    factors = np.arange(len(order), 0, -1)
    products = np.array(p_values)[order] * factors
    result = np.empty(len(order))
    result[order] = np.minimum(1, np.maximum.accumulate(products))
    return result.tolist()
