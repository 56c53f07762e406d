r"""Word vectors in the binary and the text format of word2vec.

The first line is text: the number of words and the size of the vectors. In the binary
format, each entry is a word, a space, and a vector of little-endian float32 numbers.
Some programs write a newline after each entry. This file has two words and vectors of
size 2, where "...." is one number:

    2 2\n
    red ........
    blue ........

In the text format, each entry is a line. The first line may be missing, as in the files
of GloVe. A word may contain spaces, so that the numbers are the last ones of a line:

    2 2
    red 0.5 -1.25
    at home 1e-3 0
"""

from __future__ import annotations

import itertools
import mmap
import os
import pathlib
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from lnrepro.data.old_files import mappable
from lnrepro.errors import DataError

# Bytes of a word. The longest word of the GoogleNews file has fewer than 100.
LONGEST_WORD = 4096
# Bytes of a line of text.
LONGEST_LINE = 1 << 20
# Bytes that a packed file may unpack to.
LIMIT = 1 << 36
# Lines that tell the size of the vectors where no first line says it.
LINES = 100
# Characters of numbers that are finite, unless they have more than 38 digits.
DIGITS = b"0123456789.+- \t\r"
AGAIN = "get the file again"


class Word2Vec(Mapping):
    """Mapping from words to vectors [size] float32.

    The file is memory-mapped. Only the words and the positions of their vectors are
    kept in memory. The first one of several vectors of a word is used.

    Attributes:
      path: the file.
      size: size of the vectors.
    """

    def __init__(self, path: str | os.PathLike):
        """Open a file, which may be packed.

        Raises:
          DataError: the file cannot be read, does not have this format, or has a number
            that is not finite.
        """
        self.path = pathlib.Path(path).expanduser()
        with mappable(self.path, LIMIT) as plain, open(plain, "rb") as f:
            try:
                self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            # An empty file is a ValueError.
            except (OSError, ValueError) as e:
                raise self._error(f"cannot be read as word2vec vectors ({e})") from e
        end = self._map.find(b"\n", 0, LONGEST_LINE)
        header = self._map[: max(end, 0)].split()
        if len(header) == 2 and all(field.isdigit() for field in header):
            # No file has so many that more digits are needed.
            count, self.size = (int(field[:20]) for field in header)
            start = end + 1
        else:
            count, self.size, start = None, self._size_of_text(), 0
        # A number takes at least two bytes, of text or float32.
        least = 2 * (count or 0) * self.size
        if count == 0 or not self.size or least > len(self._map):
            raise self._error(
                f"its first line says {count:,} words of size {self.size:,}, which are "
                f"not in its {len(self._map):,} bytes"
            )
        self._is_text = count is None or self._holds_text(start)
        if self._is_text:
            self._positions = self._index_text(start, count)
        else:
            self._positions = self._index(start, count or 0)

    def _error(self, problem: str) -> DataError:
        return DataError(f"{self.path}: {problem}; {AGAIN}")

    def _size_of_text(self) -> int:
        """Return the size of the vectors of a text file without a first line.

        Raises:
          DataError: it does not begin with words and numbers.
        """
        sizes = Counter()
        for line in itertools.islice(self._lines(0), LINES):
            fields = line.split()
            numbers = itertools.takewhile(_is_number, reversed(fields))
            # A word may be a number itself.
            size = min(len(list(numbers)), len(fields) - 1)
            sizes[size] += size > 0
        # A word that ends with a number makes a line seem one longer.
        size, lines = max(sizes.items(), key=_by_lines, default=(0, 0))
        if not lines:
            raise DataError(
                f"{self.path}: begins with {self._map[:24]!r} instead of a line of two "
                "numbers, or of a word and numbers; a word2vec file, binary or text, "
                "is needed"
            )
        return size

    def _holds_text(self, at: int) -> bool:
        """Return whether the entry that begins at a position is in the text format."""
        # The longest entry: a word, and for each number at most 32 characters.
        end = self._map.find(b"\n", at, at + LONGEST_WORD + 32 * self.size)
        fields = self._map[at : max(end, at)].split()
        numbers = fields[-self.size :]
        return len(fields) > self.size and all(map(_is_number, numbers))

    def _index_text(self, at: int, count: int | None) -> dict[str, int]:
        """Return where the vector of each word begins, in the text format.

        Args:
          at: where the first entry begins.
          count: number of words, if it is known.

        Raises:
          DataError: there are more or fewer entries, or one has another size or a
            number that is not finite.
        """
        positions: dict[str, int] = {}
        found = 0
        for number, line in enumerate(self._lines(at), 1 if count is None else 2):
            word, numbers = self._entry(line, number)
            if word:
                found += 1
                name = _text(word)
                positions.setdefault(name, at + line.index(word) + len(word))
                # Most vectors have nothing else, and need not be converted here.
                if numbers.translate(None, DIGITS):
                    self._checked(numbers.split(), name, f"line {number}")
            at += len(line)
        if count is not None and found != count:
            raise self._error(f"has {found:,} words, but its first line says {count:,}")
        return positions

    def _entry(self, line: bytes, number: int) -> tuple[bytes, bytes]:
        """Split a line into the word and the numbers; an empty line has no word."""
        stripped = line.strip()
        word, _, numbers = stripped.partition(b" ")
        if numbers.count(b" ") + 1 != self.size or b"\t" in line:
            # The word has spaces, or the numbers have more than one between them.
            fields = stripped.rsplit(None, self.size)
            if fields and len(fields) != self.size + 1:
                raise DataError(
                    f"{self.path}, line {number}: not a word and {self.size} numbers "
                    f"after it; {AGAIN}"
                )
            word, numbers = b"", b""
            if fields:
                word, numbers = fields[0].strip(), b" ".join(fields[1:])
        return word, numbers

    def _lines(self, at: int) -> Iterator[bytes]:
        total = len(self._map)
        while at < total:
            end = self._map.find(b"\n", at, at + LONGEST_LINE) + 1
            if not end:
                if total - at > LONGEST_LINE:
                    raise self._error("a line without an end")
                end = total
            yield self._map[at:end]
            at = end

    def _index(self, at: int, count: int) -> dict[str, int]:
        """Return where the vector of each word begins.

        Args:
          at: where the first entry begins.
          count: number of words.

        Raises:
          DataError: the file is too short or too long, or a number is not finite.
        """
        positions: dict[str, int] = {}
        step, total = 4 * self.size, len(self._map)
        for i in range(1, count + 1):
            space = self._map.find(b" ", at, at + LONGEST_WORD)
            if space < 0 or space + 1 + step > total:
                problem = f"truncated, it ends within word {i:,} of {count:,}"
                if total - at > LONGEST_WORD + step:
                    problem = (
                        f"word {i:,} of {count:,} has no end; not in word2vec's binary "
                        "format, or damaged"
                    )
                raise self._error(problem)
            word = _text(self._map[at:space].lstrip(b"\n"))
            vector = np.frombuffer(self._map, "<f4", self.size, space + 1)
            if not np.isfinite(vector).all():
                raise self._not_finite(word, f"word {i:,}")
            positions.setdefault(word, space + 1)
            at = space + 1 + step
        if self._map[at : at + 2] not in (b"", b"\n"):
            raise self._error(
                f"goes on after the {count:,} words that its first line says"
            )
        return positions

    def _checked(self, numbers: list[bytes], word: str, place: str) -> np.ndarray:
        """Return the vector of a word in the text format."""
        try:
            # A number that float32 cannot hold becomes infinite.
            with np.errstate(over="ignore"):
                vector = np.array(numbers, np.float64).astype(np.float32)
        except ValueError:
            raise DataError(
                f"{self.path}, {place}: the vector of {word[:40]!a} does not consist "
                f"of numbers; {AGAIN}"
            ) from None
        if not np.isfinite(vector).all():
            raise self._not_finite(word, place)
        return vector

    def _not_finite(self, word: str, place: str) -> DataError:
        return DataError(
            f"{self.path}, {place}: the vector of {word[:40]!a} contains NaN or "
            f"infinity; {AGAIN}, or remove the word"
        )

    def __getitem__(self, word: str) -> np.ndarray:
        at = self._positions[word]
        if not self._is_text:
            return np.frombuffer(self._map, "<f4", self.size, at)
        end = self._map.find(b"\n", at)
        numbers = self._map[at : end if end >= 0 else len(self._map)].split()
        return self._checked(numbers, word, "the text")

    def __contains__(self, word: object) -> bool:
        return word in self._positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)


def _by_lines(item: tuple[int, int]) -> tuple[int, int]:
    size, lines = item
    return lines, -size


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _text(word: bytes) -> str:
    """Return a word in UTF-8, or else in Windows-1252."""
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        return word.decode("cp1252", "replace")
