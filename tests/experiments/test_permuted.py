"""Permutations that are computed for single numbers."""

import numpy as np
import pytest

from experiments.skip_thoughts.permuted import permuted


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 1000, 4097])
def test_permuted_is_a_permutation(n):
    there, other = (permuted(np.arange(n), n, 1, k << 8 | 3) for k in (2, 3))
    assert sorted(there.tolist()) == list(range(n))
    if n >= 1000:
        # Neighbours land far apart, on average a third of n.
        assert abs(np.abs(np.diff(there)).mean() / n - 1 / 3) < 0.03
        assert (there != other).mean() > 0.9


def test_large_ranges_need_no_array():
    n = 2 * 10**9 + 7
    assert all(0 <= i < n for i in permuted(np.array([0, 10**9]), n, 0, 1))
