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
    precision = jax.config.jax_default_matmul_precision
    targets, valid = jnp.asarray(targets), jnp.asarray(valid)
    return _sum(h, w, bias, targets, valid, rows, precision)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _sum(h, w, bias, targets, valid, rows, precision):
    return _forward(h, w, bias, targets, valid, rows, precision)[0]


def _forward(h, w, bias, targets, valid, rows, precision):
    with jax.default_matmul_precision(precision):
        return _all_chunks(h, w, bias, targets, valid, rows)


def _backward(rows, precision, gradients, scale):
    dh, dw, dbias = gradients
    return dh * scale, dw * scale, dbias * scale, None, None


_sum.defvjp(_forward, _backward)


def _all_chunks(h, w, bias, targets, valid, rows):
    """Return (the sum, its gradients by h, w and bias)."""
    count = h.shape[1]
    rows = min(rows, count)
    chunks = (valid.sum(1).max() + rows - 1) // rows

    # Mapped over the groups, and not indexed by their numbers: the partitioner then
    # sees that no group needs another one's positions.
    @jax.vmap
    def of_group(h, targets, valid):
        # Valid positions first. The order is padded to whole chunks with positions
        # beyond the end: a gather clips them, and a scatter drops them.
        beyond = count + jnp.arange(-count % rows)
        order = jnp.concatenate([jnp.argsort(~valid, stable=True), beyond])

        def chunk(i, state):
            total, dh, dw, dbias = state
            position = jax.lax.dynamic_slice_in_dim(order, i * rows, rows)
            is_valid = (i * rows + jnp.arange(rows) < valid.sum())[:, None]
            # Padding may hold anything, even NaN, which would reach the gradients.
            h_chunk = jnp.where(is_valid, h.at[position].get(mode="clip"), 0)
            target = targets.at[position].get(mode="clip")[:, None]
            logits = h_chunk @ w + bias
            largest = logits.max(-1, keepdims=True)
            exp = jnp.exp(logits - largest)
            exp_sum = exp.sum(-1, keepdims=True)
            target_logit = jnp.take_along_axis(logits, target, -1)
            p = jnp.exp(target_logit - largest) / exp_sum
            total = total + jnp.where(is_valid, -jnp.log(p + FLOOR), 0).sum()
            # The derivative of -log(p + FLOOR) by the logits is
            # p / (p + FLOOR) (softmax - one_hot(target)).
            factor = jnp.where(is_valid, p / (p + FLOOR), 0)
            is_target = jnp.arange(w.shape[1]) == target
            dlogits = exp * (factor / exp_sum) - jnp.where(is_target, factor, 0)
            dh_chunk = jnp.einsum("rv,hv->rh", dlogits, w)
            dh = dh.at[position].set(dh_chunk, mode="drop", unique_indices=True)
            dw = dw + jnp.einsum("rh,rv->hv", h_chunk, dlogits)
            return total, dh, dw, dbias + dlogits.sum(0)

        start = (jnp.zeros((), h.dtype), *map(jnp.zeros_like, (h, w, bias)))
        return jax.lax.fori_loop(0, chunks, chunk, start)

    # Each group has sums of its own, which cross the devices once, after the loop.
    total, dh, dw, dbias = of_group(h, targets, valid)
    return total.sum(), (dh, dw.sum(0), dbias.sum(0))
