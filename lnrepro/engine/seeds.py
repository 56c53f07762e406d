"""Several seeds in one run: `config.seeds` seeds are trained by one compiled step.

They are one experiment, whose parameters, metrics and batches have an axis S of seeds.
It comes first, and in batches behind the axis of the stacked steps: [K, S, B, ...]. The
numbers of each seed equal those of its own run, up to rounding.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from lnrepro.engine import experiment, resident
from lnrepro.engine.experiment import Evaluation, Experiment
from lnrepro.engine.train_step import Batches, close


def of(config: ConfigDict) -> range:
    """Return the seeds that are trained together."""
    return range(config.seed, config.seed + config.seeds)


def keys(config: ConfigDict) -> tuple[jax.Array, jax.Array]:
    """Return the keys of the parameters and of the training, [S] with several seeds."""
    of_each = [jax.random.split(jax.random.key(seed)) for seed in of(config)]
    init, step = of_each[0] if config.seeds == 1 else jnp.stack(of_each, axis=1)
    return init, step


def load(config: ConfigDict) -> Experiment:
    """Make the experiment of a config, that of all its seeds together."""
    if config.seeds == 1:
        return experiment.load(config)
    of_each = []
    for seed in of(config):
        own = config.copy_and_resolve_references()
        # `seeds` stays, so that batches of all seeds can have one structure.
        own.seed = seed
        of_each.append(experiment.load(own))
    return _together(of_each, of(config))


def of_each(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Return the optimiser of all seeds, which treats each by itself."""

    def update(updates, state, params=None):
        return jax.vmap(optimizer.update)(updates, state, params)

    return optax.GradientTransformation(jax.vmap(optimizer.init), update)


def _together(experiments: Sequence[Experiment], seeds: Sequence[int]) -> Experiment:
    one = experiments[0]
    # The index is an argument and not a constant, so that one program serves all seeds.
    part = jax.jit(lambda tree, i: jax.tree.map(lambda leaf: leaf[i], tree))

    def init(keys):
        return jax.lax.map(one.init, keys)

    def loss(vars, batch, keys):
        losses, (collections, metrics) = jax.vmap(one.loss)(vars, batch, keys)
        metrics = {"loss": losses, **metrics}
        numbers = [part(metrics, i) for i in range(len(seeds))]
        # With respect to the parameters of a seed, the gradient of the sum is that of
        # its own loss.
        return losses.sum(), (collections, spread(numbers, seeds))

    def batches(start_step):
        streams = [exp.batches(start_step) for exp in experiments]
        return resident.together(streams) or stacked(streams)

    def evaluate(vars, name):
        numbers, images, files, captions = [], {}, {}, {}
        for i, seed in enumerate(seeds):
            found = experiments[i].evaluate(part(vars, i), name)
            numbers.append(found.scalars)
            kinds = zip((images, files, captions), found[1:], strict=True)
            for of_all, own in kinds:
                of_all |= {f"seed{seed}/{file}": own[file] for file in own}
        return Evaluation(spread(numbers, seeds), images, files, captions)

    return one._replace(init=init, loss=loss, batches=batches, evaluate=evaluate)


def spread(
    numbers: Sequence[Mapping[str, Any]], seeds: Sequence[int]
) -> dict[str, Any]:
    """Name the numbers of several seeds.

    Args:
      numbers: {name: number} of each seed.
      seeds: the seeds.

    Returns:
      {name: mean over the seeds, name/seedI: number of seed I}. A name that one of the
      seeds lacks has no mean.
    """
    named = {}
    for own, seed in zip(numbers, seeds, strict=True):
        named |= {name_of(name, seed): value for name, value in own.items()}
    # The plain name is the mean, so that figures and `best.metric` need no case of
    # their own.
    for name in numbers[0]:
        there = [own[name] for own in numbers if name in own]
        if len(there) == len(seeds):
            named[name] = sum(there) / len(seeds)
    return named


def name_of(name: str, seed: int) -> str:
    """Return what `spread` calls a number of one seed."""
    return f"{name}/seed{seed}"


def without_single(values: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers that are not those of one seed among several."""
    return {n: v for n, v in values.items() if not re.search(r"/seed\d+$", n)}


def stacked(streams: Sequence[Batches]) -> Iterator[Any]:
    """Yield the batches of all seeds, stacked: arrays [S, B, ...].

    Where seeds differ in the length of a batch, the shorter ones are padded with zeros.
    """
    try:
        for of_each in zip(*streams, strict=True):
            yield jax.tree.map(_stack_padded, *of_each)
    finally:
        for stream in streams:
            close(stream)


def _stack_padded(*arrays):
    # Batches of several seeds may come from different buckets.
    largest = np.max([a.shape for a in arrays], axis=0)
    return np.stack([np.pad(a, [(0, m) for m in largest - a.shape]) for a in arrays])
