"""Batches of examples, for training and for evaluation.

    columns = data.open_columns("mnist", "train")
    plan = Plan(size=55_000, batch_size=128, seed=0)  # 429 batches in an epoch
    with train_batches(columns, plan, start_step=0) as stream:
        batch = next(stream)       # {"image": (128, 28, 28), "label": (128,)}
        stacked = stream.take(50)  # the next 50: {"image": (50, 128, 28, 28), ...}
    for batch in eval_batches(columns, 1000):  # all examples once
        ...                        # with "mask" (1000,) and "index" (1000,) in addition

Batch k depends on the seed and k only. It depends neither on the step at which a run
starts nor on the number of processes. Process p of P gets the rows from p B / P to
(p + 1) B / P of each batch. A background thread makes batches ahead.

Examples of different lengths are padded to a few lengths, the buckets:

    plan = Plan(len(lengths), 64, seed, lengths=lengths, buckets=(32, 64, 128))
    train_batches(columns, plan, pad={"tokens": None, "title": 12})

This pads "tokens" to the bucket of the batch and "title" to 12. It adds "tokens_length"
and "title_length" [B], the lengths before padding.

Shapes: B batch, T bucket length, N examples of the split.
"""

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lnrepro.data.plan import BatchPlan, draws_of
from lnrepro.data.ragged import Ragged, Stored
from lnrepro.data.stream import Batch, Stream
from lnrepro.errors import UserError

# Length to which each padded feature is padded; None is the bucket of a plan's batch.
Pad = Mapping[str, int | None]
NO_PADDING: Pad = types.MappingProxyType({})
# Rows of a batch before padding: arrays, or lists of examples that may differ in
# length.
Rows = Mapping[str, Any]
Transform = Callable[[Rows, np.ndarray], Rows]

# Rows that are gathered together in the background. Grain takes about 0.1 ms for an
# element of any size. Therefore its elements here are blocks of whole batches. CPU time
# for a batch of 128 MNIST images on two cores: 3.3 ms with one example as an element,
# 0.17 ms with one batch, 0.05 ms with blocks. For a batch of 4: 0.30 ms, 0.11 ms and
# 0.007 ms.
BLOCK_ROWS = 1024

# Columns, or a source: examples that may be made when they are asked for; also a list.
Data = Mapping[str, Stored] | Sequence[Mapping[str, Any]]


def train_batches(
    data: Data,
    plan: BatchPlan,
    *,
    start_step: int = 0,
    pad: Pad = NO_PADDING,
    transform: Transform | None = None,
    process: tuple[int, int] | None = None,
) -> Stream:
    """Return the endless stream of the batches of a plan.

    Where one accelerator trains on columns of arrays that fit, they are gathered there,
    see `lnrepro.data.resident`. The batches are the same.

    Args:
      data: columns, or a source.
      plan: which rows each batch holds.
      start_step: number of the first batch.
      pad: lengths of the features whose examples differ in length, see `Pad`.
      transform: function (rows, draws) -> rows, applied before padding. `draws` are the
        uniform numbers of the rows, see `draws_of`.
      process: index of this process and number of processes. Default: those of JAX.

    Raises:
      UserError: the data has another size than the plan, or B cannot be divided by the
        number of processes. The stream raises it if an example does not fit its
        padding.
    """
    if _size(data) != plan.size:
        raise UserError(
            f"the plan is for {plan.size} examples and the data has {_size(data)}"
        )
    is_plain = not pad and transform is None and process is None
    if is_plain and isinstance(data, Mapping):
        from lnrepro.data import resident

        if resident.helps(data):
            return resident.Resident(data, plan, start_step)
    # This process's rows of every batch.
    part = _share(plan.batch_size, process)
    # Batches of different lengths cannot be stacked in a block.
    together = 1 if plan.buckets else max(1, BLOCK_ROWS // plan.batch_size)

    def make_block(i: int) -> list[Batch]:
        first = start_step + i * together
        steps = range(first, first + together)
        # One indexing operation gathers the rows of all batches of the block.
        examples = _select(data, np.concatenate([plan.rows(k)[part] for k in steps]))
        if transform:
            draws = np.concatenate([draws_of(plan, k)[part] for k in steps])
            examples = transform(examples, draws)
        block = _stack(examples, plan.length(first), pad)
        parts = {}
        for name, v in block.items():
            parts[name] = v.reshape(together, len(v) // together, *v.shape[1:])
        return [{name: v[j] for name, v in parts.items()} for j in range(together)]

    return _in_background(make_block, sys.maxsize)


def eval_batches(
    data: Data,
    batch_size: int,
    *,
    order: np.ndarray | None = None,
    pad: Pad = NO_PADDING,
    process: tuple[int, int] | None = None,
) -> Stream:
    """Return examples once each, in batches of one size.

    Each batch has two more entries: "mask" [B] float32 is 1 for examples and 0 for
    padding, and "index" [B] int32 holds the rows. The last batch is filled by repeating
    its last example, so that every row is a valid example.

    Args:
      data: columns, or a source.
      batch_size: number of examples B in a batch.
      order: the rows that are taken, in their order, such as from short to long.
        Default: all rows of the split.
      pad: see `train_batches`; there are no buckets.
      process: see `train_batches`.

    Raises:
      UserError: the sizes do not fit, or an example does not fit its padding.
    """
    part = _share(batch_size, process)
    rows = np.arange(_size(data)) if order is None else order
    steps = -(-len(rows) // batch_size)
    # The last row is repeated. The mask is 0 there.
    numbers = np.arange(steps * batch_size).reshape(steps, -1)
    index = rows.astype(np.int32)[np.minimum(numbers, len(rows) - 1)]
    mask = (numbers < len(rows)).astype(np.float32)

    def make_block(i: int) -> list[Batch]:
        batch = _stack(_select(data, index[i, part]), None, pad)
        return [batch | {"mask": mask[i, part], "index": index[i, part]}]

    return _in_background(make_block, steps)


def evenly_spaced(size: int, count: int | None) -> np.ndarray:
    """Return the rows of some examples, evenly spaced.

    Official test sets are often sorted by class, so that their first examples are not
    representative.

    Args:
      size: number of all examples.
      count: number of examples wanted. Default: all.
    """
    count = size if count is None else min(count, size)
    return np.linspace(0, size - 1, count).round().astype(int)


def _select(data: Data, rows: np.ndarray) -> Rows:
    """Return rows of columns or of a source."""
    if not isinstance(data, Mapping):
        examples = [data[row] for row in rows.tolist()]
        return {
            name: [np.asarray(example[name]) for example in examples]
            for name in examples[0]
        }
    found = {}
    for name, column in data.items():
        if isinstance(column, Ragged):
            found[name] = [column[i] for i in rows]
        else:
            found[name] = np.take(column, rows, axis=0)
    return found


def _stack(rows: Rows, length: int | None, pad: Pad) -> Batch:
    """Pad and stack what `_select` returns.

    Args:
      rows: the rows.
      length: bucket length T, if there are buckets.
      pad: see `train_batches`.
    """
    batch = {}
    for name, values in rows.items():
        if name in pad:
            target = pad[name] or length
            assert target, f"{name} is to be padded to its bucket; there are none"
            batch[name] = _padded(name, values, target)
            batch[f"{name}_length"] = np.array([len(v) for v in values], np.int32)
        else:
            batch[name] = np.asarray(values)
    return batch


def _padded(name: str, values: list[np.ndarray], length: int) -> np.ndarray:
    """Pad arrays [t, ...] with zeros to one length and stack them."""
    longest = max(len(v) for v in values)
    if longest > length:
        raise UserError(
            f"{name}: an example of length {longest} does not fit into {length}; "
            "increase the length or leave the example out"
        )
    out = np.zeros((len(values), length, *values[0].shape[1:]), values[0].dtype)
    for row, v in zip(out, values, strict=True):
        row[: len(v)] = v
    return out


def _in_background(make_block: Callable[[int], list[Batch]], count: int) -> Stream:
    """Return the stream of blocks 0 to count - 1, made ahead by a thread of Grain."""
    import grain

    # One thread is enough: it makes blocks while the device computes.
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    # Grain calls make_block(0), make_block(1), ... in order. A block depends on its
    # number only.
    blocks = grain.MapDataset.range(count).map(make_block)
    return Stream(iter(blocks.to_iter_dataset(options)))


def _share(batch_size: int, process: tuple[int, int] | None) -> slice:
    """Return the rows of a batch that belong to this process."""
    if process is None:
        import jax

        process = jax.process_index(), jax.process_count()
    index, count = process
    if batch_size % count:
        raise UserError(
            f"batch size {batch_size} does not divide over {count} processes; choose a "
            f"multiple of {count}"
        )
    return slice(index * batch_size // count, (index + 1) * batch_size // count)


def _size(data: Data) -> int:
    return len(next(iter(data.values()))) if isinstance(data, Mapping) else len(data)
