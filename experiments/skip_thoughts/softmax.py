"""Cross-entropy of a large output layer without the whole array of logits.

The logits of a chunk of positions are computed at a time. Gradients are computed in the
same pass, while the logits of the chunk are in memory. So the backward pass computes no
logits again, and none are kept. The cost is the memory of the gradients between the two
passes.

Shape letters: G groups, N positions of a group, R positions of a chunk, H units, V
words.
"""

import functools

import jax
import jax.numpy as jnp

# The authors' code computes -log(p + 1e-8).
FLOOR = 1e-8


def cross_entropy(
    h: jax.Array,
    w: jax.Array,
    bias: jax.Array,
    targets: jax.Array,
    valid: jax.Array,
    rows: int = 512,
) -> jax.Array:
    """Sum -log(softmax(h w + bias)[target] + 1e-8) over valid positions.

    Only valid positions are multiplied. They are gathered `rows` at a time in each
    group. The groups are the parts of a batch that lie on different devices.

    Args:
      h: [G, N, H].
      w: [H, V].
      bias: [V].
      targets: [G, N], numbers of words.
      valid: [G, N], bool.
      rows: R, positions of each group in a chunk.

    Returns:
      [], in nats.
    """
    return _sum(h, w, bias, jnp.asarray(targets), jnp.asarray(valid), rows)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _sum(h, w, bias, targets, valid, rows):
    return _all_chunks(h, w, bias, targets, valid, rows, with_gradients=False)[0]


def _forward(h, w, bias, targets, valid, rows):
    return _all_chunks(h, w, bias, targets, valid, rows, with_gradients=True)


def _backward(rows, gradients, scale):
    dh, dw, dbias = gradients
    return dh * scale, dw * scale, dbias * scale, None, None


_sum.defvjp(_forward, _backward)


def _all_chunks(h, w, bias, targets, valid, rows, with_gradients):
    """Return (the sum, its gradients by h, w and bias, or () without gradients)."""
    groups, count, _ = h.shape
    rows = min(rows, count)
    valid_counts = valid.sum(1)
    chunks = (valid_counts.max() + rows - 1) // rows
    # Valid positions first. The order is padded to whole chunks with positions beyond
    # the end: a gather clips them, and a scatter drops them.
    order = jnp.argsort(~valid, axis=1, stable=True)
    missing = -count % rows
    beyond = jnp.broadcast_to(count + jnp.arange(missing), (groups, missing))
    order = jnp.concatenate([order, beyond], axis=1)
    group = jnp.arange(groups)[:, None]

    def chunk(i, state):
        total, gradients = state
        position = jax.lax.dynamic_slice_in_dim(order, i * rows, rows, 1)
        is_valid = (i * rows + jnp.arange(rows))[None] < valid_counts[:, None]
        h_chunk = h.at[group, position].get(mode="clip")
        # Padding may hold anything, even NaN, which would reach the gradients.
        h_chunk = jnp.where(is_valid[..., None], h_chunk, 0)
        target = targets.at[group, position].get(mode="clip")[..., None]
        logits = h_chunk @ w + bias
        largest = logits.max(-1, keepdims=True)
        exp = jnp.exp(logits - largest)
        exp_sum = exp.sum(-1, keepdims=True)
        target_logit = jnp.take_along_axis(logits, target, -1)
        p = jnp.exp(target_logit - largest) / exp_sum
        total = total + jnp.where(is_valid, -jnp.log(p[..., 0] + FLOOR), 0).sum()
        if not with_gradients:
            return total, gradients
        dh, dw, dbias = gradients
        # The derivative of -log(p + FLOOR) by the logits is
        # p / (p + FLOOR) (softmax - one_hot(target)).
        factor = jnp.where(is_valid[..., None], p / (p + FLOOR), 0)
        is_target = jnp.arange(w.shape[1]) == target
        dlogits = exp * (factor / exp_sum) - jnp.where(is_target, factor, 0)
        dh_chunk = jnp.einsum("grv,hv->grh", dlogits, w)
        dh = dh.at[group, position].set(dh_chunk, mode="drop", unique_indices=True)
        dw = dw + jnp.einsum("grh,grv->hv", h_chunk, dlogits)
        dbias = dbias + dlogits.sum((0, 1))
        return total, (dh, dw, dbias)

    gradients = ()
    if with_gradients:
        gradients = (jnp.zeros_like(h), jnp.zeros_like(w), jnp.zeros_like(bias))
    start = (jnp.zeros((), h.dtype), gradients)
    return jax.lax.fori_loop(0, chunks, chunk, start)
