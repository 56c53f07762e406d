"""Training batches that are gathered on the device, which keeps the whole data set.

A small data set then crosses to an accelerator once. A step sends the numbers of its
rows there, and no examples.

Shapes: K stacked batches, B batch, N examples of the split.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from lnrepro.data import batches
from lnrepro.data.batches import Plan, Stream

# Larger data sets stay on the host.
LARGEST_BYTES = 2**30


class Resident(Stream):
    """The endless batches of a plan, equal to those of `data.batches.train_batches`.

    Attributes:
      columns: arrays [N, ...] on the host.
      plan: which rows each batch holds.
      step: number of the next batch.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], plan: Plan, start_step: int):
        """Describe the batches. The data set is copied to the device by the first one.

        Args:
          columns: arrays [N, ...].
          plan: which rows each batch holds.
          start_step: number of the first batch.
        """
        self.columns, self.plan, self.step = columns, plan, start_step
        self._on_device = None

    def take(self, n: int) -> dict[str, Any]:
        """Return the next K = n batches: arrays [K, B, ...]."""
        if self._on_device is None:
            self._on_device = jax.device_put(dict(self.columns))
        rows = [self.plan.rows(step) for step in range(self.step, self.step + n)]
        self.step += n
        return _gather(self._on_device, np.array(rows))

    def close(self) -> None:
        """Do nothing: there is no thread to stop."""


@jax.jit
def _gather(columns, rows):
    return {name: column[rows] for name, column in columns.items()}


def train_batches(
    columns: Mapping[str, np.ndarray], plan: Plan, *, start_step: int = 0
) -> Stream:
    """Return the endless batches of a plan, from the device where that helps.

    That is where one accelerator trains and the data set takes at most `LARGEST_BYTES`.

    Args:
      columns: arrays [N, ...].
      plan: which rows each batch holds.
      start_step: number of the first batch.

    Raises:
      UserError: see `data.batches.train_batches`.
    """
    if _helps(columns):
        return Resident(columns, plan, start_step)
    return batches.train_batches(columns, plan, start_step=start_step)


def _helps(columns: Mapping[str, Any]) -> bool:
    # The memory of a CPU is where the data set is already.
    has_one_accelerator = jax.default_backend() != "cpu" and jax.device_count() == 1
    n_bytes = sum(column.nbytes for column in columns.values())
    return has_one_accelerator and n_bytes <= LARGEST_BYTES
