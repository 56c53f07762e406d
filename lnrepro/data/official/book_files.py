"""Reading the files of books, and writing the columns of `lnrepro.data.official.books`.

The text is read in blocks of lines, so that memory does not grow with the number of
sentences.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from lnrepro.data.builder import Progress
from lnrepro.data.encodings import blocks
from lnrepro.data.ragged import OFFSETS, Writer
from lnrepro.data.text import SPECIALS, numbering, plain_punctuation
from lnrepro.errors import DataError

# Words of a sentence in a triple. The authors' code keeps sentences below 30 words.
LONGEST = 29
# Bytes of a line.
LONGEST_LINE = 1 << 20
# Words or lines that are processed at a time, after reading.
CHUNK = 1 << 20
# Whether each byte separates words, as in bytes.split().
IS_SPACE = np.isin(np.arange(256), np.frombuffer(b" \t\n\r\x0b\x0c", np.uint8))
# The end of a line whose last mark is attached to a word, and of one where it is a word
# of its own.
ATTACHED = re.compile(rb"[^\s.!?][.!?]+[\"')\]]*[ \t\r]*\n")
APART = re.compile(rb"\s[.!?\"'`)\]]+[ \t\r]*\n")
# The lines around the text in the files of Project Gutenberg.
FRAME = re.compile(
    rb"\*\*\* ?(?:START|END) OF TH(?:E|IS) PROJECT GUTENBERG", re.IGNORECASE
)
CONVERT = "convert it with `python scripts/convert_books.py`"

# Name, bytes on disk, and the opened file.
Book = tuple[str, int, contextlib.AbstractContextManager[Any]]


def index(
    texts: Iterable[Book],
    folder: pathlib.Path,
    progress: Progress,
    notes: Counter[str] | None = None,
) -> dict:
    """Write the columns of books.

    Args:
      texts: the books.
      folder: where the columns are written.
      progress: called now and then.
      notes: oddities of the text and repeated books are counted here.

    Returns:
      The facts of the set.

    Raises:
      DataError: a book is damaged or not text, or there is no triple.
    """
    lines = _Lines(folder)
    notes = Counter() if notes is None else notes
    name, seen = "none", set()
    for name, size, opened in texts:
        task = f"reading {pathlib.PurePath(name).name}"
        digest = hashlib.blake2b()
        with opened as file:
            # A block ends at a line, so that no sentence is cut.
            for number, text in blocks(file.read, name, notes, LONGEST_LINE):
                progress(task, min(file.tell(), size), size)
                block = _checked(name, number, text)
                digest.update(block)
                lines.add(block)
        # A repeated book is kept and counted. Its sentences weigh twice.
        notes["repeated books"] += digest.digest() in seen
        seen.add(digest.digest())
        lines.end_book(name)
    lines.close()
    starts = np.array(lines.starts)
    # The frequencies are known only now. The ids in the file are replaced in place.
    vocabulary = _renumber(folder / "tokens.npy", lines.ids, lines.counts, progress)
    by_length = _write_triples(folder, starts, progress)
    books = len(starts) - 1
    if not sum(by_length):
        raise DataError(
            f"{lines.count:,} sentences in {books} books, but nowhere three in a row "
            f"of 1 to {LONGEST} words; one sentence per line and at least three lines "
            f"per file are needed; the last file was {name}"
        )
    if lines.attached:
        warnings.warn(
            f"{lines.attached:,} of {lines.count:,} sentences end with a full stop "
            "that is attached to a word",
            stacklevel=2,
        )
    return {
        "lines": lines.count,
        "tokens": lines.tokens,
        "books": books,
        "books_without_triple_for_shortness": int((np.diff(starts) < 3).sum()),
        "empty_lines_left_out": lines.empty,
        # Middle sentences of 1, 2, ... LONGEST words.
        "triples_by_length": by_length,
        "words": vocabulary,
    }


class _Lines:
    """The sentences of all books, written with preliminary ids as they are read.

    Attributes:
      ids: preliminary id of each word, in the order of first appearance.
      counts: how often each word occurs.
      starts: first line of each book, and the end of the last one.
      count: number of sentences.
      tokens: number of their words.
      empty: number of empty lines, which are left out.
      attached: number of lines whose full stop is attached to a word.
    """

    def __init__(self, folder: pathlib.Path):
        self._tokens = Writer(folder / "tokens.npy", np.dtype(np.uint32), ())
        self._offsets = Writer(folder / f"tokens{OFFSETS}.npy", np.dtype(np.int64), ())
        self._offsets.append(np.zeros(1, np.int64))
        self.ids: dict[bytes, int] = numbering()
        self.counts = np.zeros(0, np.int64)
        self.starts = [0]
        self.count = self.tokens = self.empty = self.attached = 0
        # Full stops of the current book.
        self._attached = self._apart = 0

    def add(self, block: bytes) -> None:
        """Write the lines of a block."""
        words = block.split()
        # Every word of the books passes here, hence a map in C and no loop.
        found = np.fromiter(map(self.ids.__getitem__, words), np.uint32, len(words))
        counts = np.bincount(found, minlength=len(self.ids))
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        lengths = _words_per_line(block)
        self.empty += int((lengths == 0).sum())
        lengths = lengths[lengths > 0]
        self._tokens.append(found)
        self._offsets.append(self.tokens + np.cumsum(lengths))
        self.tokens += len(found)
        self.count += len(lengths)
        self._attached += len(ATTACHED.findall(block))
        self._apart += len(APART.findall(block))

    def end_book(self, name: str) -> None:
        """Check the form of the book that was added last.

        Raises:
          DataError: it is not tokenised, or there are too many sentences.
        """
        if self._attached > self._apart:
            raise DataError(
                f"{name}: {self._attached:,} lines end with a full stop that is "
                f"attached to a word, and {self._apart:,} with one apart; this is not "
                f"one tokenised sentence per line; {CONVERT}"
            )
        if self.count >= 2**31:
            raise DataError(
                f"{self.count:,} sentences are more than the {2**31:,} that can be "
                "numbered; leave some files out"
            )
        self.attached += self._attached
        self._attached = self._apart = 0
        if self.count > self.starts[-1]:
            self.starts.append(self.count)

    def close(self) -> None:
        """Finish the files."""
        self._tokens.close()
        self._offsets.close()


def _checked(name: str, number: int, text: str) -> bytes:
    """Return lines in UTF-8 with plain punctuation, each with a newline.

    Args:
      name: name of the file, for error messages.
      number: number of the first line.
      text: whole lines.

    Raises:
      DataError: they have Project Gutenberg's licence.
    """
    block = plain_punctuation(text).encode("utf-8")
    if frame := FRAME.search(block):
        line = number + block.count(b"\n", 0, frame.start())
        raise DataError(
            f"{name}, line {line}: a raw file of Project Gutenberg with its licence; "
            f"{CONVERT}"
        )
    return block if block.endswith(b"\n") else block + b"\n"


def _words_per_line(block: bytes) -> np.ndarray:
    """Return the number of words of each line, [lines] int64."""
    text = np.frombuffer(block, np.uint8)
    space = IS_SPACE[text]
    is_start = ~space
    is_start[1:] &= space[:-1]
    newlines = np.flatnonzero(text == ord("\n"))
    # The number of words up to each newline; its differences are the words of each
    # line.
    words_before = np.searchsorted(np.flatnonzero(is_start), newlines)
    return np.diff(words_before, prepend=0)


def _renumber(
    file: pathlib.Path, ids: Mapping[bytes, int], counts: np.ndarray, progress: Progress
) -> list[str]:
    """Replace the preliminary ids in tokens.npy by ids in the order of frequency.

    Words of the same frequency stay in the order of first appearance. A word that is
    spelled like a special token becomes that token.

    Args:
      file: tokens.npy.
      ids: preliminary id of each word, in ascending order.
      counts: how often each word occurs.
      progress: called now and then.

    Returns:
      The words in the order of their final ids, without the special tokens.
    """
    words = [word.decode("utf-8") for word in ids]
    final = np.zeros(len(words), np.uint32)
    ordered = []
    for i in np.argsort(-counts, kind="stable").tolist():
        if words[i] in SPECIALS:
            final[i] = SPECIALS.index(words[i])
        else:
            final[i] = len(SPECIALS) + len(ordered)
            ordered.append(words[i])
    # The file is not mapped, because mapped pages count as memory of this process.
    with open(file, "r+b") as f:
        np.lib.format.read_magic(f)
        (total,), _, _ = np.lib.format.read_array_header_1_0(f)
        for i in range(0, total, CHUNK):
            progress("numbering", i, total)
            piece = f.read(4 * CHUNK)
            f.seek(-len(piece), 1)
            f.write(final[np.frombuffer(piece, np.uint32)].data)
    progress("numbering", total, total)
    return ordered


def _write_triples(
    folder: pathlib.Path, starts: np.ndarray, progress: Progress
) -> list[int]:
    """Write triples.npy.

    This is a counting sort: the first pass counts the triples of each length, and the
    second pass writes each triple to its final position.

    Args:
      folder: the columns.
      starts: first line of each book, and the end of the last one.
      progress: called now and then.

    Returns:
      The number of triples whose middle sentence has 1, 2, ... LONGEST words.
    """
    offsets = np.load(folder / f"tokens{OFFSETS}.npy", mmap_mode="r")
    lines = len(offsets) - 1
    counts = np.zeros(LONGEST + 1, np.int64)
    for _, lengths in _middle_lines(offsets, starts):
        counts += np.bincount(lengths, minlength=LONGEST + 1)
    total = int(counts.sum())
    if not total:
        return []
    out = np.lib.format.open_memmap(folder / "triples.npy", "w+", np.int32, (total,))
    # Where the next triple of each length is written.
    next_position = np.cumsum(counts) - counts
    for middles, lengths in _middle_lines(offsets, starts):
        progress("sorting", int(middles[-1]) if len(middles) else 0, lines)
        # Stable, so that triples of one length stay in the order of the lines.
        order = np.argsort(lengths, kind="stable")
        counts_here = np.bincount(lengths, minlength=LONGEST + 1)
        first = np.cumsum(counts_here) - counts_here
        shift = np.repeat(next_position - first, counts_here)
        out[shift + np.arange(len(order))] = middles[order]
        next_position += counts_here
    out.flush()
    progress("sorting", lines, lines)
    return counts[1:].tolist()


def _middle_lines(
    offsets: np.ndarray, starts: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Find the triples, some CHUNK lines at a time.

    Args:
      offsets: where each sentence begins [lines + 1].
      starts: first line of each book, and the end of the last one.

    Yields:
      The middle lines of triples, and their numbers of words.
    """
    lines = len(offsets) - 1
    # The first and the last line of a book are not in the middle of a triple.
    edges = np.concatenate([starts, starts - 1])
    for low in range(1, lines - 1, CHUNK):
        high = min(low + CHUNK, lines - 1)
        lengths = np.diff(offsets[low - 1 : high + 2])
        # A triple needs three short sentences in a row, not its middle one alone.
        short = lengths <= LONGEST
        kept = short[:-2] & short[1:-1] & short[2:]
        kept[edges[(edges >= low) & (edges < high)] - low] = False
        found = np.flatnonzero(kept)
        yield found + low, lengths[1:-1][found]
