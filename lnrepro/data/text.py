"""Vocabularies: words and their ids."""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

# The end of a text, and any word outside the vocabulary; their places are their ids.
SPECIALS = ("<eos>", "<unk>")
END, UNKNOWN = range(len(SPECIALS))
# Typographic characters, and what tokenised text has in their place. The quotation
# marks are those of the Penn treebank.
PLAIN = str.maketrans(
    {
        "\ufeff": "",  # Byte order mark.
        "\u00ad": "",  # Soft hyphen.
        "\u00a0": " ",  # No-break space.
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": "``",
        "\u201d": "''",
        "\u201e": "``",
        "\u2013": "--",
        "\u2014": "--",
        "\u2015": "--",
        "\u2026": "...",
    }
)


def plain_text(text: str) -> str:
    """Normalise a text to NFC, with quotation marks, dashes and spaces of ASCII.

    >>> plain_text("\u201cIt\u2019s late\u201d \u2014 he said")
    "``It's late'' -- he said"
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text).translate(PLAIN)


def as_bytes(text: str) -> np.ndarray:
    """Return a text as UTF-8 bytes [t] uint8."""
    return np.frombuffer(text.encode(), np.uint8)


def as_texts(column: Sequence[np.ndarray]) -> list[str]:
    """Return the texts of a column of UTF-8 bytes."""
    return [content.tobytes().decode() for content in column]


def numbering() -> dict[Any, int]:
    """Return a dict that gives each new word the next number, from 0."""
    words: defaultdict[Any, int] = defaultdict()
    words.default_factory = words.__len__
    return words


class Vocabulary:
    """Words and their ids. The special tokens come first, from id 0.

    Attributes:
      words: the words, without the special tokens.
      ids: the id of each token.
    """

    def __init__(self, words: Sequence[str]):
        """Number the words, in their order. None occurs twice."""
        self.words = tuple(words)
        self._tokens = SPECIALS + self.words
        self.ids = {token: i for i, token in enumerate(self._tokens)}

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, token: str) -> bool:
        return token in self.ids

    def encode(self, tokens: Iterable[str]) -> np.ndarray:
        """Return the ids of tokens, [T] int32."""
        return np.array([self.ids.get(token, UNKNOWN) for token in tokens], np.int32)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids.

        Raises:
          IndexError: an id is too large.
        """
        return [self._tokens[int(i)] for i in ids]
