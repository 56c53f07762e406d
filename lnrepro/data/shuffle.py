"""Random numbers and permutations for batches.

They depend on their arguments only, and on no version of NumPy or of this package. A
resumed run relies on this.
"""

from __future__ import annotations

import numpy as np

# Rounds of the Feistel network in `permuted`.
ROUNDS = 6


def random_bits(seed: int, counter: int, n: int) -> np.ndarray:
    """Return n random uint64 numbers.

    They are the raw output of Philox, because NumPy may change what the methods of its
    Generator return.

    Args:
      seed: any integer.
      counter: number of the random stream, below 2^64.
      n: how many numbers.
    """
    # Philox has a key of two 64-bit words. The modulo maps negative seeds to valid
    # ones.
    key = np.array([seed % 2**64, counter], np.uint64)
    return np.random.Philox(key=key).random_raw(n)


def permutation(seed: int, counter: int, n: int) -> np.ndarray:
    """Return a random permutation of range(n).

    Args:
      seed: any integer.
      counter: number of the random stream, below 2^64.
      n: how many numbers.
    """
    # "stable" makes the result of equal numbers independent of the sorting algorithm.
    return np.argsort(random_bits(seed, counter, n), kind="stable")


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
