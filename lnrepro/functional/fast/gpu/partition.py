"""A function of rows of a batch, run by each device of a mesh for its own rows."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.experimental.custom_partitioning import (
    ArrayMapping,
    SdyShardingRule,
    custom_partitioning,
)
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.functional.fast import disk_cache

Axes = Sequence[int | None]


def over_rows(
    function: Callable,
    arguments: Sequence[jax.Array],
    axes: Axes,
    results: Sequence,
    result_axes: Sequence[int],
    name: str,
) -> tuple:
    """Call a function, over several devices with the rows of each.

    Args:
      function: it takes as many arrays, and returns a tuple of arrays.
      arguments: its arguments.
      axes: the axis of the batch of each, or None where it has none.
      results: shapes and dtypes of its results.
      result_axes: the axis of the batch of each.
      name: what tells the function from others.
    """
    digest = np.frombuffer(bytes.fromhex(disk_cache.digest(name)), np.int32)
    axes = [None, *axes]

    # JAX's cache of programs knows no function that is called here. The digest, which
    # nothing reads, tells two of them apart.
    @custom_partitioning
    def run(digest, *arguments):
        return function(*arguments)

    def partition(mesh, arguments, results):
        axis = result_axes[0]
        of_rows = (*results[0].sharding.spec, *[None] * (axis + 1))[axis]

        def placed(axis):
            spec = P() if axis is None else P(*[None] * axis, of_rows)
            return NamedSharding(mesh, spec)

        places = tuple(map(placed, result_axes)), tuple(map(placed, axes))
        return mesh, lambda _, *arguments: function(*arguments), *places

    others = []

    def factors(a, row):
        names = []
        for axis in range(len(a.shape)):
            if axis != row:
                others.append(f"f{len(others)}")
            names.append("rows" if axis == row else others[-1])
        return ArrayMapping(*names)

    # Rows may be split, and nothing else.
    operands = tuple(map(factors, (digest, *arguments), axes))
    mapped = tuple(map(factors, results, result_axes))
    rule = SdyShardingRule(operands, mapped, need_replication_factors=tuple(others))
    run.def_partition(partition, sharding_rule=rule)
    return run(digest, *arguments)
