"""Use of a trained network that classifies images.

Shape letters: N images, K classes.
"""

import functools
import math
from collections.abc import Callable

import jax
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from experiments.classification import image_shape, pixels
from lnrepro.data.batches import eval_batches
from lnrepro.engine import inputs
from lnrepro.engine.evaluation import rows_of_examples
from lnrepro.engine.loaded_run import LoadedRun


class Classifier(LoadedRun):
    """A trained network that classifies images."""

    # Makes the network of a config.
    _network: Callable[[ConfigDict], nn.Module]

    def classify(self, images: np.ndarray) -> np.ndarray:
        """Return the most probable class of each image, [N].

        Args:
          images: [N, height, width], or [N, pixels] where the config has
            `data.features`; from 0 to `config.data.full_ink` as in the data.

        Raises:
          UserError: images of another size or scale.
        """
        return self.probabilities(images).argmax(-1)

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes, [N, K] float32.

        Args:
          images: as for `classify`.

        Raises:
          UserError: images of another size or scale.
        """
        size, images = image_shape(self.config), np.asarray(images)
        if math.prod(images.shape[1:]) == self.config.data.get("features"):
            images = images.reshape(len(images), *size)
        images = inputs.pixels(images, size, self.config.data.full_ink)
        batches = eval_batches({"image": images}, self.config.eval_batch_size)
        return self._probabilities(self.vars, batches, len(images))

    @functools.cached_property
    def _probabilities(self):
        network = self._network(self.config)

        def probabilities(vars, batch):
            x = pixels(self.config, batch["image"])
            return jax.nn.softmax(network.apply(vars, x, train=False))

        return rows_of_examples(probabilities)
