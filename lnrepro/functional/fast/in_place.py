"""The loop of the backward pass on CPUs, which writes over what it has read.

XLA's CPU backend writes the gradients of products over the products themselves only
while the products of the next step are read after this step has written. In any other
order it copies whole stacks at every step. `scan` keeps to that order.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.fast import fission
from lnrepro.functional.fast.equations import inline
from lnrepro.functional.fast.parts import take_products_apart


def scan(
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
    is_dense &= d.dtype == weight.dtype == equation.outvars[0].aval.dtype
    return is_dense and not any(d.sharding.spec + weight.sharding.spec)
