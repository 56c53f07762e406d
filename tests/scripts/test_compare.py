"""scripts/paper/compare.py: speed, end, intervals and p-values of paired seeds."""

import numpy as np
import pytest
from scipy import stats

from scripts.paper import compare
from scripts.paper.compare import Pairs

STEPS = np.arange(1, 11) * 100
# Both fall below 1.1. The first takes half of the steps.
FAST = np.maximum(0.5, 11.0 - STEPS / 50)
SLOW = 11.0 - STEPS / 100


def seeds(curve, n=5, spread=0.0, rng=1):
    return curve + np.random.default_rng(rng).normal(0, spread, (n, 1))


def pairs(better, baseline, sign=1, steps=STEPS):
    return Pairs(steps, better, baseline, sign)


def test_speed_is_the_share_of_the_steps_to_the_worse_of_the_best_means():
    assert compare.speed(pairs(seeds(FAST), seeds(SLOW))) == 0.5
    # The other way round, the goal is 1, which FAST has after 500 steps.
    fast = np.maximum(FAST, 1.0)
    assert compare.speed(pairs(seeds(SLOW), seeds(fast))) == 2.0
    # FAST + 3 does not reach the best of SLOW: SLOW has 3.5 after 750 steps.
    assert compare.speed(pairs(seeds(FAST + 3), seeds(SLOW))) == 600 / 800
    # Of what grows it is that of what falls.
    a, b = seeds(FAST, spread=0.1), seeds(SLOW, spread=0.1, rng=2)
    assert compare.speed(pairs(-a, -b, -1)) == compare.speed(pairs(a, b))


def test_a_run_that_diverged_is_the_worst_of_its_pair():
    """Of ten seeds, and where all runs of a norm diverge."""
    for sign in (1, -1):
        good = {seed: {1: 3.0 * sign, 2: 2.0 * sign, 3: 1.0 * sign} for seed in (0, 1)}
        found = compare.paired({0: good[0], 1: {}}, good, sign)
        np.testing.assert_allclose(found.better[1], [3.0 * sign] * 3)
        assert compare.end(found) * sign > 0
        lost = compare.paired({0: {}, 1: {}}, good, sign)
        # It needs all three steps for what the other has at once.
        assert compare.speed(lost) == 3.0


def test_what_tells_nothing_about_norms():
    """An evaluation before the first step, and runs that all diverged."""
    curves = {seed: {0: 1.0, 10: 3.0, 20: 2.0, 30: 1.0} for seed in (0, 1)}
    np.testing.assert_array_equal(compare.paired(curves, curves, 1).steps, [10, 20, 30])
    lost = compare.paired({0: {}, 1: {}}, {0: {}, 1: {}}, 1)
    assert lost.better.shape == lost.baseline.shape == (2, 0)
    assert compare.p_value(compare.end, lost) == 1.0


def test_end_is_the_difference_of_the_means_over_the_last_tenth():
    a, b = np.zeros((2, 20)), np.zeros((2, 20))
    a[:, -2:] = [[1.0, 3.0], [5.0, 7.0]]
    b[:, -1] = 2.0
    assert compare.end(pairs(a, b, steps=np.arange(20))) == 4.0 - 1.0


def test_interval_is_of_scipys_resamples_with_expanded_percentiles():
    """Both norms of a seed are drawn together."""
    noisy = pairs(seeds(FAST, spread=0.5), seeds(SLOW, spread=0.5, rng=2))
    differences = noisy.better[:, -1] - noisy.baseline[:, -1]
    rng = np.random.default_rng(0)
    resamples = stats.bootstrap(
        [differences], np.mean, n_resamples=compare.RESAMPLES, rng=rng
    ).bootstrap_distribution
    tail = stats.norm.cdf(np.sqrt(5 / 4) * stats.t.ppf(0.025, 4))
    ends = np.quantile(resamples, (tail, 1 - tail), method="inverted_cdf")
    np.testing.assert_allclose(compare.interval(compare.end, noisy), ends)


def test_p_value_is_the_share_of_swaps_that_are_as_far_apart():
    a = seeds(FAST, n=10)
    # Only the seen way and its opposite are that far apart.
    assert compare.p_value(compare.log_speed, pairs(a, seeds(SLOW, 10))) == 2 / 1024
    # SciPy's test of one sample changes the signs of the differences in all ways.
    d = np.array([1.0, 2.0, -4.0, 5.0])[:, None] * np.ones(10)
    exact = stats.permutation_test((d[:, 0],), np.mean, permutation_type="samples")
    p = compare.p_value(compare.end, pairs(d, np.zeros((4, 10))))
    assert p == pytest.approx(exact.pvalue)
    # In 12 of 16 ways it is at least 0.3; the differences round otherwise in some.
    d = np.array([0.1, 0.2, 0.3, -0.3])[:, None] * np.ones(10)
    assert compare.p_value(compare.end, pairs(50 + d, np.full((4, 10), 50.0))) == 0.75


def test_holm_corrects_each_p_value_for_those_that_are_not_smaller():
    """As Holm (1979): times their number, and never below a smaller one's."""
    assert compare.holm([]) == []
    np.testing.assert_allclose(compare.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(compare.holm([0.6, 0.001, 0.7]), [1, 0.003, 1])
