r"""Word vectors in the binary format of word2vec.

The first line is text: the number of words and the size of the vectors. Each entry is
a word, a space, and a vector of little-endian float32 numbers. Some programs write a
newline after each entry. This file has two words and vectors of size 2, where "...." is
one number:

    2 2\n
    red ........
    blue ........
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
                "numbers; a word2vec file in binary format (.bin, unpacked) is needed"
            )
        count, self.size = map(int, header)
        if not count or not self.size:
            raise DataError(
                f"{self.path}: its first line says {count} words of size {self.size}; "
                f"{AGAIN}"
            )
        self._positions = self._index(end + 1, count)

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
        return np.frombuffer(self._map, "<f4", self.size, self._positions[word])

    def __contains__(self, word: object) -> bool:
        return word in self._positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)
