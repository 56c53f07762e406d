"""Images and captions in the joint space.

Shape letters: N images, C captions, D features of an image, K dimensions of the joint
space.
"""

from collections.abc import Mapping

import numpy as np
from ml_collections import ConfigDict

from lnrepro.data.batches import eval_batches
from lnrepro.data.ragged import forget_pages
from lnrepro.engine.evaluation import rows_of_examples

from .captions import Captions
from .data import caption_batches
from .model import Encoders


class Embedder:
    """The compiled encoders. Every process of a multi-process run gets all vectors."""

    def __init__(self, config: ConfigDict, encoders: Encoders):
        """Take the sizes of batches from the config."""
        self._size, self._buckets = config.eval_batch_size, config.buckets
        self._captions = rows_of_examples(encoders.captions)
        self._images = rows_of_examples(encoders.images)

    def captions(self, vars: Mapping, captions: Captions, count: int) -> np.ndarray:
        """Embed the captions of the first images.

        Args:
          vars: {"params"}.
          captions: the captions.
          count: number of images.

        Returns:
          [C, K]
        """
        batches = caption_batches(captions, count, self._size, self._buckets)
        return self._captions(vars, batches, int(captions.starts[count]))

    def images(self, vars: Mapping, features: np.ndarray) -> np.ndarray:
        """Embed images.

        Args:
          vars: {"params"}.
          features: [N, D], which may be memory-mapped.

        Returns:
          [N, K]
        """
        batches = eval_batches({"image": features}, self._size, process=(0, 1))
        embedded = self._images(vars, batches, len(features))
        # They are not read again.
        forget_pages(features)
        return embedded
