"""Use of trained encoders: `lnrepro.load(run)` returns a `Model`.

Shape letters: C captions, N images, D features of an image, K dimensions of the joint
space.
"""

import functools
import string
from collections.abc import Iterable

import jax
import numpy as np

from lnrepro.data.batches import eval_batches
from lnrepro.data.text import Vocabulary, plain_text
from lnrepro.engine import inputs
from lnrepro.engine.evaluation import rows_of_examples
from lnrepro.engine.loaded_run import LoadedRun, logger
from lnrepro.errors import UserError

from .captions import UNKNOWN
from .data import order_by_steps, steps_for
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
        if not texts:
            return np.zeros((0, self.config.model.units), np.float32)
        tokens = [self.vocabulary.encode(self._words(text)) for text in texts]
        unknown = sum(int((found == UNKNOWN).sum()) for found in tokens)
        self.log_unknown(unknown, sum(map(len, tokens)))
        buckets = self.config.buckets
        longest = buckets[-1]
        examples = []
        for i, found in enumerate(tokens):
            if not len(found):
                raise UserError(f"captions[{i}] = {texts[i][:40]!r} has no word")
            if len(found) >= longest:
                logger.warning("captions[%d] is cut to %d words", i, longest - 1)
            # One step more, of the end token 0.
            examples.append({"tokens": np.pad(found[: longest - 1], (0, 1))})
        lengths = np.array([len(example["tokens"]) for example in examples])
        # Short captions come in batches of fewer steps, each compiled once.
        batches = eval_batches(
            examples,
            self.config.eval_batch_size,
            order=order_by_steps(buckets, lengths),
            pad={"tokens": longest},
        )
        cut = (_cut(batch, buckets) for batch in batches)
        vectors = self._embed_captions(self.vars, cut, len(tokens))
        return inputs.finite(vectors, "embedded captions", inputs.BROKEN)

    def embed_images(self, features: np.ndarray) -> np.ndarray:
        """Return images in the joint space, [N, K] float32.

        Args:
          features: [N, D], made as those that the run was trained on.

        Raises:
          UserError: another number of features, or a number that is not finite.
        """
        sizes = self.config.model
        images = inputs.rows(features, (sizes.features,), "features")
        if not len(images):
            return np.zeros((0, sizes.units), np.float32)
        batches = eval_batches({"image": images}, self.config.eval_batch_size)
        vectors = self._embed_images(self.vars, batches, len(images))
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
        if not len(captions) or not len(images):
            return np.zeros((len(captions), len(images)), np.float32)
        errors = error_matrix(self._errors, captions, images)
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
    def _embed_captions(self):
        return rows_of_examples(Encoders(self.config).captions)

    @functools.cached_property
    def _embed_images(self):
        return rows_of_examples(Encoders(self.config).images)

    @functools.cached_property
    def _errors(self):
        return jax.jit(ERRORS[self.config.model.similarity])


def _cut(batch, buckets):
    """Cut the tokens of a batch down to the steps of its longest caption."""
    length = batch["tokens_length"]
    tokens = batch["tokens"][:, : steps_for(buckets, length.max())]
    return batch | {"tokens": (tokens,), "length": length}
