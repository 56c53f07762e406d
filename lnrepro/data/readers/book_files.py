"""Writing the columns of `lnrepro.data.readers.books`.

The text is read in blocks of lines. Memory grows with the number of different words,
and by one byte for each sentence.
"""

import itertools
import pathlib
import re
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.ndimage import minimum_filter1d

from lnrepro.data.ragged import OFFSETS, Writer, forget_pages
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Content
from lnrepro.data.text import SPECIALS, Vocabulary, numbering, plain_text
from lnrepro.errors import DataError

# Words of a sentence in a triple. The authors' code keeps sentences below 30 words.
LONGEST = 29
# Words that are renumbered at a time.
CHUNK = 1 << 20
# The end of a line whose last mark is attached to a word, and of one where it is a word
# of its own.
ATTACHED = re.compile(rb"[^\s.!?][.!?]+[\"')\]]*[ \t\r]*\n")
APART = re.compile(rb"\s[.!?\"'`)\]]+[ \t\r]*\n")
CONVERT = "convert it with `python scripts/convert_books.py`"

# The name of a book, and what `lnrepro.data.files.text_blocks` yields of it.
Book = tuple[str, Iterable[tuple[int, str]]]


def index(books: Iterable[Book], folder: pathlib.Path, raw: RawFolder) -> Content:
    """Write the columns of books.

    Args:
      books: the books. A name is that of a file in the folder.
      folder: where the columns are written.
      raw: the folder of the books, for messages and progress.

    Raises:
      DataError: a book is damaged or not tokenised, or there is no triple.
    """
    lines = _Lines(folder)
    starts = [0]
    name = "none"
    for name, blocks in books:
        attached = apart = 0
        for number, text in blocks:
            raw.progress(f"reading {name}", number, 0)
            block = plain_text(text).encode("utf-8")
            if not block.endswith(b"\n"):
                block += b"\n"
            attached += len(ATTACHED.findall(block))
            apart += len(APART.findall(block))
            lines.add(block)
        if attached > apart:
            raise DataError(
                f"{raw.folder / name}: {attached:,} lines end with a full stop that is "
                f"attached to a word, and {apart:,} with one apart; this is not one "
                f"tokenised sentence per line; {CONVERT}"
            )
        if len(lines.lengths) > starts[-1]:
            starts.append(len(lines.lengths))
    vocabulary = lines.close()
    count = len(lines.lengths)
    by_length = _write_triples(folder / "triples.npy", lines.lengths, starts)
    if not sum(by_length):
        raise DataError(
            f"{count:,} sentences in {len(starts) - 1} books, but nowhere three "
            f"in a row of 1 to {LONGEST} words; one sentence per line and at least "
            f"three lines per file are needed; the last file was {raw.folder / name}"
        )
    facts = {
        "lines": count,
        "tokens": lines.tokens.size,
        "books": len(starts) - 1,
        "books_without_triple_for_shortness": int((np.diff(starts) < 3).sum()),
        "empty_lines_left_out": lines.empty,
        # Middle sentences of 1, 2, ... LONGEST words.
        "triples_by_length": by_length,
        "words": vocabulary,
    }
    return Content({"train": count}, facts)


class _Lines:
    """The sentences of all books, written with preliminary ids as they are read.

    Attributes:
      lengths: number of words of each sentence, at most 255.
      tokens: the words of all sentences.
      empty: number of empty lines, which are left out.
    """

    def __init__(self, folder: pathlib.Path):
        self._file = folder / "tokens.npy"
        self.tokens = Writer(self._file, np.uint32)
        self._offsets = Writer(folder / f"tokens{OFFSETS}.npy", np.int64)
        self._offsets.append(np.zeros(1, np.int64))
        # Preliminary id of each word, in the order of first appearance.
        self._ids: dict[bytes, int] = numbering()
        self._counts = np.zeros(0, np.int64)
        self.lengths = bytearray()
        self.empty = 0

    def add(self, block: bytes) -> None:
        """Write the lines of a block. Only ASCII whitespace parts words."""
        lines = [line.split() for line in block.split(b"\n")[:-1]]
        lengths = np.array([len(words) for words in lines])
        words = itertools.chain.from_iterable(lines)
        # Every word of the books passes here, hence a map in C and no loop.
        found = np.fromiter(map(self._ids.__getitem__, words), np.uint32)
        counts = np.bincount(found, minlength=len(self._ids))
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        self.empty += int((lengths == 0).sum())
        lengths = lengths[lengths > 0]
        self.lengths += np.minimum(lengths, 255).astype(np.uint8).tobytes()
        self._offsets.append(self.tokens.size + np.cumsum(lengths))
        self.tokens.append(found)

    def close(self) -> list[str]:
        """Finish the files, and replace the preliminary ids by those of the vocabulary.

        Words follow by frequency, and then by first appearance. A word that is spelled
        like a special token becomes that token.

        Returns:
          The words in the order of their final ids, without the special tokens.
        """
        self.tokens.close()
        self._offsets.close()
        words = [word.decode("utf-8") for word in self._ids]
        order = np.argsort(-self._counts, kind="stable").tolist()
        vocabulary = [words[i] for i in order if words[i] not in SPECIALS]
        final = Vocabulary(vocabulary).encode(words).astype(np.uint32)
        tokens = np.load(self._file, mmap_mode="r+")
        for start in range(0, len(tokens), CHUNK):
            piece = tokens[start : start + CHUNK]
            piece[:] = final[piece]
            forget_pages(piece)
        return vocabulary


def _write_triples(
    file: pathlib.Path, lengths: bytearray, starts: Sequence[int]
) -> list[int]:
    """Write triples.npy: the middle lines of triples, by length and then by line.

    Args:
      file: the file.
      lengths: number of words of each line, which is changed.
      starts: first line of each book, and the end of the last one.

    Returns:
      The number of triples whose middle sentence has 1, 2, ... LONGEST words.
    """
    middle = np.frombuffer(lengths, np.uint8)
    # Whether a line, the one before it and the one after it are short.
    is_middle: np.ndarray = minimum_filter1d(middle <= LONGEST, 3)
    # The first and the last line of a book are not in the middle of a triple.
    is_middle[starts[:-1]] = False
    is_middle[np.array(starts[1:], int) - 1] = False
    middle[~is_middle] = 0
    writer = Writer(file, np.int32)
    for length in range(1, LONGEST + 1):
        writer.append(np.flatnonzero(middle == length))
    writer.close()
    return np.bincount(middle, minlength=LONGEST + 1)[1:].tolist()
