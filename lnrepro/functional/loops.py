"""Loops over steps: in chunks, and that of the backward pass on CPUs.

XLA's CPU backend writes the gradients of products over the products themselves only
while the products of the next step are read after this step has written. In any other
order it copies whole stacks at every step. `scan_in_place` keeps to that order.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.fast import fission
from lnrepro.functional.fast.equations import inline
from lnrepro.functional.fast.parts import take_products_apart


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
    body: Callable, carry: Any, xs: Any, *, reverse: bool = False, unroll: int = 1
) -> tuple[Any, Any]:
    """Scan, and write the first outputs of every step over its first inputs.

    Products with weights that no carry needs are taken after the loop.

    Args:
      body: (carry, (values to replace, inputs)) -> (carry, (values in their place,
        outputs)), each of one step.
      carry: pytree, the carry before the first step.
      xs: pytree of [T, ...], what `body` gets of each step.
      reverse: run from the last step to the first.
      unroll: steps per iteration of the loop.

    Returns:
      (last carry, (values in place of the first inputs, outputs)), [T, ...].
    """
    count = len(jax.tree.leaves(xs[0]))
    parts = take_products_apart(body, carry, xs, count)
    values = parts.outputs[:count]
    stacked = [v for v in parts.to_after if v not in values]
    loop = _with_weights_first(parts.loop, parts.constants)
    of_loop = parts._replace(loop=loop, to_after=values + stacked)

    def in_place(known, carry, inputs):
        one_step = fission.loop_body(of_loop, known)
        first, toward = (parts.steps - 1, -1) if reverse else (0, 1)

        # The index is in range, so that no step pays for wrapping a negative one.
        def read(stacks, t):
            return [
                jax.lax.dynamic_index_in_dim(
                    a, t, keepdims=False, allow_negative_indices=False
                )
                for a in stacks
            ]

        def write(stacks, values, t):
            return [
                jax.lax.dynamic_update_index_in_dim(
                    a, value, t, 0, allow_negative_indices=False
                )
                for a, value in zip(stacks, values, strict=True)
            ]

        def one_iteration(state, inputs):
            # `here` holds the values of step t, which were read before this iteration.
            t, carry, stacks, here = state
            carry, made = one_step(carry, here + inputs)
            stacks = write(stacks, made[:count], t)
            # After the last step the index stays inside the stacks.
            t = jnp.clip(t + toward, 0, parts.steps - 1)
            return (t, carry, stacks, read(stacks, t)), made[count:]

        # The first values are read before the loop, which reads one step ahead.
        t, replaced = jnp.asarray(first), inputs[:count]
        (_, carry, replaced, _), others = jax.lax.scan(
            one_iteration,
            (t, carry, replaced, read(replaced, t)),
            inputs[count:],
            reverse=reverse,
            unroll=unroll,
        )
        made = dict(zip(values + stacked, replaced + others, strict=True))
        return carry, [made[v] for v in parts.to_after]

    return fission.around(parts, in_place, carry, xs)


def _with_weights_first(equations, constants):
    """Equations with each product d [..., N] times W^T as the transpose of W d^T.

    XLA's CPU backend multiplies few rows by a large weight faster where the weight
    stands first: an LN-LSTM's training step takes 0.91 of the time on T 500, B 8,
    H 400 and 0.93 on T 300, B 32, H 240, and the same on B 128. The barrier keeps XLA
    from turning the product around.
    """

    def weight_first(d, weight):
        rows = d.reshape(-1, d.shape[-1])
        product = jax.lax.dot_general(weight, rows, (((1,), (1,)), ((), ())))
        product = jax.lax.optimization_barrier(product)
        return product.T.reshape(*d.shape[:-1], -1)

    turned = []
    for e in equations:
        if not _is_by_transpose(e, constants):
            turned.append(e)
            continue
        traced = jax.make_jaxpr(weight_first)(*(v.aval for v in e.invars)).jaxpr
        names = dict(zip(traced.invars, e.invars, strict=True))
        inline(traced, names, turned, {})
        turned[-1] = turned[-1].replace(outvars=e.outvars)
    return turned


def _is_by_transpose(equation, constants):
    """Whether an equation is d [..., N] times W^T, with W [D, N] the same in each step.

    Explicit axes restrict reshapes.
    """
    if equation.primitive.name != "dot_general" or equation.invars[1] not in constants:
        return False
    d, weight = (v.aval for v in equation.invars)
    by_transpose = (((d.ndim - 1,), (1,)), ((), ()))
    is_dense = equation.params["dimension_numbers"] == by_transpose and weight.ndim == 2
    return is_dense and not any(d.sharding.spec + weight.sharding.spec)


def add(total: Any, new: Any) -> Any:
    """Add two trees of gradients in the dtype of the first."""
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), total, new)
