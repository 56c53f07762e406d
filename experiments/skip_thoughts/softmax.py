"""Cross-entropy of a large output layer whose logits are never there whole: a chunk of positions at a time, once."""

import functools

import jax
import jax.numpy as jnp

FLOOR = 1e-8  # the authors' -log(p + 1e-8)


def cross_entropy(
    h: jax.Array,
    w: jax.Array,
    bias: jax.Array,
    targets: jax.Array,
    valid: jax.Array,
    rows: int = 512,
) -> jax.Array:
    """Sum over valid positions of -log(softmax(h w + bias)[target] + 1e-8), in nats.

    h (G, N, H), w (H, V), bias (V,), targets and valid (G, N). Only valid positions are multiplied: they are gathered
    `rows` at a time in each of the G groups (the parts of a batch that lie on different devices).
    The gradients are formed in the same pass, while a chunk's logits are there, so the backward pass has nothing to
    compute again and keeps no logits.
    """
    return _sum(h, w, bias, jnp.asarray(targets), jnp.asarray(valid), rows)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _sum(h, w, bias, targets, valid, rows):
    return _pass(h, w, bias, targets, valid, rows, with_gradients=False)[0]


def _forward(h, w, bias, targets, valid, rows):
    return _pass(h, w, bias, targets, valid, rows, with_gradients=True)


def _backward(rows, gradients, scale):
    dh, dw, dbias = gradients
    return (*(g * scale for g in (dh, dw, dbias)), None, None)


_sum.defvjp(_forward, _backward)


def _pass(h, w, bias, targets, valid, rows, with_gradients):
    count = h.shape[1]
    rows = min(rows, count)
    order = jnp.argsort(~valid, axis=1, stable=True)
    many = valid.sum(1)
    chunks = (many.max() + rows - 1) // rows
    spare = -count % rows
    beyond = jnp.broadcast_to(
        count + jnp.arange(spare), (h.shape[0], spare)
    )  # read clipped, never written
    order = jnp.concatenate([order, beyond], axis=1)
    group = jnp.arange(h.shape[0])[:, None]

    def chunk(i, state):
        total, gradients = state
        places = jax.lax.dynamic_slice_in_dim(order, i * rows, rows, 1)
        here = h.at[group, places].get(mode="clip")
        target = targets.at[group, places].get(mode="clip")[..., None]
        counts = (i * rows + jnp.arange(rows))[None] < many[:, None]
        logits = here @ w + bias
        top = logits.max(-1, keepdims=True)
        e = jnp.exp(logits - top)
        below = e.sum(-1, keepdims=True)
        p = jnp.exp(jnp.take_along_axis(logits, target, -1) - top) / below
        total = total + jnp.where(counts, -jnp.log(p[..., 0] + FLOOR), 0).sum()
        if with_gradients:
            dh, dw, dbias = gradients
            pull = jnp.where(counts[..., None], p / (p + FLOOR), 0)
            hit = jnp.arange(w.shape[1]) == target
            d = e * (pull / below) - jnp.where(hit, pull, 0)
            pulled = jax.lax.dot_general(d, w, (((2,), (1,)), ((), ())))
            dh = dh.at[group, places].set(pulled, mode="drop", unique_indices=True)
            both = (((0, 1), (0, 1)), ((), ()))
            gradients = (
                dh,
                dw + jax.lax.dot_general(here, d, both),
                dbias + d.sum((0, 1)),
            )
        return total, gradients

    zeros = (
        (jnp.zeros_like(h), jnp.zeros_like(w), jnp.zeros_like(bias))
        if with_gradients
        else ()
    )
    return jax.lax.fori_loop(0, chunks, chunk, (jnp.zeros((), h.dtype), zeros))
