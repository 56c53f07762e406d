"""Words and their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

SPECIALS = ("<eos>", "<unk>")


def is_text(value: str) -> bool:
    """Whether a file can hold it: JSON and pickles also give strings with half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Vocabulary:
    """Ids 0, 1, ... are the special tokens, the words follow. Raises ValueError if a word stands twice.

    Among the specials, "<unk>" stands for every word that is not in the vocabulary; without it such a word is a KeyError.
    """

    def __init__(self, words: Sequence[str], specials: Sequence[str] = SPECIALS):
        self.words, self.specials = tuple(words), tuple(specials)
        self._tokens = (*self.specials, *self.words)
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        if len(self._ids) < len(self._tokens):
            twice = next(token for token, n in Counter(self._tokens).items() if n > 1)
            raise ValueError(f"{twice!r} stands twice in the vocabulary")

    @classmethod
    def of_counts(
        cls,
        counts: Counter[str],
        specials: Sequence[str] = SPECIALS,
        size: int | None = None,
    ) -> Vocabulary:
        """The most frequent words first, ties by first appearance; at most `size` ids, the specials among them.

        Words that look like a special token are left out: in a text they are that token.
        """
        words = [word for word, _ in counts.most_common() if word not in specials]
        return cls(
            words[: None if size is None else max(0, size - len(specials))], specials
        )

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, token: str) -> bool:
        return token in self._ids

    def encode(self, tokens: Iterable[str]) -> np.ndarray:
        """Tokens -> ids (T,) int32."""
        if "<unk>" not in self._ids:
            return np.array([self._ids[token] for token in tokens], np.int32)
        unknown = self._ids["<unk>"]
        return np.array([self._ids.get(token, unknown) for token in tokens], np.int32)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Ids -> tokens. Raises IndexError for an id beyond the vocabulary."""
        return [self._tokens[int(i)] for i in ids]
