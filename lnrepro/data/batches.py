"""Batches of examples: batch k is a function of (seed, k) alone, whatever step a run starts at and however many processes share it.

    columns = data.open_columns("mnist", "train")                    # {name: (N, ...)}, or a source of dicts
    plan = Plan(size=len(columns["label"]), batch_size=128, seed=0)
    with train_batches(columns, plan, start_step=0) as stream:       # endless, prefetched in a background thread
        batch = next(stream)                                         # {"image": (128, 28, 28), "label": (128,)}
        stacked = stream.take(50)                                    # the next 50 batches at once: {"image": (50, 128, 28, 28), ...}
    for batch in eval_batches(columns, 1000): ...                    # with "mask" (B,) float32 and "index" (B,) int64; each row once

Of every global batch of B rows, process p of P gets rows p B/P to (p+1) B/P. Examples of different lengths go into a few static shapes:

    plan = Plan(len(source), 64, seed, lengths=lengths, buckets=(32, 64, 128))
    train_batches(source, plan, pad={"tokens": None, "title": 12})   # tokens to the batch's bucket, title to 12, each with "<name>_length"

Shape letters: B batch, T bucket length, K stacked batches, N examples in the split.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lnrepro.errors import UserError

Columns = Mapping[str, np.ndarray]
Batch = dict[str, np.ndarray]
Pad = Mapping[str, int | None]
Transform = Callable[[Any, np.ndarray], Any]

# Rows gathered at once in the background. Grain costs some 0.1 ms per element whatever its size, so an element is a block of whole
# batches: pipelines over single examples (shuffle, batch) took 100 times longer than the gather itself at these sizes.
BLOCK_ROWS = 1024

# Independent random streams of one seed: the top bits of the second key word of Philox.
ORDER, BATCH_ORDER, DRAWS = (stream << 62 for stream in range(3))


@runtime_checkable
class Source(Protocol):
    """A random-access split, as `lnrepro.data.open_source` gives it."""

    def __len__(self) -> int: ...

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray]]: ...


@dataclasses.dataclass(frozen=True)
class Plan:
    """Which rows of a split make up training batch k: epochs without replacement, the same number of batches in each.

    Each epoch shuffles all N examples anew and leaves the last N mod B of them out. With `lengths` (N,) and ascending `buckets`, the
    epoch's examples are then sorted by bucket, cut into batches, each padded to the bucket of its longest example, and the batches
    shuffled. Raises UserError for sizes that cannot be batched.
    """

    size: int
    batch_size: int
    seed: int
    lengths: np.ndarray | None = None
    buckets: tuple[int, ...] = ()

    def __post_init__(self):
        if not 0 < self.batch_size <= self.size:
            raise UserError(f"batch size {self.batch_size} does not fit {self.size} examples; choose 1 to {self.size}")
        object.__setattr__(self, "_bucket", _bucket_of(self.lengths, self.buckets, self.size))

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in each epoch: N // B."""
        return self.size // self.batch_size

    def rows(self, k: int) -> np.ndarray:
        """The rows of global batch k, shape (B,)."""
        epoch, i = divmod(k, self.steps_per_epoch)
        return self._epoch(epoch)[0][i]

    def length(self, k: int) -> int | None:
        """The bucket length T of batch k; None without buckets."""
        epoch, i = divmod(k, self.steps_per_epoch)
        lengths = self._epoch(epoch)[1]
        return None if lengths is None else int(lengths[i])

    def draws(self, k: int) -> np.ndarray:
        """One uniform number in [0, 1) for each row of batch k, shape (B,): what else is random about an example."""
        return (_bits(self.seed, DRAWS | k, self.batch_size) >> np.uint64(11)) * 2.0**-53

    @property
    def shapes(self) -> tuple[int, ...]:
        """The bucket lengths T that epoch 0 uses: one compiled program each."""
        lengths = self._epoch(0)[1]
        return () if lengths is None else tuple(np.unique(lengths).tolist())

    @property
    def padding(self) -> float:
        """The fraction of epoch 0's time steps that is padding."""
        rows, lengths = self._epoch(0)
        return 0.0 if lengths is None else 1.0 - float(self.lengths[rows].sum() / (lengths.sum() * self.batch_size))

    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray | None]:
        return _epoch(self, epoch)

    # The cache below keys on identity: a plan is its own value, its lengths may be large.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


@functools.lru_cache(maxsize=4)
def _epoch(plan: Plan, epoch: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows (steps, B) and bucket lengths (steps,) of an epoch; a few milliseconds, so any step can be started at."""
    steps = plan.steps_per_epoch
    order = _permutation(plan.seed, ORDER | epoch, plan.size)[: steps * plan.batch_size]
    if plan._bucket is None:
        return order.reshape(steps, -1), None
    rows = order[np.argsort(plan._bucket[order], kind="stable")].reshape(steps, -1)
    rows = rows[_permutation(plan.seed, BATCH_ORDER | epoch, steps)]
    return rows, np.asarray(plan.buckets)[plan._bucket[rows].max(axis=1)]


class Stream(Iterator[Batch]):
    """An iterator over batches that can also hand out several at once, stacked; close it, or use it in `with`."""

    def __init__(self, blocks: Any):
        self._blocks, self._block, self._at, self._size = blocks, {}, 0, 0

    def __next__(self) -> Batch:
        return {name: v[0] for name, v in self.take(1).items()}

    def take(self, n: int) -> Batch:
        """The next n batches as arrays (n, B, ...); mostly views, never to be written to. Raises UserError if shapes differ."""
        parts = []
        while n:
            if self._at == self._size:
                self._block, self._at = next(self._blocks), 0
                self._size = len(next(iter(self._block.values())))
            m = min(n, self._size - self._at)
            parts.append({name: v[self._at : self._at + m] for name, v in self._block.items()})
            self._at, n = self._at + m, n - m
        if len(parts) == 1:
            return parts[0]
        if _differ(parts):
            raise UserError("batches of different lengths cannot be stacked; set config.steps_per_call to 1")
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def close(self) -> None:
        """Stops the background thread."""
        self._blocks.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def train_batches(
    data: Columns | Source,
    plan: Plan,
    *,
    start_step: int = 0,
    pad: Pad | None = None,
    transform: Transform | None = None,
    process: tuple[int, int] | None = None,
    prefetch: int = 2,
) -> Stream:
    """The endless stream of training batches `start_step`, `start_step + 1`, ... of a plan, this process's rows (B/P, ...) of each.

    pad: for examples of different lengths, {name: length its first axis is zero-padded to, None = the plan's bucket}.
    transform: (rows, draws) -> rows, applied before padding; rows is a dict of arrays (columns) or a list of examples (source), draws
      (rows,) uniform numbers that depend on (seed, k) and the place in the global batch alone.
    process: (index, count); jax's by default. prefetch: blocks made ahead in a background thread; 0 = none.
    Raises UserError if B does not divide over the processes, or an example does not fit its padding.
    """
    part, _ = _share(plan.batch_size, process)
    together = 1 if plan.buckets else max(1, BLOCK_ROWS // plan.batch_size)

    def block(i: int) -> Batch:
        steps = range(start_step + i * together, start_step + (i + 1) * together)
        rows = np.concatenate([plan.rows(k)[part] for k in steps])
        draws = np.concatenate([plan.draws(k)[part] for k in steps]) if transform else None
        batch = _gather(data, rows, plan.length(steps[0]), pad, transform, draws)
        return {name: v.reshape(together, -1, *v.shape[1:]) for name, v in batch.items()}

    return Stream(_in_background(block, sys.maxsize, prefetch))


def eval_batches(
    data: Columns | Source,
    batch_size: int,
    *,
    lengths: np.ndarray | None = None,
    buckets: tuple[int, ...] = (),
    pad: Pad | None = None,
    process: tuple[int, int] | None = None,
    prefetch: int = 2,
) -> Stream:
    """All examples once, in batches of one size: "mask" (B,) float32 is 1 for an example and 0 for padding, "index" (B,) its row.

    In the split's order, or sorted by bucket. The last batch is filled up by repeating its last example under mask 0, so that all
    numbers stay finite. Arguments and errors as in `train_batches`.
    """
    size = _size(data)
    if size < 1 or batch_size < 1:
        raise UserError(f"cannot evaluate {size} examples in batches of {batch_size}")
    part, count = _share(batch_size, process)
    bucket = _bucket_of(lengths, buckets, size)
    order = np.arange(size) if bucket is None else np.argsort(bucket, kind="stable")
    steps = -(-size // batch_size)
    rows = np.pad(order, (0, steps * batch_size - size), mode="edge").reshape(steps, -1)
    mask = (np.arange(steps * batch_size) < size).astype(np.float32).reshape(steps, -1)

    def block(i: int) -> Batch:
        length = None if bucket is None else buckets[bucket[rows[i]].max()]
        batch = _gather(data, rows[i, part], length, pad, None, None)
        return {name: v[None] for name, v in (batch | {"mask": mask[i, part], "index": rows[i, part]}).items()}

    return Stream(_in_background(block, steps, prefetch))


def _gather(
    data: Columns | Source,
    rows: np.ndarray,
    length: int | None,
    pad: Pad | None,
    transform: Transform | None,
    draws: np.ndarray | None,
) -> Batch:
    """The given rows, stacked (len(rows), ...)."""
    if isinstance(data, Mapping):
        batch = {name: np.take(v, rows, axis=0) for name, v in data.items()}
        return transform(batch, draws) if transform else batch
    examples = data.__getitems__(rows)
    if transform:
        examples = transform(examples, draws)
    batch = {}
    for name in examples[0]:
        values = [np.asarray(example[name]) for example in examples]
        if pad is None or name not in pad:
            batch[name] = np.stack(values)
            continue
        to = pad[name] if pad[name] is not None else length
        longest = max(len(v) for v in values)
        if to is None or longest > to:
            raise UserError(
                f"{name}: an example of length {longest} does not fit {'a batch without buckets' if to is None else f'padding to {to}'}; "
                "enlarge it, or leave such examples out"
            )
        batch[name] = np.zeros((len(values), to, *values[0].shape[1:]), values[0].dtype)
        for row, v in zip(batch[name], values, strict=True):
            row[: len(v)] = v
        batch[f"{name}_length"] = np.array([len(v) for v in values], np.int32)
    return batch


class _Blocks:
    """Grain's view of the blocks: a random-access source of known length."""

    def __init__(self, block: Callable[[int], Batch], size: int):
        self._block, self._size = block, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> Batch:
        return self._block(i)


def _in_background(block: Callable[[int], Batch], size: int, prefetch: int) -> Any:
    """An iterator over block(0), block(1), ..., made ahead by one thread of Grain's."""
    import grain

    options = grain.ReadOptions(num_threads=1 if prefetch else 0, prefetch_buffer_size=prefetch)
    return iter(grain.MapDataset.source(_Blocks(block, size)).to_iter_dataset(options))


def _share(batch_size: int, process: tuple[int, int] | None) -> tuple[slice, int]:
    """This process's slice of every global batch."""
    if process is None:
        import jax

        process = jax.process_index(), jax.process_count()
    index, count = process
    if batch_size % count:
        raise UserError(f"batch size {batch_size} does not divide over {count} processes; choose a multiple of {count}")
    return slice(index * batch_size // count, (index + 1) * batch_size // count), count


def _size(data: Columns | Source) -> int:
    return len(next(iter(data.values()))) if isinstance(data, Mapping) else len(data)


def _bucket_of(lengths: np.ndarray | None, buckets: tuple[int, ...], size: int) -> np.ndarray | None:
    """The bucket number of every example, (N,)."""
    if lengths is None and not buckets:
        return None
    if lengths is None or not buckets or list(buckets) != sorted(set(buckets)):
        raise UserError(f"buckets {buckets} must ascend and come with the examples' lengths")
    lengths = np.asarray(lengths)
    if lengths.shape != (size,):
        raise UserError(f"{lengths.shape} lengths for {size} examples")
    if lengths.max() > buckets[-1]:
        raise UserError(
            f"{(lengths > buckets[-1]).sum()} examples are longer than the last bucket {buckets[-1]} (the longest has {lengths.max()}); "
            "add a bucket, or leave them out"
        )
    return np.searchsorted(buckets, lengths)


def _bits(seed: int, counter: int, n: int) -> np.ndarray:
    """n random uint64. Philox's raw output is fixed for ever, unlike the methods of numpy's Generator."""
    return np.random.Philox(key=[seed % 2**64, counter]).random_raw(n)


def _permutation(seed: int, counter: int, n: int) -> np.ndarray:
    return np.argsort(_bits(seed, counter, n), kind="stable")


def _differ(parts: list[Batch]) -> bool:
    return any(len({part[name].shape[1:] for part in parts}) > 1 for name in parts[0])
