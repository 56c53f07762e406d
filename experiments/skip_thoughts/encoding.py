"""Sentence vectors of a frozen encoder.

Shape letters: N sentences, t tokens, T padded length, B batch, D word size, H units.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.data.text import END, SPECIALS, UNKNOWN, Vocabulary, plain_text
from lnrepro.errors import UserError

from .model import SkipThoughts
from .word2vec import Word2Vec

# Books are written with one or the other of these.
QUOTATION_MARKS = ("``", "''", '"')
# Contractions are split as in the Penn treebank: "don't" into "do n't", "it's" into
# "it 's".
CONTRACTION = re.compile(r"(?<=\w)(n't|'(?:s|m|d|re|ll|ve))(?!\w)", re.IGNORECASE)
# A token is a part of a contraction, a word or number, or a punctuation mark.
TOKEN = re.compile(
    r"n't(?!\w)|'(?:s|m|d|re|ll|ve)(?!\w)|\w+(?:[-./]\w+)*|\.\.\.|--|``|''|[^\w\s]",
    re.IGNORECASE,
)
# A batch holds about this many tokens for each of its rows, so that one very long
# sentence does not fill the memory.
ROW_TOKENS = 64


def tokens_of(sentence: str, lowercase: bool) -> list[str]:
    """Split a sentence into words and punctuation marks.

    A sentence that is tokenised already keeps its tokens, except for contractions.

    Args:
      sentence: the text.
      lowercase: convert the tokens to lower case.
    """
    split = CONTRACTION.sub(r" \1", plain_text(sentence))
    return TOKEN.findall(split.lower() if lowercase else split)


def shared(vocabulary: Vocabulary, word2vec: Word2Vec) -> tuple[list[str], np.ndarray]:
    """Return the words of a vocabulary that have a word2vec vector.

    Args:
      vocabulary: the words of the model.
      word2vec: other word vectors.

    Returns:
      (the words, their vectors [N, size])

    Raises:
      UserError: there are none, or a vector is damaged.
    """
    words = [word for word in vocabulary.words if word in word2vec]
    if not words:
        raise UserError(
            f"{word2vec.path}: has none of the {len(vocabulary.words):,} words of the "
            "vocabulary"
        )
    return words, np.stack([word2vec[word] for word in words])


class WordVectors:
    """Vectors of tokens.

    A word of the model has the vector of its table. Another word has its word2vec
    vector, mapped into the table's space by the linear regression with intercept over
    the words in both. Words with "_", which are phrases, are left out. A quotation mark
    that the model does not know has the vector of another one. Every other token has
    the vector of the unknown word.

    References:
      Kiros et al. (2015), section 2.2.
    """

    def __init__(
        self,
        table: np.ndarray,
        vocabulary: Vocabulary,
        word2vec: Word2Vec | None = None,
    ):
        """Fit the regression.

        Args:
          table: [V, D], the vectors of the model.
          vocabulary: its words.
          word2vec: other word vectors, or None.

        Raises:
          UserError: `word2vec` has none of the words.
        """
        self.table = np.asarray(table)
        self.vocabulary = vocabulary
        self.word2vec = word2vec
        self.unknown = 0
        self._ids = dict(vocabulary.ids)
        known = [mark for mark in QUOTATION_MARKS if mark in self._ids]
        if known:
            for mark in QUOTATION_MARKS:
                self._ids.setdefault(mark, self._ids[known[0]])
        if word2vec is None:
            return
        from sklearn.linear_model import LinearRegression

        words, vectors = shared(vocabulary, word2vec)
        table = self.table[vocabulary.encode(words)].astype(np.float64)
        self._regression = LinearRegression().fit(vectors.astype(np.float64), table)

    def __call__(self, tokens: Sequence[str]) -> np.ndarray:
        """Return the vectors [t, D] of tokens, in the data type of the table."""
        if not tokens:
            return self.table[:0]
        return np.stack([self._vector(token) for token in tokens])

    def _vector(self, token: str) -> np.ndarray:
        if token in self._ids:
            return self.table[self._ids[token]]
        if self.word2vec is None or "_" in token or token not in self.word2vec:
            self.unknown += 1
            return self.table[UNKNOWN]
        (mapped,) = self._regression.predict(self.word2vec[token][None])
        return mapped.astype(self.table.dtype)


@dataclasses.dataclass(eq=False)
class Encoder:
    """A function from sentences to vectors.

    Attributes:
      model: the model.
      params: its parameters.
      words: vectors of tokens.
      lowercase: convert sentences to lower case.
      batch_size: B, the largest number of sentences in a batch.
      words_read: how many tokens it has read so far, without end tokens.
    """

    model: SkipThoughts
    params: dict
    words: WordVectors
    lowercase: bool
    batch_size: int
    words_read: int = 0

    def __call__(self, sentences: Iterable[str], *, end_token: bool) -> np.ndarray:
        """Encode sentences of any length.

        Sentences of similar length share a batch. An empty sentence without the end
        token has the vector zero.

        Args:
          sentences: N texts.
          end_token: append the end token to each sentence.

        Returns:
          [N, H] float32, rows of length 1 in the order of the sentences.
        """
        end = [SPECIALS[END]] if end_token else []
        tokens = [tokens_of(sentence, self.lowercase) + end for sentence in sentences]
        self.words_read += sum(len(found) - len(end) for found in tokens)
        lengths = np.array([_padded_length(len(found)) for found in tokens], int)
        parts = []
        for length in np.unique(lengths):
            where = np.flatnonzero(lengths == length)
            rows = max(1, self.batch_size * ROW_TOKENS // max(length, ROW_TOKENS))
            # Few sentences take a smaller batch, rounded up to a power of two.
            rows = min(rows, _power_of_two(len(where)))
            for selected in np.split(where, range(rows, len(where), rows)):
                batch = [tokens[i] for i in selected]
                parts.append((selected, self._encode_batch(batch, int(length), rows)))
        # All batches are dispatched before the first result is read.
        vectors = np.zeros((len(tokens), self.model.sizes.units), np.float32)
        for selected, states in parts:
            vectors[selected] = np.asarray(states)[: len(selected)]
        norm = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.maximum(norm, 1e-12)

    def _encode_batch(
        self, sentences: list[list[str]], steps: int, rows: int
    ) -> jax.Array:
        """Encode at most `rows` sentences, padded to `steps` tokens, [rows, H]."""
        table = self.words.table
        x = np.zeros((steps, rows, table.shape[1]), table.dtype)
        lengths = np.zeros(rows, np.int32)
        for i, tokens in enumerate(sentences):
            x[: len(tokens), i] = self.words(tokens)
            lengths[i] = len(tokens)
        params = {"encoder": self.params["encoder"]}
        return self.model.encode_compiled(params, jnp.asarray(x), lengths)


def _padded_length(length: int) -> int:
    """Round up to a multiple of 8, or above 64 to a power of two.

    The encoder is compiled for these lengths only.
    """
    if length > 64:
        return _power_of_two(length)
    return max(8, -(-length // 8) * 8)


def _power_of_two(n: int) -> int:
    """Round up to a power of two."""
    return 1 << (n - 1).bit_length()
