"""The bound of DRAW and an estimate of -log p(x), for every image of a batch.

Shape letters: B batch, G glimpses, Z latents, S pixels per side.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from .data import pixels
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


def bounds(
    draw: Draw, key: jax.Array, vars: Mapping, batch: Mapping
) -> dict[str, jax.Array]:
    """Compute the bound of each image, from one draw of z.

    Args:
      draw: the network.
      key: the noise of an image depends on this key and on its index.
      vars: {"params"}.
      batch: "image" [B, S, S] and "index" [B].

    Returns:
      {"bound", "reconstruction", "kl"}, each [B] in nats, where
      bound = reconstruction + kl.
    """
    x, params = pixels(batch), vars["params"]
    noise = draw.noise(params, key, batch["index"])
    of_bound = terms(draw, params, x, noise)
    return {"bound": of_bound["reconstruction"] + of_bound["kl"], **of_bound}


def nll(
    draw: Draw, key: jax.Array, samples: int, vars: Mapping, batch: Mapping
) -> dict[str, jax.Array]:
    """Estimate -log p(x) of each image in nats by importance sampling.

    log mean_k p(x | z_k) p(z_k) / q(z_k | x) over draws z_k from q is a lower bound of
    log p(x) in expectation that tightens as their number grows.

    Args:
      draw: the network.
      key: the noise of an image depends on this key and on its index.
      samples: draws of z for an image.
      vars: {"params"}.
      batch: "image" [B, S, S] and "index" [B].

    Returns:
      {"nll": [B]}

    References:
      Burda, Grosse and Salakhutdinov (2015), eq. 8.
    """
    x, params = pixels(batch), vars["params"]

    def log_weight(key):
        noise = draw.noise(params, key, batch["index"])
        result = draw.infer(params, x, noise)
        return result.aux.log_ratio.sum(0) - cross_entropy(result.carry.canvas, x)

    # One draw after the other, so that memory does not grow with their number.
    # [samples, B].
    log_weights = jax.lax.map(log_weight, jax.random.split(key, samples))
    estimate = jax.nn.logsumexp(log_weights, axis=0) - jnp.log(samples)
    return {"nll": -estimate}
