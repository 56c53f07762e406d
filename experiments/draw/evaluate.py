"""The bound of DRAW and an estimate of -log p(x), for every image of a batch."""

from collections.abc import Callable, Mapping

import jax

from .bound import cross_entropy, importance_weighted, noise_of
from .data import pixels
from .model import Draw, dtype_of

Values = Callable[[Mapping, Mapping], dict[str, jax.Array]]


def bounds(draw: Draw, key: jax.Array) -> Values:
    """Make a function that computes the bound of each image, from one draw of z.

    Args:
      draw: the network.
      key: the noise of an image depends on this key and on its index.

    Returns:
      (vars, batch) -> {"bound", "reconstruction", "kl"}, each [B] in nats, where
      bound = reconstruction + kl.
    """

    def values(vars, batch):
        x = pixels(batch)
        noise = noise_of(key, batch["index"], draw.sizes, dtype_of(vars["params"]))
        canvas, seen = draw.infer(vars["params"], x, noise)
        # The bound of Gregor et al. on -log p(x): L = L_x + L_z. L_z sums over
        # glimpses.
        reconstruction = cross_entropy(canvas, x)
        kl = seen.kl.sum(0)
        bound = reconstruction + kl
        return {"bound": bound, "reconstruction": reconstruction, "kl": kl}

    return values


def nll(draw: Draw, key: jax.Array, samples: int) -> Values:
    """Make a function that estimates -log p(x) of each image.

    Args:
      draw: the network.
      key: the noise of an image depends on this key and on its index.
      samples: draws of z for an image.

    Returns:
      (vars, batch) -> {"nll_iwSAMPLES": [B] in nats}, in the mean an upper bound
    """

    def values(vars, batch):
        x, index = pixels(batch), batch["index"]
        estimate = importance_weighted(draw, vars["params"], x, index, key, samples)
        return {f"nll_iw{samples}": -estimate}

    return values
