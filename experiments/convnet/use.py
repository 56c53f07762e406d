"""Use of a trained network: `lnrepro.load(run)` returns a `Model`.

Shape letters: N images, K classes.
"""

import functools

import jax
import numpy as np

from lnrepro.data.batches import eval_batches
from lnrepro.engine import inputs
from lnrepro.engine.evaluation import rows_of_examples
from lnrepro.engine.runs import LoadedRun

from .data import pixels
from .model import ConvNet


class Model(LoadedRun):
    """A run of experiments.convnet, which classifies images."""

    def classify(self, images: np.ndarray) -> np.ndarray:
        """Return the most probable class of each image, [N].

        Args:
          images: [N, height, width], from 0 to `config.data.full_ink` as in the data.

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
        images = inputs.pixels(images, tuple(spec.image), spec.full_ink)
        if not len(images):
            return np.zeros((0, self.config.model.classes), np.float32)
        batches = eval_batches({"image": images}, self.config.eval_batch_size)
        return self._probabilities(self.vars, batches, len(images))

    @functools.cached_property
    def _probabilities(self):
        network = ConvNet(self.config)

        def probabilities(vars, batch):
            logits = network.apply(vars, pixels(self.config, batch), train=False)
            return jax.nn.softmax(logits)

        return rows_of_examples(probabilities)
