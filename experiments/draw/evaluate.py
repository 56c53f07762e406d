"""The bound of DRAW and an estimate of -log p(x), for every image of a batch."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from .bound import cross_entropy, terms
from .data import pixels
from .model import Draw


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
