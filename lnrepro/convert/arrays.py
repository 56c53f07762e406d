"""Weights as flat dicts of NumPy arrays."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

LEVEL = ":"


def to_numpy(name: str, value: Any) -> np.ndarray:
    """Return a weight as a NumPy array with the same bits.

    Args:
      name: the weight's name, for the message.
      value: anything that `np.asarray` accepts, or a torch tensor of any device.

    Raises:
      ValueError: the value is not an array.
    """
    # A torch tensor, told by its method, since torch is not imported here.
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # torch cannot export bfloat16. Every bfloat16 is also a float32.
        if str(value.dtype) == "torch.bfloat16":
            return np.asarray(value.float()).astype(jnp.bfloat16)
    array = np.asarray(value)
    # Objects and strings are no numbers, and no weight is a scalar.
    if array.ndim == 0 or array.dtype.kind in "OSU":
        raise ValueError(
            f"convert: weight {name!r} is a {type(value).__name__}, not an array"
        )
    return array


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested mapping as one dict without what is None.

    >>> flatten({"cell": {"hi": {"bias": 1, "kernel": 2}}})
    {'cell:hi:bias': 1, 'cell:hi:kernel': 2}
    """
    flat = {}
    for name, value in tree.items():
        found = {f"{prefix}{name}": value}
        if isinstance(value, Mapping):
            found = flatten(value, f"{prefix}{name}{LEVEL}")
        if twice := found.keys() & flat.keys():
            raise ValueError(f"convert: there are two weights {listed(twice)}")
        flat |= found
    return {name: value for name, value in flat.items() if value is not None}


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `flatten`."""
    tree = {}
    for path, value in flat.items():
        *levels, name = path.split(LEVEL)
        node = tree
        for level in levels:
            node = node.setdefault(level, {})
        node[name] = value
    return tree


def listed(names: Iterable[str]) -> str:
    """Return the first of the names in one line."""
    names = sorted(map(str, names))
    if len(names) > 12:
        names = [*names[:12], f"and {len(names) - 12} more"]
    return ", ".join(names) or "nothing"
