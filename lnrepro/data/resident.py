"""Training batches that are gathered on the device, which keeps the whole data set.

A small data set then crosses to an accelerator once. A step sends the numbers of its
rows there, and no examples.

Shapes: K stacked batches, B batch, N examples of the split.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from lnrepro.data.plan import BatchPlan
from lnrepro.data.stream import Stream

# Larger data sets stay on the host. The limit was not tuned: MNIST takes 0.04 GiB.
LARGEST_BYTES = 2**30


class Resident(Stream):
    """The endless batches of a plan, equal to those of `data.batches.train_batches`.

    Attributes:
      columns: arrays [N, ...] on the device.
      plan: which rows each batch holds.
      step: number of the next batch.
    """

    def __init__(self, columns: Mapping[str, Any], plan: BatchPlan, start_step: int):
        """Copy the data set to the device.

        Args:
          columns: arrays [N, ...] on the host.
          plan: which rows each batch holds.
          start_step: number of the first batch.
        """
        self.columns = jax.device_put(dict(columns))
        self.plan, self.step = plan, start_step

    def take(self, n: int) -> dict[str, Any]:
        """Return the next K = n batches: arrays [K, B, ...]."""
        rows = [self.plan.rows(step) for step in range(self.step, self.step + n)]
        self.step += n
        return _gather(self.columns, np.array(rows))

    def close(self) -> None:
        """Do nothing: there is no thread to stop."""


@jax.jit
def _gather(columns, rows):
    return {name: column[rows] for name, column in columns.items()}


def helps(columns: Mapping[str, Any]) -> bool:
    """Return whether one accelerator trains, and columns take at most LARGEST_BYTES."""
    # The memory of a CPU is where the data set is already.
    if jax.default_backend() == "cpu" or jax.device_count() > 1:
        return False
    n_bytes = 0
    for column in columns.values():
        if not isinstance(column, np.ndarray):
            return False
        n_bytes += column.nbytes
    return n_bytes <= LARGEST_BYTES
