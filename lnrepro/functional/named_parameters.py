"""Parameters of a cell as the modules of linen and nnx keep them: by names."""

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.cells.base import Params


def as_drawn(tree: Any) -> Params:
    """Return parameters as their cell drew them.

    Args:
      tree: nested dicts. The entries of a tuple, such as the parameters of a stack, are
        named by their numbers.

    >>> as_drawn({"1": {"w": 2}, "0": {"w": 1}})
    ({'w': 1}, {'w': 2})
    """
    if not isinstance(tree, dict):
        return tree
    entries = {name: as_drawn(value) for name, value in tree.items()}
    if entries and all(str(name).isdigit() for name in entries):
        return tuple(entries[name] for name in sorted(entries, key=int))
    return entries


def cast(
    dtype: jax.typing.DTypeLike | None, x: jax.Array, params: Params
) -> tuple[jax.Array, Params]:
    """Return inputs and parameters in `dtype`, or as they are where it is None.

    Complex inputs would lose a part. They stay as they are, and the cell refuses them.
    """
    x = jnp.asarray(x)
    if dtype is None or jnp.iscomplexobj(x):
        return x, params
    return x.astype(dtype), jax.tree.map(lambda a: a.astype(dtype), params)


def check_sharding(sharding: Collection[str], names: Collection[str]) -> None:
    """Raise ValueError for mesh axes of a parameter that there is not.

    Args:
      sharding: names of the parameters that have mesh axes.
      names: names of all parameters.
    """
    for name in set(sharding) - set(names):
        raise ValueError(f"sharding: no parameter {name!r}, only {sorted(names)}")
