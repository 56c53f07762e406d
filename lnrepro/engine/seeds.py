"""Several seeds in one run (`config.seeds`): the runs of seed, seed + 1, ... trained by one compiled step.

Every array of the state has a leading axis S of seeds, every batch one behind the stacked steps: (K, S, B, ...). Each
seed's numbers are those of its own run, up to the order in which the hardware adds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro.engine.errors import UserError


def of(config: ConfigDict) -> tuple[int, ...]:
    """The seeds of a run. Raises UserError for a number of them below 1."""
    n = config.get("seeds", 1)
    if n < 1:
        raise UserError(f"config.seeds = {n}: at least 1 is needed")
    return tuple(range(config.seed, config.seed + n))


def single(config: ConfigDict, seed: int) -> ConfigDict:
    """The config of one seed's own run."""
    if config.get("seeds", 1) == 1:
        return config
    own = config.copy_and_resolve_references()
    own.seed, own.seeds = seed, 1
    return own


def stack(trees: Sequence[Any]) -> Any:
    """One tree for all seeds, leaves (S, ...); of a single seed the tree as it is."""
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(
        lambda *x: (np if isinstance(x[0], np.ndarray) else jnp).stack(x), *trees
    )


def parts(tree: Any, n: int) -> Iterator[Any]:
    """The trees that `stack` put together."""
    if n == 1:
        yield tree
        return
    take = jax.jit(lambda tree, i: jax.tree.map(lambda x: x[i], tree))
    for i in range(n):
        yield take(tree, i)


def spread(
    values: Mapping[str, float | Sequence[float]], seeds: Sequence[int]
) -> dict[str, float]:
    """{name: (S,) numbers} -> {name: their mean, name/seedI: each}; of a single seed {name: number} as it is."""
    if len(seeds) == 1:
        return dict(values)
    out = {name: float(np.mean(v)) for name, v in values.items()}
    for i, seed in enumerate(seeds):
        out |= {name_of(name, seed): float(v[i]) for name, v in values.items()}
    return out


def name_of(name: str, seed: int) -> str:
    """What `spread` calls a number of one seed."""
    return f"{name}/seed{seed}"


def is_one(name: str) -> bool:
    """Whether a number that `spread` named is that of one seed among several."""
    return name.rpartition("/")[2].removeprefix("seed").isdecimal()


class Together:
    """The batches of all seeds, stacked; where their buckets differ, zero-padded to the longest among them.

    `take(stream, n)` gives the next n batches of one seed as arrays (n, B, ...).
    """

    def __init__(
        self, streams: Sequence[Iterator[Mapping[str, np.ndarray]]], take: Callable
    ):
        self._streams, self._take = streams, take

    def take(self, n: int) -> dict[str, np.ndarray]:
        """The next n batches of every seed: arrays (n, S, B, ...)."""
        taken = [self._take(stream, n) for stream in self._streams]
        return {
            name: _together([np.asarray(batch[name]) for batch in taken])
            for name in taken[0]
        }

    def close(self) -> None:
        """Close every stream that can be."""
        for stream in self._streams:
            if hasattr(stream, "close"):
                stream.close()


def _together(arrays: list[np.ndarray]) -> np.ndarray:
    longest = np.max([a.shape for a in arrays], axis=0)
    padded = [
        np.pad(a, [(0, n - m) for n, m in zip(longest, a.shape, strict=True)])
        for a in arrays
    ]
    return np.stack(padded, axis=1)
