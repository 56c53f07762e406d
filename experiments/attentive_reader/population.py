"""Batch norm's population statistics, which stand for a batch's at test time.

    {encoder or map: {"sites", "count"}}

"sites" holds means and variances. Those of an encoder are {site: (mean, var)}, each
[T_max, n] with a row for every time step. Those of an affine map are (mean, var), each
[H]. "count" is the number of batches that the statistics are the mean of, [T_max] or
[].
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional import BatchStatistics, norms, track

Population = dict[str, Any]


def fresh(units: int | dict[str, int], *steps: int) -> Population:
    """Return the statistics of an LSTM or an affine map before the first batch.

    Args:
      units: number of units of the map, or {site: number of units n} of the LSTM.
      *steps: T_max of an LSTM, the number of time steps with statistics of their own.

    Returns:
      {"sites", "count"}: means 0, variances 1 and counts 0.
    """

    def standard(n):
        shape = (*steps, n)
        return jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32)

    sites = jax.tree.map(standard, units)
    return {"sites": sites, "count": jnp.zeros(steps, jnp.float32)}


def update_population(
    population: Population, seen: dict[str, Any], momentum: float
) -> Population:
    """Update population statistics with one batch.

    They are the mean over the batches so far, until 1 / (1 - momentum) batches make
    them a running average. Step t counts the batches that had a word there. No gradient
    flows.

    Args:
      population: the statistics before the batch.
      seen: `Reading.statistics` of a batch in training.
      momentum: the largest weight of the old statistics, 0 to 1.

    Returns:
      The population statistics.
    """
    updated = {}
    for name, old in population.items():
        batch, sites, count = seen[name], old["sites"], old["count"]
        # With this momentum, old and new make the mean of count + 1 batches.
        rate = jnp.minimum(count / (count + 1), momentum)
        if isinstance(batch, BatchStatistics):
            # Steps beyond those with statistics of their own change nothing.
            known = min(len(count), len(batch.seen))
            sites = track(sites, batch, rate[:known, None])
            count = count.at[:known].add(batch.seen[:known])
        else:
            average = functools.partial(norms.running_average, momentum=rate)
            sites, count = jax.tree.map(average, sites, batch), count + 1
        updated[name] = {"sites": sites, "count": count}
    return updated


def filled(running: Population) -> Population:
    """Fill statistics by time step at the steps that no batch has reached.

    Such a step takes the statistics of the last step before it that a batch has
    reached. Source: popstats.py of the authors' code.

    Args:
      running: {"sites": {site: (mean, var)}, each [T_max, n], "count": [T_max]}.

    Returns:
      {site: (mean, var)}, each [T_max, n].
    """
    count = running["count"]
    # At each step its own number if a batch has reached it, else 0. The running maximum
    # is then the last step reached.
    reached = jnp.where(count > 0, jnp.arange(len(count)), 0)
    last_reached = jax.lax.cummax(reached)
    return jax.tree.map(lambda s: s[last_reached], running["sites"])
