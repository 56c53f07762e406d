"""Errors between captions and images, and the loss that ranks matching pairs first.

    E(s, im) = sum_k max(0, s_k - im_k)^2
    L = sum_{i != j} max(0, margin - E_ij + E_ii) + max(0, margin - E_ij + E_jj)

The error is 0 where a caption lies below its image in every coordinate.

Shape letters: C captions, N images, B matching pairs, K dimensions of the joint space.

References:
  Vendrov et al. (2016), "Order-Embeddings of Images and Language".
"""

import jax
import jax.numpy as jnp


@jax.custom_vjp
def order_violations(captions: jax.Array, images: jax.Array) -> jax.Array:
    """Compute E of all pairs.

    No array of C x N x K is built. The sum is one fused reduction. max(0, d)^2 does not
    factor, so it cannot be a matrix product. The gradient is two fused reductions on a
    GPU or TPU, and on a CPU a scan over captions, which holds N x K differences.

    Args:
      captions: [C, K].
      images: [N, K].

    Returns:
      [C, N]
    """
    violations = jnp.maximum(captions[:, None] - images[None], 0)
    return jnp.sum(jnp.square(violations), axis=-1)


def _forward(captions, images):
    return order_violations(captions, images), (captions, images)


def _backward(saved, weights):
    # The scan starts four kernels for every caption on a GPU: 512 of the 1,448 of a
    # step with B = 128.
    return jax.lax.platform_dependent(
        *saved, weights, cpu=_gradients_by_scan, default=_gradients
    )


def _gradients(captions, images, weights):
    violations = jnp.maximum(captions[:, None] - images[None], 0)
    weighted = 2 * weights[..., None] * violations
    return weighted.sum(1), -weighted.sum(0)


def _gradients_by_scan(captions, images, weights):
    def one_caption(grad_images, row):
        caption, w = row
        violation = jnp.maximum(caption - images, 0)
        # JAX traces this outside of the caller's precision. A CPU has one for all.
        grad_caption = jnp.matmul(w, violation, precision="highest")
        return grad_images - w[:, None] * violation, grad_caption

    grad_images, grad_captions = jax.lax.scan(
        one_caption, jnp.zeros_like(images), (captions, weights)
    )
    return 2 * grad_captions, 2 * grad_images


order_violations.defvjp(_forward, _backward)


def cosine_distances(captions: jax.Array, images: jax.Array) -> jax.Array:
    """Compute 1 - cosine of all pairs, the measure of the row "Sym" of Table 2.

    Args:
      captions: [C, K], unit vectors.
      images: [N, K], unit vectors.

    Returns:
      [C, N]
    """
    return 1 - captions @ images.T


# The error of each `config.model.similarity`.
ERRORS = {"order": order_violations, "cosine": cosine_distances}


def matching_errors(errors: jax.Array) -> jax.Array:
    """Return the diagonal of the errors of pairs, [B, B] -> [B].

    It is a sum, since a gather and its gradient would cross the devices of a mesh.
    """
    return jnp.sum(jnp.where(jnp.eye(len(errors), dtype=bool), errors, 0), axis=1)


def ranking_loss(errors: jax.Array, margin: float) -> jax.Array:
    """Compute L, summed over all pairs of the batch that do not match.

    Args:
      errors: [B, B], of captions (rows) and their images (columns).
      margin: the margin.

    Returns:
      []
    """
    matching = matching_errors(errors)
    by_caption = jax.nn.relu(margin - errors + matching[:, None])
    by_image = jax.nn.relu(margin - errors + matching[None])
    is_matching = jnp.eye(len(errors), dtype=bool)
    return jnp.sum(jnp.where(is_matching, 0, by_caption + by_image))
