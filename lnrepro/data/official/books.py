"""Books, one sentence a line, for models that read sentences in their order: indexed once, never loaded.

A set has one split, "train", and its folder holds columns only (`data.open_columns`; there are no records):

    tokens   Ragged (lines,) of uint32: every sentence as word numbers, 0 the end token, 1 unknown, words from 2 on, the
             most frequent first. The numbering covers every word of the books: a vocabulary of V is the numbers below V.
    triples  (N,) int32: the middle lines of all runs of three sentences of one book, each of at most LONGEST words,
             sorted by the length of the middle one, in reading order within a length.

`data.facts` has the words in the order of their numbers, how many triples there are of each length, and what was left out.
The text is read once, in blocks of whole lines, and no array here grows with the number of lines: 74 million of them need
the memory of the word table and of a block. `lnrepro.data.triples` makes batches of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np

from lnrepro.data.builder import Builder, Progress, Written, array
from lnrepro.data.generated import stories
from lnrepro.data.ragged import OFFSETS, Writer
from lnrepro.data.raw import DAMAGED, PACKINGS, Raw, RawFile, room
from lnrepro.data.text import SPECIALS
from lnrepro.engine.errors import DataError

LONGEST = 29  # words of a sentence in a triple: the authors' code keeps those below 30
BLOCK = 1 << 22  # bytes read at a time
LONGEST_LINE = 1 << 20  # bytes
CHUNK = 1 << 20  # numbers or lines handled at a time after reading
SPACE = np.isin(
    np.arange(256), np.frombuffer(b" \t\n\r\x0b\x0c", np.uint8)
)  # what bytes.split() splits at


class Books(Builder):
    """Books in text files, one sentence a line, its words parted by spaces."""

    def features(self) -> dict[str, Any]:
        """A sentence is its word numbers."""
        return {"tokens": array((None,), np.uint32)}

    @classmethod
    def texts(
        cls, raw: Raw
    ) -> Iterator[tuple[str, int, contextlib.AbstractContextManager[BinaryIO]]]:
        """(name, bytes on disk, opened file) of every book: the set's own files, or all *.txt of the folder."""
        names = [file.name for file in cls.files if "*" not in file.name]
        paths = [raw.path(name) for name in names] if names else _all_texts(raw.folder)
        for path in paths:
            opener = PACKINGS[path.suffix][1] if path.suffix in PACKINGS else open
            try:
                opened = opener(path, "rb")
            except OSError as e:
                raise DataError(f"{path}: cannot be read ({e.strerror or e})") from e
            yield str(path), path.stat().st_size, opened

    @classmethod
    def write(cls, raw: Raw, scratch: pathlib.Path, progress: Progress) -> Written:
        """Index the books. Raises DataError for a NUL byte, bytes that are not UTF-8, or no triple at all."""
        folder = scratch / cls.name / cls.version
        columns = folder / "columns" / "train"
        facts = index(cls.texts(raw), columns, progress)
        digest = hashlib.sha256()
        for file in sorted(columns.iterdir()):
            digest.update(f"{file.name}:{file.stat().st_size};".encode())
            with open(file, "rb") as f:
                while piece := f.read(BLOCK):
                    digest.update(piece)
        return Written(folder, {"train": facts["lines"]}, digest, facts)


class BookCorpus(Books):
    """BookCorpus: 74,004,228 sentences of 11,038 unpublished books, tokenised and in lower case, in two files."""

    name = "bookcorpus"
    source = "https://yknzhu.wixsite.com/mbweb (no longer distributed there)"
    licence = "none stated; the books' own terms apply"
    size = (
        "74,004,228 sentences, about 985 million words; 4.6 GB as text, 5.2 GB prepared"
    )
    # Where one book ends and the next begins is not marked in them, so triples cross, as the authors' do.
    files = (RawFile("books_large_p1.txt"), RawFile("books_large_p2.txt"))


class Gutenberg(Books):
    """Any books of Project Gutenberg: as many .txt files as there are books, one tokenised sentence a line."""

    source = "https://www.gutenberg.org (strip header and licence, split into sentences, part the words by spaces)"
    licence = "public domain in the USA"
    size = "whatever is in the folder; the fingerprint says which text it was"
    files = (RawFile("*.txt"),)


class Stories(Books):
    """Generated little stories: recurring characters, places and moods, ten sentences each."""

    source = "lnrepro/data/generated/stories.py"
    licence = "Apache-2.0, as the code that writes them"
    size = "4,000 stories, 40,000 sentences; nothing to download, 2 MB prepared"
    embedded = True

    @classmethod
    def texts(
        cls, raw: Raw
    ) -> Iterator[tuple[str, int, contextlib.AbstractContextManager[BinaryIO]]]:
        """A book for each story."""
        yield from stories.texts()


def _all_texts(folder: pathlib.Path) -> list[pathlib.Path]:
    """All files NAME.txt, .txt.gz, .txt.xz of a folder, sorted. Raises DataError where there are none, or one name twice."""
    found = sorted(
        p for suffix in ("", *PACKINGS) for p in folder.glob(f"*.txt{suffix}")
    )
    if not found:
        raise DataError(
            f"{folder}: no .txt file there, plain or .gz or .xz; put one for each book, one sentence a line"
        )
    names = [p.name.partition(".txt")[0] for p in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise DataError(
            f"{folder}: {min(twice)}.txt is there more than once, plain and packed; remove one of them"
        )
    return found


class _Numbers(dict):
    """Word -> number, in the order of first appearance; an unknown word gets the next one."""

    def __missing__(self, word: bytes) -> int:
        self[word] = number = len(self)
        return number


def index(texts: Iterable, folder: pathlib.Path, progress: Progress) -> dict[str, Any]:
    """Write the columns of books given as (name, bytes, opened file) into `folder` and return the set's facts."""
    tokens = Writer(folder / "tokens.npy", np.dtype(np.uint32), ())
    offsets = Writer(folder / f"tokens{OFFSETS}.npy", np.dtype(np.int64), ())
    offsets.append(np.zeros(1, np.int64))
    numbers, counts = _Numbers(), np.zeros(0, np.int64)
    lines = total = empty = 0
    name = "none"
    starts = [0]  # the first line of every book
    for name, size, opened in texts:
        with opened as file:
            for number, block in _blocks(name, size, file):
                progress(
                    f"reading {pathlib.PurePath(name).name}",
                    min(file.tell(), size),
                    size,
                )
                _check(name, number, block)
                found = block.split()
                ids = np.fromiter(
                    map(numbers.__getitem__, found), np.uint32, len(found)
                )
                seen = np.bincount(ids, minlength=len(numbers))
                seen[: len(counts)] += counts
                counts = seen
                lengths = _words_of_lines(block)
                empty += int((lengths == 0).sum())
                lengths = lengths[lengths > 0]
                tokens.append(ids)
                offsets.append(total + np.cumsum(lengths))
                total, lines = total + len(ids), lines + len(lengths)
        if lines > starts[-1]:
            starts.append(lines)
    tokens.close()
    offsets.close()
    if lines >= 2**31:
        raise DataError(
            f"{lines:,} sentences are more than the {2**31:,} that can be numbered; leave some files out"
        )
    words = _renumber(folder / "tokens.npy", numbers, counts, progress)
    by_length = _sort_triples(folder, np.array(starts), progress)
    if not sum(by_length):
        raise DataError(
            f"{lines:,} sentences in {len(starts) - 1} books, but nowhere three in a row of 1 to {LONGEST} words: "
            f"one sentence a line is needed, and at least three lines in a file; the last file read was {name}"
        )
    return {
        "lines": lines,
        "tokens": total,
        "books": len(starts) - 1,
        "books_without_triple_for_shortness": int((np.diff(starts) < 3).sum()),
        "empty_lines_left_out": empty,
        "triples_by_length": by_length,  # of 1, 2, ... LONGEST words
        "words": words,
    }


def _blocks(name: str, size: int, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(number of the first line, whole lines) of a file, some BLOCK bytes at a time; the last line ends with a newline too."""
    number, rest, left = 1, b"", room(size)
    try:
        while piece := file.read(BLOCK):
            left -= len(piece)
            if left < 0:
                raise DataError(
                    f"{name}: holds more than the {room(size):,} bytes it may; get it again"
                )
            head, newline, tail = piece.rpartition(b"\n")
            if newline:
                block, rest = rest + head + newline, tail
                yield number, block
                number += block.count(b"\n")
            else:
                rest += tail
            if len(rest) > LONGEST_LINE:
                raise DataError(
                    f"{name}, line {number}: longer than {LONGEST_LINE:,} bytes; one sentence a line is needed"
                )
    except (*DAMAGED, OSError, EOFError) as e:
        raise DataError(
            f"{name}: cannot be read or unpacked ({e or type(e).__name__}); get it again"
        ) from e
    if rest:
        yield number, rest + b"\n"


def _check(name: str, number: int, block: bytes) -> None:
    """Raises DataError, naming the line, for what no text has."""
    at = block.find(b"\0")
    what = "a NUL byte"
    if at < 0:
        try:
            block.decode("utf-8")
            return
        except UnicodeDecodeError as e:
            at, what = e.start, f"the byte {block[e.start]:#x}, which is not UTF-8"
    line = number + block.count(b"\n", 0, at)
    raise DataError(f"{name}, line {line}: {what}; save the file as UTF-8 text")


def _words_of_lines(block: bytes) -> np.ndarray:
    """How many words stand in each line of a block that ends with a newline, (lines,) int64."""
    text = np.frombuffer(block, np.uint8)
    space = SPACE[text]
    begins = ~space
    begins[1:] &= space[:-1]
    before = np.searchsorted(
        np.flatnonzero(begins), np.flatnonzero(text == 10)
    )  # words before each newline
    return np.diff(before, prepend=0)


def _renumber(
    file: pathlib.Path, numbers: _Numbers, counts: np.ndarray, progress: Progress
) -> list[str]:
    """Replace numbers by first appearance with numbers by frequency, ties by first appearance; the words in that order."""
    words = [word.decode("utf-8") for word in numbers]
    new = np.zeros(len(words), np.uint32)
    ordered = []
    for old in np.argsort(-counts, kind="stable").tolist():
        if words[old] in SPECIALS:  # what looks like a special token is that token
            new[old] = SPECIALS.index(words[old])
        else:
            new[old] = len(SPECIALS) + len(ordered)
            ordered.append(words[old])
    with (
        open(file, "r+b") as f
    ):  # read and written, not mapped: mapped pages would count as this process's memory
        np.lib.format.read_magic(f)
        (total,), _, _ = np.lib.format.read_array_header_1_0(f)
        for i in range(0, total, CHUNK):
            progress("numbering", i, total)
            piece = f.read(4 * CHUNK)
            f.seek(-len(piece), 1)
            f.write(new[np.frombuffer(piece, np.uint32)].data)
            f.seek(0, 1)  # between writing and reading
    progress("numbering", total, total)
    return ordered


def _sort_triples(
    folder: pathlib.Path, starts: np.ndarray, progress: Progress
) -> list[int]:
    """Write triples.npy, sorted by counting: how many there are of each length first, then each to its place."""
    offsets = np.load(folder / f"tokens{OFFSETS}.npy", mmap_mode="r")
    lines = len(offsets) - 1
    counts = np.zeros(LONGEST + 1, np.int64)
    for _, lengths in _middles(offsets, starts):
        counts += np.bincount(lengths, minlength=LONGEST + 1)
    writer = Writer(folder / "triples.npy", np.dtype(np.int32), ())
    writer.append(np.zeros(0, np.int32))
    writer.close()
    if counts.sum():
        out = np.lib.format.open_memmap(
            folder / "triples.npy", "w+", np.int32, (int(counts.sum()),)
        )
        ends = np.cumsum(counts) - counts
        for middles, lengths in _middles(offsets, starts):
            progress("sorting", int(middles[-1]) if len(middles) else 0, lines)
            order = np.argsort(lengths, kind="stable")
            here = np.bincount(lengths, minlength=LONGEST + 1)
            first = np.cumsum(here) - here
            places = np.repeat(ends - first, here) + np.arange(len(order))
            out[places] = middles[order]
            ends += here
        out.flush()
    progress("sorting", lines, lines)
    return counts[1:].tolist()


def _middles(
    offsets: np.ndarray, starts: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(middle lines, their lengths) of the triples, some CHUNK lines at a time."""
    lines = len(offsets) - 1
    for low in range(1, lines - 1, CHUNK):
        high = min(low + CHUNK, lines - 1)
        lengths = np.diff(offsets[low - 1 : high + 2])
        short = lengths <= LONGEST
        kept = short[:-2] & short[1:-1] & short[2:]
        edges = starts[
            np.searchsorted(starts, low) : np.searchsorted(starts, high, side="right")
            + 1
        ]
        for edge in (
            edges,
            edges - 1,
        ):  # a book's first line has nothing before it, its last nothing behind
            kept[edge[(edge >= low) & (edge < high)] - low] = False
        where = np.flatnonzero(kept)
        yield where + low, lengths[1:-1][where]
