"""Terms of DRAW's bound.

Shape letters: B batch, G glimpses, Z latents, S pixels per side.
"""

import jax
import jax.numpy as jnp

from .model import Draw, Params


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
) -> dict[str, jax.Array]:
    """Compute L_x and L_z of the bound L = L_x + L_z on -log p(x), each [B] in nats.

    Args:
      draw: the network.
      params: its parameters.
      x: [B, S, S].
      noise: [G, B, Z].

    Returns:
      {"reconstruction", "kl"}, the KL divergence of all glimpses.

    References:
      Gregor et al. (2015), eq. 9 to 12.
    """
    result = draw.infer(params, x, noise)
    reconstruction = cross_entropy(result.carry.canvas, x)
    return {"reconstruction": reconstruction, "kl": result.aux.kl.sum(0)}
