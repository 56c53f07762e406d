"""A stream of batches, which are made in blocks of several.

Shapes: B batch.
"""

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from lnrepro.errors import UserError

# {name: array, or a tree of arrays}
Batch = dict[str, Any]


class Stream(Iterator[Batch], contextlib.AbstractContextManager):
    """Iterator over batches, which can also return several batches stacked.

    Close it or use it in a `with` statement, so that its background thread ends.
    """

    def __init__(self, blocks: Any):
        """Wrap an iterator over blocks, each a list of batches.

        Blocks for training never end. Who takes batches from others knows their number.
        """
        self._blocks = blocks
        self._ready: collections.deque[Batch] = collections.deque()

    def __next__(self) -> Batch:
        import jax

        return jax.tree.map(lambda v: v[0], self.take(1))

    def take(self, n: int) -> Batch:
        """Return the next n batches, stacked: arrays [n, B, ...].

        Raises:
          UserError: the batches differ in length.
        """
        # Whoever only prepares a data set need not have JAX.
        import jax

        while len(self._ready) < n:
            self._ready.extend(next(self._blocks))
        batches = [self._ready.popleft() for _ in range(n)]

        def stack(*arrays):
            # A single batch is not copied.
            return np.stack(arrays) if n > 1 else arrays[0][None]

        try:
            return jax.tree.map(stack, *batches)
        except ValueError:
            raise UserError(
                "batches of different lengths cannot be stacked; set "
                "config.steps_per_call to 1"
            ) from None

    def close(self) -> None:
        """Stop the background thread."""
        self._blocks.close()

    def __exit__(self, *error: object) -> None:
        self.close()
