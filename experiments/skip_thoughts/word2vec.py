r"""Word vectors in the binary and the text format of word2vec.

The first line is text: the number of words and the size of the vectors. In the binary
format, each entry is a word, a space, and a vector of little-endian float32 numbers.
Some programs write a newline after each entry. This file has two words and vectors of
size 2, where "...." is one number:

    2 2\n
    red ........
    blue ........

In the text format, each entry is a line. The first line may be missing, as in the files
of GloVe. A word may contain spaces, except for the first one without a header, so that
the numbers are the last ones of a line:

    2 2
    red 0.5 -1.25
    at home 1e-3 0
"""

import itertools
import mmap
import os
import pathlib
import unicodedata
from collections.abc import Iterator

import numpy as np

from lnrepro.data.files import plain_file
from lnrepro.errors import DataError

# Bytes of a word. The longest word of the GoogleNews file has fewer than 100.
LONGEST_WORD = 4096


class Word2Vec:
    """Mapping from words to vectors [size] float32.

    The file is memory-mapped, and a vector is read when it is asked for. Of several
    vectors of a word, the first one counts.

    Attributes:
      path: the file.
      size: size of the vectors.
      positions: where the numbers of each word begin in the file.
    """

    def __init__(self, path: str | os.PathLike):
        """Open a file, which may be packed.

        Raises:
          DataError: the file cannot be read, or does not have this format.
        """
        self.path = pathlib.Path(path).expanduser()
        with plain_file(self.path) as plain, open(plain, "rb") as f:
            if not f.read(1):
                raise self._error("empty")
            self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        first = self._map.readline().split()
        if len(first) == 2 and all(field.isdigit() for field in first):
            # No file has so many words that more digits are needed.
            count, self.size = (int(field[:20]) for field in first)
        else:
            # There is no header, and the first line is an entry.
            count, self.size = None, len(first) - 1
            self._map.seek(0)
        # A number takes at least two bytes, of text or float32.
        if not 0 < 2 * self.size * (count or 1) <= len(self._map):
            raise self._error(f"begins with {self._map[:24]!r}, which does not fit it")
        # Some of so many bytes of float32 numbers are zero, and none of text.
        self._is_text = b"\0" not in self._map[: 1 << 16]
        found = self._text_entries() if self._is_text else self._binary_entries()
        self.positions: dict[str, int] = {}
        total = 0
        for word, position in itertools.islice(found, count):
            total += 1
            text = unicodedata.normalize("NFC", word.decode("utf-8", "replace"))
            self.positions.setdefault(text, position)
        more = self._map.read(LONGEST_WORD).strip()
        if more or total < (count or 0):
            raise self._error(
                f"has {'more' if more else total} words, but its first line says "
                f"{count:,}"
            )

    def _error(self, problem: str) -> DataError:
        return DataError(f"{self.path}: {problem}; get a word2vec file, binary or text")

    def _text_entries(self) -> Iterator[tuple[bytes, int]]:
        """Yield each word, and where its numbers begin."""
        start = self._map.tell()
        # The header, if there is one, is line 1.
        for number, line in enumerate(iter(self._map.readline, b""), 1 + (start > 0)):
            fields = line.rsplit(None, self.size)
            if len(fields) == self.size + 1:
                word = fields[0].strip()
                yield word, start + line.find(word) + len(word)
            elif fields:
                raise self._error(
                    f"line {number} is not a word and {self.size} numbers after it"
                )
            start += len(line)

    def _binary_entries(self) -> Iterator[tuple[bytes, int]]:
        """Yield each word, and where its numbers begin."""
        while True:
            start = self._map.tell()
            space = self._map.find(b" ", start, start + LONGEST_WORD)
            end = space + 1 + 4 * self.size
            if space < 0 or end > len(self._map):
                raise self._error(f"damaged or truncated at byte {start:,}")
            self._map.seek(end)
            yield self._map[start:space].strip(), space + 1

    def __contains__(self, word: str) -> bool:
        return word in self.positions

    def __getitem__(self, word: str) -> np.ndarray:
        position = self.positions[word]
        if self._is_text:
            self._map.seek(position)
            fields = self._map.readline().split()
            try:
                # A number that float32 cannot hold becomes infinite.
                with np.errstate(over="ignore"):
                    vector = np.array(fields, np.float64).astype(np.float32)
            except ValueError:
                vector = np.array(np.nan)
        else:
            vector = np.frombuffer(self._map, "<f4", self.size, position)
        if not np.isfinite(vector).all():
            raise self._error(
                f"the vector of {word!r:.80} contains NaN, infinity or no number"
            )
        return vector
