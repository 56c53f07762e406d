"""Sentences to vectors with a frozen encoder: words found, looked up, sentences of like length taken together."""

import re
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.data.official.word2vec import Word2Vec
from lnrepro.data.text import Vocabulary
from lnrepro.engine.errors import UserError

from .model import SkipThoughts

UNKNOWN = "<unk>"
# A word's parts as in the Penn treebank: "don't" is "do n't", "it's" is "it 's"; then words, numbers, single marks.
CONTRACTED = re.compile(r"(?<=\w)(n't|'(?:s|m|d|re|ll|ve))(?!\w)", re.IGNORECASE)
PIECES = re.compile(
    r"n't(?!\w)|'(?:s|m|d|re|ll|ve)(?!\w)|\w+(?:[-./]\w+)*|\.\.\.|--|``|''|[^\w\s]",
    re.IGNORECASE,
)


def tokens_of(sentence: str, lowercase: bool) -> list[str]:
    """A sentence's words and marks; one that is parted by spaces already stays as it is, contractions apart."""
    parted = CONTRACTED.sub(
        r" \1", sentence.replace("\u2019", "'").replace("\u2018", "'")
    )
    return PIECES.findall(parted.lower() if lowercase else parted)


class WordVectors:
    """Token -> word vector (D,): the trained table's, else word2vec's mapped into it, else that of the unknown word.

    The map is the linear regression with intercept from word2vec to the table over the words in both; words with "_"
    are phrases and left out. Source: Kiros et al. (2015), section 2.2. Raises UserError if no word is in both.
    """

    def __init__(
        self,
        table: np.ndarray,
        vocabulary: Vocabulary,
        word2vec: Word2Vec | None = None,
    ):
        self.table, self.vocabulary, self.word2vec = (
            np.asarray(table),
            vocabulary,
            word2vec,
        )
        self._unknown = int(vocabulary.encode([UNKNOWN])[0])
        self._ids = {
            word: i for i, word in enumerate((*vocabulary.specials, *vocabulary.words))
        }
        self._mapped: dict[str, np.ndarray] = {}
        if word2vec is not None:
            shared = [word for word in vocabulary.words if word in word2vec]
            if not shared:
                raise UserError(
                    f"{word2vec.path}: has none of the {len(vocabulary.words):,} words of the vocabulary"
                )
            inputs = np.stack([word2vec[word] for word in shared]).astype(np.float64)
            outputs = self.table[vocabulary.encode(shared)].astype(np.float64)
            means = inputs.mean(0), outputs.mean(0)
            self._map = np.linalg.lstsq(
                inputs - means[0], outputs - means[1], rcond=None
            )[0]
            self._shift = means[1] - means[0] @ self._map

    def __call__(self, tokens: Sequence[str]) -> np.ndarray:
        """Tokens -> (t, D) of the table's dtype."""
        if self.word2vec is None:
            return self.table[[self._ids.get(token, self._unknown) for token in tokens]]
        return (
            np.stack([self._one(token) for token in tokens])
            if tokens
            else self.table[:0]
        )

    def _one(self, token: str) -> np.ndarray:
        if token in self._ids:
            return self.table[self._ids[token]]
        if "_" in token or token not in self.word2vec:
            return self.table[self._unknown]
        if token not in self._mapped:
            self._mapped[token] = (
                self.word2vec[token] @ self._map + self._shift
            ).astype(self.table.dtype)
        return self._mapped[token]


class Encoder:
    """`encoder(sentences, end_token=...)` -> (N, H) float32 rows of length 1, in the order of the sentences."""

    def __init__(
        self,
        net: SkipThoughts,
        params: dict,
        words: WordVectors,
        *,
        lowercase: bool,
        batch_size: int = 128,
    ):
        self.words, self.lowercase, self.batch_size, self.units = (
            words,
            lowercase,
            batch_size,
            net.sizes.units,
        )
        self._params = {"encoder": params["encoder"]}
        self._encode = net.encode_compiled

    def __call__(self, sentences: Iterable[str], *, end_token: bool) -> np.ndarray:
        """Encode sentences of any lengths, an empty one too (without the end token its vector is zero)."""
        end = [self.words.vocabulary.specials[0]] if end_token else []
        found = [tokens_of(sentence, self.lowercase) + end for sentence in sentences]
        steps = np.array([_steps(len(tokens)) for tokens in found], int)
        vectors = np.zeros((len(found), self.units), np.float32)
        made = []
        for length in np.unique(steps):
            rows = max(
                1, self.batch_size * 64 // max(length, 64)
            )  # one very long sentence must not fill the memory
            where = np.flatnonzero(steps == length)
            rows = min(
                rows, 1 << (len(where) - 1).bit_length()
            )  # few sentences need few rows
            for i in range(0, len(where), rows):
                some = where[i : i + rows]
                made.append(
                    (some, self._batch([found[j] for j in some], int(length), rows))
                )
        for some, states in made:  # all batches are dispatched before the first is read
            vectors[some] = np.asarray(states)[: len(some)]
        return vectors / np.maximum(
            np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12
        )

    def _batch(self, found: list[list[str]], steps: int, rows: int) -> jax.Array:
        x = np.zeros((steps, rows, self.words.table.shape[1]), self.words.table.dtype)
        for i, tokens in enumerate(found):
            x[: len(tokens), i] = self.words(tokens)
        lengths = np.zeros(rows, np.int32)
        lengths[: len(found)] = [len(tokens) for tokens in found]
        return self._encode(self._params, jnp.asarray(x), lengths)


def _steps(length: int) -> int:
    """The compiled length for a sentence: multiples of 8 to 64, then powers of 2."""
    return (
        max(8, -(-length // 8) * 8) if length <= 64 else 1 << (length - 1).bit_length()
    )
