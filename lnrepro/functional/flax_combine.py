"""Parts that `Stack` and `Bidirectional` of linen and nnx share."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.cells.base import Carry, Cell
from lnrepro.functional.flax_modules import SequenceCall, StepCall

MergeFn = Callable[[jax.Array, jax.Array], jax.Array]
Arguments = dict[str, Any]


def run_layers(
    layers: Sequence[Callable],
    x: jax.Array,
    initial_carry: Sequence[Carry] | None,
    of_layer: Sequence[Arguments],
    call: SequenceCall,
) -> tuple[tuple[Carry, ...], jax.Array]:
    """Run sequence modules one after another.

    Args:
      layers: the modules, the lowest first.
      x: inputs of the lowest.
      initial_carry: one carry per layer, or None.
      of_layer: arguments of each layer's call.
      call: arguments of all calls; those that are None are not passed on.

    Returns:
      (carries, y).

    Raises:
      ValueError: another number of carries than of layers.
      TypeError: a layer that is no module.
    """
    for layer in layers:
        _check_module("Stack", layer)
    count = len(layers)
    carries = [None] * count if initial_carry is None else list(initial_carry)
    if len(carries) != count:
        raise ValueError(f"Stack: {len(carries)} carries for {count} layers")
    y, last_carries = x, []
    for index, layer in enumerate(layers):
        # A layer may have its own direction, which only reverse=True overrides.
        of_call = call._replace(reverse=None, keep_order=None)
        if call.reverse:
            # Between the layers, sequences stand in the order of x.
            is_last = index == count - 1
            keep_order = bool(call.keep_order) or not is_last
            of_call = call._replace(keep_order=keep_order)
        carry, y = layer(
            y,
            initial_carry=carries[index],
            return_carry=True,
            **of_layer[index],
            **_not_none(of_call),
        )
        last_carries.append(carry)
    return tuple(last_carries), y


def step_layers(
    layers: Sequence[Any],
    carry: Sequence[Carry],
    x: jax.Array,
    of_layer: Sequence[Arguments],
    call: StepCall,
) -> tuple[tuple[Carry, ...], jax.Array]:
    """Take one step of sequence modules, one after another.

    Args:
      layers: the modules, the lowest first.
      carry: one carry per layer.
      x: inputs [..., D] of the lowest.
      of_layer: arguments of each layer's step.
      call: arguments of all steps.

    Returns:
      (carries, y).
    """
    # The output of a layer at this step is the input of the next one.
    y, carries = x, []
    for layer, layer_carry, own in zip(layers, carry, of_layer, strict=True):
        new, y = layer.step(layer_carry, y, **own, **call._asdict())
        carries.append(new)
    return tuple(carries), y


def run_both(
    forward: Callable,
    backward: Callable,
    x: jax.Array,
    initial_carry: tuple[Carry, Carry] | None,
    of_direction: Sequence[Arguments],
    call: SequenceCall,
    merge_fn: str | MergeFn,
) -> tuple[tuple[Carry, Carry], jax.Array]:
    """Run one module from left to right and one from right to left, and merge.

    Args:
      forward: the module that runs from left to right.
      backward: the module that runs from right to left.
      x: inputs of both.
      initial_carry: a pair of carries, or None.
      of_direction: arguments of each module's call.
      call: arguments of both calls; those that are None are not passed on.
      merge_fn: "concat", "sum", or a function of both outputs.

    Returns:
      (carries, y), y in the order of x.

    Raises:
      ValueError: an unknown merge_fn.
      TypeError: a direction that is no module.
    """
    for module in (forward, backward):
        _check_module("Bidirectional", module)
    merge = merge_function(merge_fn)
    of_call = call._replace(reverse=None, keep_order=None)
    carries = (None, None) if initial_carry is None else initial_carry
    forward_carry, forward_y = forward(
        x,
        initial_carry=carries[0],
        return_carry=True,
        reverse=False,
        **of_direction[0],
        **_not_none(of_call),
    )
    backward_carry, backward_y = backward(
        x,
        initial_carry=carries[1],
        return_carry=True,
        reverse=True,
        keep_order=True,
        **of_direction[1],
        **_not_none(of_call),
    )
    # Both outputs stand in the order of x.
    return (forward_carry, backward_carry), merge(forward_y, backward_y)


def _check_module(owner: str, module: Any) -> None:
    """Raise TypeError for a class or a cell in place of a sequence module."""
    if isinstance(module, type):
        raise TypeError(
            f"{owner}: {module.__name__} is a class; give a module, such as LSTM(...) "
            "or RNN(cell)"
        )
    if isinstance(module, Cell):
        raise TypeError(
            f"{owner}: a {type(module).__name__} takes one step; wrap it in a module "
            "that runs it over a sequence: RNN(cell)"
        )


def merge_function(merge_fn: str | MergeFn) -> MergeFn:
    """Return the function that "concat" or "sum" stands for, or merge_fn itself.

    Raises:
      ValueError: another name.
    """
    if merge_fn == "concat":
        return _concatenate
    if merge_fn == "sum":
        return jnp.add
    if isinstance(merge_fn, str):
        raise ValueError(
            f"Bidirectional: merge_fn={merge_fn!r}; choose 'concat', 'sum' or a "
            "function"
        )
    return merge_fn


def merged_features(merge_fn: str | MergeFn, forward: int, backward: int) -> int:
    """Return the size of the merged output, where merge_fn is "concat" or "sum"."""
    return forward if merge_fn == "sum" else forward + backward


def _concatenate(left, right):
    return jnp.concatenate([left, right], -1)


def _not_none(call):
    """The arguments that are not None; modules of Flax do not take all of them."""
    return {name: value for name, value in call._asdict().items() if value is not None}
