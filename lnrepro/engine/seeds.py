"""Several seeds in one run: `config.seeds` seeds are trained by one compiled step.

Every array of the state has a first axis S of seeds. A batch has it behind the axis of
the stacked steps: [K, S, B, ...]. The numbers of each seed equal those of its own run,
up to rounding.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro.engine import resident
from lnrepro.engine.train_step import Batches, close, take


def single(config: ConfigDict, seed: int) -> ConfigDict:
    """Return the config that the experiment of one seed gets.

    `seeds` stays the number of seeds that are trained together, so that an experiment
    can give them batches of one structure.
    """
    if config.seeds == 1:
        return config
    own = config.copy_and_resolve_references()
    own.seed = seed
    return own


def stack(trees: Sequence[Any]) -> Any:
    """Stack the trees of all seeds, leaves [S, ...]; a single tree stays as it is."""
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: _numpy_of(leaves[0]).stack(leaves), *trees)


def _numpy_of(array) -> Any:
    # Arrays on the host stay there, and arrays on a device too.
    return np if isinstance(array, np.ndarray) else jnp


def parts(tree: Any, count: int) -> Iterator[Any]:
    """Yield the trees that `stack` put together."""
    if count == 1:
        yield tree
        return
    # The index is an argument and not a constant, so that one program serves all seeds.
    one_seed = jax.jit(lambda tree, i: jax.tree.map(lambda leaf: leaf[i], tree))
    for i in range(count):
        yield one_seed(tree, i)


def spread(
    values: Mapping[str, Sequence[Any]], seeds: Sequence[int]
) -> dict[str, float]:
    """Name the numbers of several seeds.

    Args:
      values: {name: [S] numbers, None where a seed has none}.
      seeds: the seeds.

    Returns:
      {name: mean over the seeds, name/seedI: number of seed I}. A name that one of the
      seeds lacks has no mean.
    """
    # The plain name is the mean, so that figures and `best.metric` need no case of
    # their own.
    named = {}
    for name, numbers in values.items():
        if None not in numbers:
            named[name] = float(np.mean(numbers))
    for i, seed in enumerate(seeds):
        for name, numbers in values.items():
            if numbers[i] is not None:
                named[name_of(name, seed)] = numbers[i]
    return named


def deviation(
    values: Mapping[str, float], name: str, seeds: Sequence[int]
) -> float | None:
    """Return the sample standard deviation over the seeds of a number.

    Args:
      values: what `spread` returned.
      name: the number.
      seeds: the seeds.

    Returns:
      The deviation, or None where `values` has no number of every seed.
    """
    names = [name_of(name, seed) for seed in seeds]
    if len(seeds) == 1 or not all(name in values for name in names):
        return None
    return float(np.std([values[name] for name in names], ddof=1))


def name_of(name: str, seed: int) -> str:
    """Return what `spread` calls a number of one seed."""
    return f"{name}/seed{seed}"


def is_of_one_seed(name: str) -> bool:
    """Whether a number that `spread` named is that of one seed among several."""
    return re.search(r"/seed\d+$", name) is not None


def without_single(values: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers that are not those of one seed among several."""
    return {name: v for name, v in values.items() if not is_of_one_seed(name)}


def stacked(streams: Sequence[Batches]) -> Batches:
    """Return the batches of all seeds together, [K, S, B, ...]; those of one as is."""
    if len(streams) == 1:
        return streams[0]
    return resident.together(streams) or StackedBatches(streams)


class StackedBatches:
    """The batches of all seeds, stacked.

    Where seeds differ in the length of their batches, the shorter ones are padded with
    zeros.
    """

    def __init__(self, streams: Sequence[Batches]):
        """Keep the streams, the batches of each seed."""
        self._streams = streams

    def take(self, n: int) -> Any:
        """Return the next n batches of every seed, a tree of arrays [n, S, B, ...]."""
        # A tree of arrays [n, B, ...] of each seed.
        taken = [take(stream, n) for stream in self._streams]
        return jax.tree.map(_stack_padded, *taken)

    def close(self) -> None:
        """Close every stream."""
        for stream in self._streams:
            close(stream)


def _stack_padded(*arrays):
    # All have the same number of axes: [n, B, ...].
    # Batches of several seeds may come from different buckets.
    largest = np.max([a.shape for a in arrays], axis=0)
    numpy = _numpy_of(arrays[0])
    padded = [numpy.pad(a, [(0, m) for m in largest - a.shape]) for a in arrays]
    # [n, B, ...] of each seed -> [n, S, B, ...].
    return numpy.stack(padded, axis=1)
