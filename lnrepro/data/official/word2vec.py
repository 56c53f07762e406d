r"""Word vectors in the binary and the text format of word2vec.

The first line is text: the number of words and the size of the vectors. In the binary
format, each entry is a word, a space, and a vector of little-endian float32 numbers.
Some programs write a newline after each entry. This file has two words and vectors of
size 2, where "...." is one number:

    2 2\n
    red ........
    blue ........

In the text format, each entry is a line:

    2 2
    red 0.5 -1.25
    blue 1e-3 0
"""

from __future__ import annotations

import mmap
import os
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np

from lnrepro.engine.errors import DataError

# Bytes of a word. The longest word of the GoogleNews file has fewer than 100.
LONGEST_WORD = 4096
AGAIN = "get the file again"


class Word2Vec(Mapping):
    """Mapping from words to vectors [size] float32.

    The file is memory-mapped. Only the words and the positions of their vectors are
    kept in memory.

    Attributes:
      path: the file.
      size: size of the vectors.
    """

    def __init__(self, path: str | os.PathLike):
        """Open a file.

        Raises:
          DataError: the file cannot be read or does not have this format.
        """
        self.path = pathlib.Path(path).expanduser()
        try:
            with open(self.path, "rb") as f:
                self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        # An empty file is a ValueError.
        except (OSError, ValueError) as e:
            reason = getattr(e, "strerror", None) or e
            raise DataError(
                f"{self.path}: cannot be read as word2vec vectors ({reason}); {AGAIN}"
            ) from e
        end = self._map.find(b"\n", 0, 64)
        header = self._map[: max(end, 0)].split()
        if len(header) != 2 or not all(field.isdigit() for field in header):
            raise DataError(
                f"{self.path}: begins with {self._map[:24]!r} instead of a line of two "
                "numbers; a word2vec file, binary or text, unpacked, is needed"
            )
        count, self.size = map(int, header)
        if not count or not self.size:
            raise DataError(
                f"{self.path}: its first line says {count} words of size {self.size}; "
                f"{AGAIN}"
            )
        self._is_text = self._holds_text(end + 1)
        index = self._index_text if self._is_text else self._index
        self._positions = index(end + 1, count)

    def _holds_text(self, at: int) -> bool:
        """Return whether the entry that begins at a position is in the text format."""
        # The longest entry: a word, and for each number at most 32 characters.
        end = self._map.find(b"\n", at, at + LONGEST_WORD + 32 * self.size)
        fields = self._map[at : max(end, at)].split()
        if len(fields) != self.size + 1:
            return False
        try:
            np.array(fields[1:], np.float32)
        except ValueError:
            return False
        return True

    def _index_text(self, at: int, count: int) -> dict[str, int]:
        """Return where the vector of each word begins, in the text format.

        Args:
          at: where the first entry begins.
          count: number of words.

        Raises:
          DataError: there are more or fewer entries, or one has another size.
        """
        positions = {}
        for number, line in enumerate(self._lines(at), 2):
            word, _, numbers = line.rstrip().partition(b" ")
            if numbers.count(b" ") + 1 != self.size:
                raise DataError(
                    f"{self.path}, line {number}: not a word and {self.size} numbers "
                    f"with single spaces between them; {AGAIN}"
                )
            positions.setdefault(word.decode("utf-8", "replace"), at + len(word) + 1)
            at += len(line)
        found = number - 1
        if found != count:
            raise DataError(
                f"{self.path}: has {found:,} words, but its first line says {count:,}; "
                f"{AGAIN}"
            )
        return positions

    def _lines(self, at: int) -> Iterator[bytes]:
        self._map.seek(at)
        return iter(self._map.readline, b"")

    def _index(self, at: int, count: int) -> dict[str, int]:
        """Return where the vector of each word begins.

        Args:
          at: where the first entry begins.
          count: number of words.

        Raises:
          DataError: the file is too short or too long.
        """
        positions, step, total = {}, 4 * self.size, len(self._map)
        for i in range(1, count + 1):
            space = self._map.find(b" ", at, at + LONGEST_WORD)
            if space < 0 or space + 1 + step > total:
                problem = f"truncated, it ends within word {i:,} of {count:,}"
                if total - at > LONGEST_WORD + step:
                    problem = (
                        f"word {i:,} of {count:,} has no end; not in word2vec's binary "
                        "format, or damaged"
                    )
                raise DataError(f"{self.path}: {problem}; {AGAIN}")
            word = self._map[at:space].lstrip(b"\n").decode("utf-8", "replace")
            positions.setdefault(word, space + 1)
            at = space + 1 + step
        if self._map[at : at + 2] not in (b"", b"\n"):
            raise DataError(
                f"{self.path}: goes on after the {count:,} words that its first line "
                f"says; {AGAIN}"
            )
        return positions

    def __getitem__(self, word: str) -> np.ndarray:
        at = self._positions[word]
        if not self._is_text:
            return np.frombuffer(self._map, "<f4", self.size, at)
        end = self._map.find(b"\n", at)
        numbers = self._map[at : end if end >= 0 else len(self._map)].split()
        try:
            return np.array(numbers, np.float32)
        except ValueError:
            raise DataError(
                f"{self.path}: the vector of {word[:40]!a} does not consist of "
                f"numbers; {AGAIN}"
            ) from None

    def __contains__(self, word: object) -> bool:
        return word in self._positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)
