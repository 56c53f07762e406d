"""Single elements of permutations that are too large to be made."""

import numpy as np

from lnrepro.data.shuffle import random_bits

# Rounds of the Feistel network. Four are enough with random functions (Luby and
# Rackoff), and `_mix` is a fixed one.
ROUNDS = 6


def permuted(positions: np.ndarray, n: int, seed: int, counter: int) -> np.ndarray:
    """Return some elements of a pseudo-random permutation of range(n).

    The permutation itself is not made, so that n may be large. It is a Feistel network
    on the smallest 4^h >= n numbers. The network is applied again to each result that
    is not below n (cycle walking), which takes at most 4 applications on average.

    Args:
      positions: which elements.
      n: size of the permutation.
      seed: any integer.
      counter: number of the random stream, below 2^64.

    References:
      Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom
      functions", 1988.
    """
    # h bits on each side, where 4^h >= n.
    half = max(1, (max(n - 1, 1).bit_length() + 1) // 2)
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    keys = random_bits(seed, counter, ROUNDS)

    def network(x):
        # A Feistel network is a permutation whatever its round function is: every round
        # keeps one half and adds to the other what depends on the first only.
        left, right = x >> shift, x & mask
        for key in keys:
            left, right = right, left ^ (_mix(right + key) & mask)
        return left << shift | right

    # uint64 arithmetic wraps modulo 2^64 on purpose.
    with np.errstate(over="ignore"):
        x = network(np.asarray(positions, np.uint64))
        while (outside := x >= n).any():
            x = np.where(outside, network(x), x)
    return x.astype(np.int64)


def _mix(x: np.ndarray) -> np.ndarray:
    """Scramble uint64 numbers with the finaliser of SplitMix (Steele et al., 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
