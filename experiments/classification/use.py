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

from experiments.classification import pixels
from lnrepro.data.batches import eval_batches
from lnrepro.engine import inputs
from lnrepro.engine.evaluation import rows_of_examples
from lnrepro.engine.loaded_run import LoadedRun


class Classifier(LoadedRun):
    """A trained network that classifies images."""

    # Makes the network of a config.
    _network: Callable[[ConfigDict], nn.Module]
    # Returns the shape in which the network of a config takes an image.
    _input_shape: Callable[[ConfigDict], tuple[int, ...]]

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
        spec = self.config.data
        images = np.asarray(images)
        if "image" in spec:
            size = tuple(spec.image)
        else:
            size = (spec.features,)
            if math.prod(images.shape[1:]) == spec.features:
                images = images.reshape(len(images), spec.features)
        images = inputs.pixels(images, size, spec.full_ink)
        if not len(images):
            return np.zeros((0, self.config.model.classes), np.float32)
        batches = eval_batches({"image": images}, self.config.eval_batch_size)
        return self._probabilities(self.vars, batches, len(images))

    @functools.cached_property
    def _probabilities(self):
        network, shape = self._network(self.config), self._input_shape(self.config)

        def probabilities(vars, batch):
            x = pixels(self.config, batch["image"], shape)
            return jax.nn.softmax(network.apply(vars, x, train=False))

        return rows_of_examples(probabilities)
