"""Use of a trained network: `lnrepro.load(run)` returns a `Model`.

Shape letters: S side of an image.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.engine.loaded_run import LoadedRun
from lnrepro.errors import UserError
from lnrepro.fields import check_seed

from .model import Draw

# Images that are drawn together. Every glimpse of them is in memory.
BATCH = 100


class Model(LoadedRun):
    """A run of experiments.draw, which draws images."""

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Draw images from the prior.

        Args:
          n: number of images. The first images do not depend on it.
          seed: another seed draws other images; below 2^32.

        Returns:
          [n, S, S] float32: the probability of each pixel to be 1.

        Raises:
          UserError: `n` is negative, or the seed is out of its range.
        """
        if n < 0:
            raise UserError(f"n = {n}: a number of images is needed")
        check_seed(seed)
        key, side = jax.random.key(seed), self.config.model.image_size
        images = [np.zeros((0, side, side), np.float32)]
        for start in range(0, n, BATCH):
            index = jnp.arange(start, start + BATCH)
            images.append(np.asarray(self._draw(self.params, key, index)))
        return np.concatenate(images)[:n]

    @functools.cached_property
    def _draw(self):
        draw = Draw(self.config)

        @jax.jit
        def images(params, key, index):
            canvases, _ = draw.generate(params, draw.noise(params, key, index))
            return jax.nn.sigmoid(canvases[-1])

        return images
