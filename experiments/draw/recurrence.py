"""A scan over recurrent steps whose backward pass keeps little and multiplies nothing twice.

Plain autodiff keeps every intermediate of every tick. Here the forward scan keeps the carry, the products with the
weights and what the step asks to be kept; the backward scan runs the step again from these, so that only cheap
element-wise arithmetic is done twice and no matrix product is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Tape(NamedTuple):
    """What a step may do that is dear enough to be remembered; each name once a tick."""

    product: Callable[[str, jax.Array], jax.Array]
    """(name, v (B, D)) -> v @ weights[name] (B, H)"""
    sigmoid: Callable[[str, jax.Array], jax.Array]
    """(name, v) -> sigmoid(v), kept in place of v"""


Step = Callable[[Tape, Any, Any, Any], tuple[Any, Any]]


def plain(weights: dict[str, jax.Array]) -> Tape:
    """The tape that remembers nothing, for running a step outside of `scan`."""
    return Tape(lambda name, v: v @ weights[name], lambda name, v: jax.nn.sigmoid(v))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def scan(step: Step, weights: dict[str, jax.Array], rest: Any, carry: Any, xs: Any) -> tuple[Any, Any]:
    """`jax.lax.scan` of step(tape, rest, carry, x) -> (carry, y) over the leading axis of xs: (last carry, ys).

    Args:
      step: uses the weights only through tape.product.
      weights: {name: (D, H)}.
      rest: everything else that every tick needs; differentiated as usual.
      carry: initial carry.
      xs: input per tick.
    """
    return jax.lax.scan(partial(step, plain(weights), rest), carry, xs)


def _forward(step, weights, rest, carry, xs):
    def tick(carry, x):
        kept = {}

        def keep(name, value):
            kept[name] = value
            return value

        tape = Tape(*(lambda name, v, f=f: keep(name, f(name, v)) for f in plain(weights)))
        after, y = step(tape, rest, carry, x)
        return after, (y, (carry, kept))

    last, (ys, kept) = jax.lax.scan(tick, carry, xs)
    return (last, ys), (weights, rest, kept, xs)


@jax.custom_vjp
def _product(v, weight, kept, probe):
    """`kept`, which is v @ weight; its gradient goes to v and, as it stands, to `probe`."""
    return kept


@jax.custom_vjp
def _sigmoid(v, kept):
    """`kept`, which is sigmoid(v)."""
    return kept


_product.defvjp(lambda v, weight, kept, probe: (kept, weight), lambda weight, g: (g @ weight.T, None, None, g))
_sigmoid.defvjp(lambda v, kept: (kept, kept), lambda kept, g: (g * kept * (1 - kept), None))


def _backward(step, saved, grads):
    weights, rest, kept, xs = saved
    grad_last, grad_ys = grads

    def tick(state, inputs):
        grad_weights, grad_rest, grad_carry = state
        (carry, kept), x, grad_y = inputs

        def again(probes, rest, carry, x):
            used = {}

            def product(name, v):
                used[name] = v
                return _product(v, weights[name], kept[name], probes[name])

            return step(Tape(product, lambda name, v: _sigmoid(v, kept[name])), rest, carry, x), used

        probes = {name: jnp.zeros_like(kept[name]) for name in weights}
        _, pull, used = jax.vjp(again, probes, rest, carry, x, has_aux=True)
        grad_products, more, grad_carry, grad_x = pull((grad_carry, grad_y))
        grad_weights = {name: grad + used[name].T @ grad_products[name] for name, grad in grad_weights.items()}
        return (grad_weights, jax.tree.map(jnp.add, grad_rest, more), grad_carry), grad_x

    start = (*jax.tree.map(jnp.zeros_like, (weights, rest)), grad_last)
    grads, grad_xs = jax.lax.scan(tick, start, (kept, xs, grad_ys), reverse=True)
    return *grads, grad_xs


scan.defvjp(_forward, _backward)
