"""Checks of what a user gives to `unroll` and `step`, each with one clear message."""

from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional import products
from lnrepro.functional.cells.base import Cell, Params

# How the functions are called, for messages about the order of arguments.
SIGNATURES = {
    "unroll": "unroll(cell, params, x)",
    "step": "step(cell, params, carry, x)",
}


def sequence_inputs(x: jax.Array) -> None:
    """Raise ValueError unless x has a time and a feature axis."""
    if x.ndim < 2:
        raise ValueError(
            f"unroll: x has shape {x.shape}; it needs a time and a feature axis, "
            "[..., T, D]"
        )


def one_dtype(function: str, cell: Cell, params: Params, x: Any) -> tuple:
    """Check inputs and parameters of a cell; bring inputs and weights to one dtype.

    Args:
      function: "unroll" or "step", for the messages.
      cell: the cell.
      params: its parameters.
      x: [..., D], the inputs.

    Returns:
      (x, weights, step_params): weights and step_params are those of `cell.prepare`; x
      and weights have one dtype.

    Raises:
      TypeError: x is not floating point, or cell, params and x stand in another order.
      ValueError: parameters that are not the cell's, or another number of features.
    """
    call = f"call {SIGNATURES[function]} in this order"
    if not isinstance(cell, Cell):
        raise TypeError(
            f"{function}: the first argument is {_kind(cell)}, not a cell; {call}"
        )
    # A swap of params and x would fail later with a message about a shape or a name.
    if isinstance(x, dict | tuple) or isinstance(params, jax.Array):
        raise TypeError(
            f"{function}: params is {_kind(params)} and x is {_kind(x)}; {call}"
        )
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"{function}: inputs have dtype {x.dtype}; they must be floating point "
            "(embed or convert them first)"
        )
    try:
        # Prepared at the precision of the parameters, before any cast.
        weights, step_params = cell.prepare(params)
    except KeyError as error:
        raise ValueError(
            f"{function}: params has no {error}, only {sorted(params)}; make them with "
            "cell.init(key, features_in)"
        ) from error
    _check_features(function, cell, weights, x)
    # The computation runs in the common dtype of x and the weights. Parameters of the
    # step, such as gains, keep their own.
    dtypes = [weight.dtype for weight in weights.values()]
    dtype = jnp.result_type(x.dtype, *dtypes) if dtypes else x.dtype
    weights = {name: weight.astype(dtype) for name, weight in weights.items()}
    step_params = jax.tree.map(products.gather, step_params)
    return x.astype(dtype), weights, step_params


def _check_features(function, cell, weights, x):
    """Raise ValueError unless the last axis of x fits the cell's projection."""
    if x.ndim < 1:
        raise ValueError(f"{function}: x is a scalar; it needs an axis of features")
    kernel = weights.get("w_x")
    if kernel is None or kernel.ndim != 2:
        return  # A cell with another projection checks its input itself.
    features = kernel.shape[0]
    if x.shape[-1] != features:
        raise ValueError(
            f"{function}: inputs {x.shape} have {x.shape[-1]} features, but w_x of "
            f"{type(cell).__name__} takes {features}"
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
    # Structure first: the leaves can be compared only if there are as many.
    own_structure = jax.tree.structure(own_carry)
    if own_structure != jax.tree.structure(carry):
        raise ValueError(
            f"{function}: the carry is {jax.tree.structure(carry)}, but this "
            f"cell's is {own_structure}: (c, h) for an LSTM, h for a GRU"
        )
    leaves = zip(jax.tree.leaves(carry), jax.tree.leaves(own_carry), strict=True)
    for given, own in leaves:
        shape = jnp.asarray(given).shape
        if shape != own.shape:
            is_of_batch = shape[-1:] == own.shape[-1:]
            asks = "these inputs ask" if is_of_batch else "the cell's `features` asks"
            raise ValueError(
                f"{function}: the carry has shape {shape}, but {asks} for {own.shape}"
            )
        # Only a narrower number becomes another dtype without loss.
        dtype = jnp.result_type(given)
        is_narrower = jnp.issubdtype(dtype, jnp.floating) and (
            jnp.finfo(dtype).bits < jnp.finfo(own.dtype).bits
        )
        if dtype != own.dtype and not is_narrower:
            raise TypeError(
                f"{function}: the carry has dtype {dtype}, but this computation keeps "
                f"it in {own.dtype}; cast it"
            )
    return jax.tree.map(_sharded_like, carry, own_carry)


def step_result(cell: Cell, carry: Any, result: Any) -> tuple:
    """Check what the step of a cell returned, so that the message names the cell.

    Args:
      cell: the cell.
      carry: the carry that the step got.
      result: what it returned.

    Returns:
      (carry, statistics) as the step returned them.

    Raises:
      TypeError: no pair, or a carry of another structure or shape.
    """
    where = f"{type(cell).__name__}.step"
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            f"{where} must return a pair: the new carry, and the statistics, which are "
            "None without batch norm"
        )
    structure, new_structure = jax.tree.structure(carry), jax.tree.structure(result[0])
    shapes = [jnp.asarray(leaf).shape for leaf in jax.tree.leaves(carry)]
    new_shapes = [jnp.asarray(leaf).shape for leaf in jax.tree.leaves(result[0])]
    if (structure, shapes) != (new_structure, new_shapes):
        raise TypeError(
            f"{where} returned a carry {new_structure} of shapes {new_shapes}, but "
            f"initial_carry returns {structure} of shapes {shapes}"
        )
    return result


def _sharded_like(a, like):
    """Return a in the dtype of `like`, and in its sharding under an Explicit mesh."""
    a = jnp.asarray(a, like.dtype)
    spec = jax.typeof(like).sharding.spec
    if jax.typeof(a).sharding.spec == spec:
        return a
    return jax.sharding.reshard(a, spec)


def _kind(value):
    return f"a {type(value).__name__}"
