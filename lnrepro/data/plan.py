"""Plans: which examples each training batch holds.

Shapes: B batch, T bucket length, N examples of the split.
"""

import dataclasses
import functools
from typing import Protocol

import numpy as np

from lnrepro.data.shuffle import permutation, random_bits
from lnrepro.errors import UserError
from lnrepro.fields import Lengths

# Independent random streams of one seed, as the top bits of the second word of the key.
ORDER, BATCH_ORDER, DRAWS = (stream << 62 for stream in range(3))


class BatchPlan(Protocol):
    """What `train_batches` asks of a plan; `Plan` is one.

    Attributes:
      size: number of examples N.
      batch_size: number of examples B in a batch.
      seed: any integer.
      buckets: lengths to pad to, in ascending order; none where nothing is padded.
    """

    size: int
    batch_size: int
    seed: int
    buckets: tuple[int, ...]

    def rows(self, k: int) -> np.ndarray:
        """Return the rows of batch k [B]."""
        ...

    def length(self, k: int) -> int | None:
        """Return the bucket length T of batch k; None without buckets."""
        ...


def draws_of(plan: BatchPlan, k: int) -> np.ndarray:
    """Return a uniform number in [0, 1) for each row of batch k [B].

    A transform uses it for what else is random about an example.
    """
    bits = random_bits(plan.seed, DRAWS | k, plan.batch_size)
    # The upper 53 bits, as many as a float64 holds exactly, scaled to [0, 1).
    return (bits >> np.uint64(11)) * 2.0**-53


@dataclasses.dataclass(eq=False)
class Plan:
    """Which rows of a split each training batch holds.

    Each epoch shuffles all N examples and leaves out the last N mod B. With buckets,
    the examples of an epoch are then sorted by bucket and cut into batches, and the
    batches are shuffled. A batch has the length of the bucket of its longest example.

    Attributes:
      size: number of examples N.
      batch_size: number of examples B in a batch.
      seed: any integer.
      lengths: length of each example [N], if there are buckets.
      buckets: lengths to pad to, in ascending order; none without `lengths`.

    Raises:
      UserError: the sizes or the buckets do not fit.
    """

    size: int
    batch_size: int
    seed: int
    lengths: np.ndarray | None = None
    buckets: tuple[int, ...] = ()

    def __post_init__(self):
        if not 0 < self.batch_size <= self.size:
            raise UserError(
                f"batch size {self.batch_size} does not fit {self.size} examples; "
                f"choose 1 to {self.size}"
            )
        if self.lengths is not None:
            if tuple(self.buckets) not in Lengths(0):
                raise UserError(f"buckets = {self.buckets}: give {Lengths(0)}")
            longest, last = self.lengths.max(), self.buckets[-1]
            if longest > last:
                raise UserError(
                    f"the longest example has {longest}, and the last bucket {last}; "
                    "add a bucket, or leave longer examples out"
                )

    @functools.cached_property
    def bucket(self) -> np.ndarray:
        """Index of the first bucket that holds each example [N], if there are any."""
        assert self.lengths is not None
        return np.searchsorted(self.buckets, self.lengths)

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch, N // B."""
        return self.size // self.batch_size

    def rows(self, k: int) -> np.ndarray:
        """Return the rows of batch k [B]."""
        epoch, i = divmod(k, self.steps_per_epoch)
        return _epoch(self, epoch)[0][i]

    def length(self, k: int) -> int | None:
        """Return the bucket length T of batch k; None without buckets."""
        if not self.buckets:
            return None
        epoch, i = divmod(k, self.steps_per_epoch)
        return int(_epoch(self, epoch)[1][i])


# A run of several seeds has a plan for each of them.
@functools.lru_cache(maxsize=32)
def _epoch(plan: Plan, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows [steps, B] and the bucket lengths [steps] of an epoch.

    The lengths are empty without buckets. This takes 4 ms for 55,000 examples, so that
    a run can start at any step.
    """
    steps = plan.steps_per_epoch
    # The last N mod B of the shuffled examples are left out, other ones in every epoch.
    order = permutation(plan.seed, ORDER | epoch, plan.size)[: steps * plan.batch_size]
    if not plan.buckets:
        return order.reshape(steps, -1), np.empty(0, int)
    # A stable sort keeps the random order inside a bucket. A batch at the boundary of
    # two buckets mixes them and takes the longer one.
    rows = order[np.argsort(plan.bucket[order], kind="stable")].reshape(steps, -1)
    rows = rows[permutation(plan.seed, BATCH_ORDER | epoch, steps)]
    return rows, np.asarray(plan.buckets)[plan.bucket[rows].max(axis=1)]
