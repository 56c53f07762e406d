"""Random numbers and permutations for batches.

They depend on their arguments only, and on no version of NumPy or of this package. A
resumed run relies on this.
"""

import numpy as np


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
