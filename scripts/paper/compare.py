"""How soon one norm reaches what another one has, and how far apart they end.

The one definition of a speed-up: of the means of both norms over the seeds, evaluation
by evaluation, the first step at which each is at or better than the worse of their two
best values.

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
# {step: value}
Curve = Mapping[int, float]
# {seed: curve}; the curve of a run that diverged is empty.
Curves = Mapping[int, Curve]


def by_seed(
    runs: Iterable[RecordedRun], curve: Callable[[RecordedRun], Curve]
) -> Curves:
    """Return the curves of runs that are seeds of one another.

    Args:
      runs: runs that have ended.
      curve: what returns the values of a run.

    Raises:
      ValueError: two runs have one seed, so that they have other settings.
    """
    curves = {}
    for run in runs:
        if run.seed in curves:
            raise ValueError(f"{run.folder}: another run has seed {run.seed}")
        values = {} if run.diverged else curve(run)
        if values or run.diverged:
            curves[run.seed] = values
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


def paired(better: Curves, baseline: Curves, sign: int) -> Pairs:
    """Return the values of the seeds and the steps that both norms have.

    A run that diverged has the worst value of all runs at every evaluation, so that it
    is the worst of its pair. There is no step where all runs diverged. An evaluation
    before the first step says nothing about a norm, and is left out.

    Args:
      better: the curves of one norm.
      baseline: those of the other.
      sign: 1 if smaller values are better, -1 otherwise.
    """
    seeds = sorted(better.keys() & baseline.keys())
    curves = [curves[seed] for curves in (better, baseline) for seed in seeds]
    finite = [curve for curve in curves if curve]
    steps = sorted(set.intersection(*map(set, finite)) - {0}) if finite else []
    worst = sign * max((sign * c[step] for c in finite for step in steps), default=0)
    # It is reached at the last step only: a norm whose runs all diverge is not fast.
    late = sign * 1e-9 * (abs(worst) or 1) * np.arange(len(steps))[::-1]
    values = [[c[step] for step in steps] if c else worst + late for c in curves]
    n = len(seeds)
    shape = 2 * n, len(steps)
    better_values, baseline_values = np.split(np.reshape(values, shape), 2)
    return Pairs(np.array(steps), better_values, baseline_values, sign)


def speed(pairs: Pairs) -> float:
    """Return the steps of the first norm as a share of the other's.

    Both are counted until the worse of the two best means is reached. Pairs without a
    step have no speed, and no end.
    """
    # [T], so that less is better.
    ours = pairs.sign * pairs.better.mean(0)
    theirs = pairs.sign * pairs.baseline.mean(0)
    goal = max(ours.min(), theirs.min())
    first, other = (pairs.steps[(mean <= goal).argmax()] for mean in (ours, theirs))
    return float(first / other)


def log_speed(pairs: Pairs) -> float:
    """Return the logarithm of `speed`, which changes its sign with the norms."""
    return float(np.log(speed(pairs)))


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
    """Return the two-sided p-value of the exact permutation test of paired seeds.

    If the norms do not differ, the two curves of a pair can be exchanged. The curves
    are swapped within the pairs in all 2^S ways; the p-value is the share of them in
    which the quantity is at least as far from zero. It is 1 for pairs without a step,
    which nothing tells apart.

    Args:
      quantity: `log_speed` or `end`. It changes its sign where all pairs are swapped.
      pairs: the values.
    """
    if not len(pairs.steps):
        return 1.0
    curves = np.concatenate([pairs.better, pairs.baseline])

    def of_rows(ours, theirs):
        swapped = pairs._replace(better=curves[ours], baseline=curves[theirs])
        return abs(quantity(swapped))

    test = stats.permutation_test(
        np.split(np.arange(len(curves)), 2),
        of_rows,
        permutation_type="samples",
        vectorized=False,
        n_resamples=np.inf,
    )
    # Values that differ by rounding only are equal. SciPy's tolerance is too small for
    # means whose difference is far smaller than they are.
    least = test.statistic * (1 - 1e-9)
    return float(np.mean(test.null_distribution >= least))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values with Holm's correction for their number (Holm 1979)."""
    corrected, largest = list(p_values), 0.0
    for place, index in enumerate(np.argsort(p_values)):
        largest = max(largest, (len(p_values) - place) * p_values[index])
        corrected[index] = min(1.0, largest)
    return corrected
