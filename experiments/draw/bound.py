"""Terms of DRAW's bound, and the tighter bound by importance sampling.

Shape letters: B batch, G glimpses, Z latents, S pixels per side.
"""

from typing import Any

import jax
import jax.numpy as jnp

from .model import Draw, Params, dtype_of


def cross_entropy(canvas: jax.Array, x: jax.Array) -> jax.Array:
    """Return -log p(x | canvas) in nats per image [B].

    Args:
      canvas: [B, S, S], logits of independent pixels.
      x: [B, S, S] in 0..1.
    """
    # -x log sigmoid(a) - (1 - x) log(1 - sigmoid(a)) = softplus(a) - x a, which does
    # not overflow.
    return jnp.sum(jax.nn.softplus(canvas) - x * canvas, axis=(-2, -1))


def terms(
    draw: Draw, params: Params, x: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute L_x and L_z of the bound L = L_x + L_z on -log p(x), each [B] in nats.

    Args:
      draw: the network.
      params: its parameters.
      x: [B, S, S].
      noise: [G, B, Z].

    Returns:
      (the reconstruction, the KL divergence of all glimpses)

    References:
      Gregor et al. (2015), eq. 9 to 12.
    """
    canvas, record = draw.infer(params, x, noise)
    return cross_entropy(canvas, x), record.kl.sum(0)


def noise_of(
    key: jax.Array, index: jax.Array, sizes: Any, dtype: jax.typing.DTypeLike
) -> jax.Array:
    """Draw the noise of some examples; it does not depend on the batch they are in.

    Args:
      key: random key.
      index: [B], numbers of the examples.
      sizes: config.model.
      dtype: that of the parameters.

    Returns:
      [G, B, Z]
    """

    def draw_one(i):
        example_key = jax.random.fold_in(key, i)
        return jax.random.normal(example_key, (sizes.glimpses, sizes.latents), dtype)

    # [B, G, Z] -> [G, B, Z].
    return jnp.moveaxis(jax.vmap(draw_one)(index), 0, 1)


def importance_weighted(
    draw: Draw,
    params: Params,
    x: jax.Array,
    index: jax.Array,
    key: jax.Array,
    samples: int,
) -> jax.Array:
    """Estimate log p(x) in nats by importance sampling.

    log mean_k p(x | z_k) p(z_k) / q(z_k | x) over draws z_k from q is a lower bound in
    expectation that tightens as their number grows.

    Args:
      draw: the network.
      params: its parameters.
      x: [B, S, S].
      index: [B], numbers of the examples, which their noise depends on.
      key: random key.
      samples: number of draws per image.

    Returns:
      [B]

    References:
      Burda, Grosse and Salakhutdinov (2015), eq. 8.
    """

    def log_weight(key):
        noise = noise_of(key, index, draw.sizes, dtype_of(params))
        canvas, record = draw.infer(params, x, noise)
        return record.log_ratio.sum(0) - cross_entropy(canvas, x)

    # One draw after the other, so that memory does not grow with their number.
    # [samples, B].
    log_weights = jax.lax.map(log_weight, jax.random.split(key, samples))
    return jax.nn.logsumexp(log_weights, axis=0) - jnp.log(samples)
