"""Use of a trained network: `lnrepro.load(run)` returns a `Model`.

Shape letters: T words of the passage that are read.
"""

import functools
from typing import NamedTuple

import jax
import numpy as np

from lnrepro.data.ragged import Ragged
from lnrepro.data.readers.cnn import UNKNOWN, read_as
from lnrepro.data.readers.question import ENTITY, PLACEHOLDER, ranks
from lnrepro.data.text import plain_text
from lnrepro.engine import inputs
from lnrepro.engine.loaded_run import LoadedRun
from lnrepro.errors import UserError

from .data import evaluation_batches
from .model import Reader

PADDING_ID = 0


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
      entity: the most probable entity of the passage, such as "@entity3".
      probabilities: of each entity of the passage, among all words.
      words: the words of the passage that were read.
      attention: [T], the weight of each of them; their sum is 1.
    """

    entity: str
    probabilities: dict[str, float]
    words: list[str]
    attention: np.ndarray


class Model(LoadedRun):
    """A run of experiments.attentive_reader, which answers questions."""

    def answer(self, passage: str, question: str) -> Answer:
        """Say which entity of a passage is missing in a sentence about it.

        Both texts are as in the .question files: tokens separated by spaces, and
        "@entityN" in place of each name. The share of words that the network does not
        know is logged, by the logger "lnrepro". Batch norm takes the population
        statistics, because one question has no statistics of a batch.

        Args:
          passage: such as "@entity1 met @entity2 in a park ."
          question: a sentence with one "@placeholder", such as "@placeholder was in a
            park with @entity2".

        Raises:
          UserError: a text that is not of this form, or that is too long.
        """
        spec = self.config.data
        words = self._tokens(passage, "passage")
        asked = self._tokens(question, "question")
        if asked.count(PLACEHOLDER) != 1:
            raise UserError(
                f"the question has {asked.count(PLACEHOLDER)} {PLACEHOLDER} tokens "
                "instead of 1"
            )
        if spec.sentences is not None:
            # The most relevant sentences of the passage, as in training.
            is_kept = ranks(words, asked) < spec.sentences
            words = [word for word, kept in zip(words, is_kept, strict=True) if kept]
        entities = [word for word in words if ENTITY.fullmatch(word)]
        if not entities:
            raise UserError(
                "what is read of the passage names no @entityN, so there is no answer"
            )
        columns = {"passage": self._column(words), "question": self._column(asked)}
        # One question, padded to lengths of the training.
        (batch,) = evaluation_batches(self.config, columns, np.arange(1), 1)
        known = [self._known(word) for word in (*words, *asked)]
        # The words of cnn_top4 need not have one for unknown words.
        unknown = [word for word in known if word == UNKNOWN or word not in self._ids]
        self.log_unknown(len(unknown), len(known))
        probabilities, attention = jax.device_get(self._read(self.vars, batch))
        of_entities = {word: float(probabilities[self._ids[word]]) for word in entities}
        best = max(of_entities, key=of_entities.__getitem__)
        return Answer(best, of_entities, words, attention[: len(words)])

    def _tokens(self, text, what):
        """Split a text, and check its entities."""
        (text,) = inputs.texts([text], f"the {what}")
        tokens = plain_text(text).split()
        for token in tokens:
            if ENTITY.fullmatch(token) and token not in self._ids:
                raise UserError(
                    f"the {what} names {token}, but the network knows "
                    f"{self.config.data.entities} entities from @entity0 on; number "
                    "them anew"
                )
        return tokens

    def _known(self, word):
        """Return what a word is looked up as."""
        return read_as(word if word in self._ids else word.lower(), self._ids)

    def _column(self, words):
        """Return a column of one text, as numbers of words."""
        # Without a word for unknown words, they are read as padding.
        found = [self._ids.get(self._known(word), PADDING_ID) for word in words]
        return Ragged(np.array(found, np.int32), np.array([0, len(found)]))

    @functools.cached_property
    def _ids(self):
        return {word: i for i, word in enumerate(self.facts["words"])}

    @functools.cached_property
    def _read(self):
        reader = Reader(self.config)

        @jax.jit
        def read(vars, batch):
            population = vars.get("batch_stats")
            reading = reader.read(vars["params"], batch, population=population)
            scores = reader.scores(vars["params"], reading.readout)
            return jax.nn.softmax(scores[0]), reading.attention[:, 0]

        return read
