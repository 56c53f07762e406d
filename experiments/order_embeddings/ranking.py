"""How badly captions and images fit each other, and the loss that ranks matching pairs first (section 6.1).

    E(s, im) = sum_k max(0, s_k - im_k)^2           a caption must lie below its image, in every coordinate
    L = sum_{i != j} max(0, margin - E_ij + E_ii) + max(0, margin - E_ij + E_jj)

Letters: C captions, N images, B matched pairs, K dimensions of the joint space.
"""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def order_violations(captions: jax.Array, images: jax.Array) -> jax.Array:
    """E (C, N) of captions (C, K) and images (N, K): 0 where the caption lies below the image.

    Never builds C x N x K: the sum is one fused reduction, and its gradient a scan over the captions that holds the
    N x K differences of one of them at a time and forms their part of both gradients, 2 w max(0, s - im), as a
    vector-matrix product and an addition. (max(0, d)^2 does not factor, so there is no matrix product to make of it.)
    """
    return jnp.sum(
        jnp.square(jnp.maximum(captions[:, None] - images[None], 0)), axis=-1
    )


def _backward(saved, weights):
    captions, images = saved

    def one(grad_images, row):
        caption, w = row
        violation = jnp.maximum(caption - images, 0)
        return grad_images - w[:, None] * violation, w @ violation

    grad_images, grad_captions = jax.lax.scan(
        one, jnp.zeros_like(images), (captions, weights)
    )
    return 2 * grad_captions, 2 * grad_images


order_violations.defvjp(
    lambda captions, images: (order_violations(captions, images), (captions, images)),
    _backward,
)


def cosine_distances(captions: jax.Array, images: jax.Array) -> jax.Array:
    """1 - cosine, (C, N), of unit vectors (C, K) and (N, K): the symmetric measure of Table 2's row "Sym"."""
    return 1 - captions @ images.T


ERRORS = {"order": order_violations, "cosine": cosine_distances}


def ranking_loss(errors: jax.Array, margin: float) -> jax.Array:
    """L, a scalar, of the errors (B, B) of B captions (rows) and their images (columns): all in-batch negatives, summed."""
    own = jnp.diag(errors)
    hinges = jax.nn.relu(margin - errors + own[:, None]) + jax.nn.relu(
        margin - errors + own[None]
    )
    return jnp.sum(jnp.where(jnp.eye(len(errors), dtype=bool), 0, hinges))
