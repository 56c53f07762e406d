"""Batches of examples: batch k is a function of (seed, k) alone, wherever a run starts and however many share the work.

    columns = data.open_columns("mnist", "train")                # {name: (N, ...)}; or a source, or a list, of dicts
    plan = Plan(size=55_000, batch_size=128, seed=0)             # plan.steps_per_epoch == 429
    with train_batches(columns, plan, start_step=0) as stream:   # endless, made ahead by a background thread
        batch = next(stream)                                     # {"image": (128, 28, 28), "label": (128,)}
        stacked = stream.take(50)                                # the next 50: {"image": (50, 128, 28, 28), ...}
    for batch in eval_batches(columns, 1000): ...                # + "mask" (B,) float32, "index" (B,); each once

Of every global batch of B rows, process p of P gets rows p B/P to (p+1) B/P. Examples of different lengths go into a
few static shapes:

    plan = Plan(len(source), 64, seed, lengths=lengths, buckets=(32, 64, 128))
    train_batches(source, plan, pad={"tokens": None, "title": 12})

pads "tokens" to the batch's bucket and "title" to 12, and adds "tokens_length" and "title_length", (B,) int32. Columns
whose examples differ in length (`Ragged`) are padded in the same way.

Shape letters: B batch, T bucket length, N examples in the split.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from lnrepro.data.ragged import Ragged
from lnrepro.engine.errors import UserError

Batch = dict[str, np.ndarray]
Columns = Mapping[str, np.ndarray | Ragged]
Pad = Mapping[str, int | None]
Transform = Callable[[Any, np.ndarray], Any]

# Rows gathered at once in the background. Grain costs about 0.1 ms an element whatever its size, so an element here is
# a block of whole batches, gathered by one fancy-index. CPU time for a batch of 128 MNIST images on a two-core machine:
# 3.3 ms with Grain's source, shuffle and batch over single examples, 0.17 ms with one batch an element, 0.05 ms with
# blocks; for a batch of 4: 0.30, 0.11 and 0.007 ms (0.0025 by `take`).
BLOCK_ROWS = 1024

# Independent random streams of one seed: the top bits of the second word of Philox's key.
ORDER, BATCH_ORDER, DRAWS = (stream << 62 for stream in range(3))


class Source(Protocol):
    """A random-access split, as `lnrepro.data.open_source` gives it."""

    def __len__(self) -> int: ...

    def __getitems__(
        self, indices: Sequence[int]
    ) -> Sequence[Mapping[str, np.ndarray]]: ...


Data = Columns | Source | Sequence[Mapping[str, np.ndarray]]


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """Which rows of a split make up training batch k: epochs without replacement, the same number of batches in each.

    Every epoch shuffles all N examples anew and leaves the last N mod B of them out. With `lengths` (N,) and ascending
    `buckets`, an epoch's examples are then sorted by bucket, cut into batches, each as long as the bucket of its
    longest example, and the batches shuffled. Raises UserError for sizes that cannot be batched.
    """

    size: int
    batch_size: int
    seed: int
    lengths: np.ndarray | None = None
    buckets: tuple[int, ...] = ()

    def __post_init__(self):
        if not 0 < self.batch_size <= self.size:
            raise UserError(
                f"batch size {self.batch_size} does not fit {self.size} examples; choose 1 to {self.size}"
            )
        _ = self.bucket  # raises now rather than at the first batch

    @functools.cached_property
    def bucket(self) -> np.ndarray | None:
        """The number of every example's bucket, (N,); None without buckets."""
        return _bucket_of(self.lengths, self.buckets, self.size)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in each epoch: N // B."""
        return self.size // self.batch_size

    def rows(self, k: int) -> np.ndarray:
        """The rows of global batch k, (B,)."""
        epoch, i = divmod(k, self.steps_per_epoch)
        return _epoch(self, epoch)[0][i]

    def length(self, k: int) -> int | None:
        """The bucket length T of batch k; None without buckets."""
        epoch, i = divmod(k, self.steps_per_epoch)
        lengths = _epoch(self, epoch)[1]
        return None if lengths is None else int(lengths[i])

    def draws(self, k: int) -> np.ndarray:
        """A uniform number in [0, 1) for each row of batch k, (B,), for whatever else is random about an example."""
        return (
            _bits(self.seed, DRAWS | k, self.batch_size) >> np.uint64(11)
        ) * 2.0**-53

    @property
    def shapes(self) -> tuple[int, ...]:
        """The bucket lengths T in use, in epoch 0: one compiled program each."""
        lengths = _epoch(self, 0)[1]
        return () if lengths is None else tuple(np.unique(lengths).tolist())

    @property
    def padding(self) -> float:
        """The fraction of padding among the time steps of epoch 0."""
        rows, lengths = _epoch(self, 0)
        return (
            0.0
            if lengths is None
            else 1.0
            - float(self.lengths[rows].sum() / (lengths.sum() * self.batch_size))
        )


@functools.lru_cache(maxsize=4)
def _epoch(plan: Plan, epoch: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows (steps, B) and bucket lengths (steps,) of any epoch: 4 ms for 55,000 examples, so a run starts anywhere."""
    steps = plan.steps_per_epoch
    order = _permutation(plan.seed, ORDER | epoch, plan.size)[: steps * plan.batch_size]
    if plan.bucket is None:
        return order.reshape(steps, -1), None
    rows = order[np.argsort(plan.bucket[order], kind="stable")].reshape(steps, -1)
    rows = rows[_permutation(plan.seed, BATCH_ORDER | epoch, steps)]
    return rows, np.asarray(plan.buckets)[plan.bucket[rows].max(axis=1)]


class Stream(Iterator[Batch]):
    """An iterator over batches that also hands out several at once, stacked. Close it, or use it in a `with`."""

    def __init__(self, blocks: Any):
        self._blocks, self._block, self._at, self._size = blocks, {}, 0, 0

    def __next__(self) -> Batch:
        return {name: v[0] for name, v in self.take(1).items()}

    def take(self, n: int) -> Batch:
        """The next n batches as arrays (n, B, ...), not to be written to. Raises UserError if their shapes differ."""
        parts = []
        while n:
            if self._at == self._size:
                self._block, self._at = next(self._blocks), 0
                self._size = len(next(iter(self._block.values())))
            m = min(n, self._size - self._at)
            parts.append(
                {name: v[self._at : self._at + m] for name, v in self._block.items()}
            )
            self._at, n = self._at + m, n - m
        if len(parts) == 1:
            return parts[0]
        if any(len({part[name].shape[1:] for part in parts}) > 1 for name in parts[0]):
            raise UserError(
                "batches of different lengths cannot be stacked; set config.steps_per_call to 1"
            )
        return {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }

    def close(self) -> None:
        """Stop the background thread."""
        self._blocks.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def train_batches(
    data: Data,
    plan: Plan,
    *,
    start_step: int = 0,
    pad: Pad | None = None,
    transform: Transform | None = None,
    process: tuple[int, int] | None = None,
    prefetch: int = 2,
) -> Stream:
    """The endless stream of a plan's batches `start_step`, `start_step + 1`, ...: this process's (B/P, ...) of each.

    pad: {name: length}, for examples of different lengths: what its first axis is zero-padded to; None = the bucket.
    transform: (rows, draws) -> rows, applied before padding; rows is a dict of arrays (of lists of arrays for Ragged
      ones) for columns, else a list of examples; draws are uniform numbers (rows,) that depend on (seed, k) and the place in the global batch alone.
    process: (index, count); jax's own if not given.
    prefetch: how many blocks of batches the background thread makes ahead; 0 = no thread.
    Raises UserError if the data is not of the plan's size, if B does not divide over the processes, or, at the batch
    concerned, if an example does not fit its padding.
    """
    if _size(data) != plan.size:
        raise UserError(
            f"the plan is for {plan.size} examples and the data has {_size(data)}"
        )
    part = _share(plan.batch_size, process)
    together = 1 if plan.buckets else max(1, BLOCK_ROWS // plan.batch_size)

    def block(i: int) -> Batch:
        steps = range(start_step + i * together, start_step + (i + 1) * together)
        rows = np.concatenate([plan.rows(k)[part] for k in steps])
        draws = (
            np.concatenate([plan.draws(k)[part] for k in steps]) if transform else None
        )
        batch = _gather(data, rows, plan.length(steps[0]), pad, transform, draws)
        return {
            name: v.reshape(together, -1, *v.shape[1:]) for name, v in batch.items()
        }

    return Stream(_in_background(block, sys.maxsize, prefetch))


def eval_batches(
    data: Data,
    batch_size: int,
    *,
    lengths: np.ndarray | None = None,
    buckets: tuple[int, ...] = (),
    pad: Pad | None = None,
    process: tuple[int, int] | None = None,
    prefetch: int = 2,
) -> Stream:
    """All examples once, in batches of one size, with "mask" (B,) float32 and "index" (B,) int32, the examples' rows.

    In the split's order or, with buckets, from short to long. "mask" is 1 on examples and 0 on padding: the last batch
    is filled up by repeating its last example, so that every row is a real example and nothing is undefined. Arguments
    and errors as for `train_batches`.
    """
    size = _size(data)
    if size < 1 or batch_size < 1:
        raise UserError(f"cannot evaluate {size} examples in batches of {batch_size}")
    part = _share(batch_size, process)
    bucket = _bucket_of(lengths, buckets, size)
    order = np.arange(size) if bucket is None else np.argsort(bucket, kind="stable")
    steps = -(-size // batch_size)
    index = (
        np.pad(order, (0, steps * batch_size - size), mode="edge")
        .astype(np.int32)
        .reshape(steps, -1)
    )
    mask = (np.arange(steps * batch_size) < size).astype(np.float32).reshape(steps, -1)

    def block(i: int) -> Batch:
        length = None if bucket is None else buckets[bucket[index[i]].max()]
        batch = _gather(data, index[i, part], length, pad, None, None)
        return {
            name: v[None]
            for name, v in (
                batch | {"mask": mask[i, part], "index": index[i, part]}
            ).items()
        }

    return Stream(_in_background(block, steps, prefetch))


def evenly_spaced(size: int, count: int | None) -> np.ndarray:
    """Return the rows of `count` examples, evenly spaced among `size`; None is all.

    Official test sets are often sorted by class, so their first examples are no sample.
    """
    count = size if count is None else min(count, size)
    return np.linspace(0, size - 1, count).round().astype(int)


def _gather(
    data: Data,
    rows: np.ndarray,
    length: int | None,
    pad: Pad | None,
    transform: Transform | None,
    draws: np.ndarray | None,
) -> Batch:
    """The given rows of the data, stacked (len(rows), ...)."""
    if isinstance(data, Mapping):
        columns = {
            name: [v[i] for i in rows]
            if isinstance(v, Ragged)
            else np.take(v, rows, axis=0)
            for name, v in data.items()
        }
        if transform:
            columns = transform(columns, draws)
    else:
        examples = (
            data.__getitems__(rows)
            if hasattr(data, "__getitems__")
            else [data[i] for i in rows]
        )
        if transform:
            examples = transform(examples, draws)
        columns = {
            name: [np.asarray(example[name]) for example in examples]
            for name in examples[0]
        }
    batch = {}
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            batch[name] = values
        elif pad and name in pad:
            batch[name] = _padded(
                name, values, length if pad[name] is None else pad[name]
            )
            batch[f"{name}_length"] = np.array([len(v) for v in values], np.int32)
        elif len({v.shape for v in values}) > 1:
            raise UserError(
                f"{name}: its examples differ in shape; give it a length in `pad`"
            )
        else:
            batch[name] = np.stack(values)
    return batch


def _padded(name: str, values: list[np.ndarray], length: int | None) -> np.ndarray:
    """Arrays (t_i, ...) zero-padded and stacked to (len(values), length, ...)."""
    if length is None:
        raise UserError(
            f"{name} is to be padded to its bucket, but there are no buckets; give them, or a length"
        )
    if (longest := max(len(v) for v in values)) > length:
        raise UserError(
            f"{name}: an example of length {longest} does not fit into {length}; raise it or leave it out"
        )
    out = np.zeros((len(values), length, *values[0].shape[1:]), values[0].dtype)
    for row, v in zip(out, values, strict=True):
        row[: len(v)] = v
    return out


class _Blocks:
    """The blocks as Grain's idea of a data source: random access to a known number of elements."""

    def __init__(self, block: Callable[[int], Batch], size: int):
        self._block, self._size = block, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: int) -> Batch:
        return self._block(i)


def _in_background(block: Callable[[int], Batch], size: int, prefetch: int) -> Any:
    """An iterator over block(0), block(1), ..., made ahead by one thread of Grain's."""
    import grain

    options = grain.ReadOptions(
        num_threads=1 if prefetch else 0, prefetch_buffer_size=prefetch
    )
    return iter(grain.MapDataset.source(_Blocks(block, size)).to_iter_dataset(options))


def _share(batch_size: int, process: tuple[int, int] | None) -> slice:
    """This process's slice of every global batch."""
    if process is None:
        import jax

        process = jax.process_index(), jax.process_count()
    index, count = process
    if batch_size % count:
        raise UserError(
            f"batch size {batch_size} does not divide over {count} processes; choose a multiple of {count}"
        )
    return slice(index * batch_size // count, (index + 1) * batch_size // count)


def _size(data: Data) -> int:
    return len(next(iter(data.values()))) if isinstance(data, Mapping) else len(data)


def _bucket_of(
    lengths: np.ndarray | None, buckets: tuple[int, ...], size: int
) -> np.ndarray | None:
    """The number of every example's bucket, (N,): the first that holds it."""
    if lengths is None and not buckets:
        return None
    if lengths is None or not buckets or list(buckets) != sorted(set(buckets)):
        raise UserError(
            f"buckets {buckets} must ascend and come together with the examples' lengths"
        )
    if np.shape(lengths) != (size,):
        raise UserError(f"lengths of shape {np.shape(lengths)} for {size} examples")
    if (longest := np.max(lengths)) > buckets[-1]:
        many = int((np.asarray(lengths) > buckets[-1]).sum())
        raise UserError(
            f"{many} examples are longer than the last bucket, {buckets[-1]} (the longest has {longest}); "
            "add a bucket, or leave those examples out"
        )
    return np.searchsorted(buckets, lengths)


def _bits(seed: int, counter: int, n: int) -> np.ndarray:
    """n random uint64, fixed for ever: raw Philox, for numpy may change what its Generator's methods make of it."""
    return np.random.Philox(
        key=np.array([seed % 2**64, counter], np.uint64)
    ).random_raw(n)


def _permutation(seed: int, counter: int, n: int) -> np.ndarray:
    return np.argsort(_bits(seed, counter, n), kind="stable")
