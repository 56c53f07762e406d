"""Checks of what a user gives, each with one clear message."""

import operator
from typing import Any

import jax
import jax.numpy as jnp


def positive_integer(owner: str, name: str, value: Any) -> None:
    """Check a field that counts something.

    Args:
      owner: name of the class or function, for the message.
      name: name of the field, for the message.
      value: what the user gave.

    Raises:
      ValueError: value is no positive integer.
    """
    # NumPy's integers are integers too, and True is one to Python only.
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise ValueError(f"{owner}: {name}={value!r}; it must be a positive integer")


def choice(owner: str, name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Check a field that has a few allowed values.

    Args:
      owner: name of the class or function, for the message.
      name: name of the field, for the message.
      value: what the user gave.
      allowed: the values that the field may have.

    Raises:
      ValueError: value is none of them.
    """
    if value not in allowed:
        raise ValueError(
            f"{owner}: {name}={value!r}; choose one of {', '.join(map(repr, allowed))}"
        )


def floating_point(owner: str, name: str, value: Any) -> jax.Array:
    """Return an array that must be floating point.

    Args:
      owner: name of the function, for the message.
      name: name of the argument, for the message.
      value: what the user gave.

    Raises:
      TypeError: another dtype.
    """
    value = jnp.asarray(value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(
            f"{owner}: {name} has dtype {value.dtype}; it must be floating point "
            "(embed it, or convert it as in x.astype(jnp.float32))"
        )
    return value


def of_shape(owner: str, name: str, value: Any, shape: tuple) -> None:
    """Raise ValueError where an array has another shape than the others ask for.

    Args:
      owner: name of the function or class, for the message.
      name: name of the argument, for the message.
      value: what the user gave.
      shape: the shape that it must have.
    """
    # One that is smaller would broadcast, and give other numbers without a word.
    if value.shape != shape:
        raise ValueError(
            f"{owner}: {name} has shape {value.shape}, but the other arguments ask for "
            f"{shape}"
        )


def features(function: str, cell: Any, weights: dict, x: jax.Array) -> None:
    """Raise ValueError where W_x takes another number of input features.

    Args:
      function: "unroll" or "step", for the message.
      cell: the cell.
      weights: those of `Cell.prepare`. A cell without w_x checks its input itself.
      x: [..., D], the inputs.
    """
    # Blocks have more axes, and where there is no w_x, this array has one.
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
    given, own = _by_place(carry), _by_place(own_carry)
    structure = jax.tree.structure(own_carry)
    if given.keys() != own.keys():
        raise ValueError(
            f"{function}: the carry is {jax.tree.structure(carry)}, but this cell's is "
            f"{structure}: (c, h) for an LSTM, h for a GRU"
        )
    leaves = [_like(function, given[place], a) for place, a in own.items()]
    return jax.tree.unflatten(structure, leaves)


def _by_place(tree):
    """{place of an array: the array}, such as "1/0".

    A checkpoint may restore a tuple as a list, or as a dict whose keys are its numbers
    or the names of its fields. All of them have the same places. The state of Haiku's
    LSTM, (hidden, cell), is a tuple in another order, and its fields have other names.
    """
    places = {}
    for path, a in jax.tree.leaves_with_path(tree):
        places[jax.tree_util.keystr(path, simple=True, separator="/")] = a
    return places


def _like(function, given, own):
    """An array of a carry in the dtype and sharding of the cell's own."""
    given = jnp.asarray(given)
    of_shape(function, "the carry", given, own.shape)
    # Only a narrower number becomes another dtype without loss.
    is_floating = jnp.issubdtype(given.dtype, jnp.floating)
    is_narrow = is_floating and given.dtype.itemsize < own.dtype.itemsize
    if given.dtype != own.dtype and not is_narrow:
        raise TypeError(
            f"{function}: the carry has dtype {given.dtype}, but this computation "
            f"keeps it in {own.dtype}; cast it"
        )
    return _sharded_like(given.astype(own.dtype), own)


def _sharded_like(a, like):
    """Return a in the sharding of `like` under an Explicit mesh."""
    # A carry that `jit` or a user made may lie elsewhere than the batch.
    spec = jax.typeof(like).sharding.spec
    if jax.typeof(a).sharding.spec == spec:
        return a
    return jax.sharding.reshard(a, spec)
