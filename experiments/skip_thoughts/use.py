"""Use of a trained network: `lnrepro.load(run)` returns a `Model`.

Shape letters: N sentences, H units.
"""

import functools
from collections.abc import Iterable

import numpy as np

from lnrepro.engine import inputs
from lnrepro.engine.loaded_run import LoadedRun

from .encoding import Encoder
from .experiment import encoder
from .model import SkipThoughts


class Model(LoadedRun):
    """A run of experiments.skip_thoughts, which turns sentences into vectors."""

    def encode(
        self,
        sentences: Iterable[str],
        *,
        end_token: bool = False,
        word2vec: str | None = None,
    ) -> np.ndarray:
        """Return the vectors of sentences.

        The share of words that the network does not know is logged, by the logger
        "lnrepro".

        Args:
          sentences: N texts. An empty one has the vector zero, without the end token.
          end_token: whether to read the end token too, as for pairs of sentences.
          word2vec: a file of word vectors in word2vec's formats, for words that
            the network was not trained on. None takes `config.encoding.word2vec`.

        Returns:
          [N, H] float32, rows of length 1.

        Raises:
          TypeError: `sentences` is one str.
          DataError: the file of word vectors cannot be read.
          UserError: a vector is not finite.
        """
        texts = inputs.texts(sentences, "sentences")
        run = self.encoder(word2vec)
        words, unknown = run.words_read, run.words.unknown
        vectors = run(texts, end_token=end_token)
        self.log_unknown(run.words.unknown - unknown, run.words_read - words)
        return inputs.finite(vectors, "encoded sentences", inputs.BROKEN)

    @functools.cache  # noqa: B019  A run lives as long as its encoders.
    def encoder(self, word2vec: str | None = None) -> Encoder:
        """Return the function behind `encode`, which counts the words that it reads.

        Args:
          word2vec: as for `encode`.

        Raises:
          DataError: the file of word vectors cannot be read.
        """
        config = self.config.copy_and_resolve_references()
        if word2vec is not None:
            config.encoding.word2vec = word2vec
        return encoder(config, self.params, self.facts, SkipThoughts(config))
