"""Checks of what a user gives to `unroll` and `step`, each with one clear message."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional import products
from lnrepro.functional.arrays import gather_from
from lnrepro.functional.cells.base import Cell, Params

# How the functions are called, for messages about the order of arguments, and the
# fewest axes of x.
SIGNATURES = {
    "unroll": ("unroll(cell, params, x)", 2),
    "step": ("step(cell, params, carry, x)", 1),
}


def inputs(function: str, cell: Cell, params: Params, x: Any) -> jax.Array:
    """Check the inputs of a cell, and return them as an array.

    Args:
      function: "unroll" or "step", for the messages.
      cell: the cell.
      params: its parameters.
      x: [..., D], the inputs.

    Raises:
      TypeError: x is not floating point, or cell, params and x stand in another order.
      ValueError: too few axes.
    """
    # A swap of params and x would fail later with a message about a shape or a name.
    signature, least_axes = SIGNATURES[function]
    is_swapped = isinstance(x, dict | tuple) or isinstance(params, jax.Array)
    if is_swapped or not isinstance(cell, Cell):
        kinds = ", ".join(type(value).__name__ for value in (cell, params, x))
        raise TypeError(
            f"{function}: cell, params and x are of the types {kinds}; call "
            f"{signature} in this order"
        )
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"{function}: inputs have dtype {x.dtype}; they must be floating point "
            "(embed or convert them first)"
        )
    if x.ndim < least_axes:
        raise ValueError(
            f"{function}: x has shape {x.shape}; it is [..., T, D], or [..., D] for "
            "one step"
        )
    # The step reads all features, on every device.
    return gather_from(x, x.ndim - 1)


def features(function: str, cell: Cell, weights: products.Weights, x: jax.Array):
    """Raise ValueError where W_x takes another number of input features.

    Args:
      function: "unroll" or "step", for the message.
      cell: the cell.
      weights: those of `Cell.prepare`. A cell without w_x checks its input itself.
      x: [..., D], the inputs.
    """
    kernel = weights.get("w_x", jnp.zeros(0))
    if kernel.ndim == 2 and kernel.shape[0] != x.shape[-1]:
        raise ValueError(
            f"{function}: inputs {x.shape} have {x.shape[-1]} features, but w_x of "
            f"{type(cell).__name__} takes {kernel.shape[0]}"
        )


def carry_like(function: str, own_carry: Any, carry: Any) -> Any:
    """Check a carry that a user passed against the cell's own.

    Args:
      function: "unroll" or "step", for the messages.
      own_carry: what `cell.initial_carry` returned.
      carry: what the user passed.

    Returns:
      The carry, with its leaves in the dtypes and shardings of the cell's own.

    Raises:
      ValueError: another structure or shape.
      TypeError: another dtype.
    """
    carry = _in_containers_of(own_carry, carry)
    # Structure first: the leaves can be compared only if there are as many.
    structure, own_structure = jax.tree.structure(carry), jax.tree.structure(own_carry)
    if structure != own_structure:
        raise ValueError(
            f"{function}: the carry is {structure}, but this cell's is "
            f"{own_structure}: (c, h) for an LSTM, h for a GRU"
        )

    def like(given, own):
        given = jnp.asarray(given)
        if given.shape != own.shape:
            raise ValueError(
                f"{function}: the carry has shape {given.shape}, but these inputs and "
                f"the cell's features ask for {own.shape}"
            )
        # Only a narrower number becomes another dtype without loss.
        is_floating = jnp.issubdtype(given.dtype, jnp.floating)
        is_narrow = is_floating and given.dtype.itemsize < own.dtype.itemsize
        if given.dtype != own.dtype and not is_narrow:
            raise TypeError(
                f"{function}: the carry has dtype {given.dtype}, but this computation "
                f"keeps it in {own.dtype}; cast it"
            )
        return _sharded_like(given.astype(own.dtype), own)

    return jax.tree.map(like, carry, own_carry)


def step_result(cell: Cell, carry: Any, result: Any) -> tuple:
    """Check what the step of a cell returned; a message names the cell.

    Args:
      cell: the cell.
      carry: the carry that the step got.
      result: what it returned.

    Returns:
      (carry in the dtypes of the old one, as a loop keeps them, statistics).

    Raises:
      TypeError: no pair, or a carry of another structure or shape.
    """
    # jax.lax.scan would name neither the cell nor its method.
    where = f"{type(cell).__name__}.step"
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            f"{where} must return a pair: the new carry, and the statistics, which are "
            "None without batch norm"
        )
    shapes, new_shapes = jax.tree.map(jnp.shape, (carry, result[0]))
    if shapes != new_shapes:
        raise TypeError(
            f"{where} returned a carry of shapes {new_shapes}, but initial_carry "
            f"returns {shapes}"
        )
    new, statistics = result
    return jax.tree.map(lambda a, b: a.astype(b.dtype), new, carry), statistics


def _in_containers_of(own, carry):
    """Return a carry in the tuples of the cell's own, which a checkpoint may lose."""
    if isinstance(own, dict) and isinstance(carry, dict) and own.keys() == carry.keys():
        return {name: _in_containers_of(own[name], carry[name]) for name in own}
    if not isinstance(own, tuple | list):
        return carry
    if isinstance(carry, Mapping):
        # Flax's msgpack names the entries of a tuple by their numbers.
        names = getattr(own, "_fields", [str(number) for number in range(len(own))])
        carry = [carry[name] for name in names if name in carry]
    if not isinstance(carry, tuple | list) or len(carry) != len(own):
        return carry
    # The state of Haiku's LSTM is (hidden, cell), in another order: it is refused.
    fields = getattr(carry, "_fields", ())
    if fields and fields[0].startswith("h") and not hasattr(own, "_fields"):
        return carry
    entries = [_in_containers_of(a, b) for a, b in zip(own, carry, strict=True)]
    return jax.tree.unflatten(
        jax.tree.structure(own, is_leaf=lambda a: a is not own), entries
    )


def _sharded_like(a, like):
    """Return a in the sharding of `like` under an Explicit mesh."""
    # A carry that `jit` or a user made may lie elsewhere than the batch.
    spec = jax.typeof(like).sharding.spec
    if jax.typeof(a).sharding.spec == spec:
        return a
    return jax.sharding.reshard(a, spec)
