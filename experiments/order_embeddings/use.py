"""Use of trained encoders: `lnrepro.load(run)` returns a `Model`.

Shape letters: C captions, N images, D features of an image, K dimensions of the joint
space.
"""

import functools
import string
from collections.abc import Iterable

import numpy as np

from lnrepro.data.ragged import Ragged
from lnrepro.data.text import UNKNOWN, Vocabulary, plain_text
from lnrepro.engine import inputs
from lnrepro.engine.loaded_run import LoadedRun
from lnrepro.errors import UserError

from .captions import Captions
from .evaluate import Embedder
from .model import Encoders
from .ranking import ERRORS
from .retrieval import error_matrix

PUNCTUATION = str.maketrans("", "", string.punctuation)


def tokenise(text: str) -> list[str]:
    """Return the words of a caption in lower case, without punctuation."""
    return text.lower().translate(PUNCTUATION).split()


class Model(LoadedRun):
    """A run of experiments.order_embeddings, which finds images by captions."""

    def embed_captions(self, captions: Iterable[str]) -> np.ndarray:
        """Return captions in the joint space, [C, K] float32.

        Words are separated by spaces. One that is not in the vocabulary is looked up
        again in lower case without punctuation. The share of words that are not found
        is logged, by the logger "lnrepro".

        Args:
          captions: C texts.

        Raises:
          TypeError: `captions` is one str.
          UserError: a caption has no word, or its vector is not finite.
        """
        texts = inputs.texts(captions, "captions")
        words = [self.vocabulary.encode(self._words(text)) for text in texts]
        lengths = np.array([len(found) for found in words])
        for i, text in enumerate(texts):
            if not lengths[i]:
                raise UserError(f"captions[{i}] = {text[:40]!r} has no word")
        joined = np.concatenate(words)
        self.log_unknown(int((joined == UNKNOWN).sum()), len(joined))
        # As in a data set, with one caption for each image.
        tokens = Ragged(joined, np.append(0, np.cumsum(lengths)))
        columns = {"tokens": tokens, "lengths": lengths[:, None]}
        read = Captions(columns, len(self.vocabulary), self.config.buckets[-1])
        vectors = self._embedder.captions(self.vars, read, len(texts))
        return inputs.finite(vectors, "embedded captions", inputs.BROKEN)

    def embed_images(self, features: np.ndarray) -> np.ndarray:
        """Return images in the joint space, [N, K] float32.

        Args:
          features: [N, D], made as those that the run was trained on.

        Raises:
          UserError: another number of features, or a number that is not finite.
        """
        images = inputs.rows(features, (self.config.model.features,), "features")
        vectors = self._embedder.images(self.vars, images)
        return inputs.finite(vectors, "embedded images", inputs.BROKEN)

    def errors(self, captions: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Return the errors of all pairs, [C, N] float32. A small one is a good match.

        Args:
          captions: [C, K], from `embed_captions`.
          images: [N, K], from `embed_images`.

        Raises:
          UserError: arrays of another shape, or a number that is not finite.
        """
        shape = (self.config.model.units,)
        captions = inputs.rows(captions, shape, "captions")
        images = inputs.rows(images, shape, "images")
        measure = ERRORS[self.config.model.similarity]
        errors = error_matrix(measure, captions, images)
        return inputs.finite(errors, "errors of captions", inputs.BROKEN)

    def rank(self, captions: np.ndarray, images: np.ndarray) -> np.ndarray:
        """Return the numbers of the images from the best to the worst, [C, N].

        For captions by images, sort `errors(captions, images).T`.

        Args:
          captions: [C, K], from `embed_captions`.
          images: [N, K], from `embed_images`.

        Raises:
          UserError: arrays of another shape, or a number that is not finite.
        """
        return np.argsort(self.errors(captions, images), axis=1, kind="stable")

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the training captions, stored in the run."""
        return Vocabulary(self.facts["words"])

    def _words(self, caption):
        """Split a caption into words of the vocabulary, where it has them."""
        words = []
        for word in plain_text(caption).split():
            words += [word] if word in self.vocabulary else tokenise(word)
        return words

    @functools.cached_property
    def _embedder(self):
        return Embedder(self.config, Encoders(self.config))
