"""What the modules of `lnrepro.linen` and `lnrepro.nnx` have in common."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from lnrepro.functional.cells.base import Carry, Cell, Params
from lnrepro.functional.scan import ScanOptions

Wrap = Callable[[Cell], Cell]
T = TypeVar("T")


def wrapped(name: str, cell: Cell, wrap: Wrap | None) -> Cell:
    """Return wrap(cell), or cell where wrap is None.

    Args:
      name: name of the module, for the message.
      cell: the cell.
      wrap: function from cell to cell.

    Raises:
      TypeError: wrap returned something else than a cell.
    """
    if wrap is None:
        return cell
    result = wrap(cell)
    if not isinstance(result, Cell):
        raise TypeError(
            f"{name}: wrap returned a {type(result).__name__}, not a Cell; it is a "
            "function from cell to cell, such as functools.partial("
            "lnrepro.functional.zoneout, rate_h=0.1)"
        )
    return result


def chosen(argument: T | None, attribute: T) -> T:
    """Return the argument of a call, or the module's attribute where it is None."""
    return attribute if argument is None else argument


def given(
    mask: Any, resets: Any, memory: Any, deterministic: Any, use_running_average: Any
) -> dict[str, Any]:
    """Return the arguments of a call that are not None, by their names.

    Modules of Flax do not take all of them, so only what is given is passed on.

    >>> given(None, None, None, True, None)
    {'deterministic': True}
    """
    arguments = {
        "mask": mask,
        "resets": resets,
        "memory": memory,
        "deterministic": deterministic,
        "use_running_average": use_running_average,
    }
    return {name: value for name, value in arguments.items() if value is not None}


def drawn_carry(cell: Cell, params: Params, x: jax.Array, carry: Carry) -> Carry:
    """Return a carry that `carry_init` drew, in the dtype of the computation.

    Args:
      cell: the cell.
      params: its parameters.
      x: the inputs of the sequence.
      carry: the carry, drawn in the dtype of the parameters.
    """
    # As `unroll`: the computation runs in the common dtype of inputs and weights.
    weights = jax.tree.leaves(cell.prepare(params)[0])
    dtype = jnp.result_type(x, *weights)

    def cast(leaf):
        is_floating = jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf.astype(dtype) if is_floating else leaf

    return jax.tree.map(cast, carry)


def scan_options(options: ScanOptions | None, unroll: int) -> ScanOptions:
    """Return the options of the scan, with Flax's `unroll` in them."""
    options = ScanOptions() if options is None else options
    return options if unroll == 1 else dataclasses.replace(options, unroll=unroll)


def parameter_names(path: tuple) -> tuple[str, ...]:
    """Return the names along the path to a parameter; a lone array is called "value".

    Args:
      path: key path of `jax.tree_util.tree_flatten_with_path`.
    """
    names = tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
    return names or ("value",)
