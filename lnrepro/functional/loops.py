"""Loops over steps: in chunks, and the two loops of the backward pass.

XLA's CPU backend writes the gradients of products over the products themselves only
while the products of the next step are read after this step has written. In any other
order it copies whole stacks at every step. `scan_in_place` keeps to that order.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.scan_options import Plan


def over_chunks(
    function: Callable, state: Any, inputs: Any, size: int, reverse: bool
) -> tuple[Any, Any]:
    """`jax.lax.scan` of a function of chunks of `size` steps; the last may be shorter.

    Args:
      function: (state, inputs of a chunk [size, ...]) -> (state, outputs of a chunk).
      state: the state before the first chunk.
      inputs: pytree of [T, ...].
      size: steps per chunk. With one chunk there is no loop around it.
      reverse: take the chunks from the last to the first.

    Returns:
      (last state, outputs [T, ...]).
    """
    steps = jax.tree.leaves(inputs)[0].shape[0]
    if steps == size:
        return function(state, inputs)
    left_over = steps % size

    def of_chunk(state, first, length=size):
        # Chunks are read from the whole arrays. These split into chunks, without what
        # is left over, would be a copy.
        def read(a):
            return jax.lax.dynamic_slice_in_dim(a, first, length)

        return function(state, jax.tree.map(read, inputs))

    if left_over and reverse:
        state, rest = of_chunk(state, steps - left_over, left_over)
    starts = jnp.arange(0, steps - left_over, size)
    state, stacked = jax.lax.scan(of_chunk, state, starts, reverse=reverse)
    # Without a copy: [chunks, size, ...] -> [chunks * size, ...].
    outputs = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), stacked)
    if not left_over:
        return state, outputs
    if not reverse:
        state, rest = of_chunk(state, steps - left_over, left_over)
    return state, jax.tree.map(lambda *a: jnp.concatenate(a), outputs, rest)


def scan_in_place(
    plan: Plan, one_step: Callable, carry: Any, total: Any, replaced: Any, inputs: Any
) -> tuple[Any, Any, Any, Any]:
    """Scan one_step against the direction of the forward pass.

    Args:
      plan: the static part of the scan.
      one_step: (carry, (values to replace, inputs)) -> (carry, (values in their place,
        what is added to the total, outputs)), each of one step.
      carry: the carry before the first step.
      total: pytree of sums so far.
      replaced: pytree of [T, ...].
      inputs: pytree of [T, ...].

    Returns:
      (last carry, total, values in place of `replaced` [T, ...], outputs [T, ...]).
    """
    reverse = not plan.reverse
    steps = jax.tree.leaves(inputs)[0].shape[0]
    first, toward = (steps - 1, -1) if reverse else (0, 1)

    # The index is in range, so that no step pays for wrapping a negative one.
    def read(stacks, t):
        return jax.tree.map(
            lambda a: jax.lax.dynamic_index_in_dim(
                a, t, keepdims=False, allow_negative_indices=False
            ),
            stacks,
        )

    def write(stacks, values, t):
        return jax.tree.map(
            lambda a, value: jax.lax.dynamic_update_index_in_dim(
                a, value, t, 0, allow_negative_indices=False
            ),
            stacks,
            values,
        )

    def one_iteration(loop, inputs):
        # `here` holds the values of step t, which were read before this iteration.
        t, carry, total, stacks, here = loop
        carry, (values, terms, outputs) = one_step(carry, (here, inputs))
        stacks = write(stacks, values, t)
        # After the last step the index stays inside the stacks.
        t = jnp.clip(t + toward, 0, steps - 1)
        return (t, carry, add(total, terms), stacks, read(stacks, t)), outputs

    # The first values are read before the loop, which reads one step ahead.
    t = jnp.asarray(first)
    (_, carry, total, stacks, _), outputs = jax.lax.scan(
        one_iteration,
        (t, carry, total, replaced, read(replaced, t)),
        inputs,
        reverse=reverse,
        unroll=plan.options.unroll,
    )
    return carry, total, stacks, outputs


def scan_at_once(
    plan: Plan, one_step: Callable, carry: Any, total: Any, replaced: Any, inputs: Any
) -> tuple[Any, Any, Any, Any]:
    """Do what `scan_in_place` does, with new arrays for the values."""

    def one_iteration(state, inputs):
        carry, total = state
        carry, (values, terms, outputs) = one_step(carry, inputs)
        return (carry, add(total, terms)), (values, outputs)

    (carry, total), (values, outputs) = plan.form.loop(
        one_iteration,
        (carry, total),
        (replaced, inputs),
        reverse=not plan.reverse,
        unroll=plan.options.unroll,
    )
    return carry, total, values, outputs


def add(total: Any, new: Any) -> Any:
    """Add two trees of gradients in the dtype of the first."""
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), total, new)
