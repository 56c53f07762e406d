"""The bound of DRAW and an estimate of -log p(x), for every image of a batch."""

from collections.abc import Mapping

import jax

from .bound import importance_weighted, noise_of, terms
from .data import pixels
from .model import Draw, dtype_of


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
    noise = noise_of(key, batch["index"], draw.sizes, dtype_of(params))
    reconstruction, kl = terms(draw, params, x, noise)
    return {"bound": reconstruction + kl, "reconstruction": reconstruction, "kl": kl}


def nll(
    draw: Draw, key: jax.Array, samples: int, vars: Mapping, batch: Mapping
) -> dict[str, jax.Array]:
    """Estimate -log p(x) of each image; in the mean it is an upper bound.

    Args:
      draw: the network.
      key: the noise of an image depends on this key and on its index.
      samples: draws of z for an image.
      vars: {"params"}.
      batch: "image" [B, S, S] and "index" [B].

    Returns:
      {"nll_iwSAMPLES": [B] in nats}
    """
    x, index = pixels(batch), batch["index"]
    estimate = importance_weighted(draw, vars["params"], x, index, key, samples)
    return {f"nll_iw{samples}": -estimate}
