"""Word vectors in word2vec's binary format, memory-mapped: an ASCII line "COUNT SIZE", then per word the word, a space and
SIZE little-endian float32 (some writers end an entry with a newline)."""

from __future__ import annotations

import mmap
import os
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np

from lnrepro.engine.errors import DataError

LONGEST_WORD = 4096  # bytes; the longest in the GoogleNews file has fewer than 100
AGAIN = "get the file again"


class Word2Vec(Mapping):
    """Word -> vector (size,) float32; the words are indexed at opening, the vectors stay in the file."""

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path).expanduser()
        try:
            with open(self.path, "rb") as f:
                self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as e:  # ValueError: the file is empty
            why = getattr(e, "strerror", None) or e
            raise DataError(
                f"{self.path}: cannot be read as word2vec vectors ({why}); {AGAIN}"
            ) from e
        end = self._map.find(b"\n", 0, 64)
        header = self._map[: max(end, 0)].split()
        if len(header) != 2 or not all(field.isdigit() for field in header):
            raise DataError(
                f"{self.path}: begins with {self._map[:24]!r} instead of a line of two numbers; "
                "a word2vec file in binary format (.bin, unpacked) is needed"
            )
        count, self.size = map(int, header)
        if not count or not self.size:
            raise DataError(
                f"{self.path}: its first line says {count} words of size {self.size}; {AGAIN}"
            )
        self._places = self._index(end + 1, count)

    def _index(self, at: int, count: int) -> dict[str, int]:
        """Where each word's vector begins. Raises DataError where the file ends early or runs on."""
        places, step, total = {}, 4 * self.size, len(self._map)
        for i in range(count):
            space = self._map.find(b" ", at, at + LONGEST_WORD)
            if space < 0 or space + 1 + step > total:
                where = f"word {i + 1:,} of {count:,}"
                if total - at > LONGEST_WORD + step:
                    raise DataError(
                        f"{self.path}: {where} has no end; not in word2vec's binary format, or damaged; {AGAIN}"
                    )
                raise DataError(
                    f"{self.path}: truncated, it ends within {where}; {AGAIN}"
                )
            word = self._map[at:space].lstrip(b"\n").decode("utf-8", "replace")
            places.setdefault(word, space + 1)
            at = space + 1 + step
        if self._map[at : at + 2] not in (b"", b"\n"):
            raise DataError(
                f"{self.path}: goes on behind the {count:,} words that its first line announces; {AGAIN}"
            )
        return places

    def __getitem__(self, word: str) -> np.ndarray:
        return np.frombuffer(self._map, "<f4", self.size, self._places[word])

    def __contains__(self, word: object) -> bool:
        return word in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
