"""Books as text files, for models that read sentences in order.

A file is one book: text with one tokenised sentence per line. Words are separated by
spaces:

    the boat came back at noon .
    `` where is the net ? '' asked mary .
    nobody answered .

A prepared set has one split, "train", and only the following columns, because it is too
large for ArrayRecord. `experiments.skip_thoughts.triples` makes batches of them.

    tokens   Ragged [lines] of uint32: word ids of each sentence. Id 0 is the end token,
             1 an unknown word, and the words follow by frequency. All words have an id.
             A vocabulary of size V consists of the ids below V.
    triples  [N] int32: line of the middle sentence of each triple. A triple is three
             sentences in a row of one book with at most LONGEST words each. Triples are
             sorted by the length of the middle sentence, and then by line.

Typographic quotation marks, dashes and spaces become those of ASCII, see
`lnrepro.data.text`. Files with the licence of Project Gutenberg, and files in which
most full stops are attached to a word, are refused: scripts/convert_books.py converts
them.

`data.facts` contains the words in the order of their ids and the number of triples of
each length.
"""

from __future__ import annotations

import hashlib
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from lnrepro.data.builder import Builder, Progress, array, write_notes
from lnrepro.data.encodings import BLOCK
from lnrepro.data.file_kinds import PLAIN_OR_PACKED
from lnrepro.data.official.book_files import Book, index
from lnrepro.data.old_files import Content
from lnrepro.data.raw import Raw, RawFile
from lnrepro.data.seal import UnsealedSet


class Books(Builder):
    """Base class of the sets of books."""

    configs = ("configs/skip_thoughts.py",)

    def features(self) -> dict[str, Any]:
        """Return the features of a sentence."""
        return {"tokens": array((None,), np.uint32)}

    @classmethod
    def texts(cls, raw: Raw) -> Iterator[Book]:
        """Open the official files, or all *.txt files of the folder."""
        names = [file.name for file in cls.files if "*" not in file.name]
        paths = [raw.path(name) for name in names] or _all_texts(raw)
        for path in paths:
            content = Content(path, sys.maxsize)
            yield str(path), content.size, content

    @classmethod
    def write(cls, raw: Raw, scratch: pathlib.Path, progress: Progress) -> UnsealedSet:
        """Write the columns.

        Args:
          raw: the official files.
          scratch: the folder below which the set is written.
          progress: called now and then.

        Raises:
          DataError: a file is missing, damaged or not UTF-8, or there is no triple.
        """
        folder = scratch / cls.name / cls.version
        columns = folder / "columns" / "train"
        facts = index(cls.texts(raw), columns, progress, raw.notes)
        write_notes(folder, raw)
        digest = hashlib.sha256()
        for file in sorted(columns.iterdir()):
            digest.update(f"{file.name}:{file.stat().st_size};".encode())
            with open(file, "rb") as f:
                while piece := f.read(BLOCK):
                    digest.update(piece)
        return UnsealedSet(folder, {"train": facts["lines"]}, digest, facts)


class BookCorpus(Books):
    """BookCorpus: 74,004,228 sentences of 11,038 unpublished books, in two files.

    The files do not say where a book ends. Triples may therefore contain sentences of
    two books, as in the authors' code.
    """

    name = "bookcorpus"
    source = "https://yknzhu.wixsite.com/mbweb (no longer distributed there)"
    licence = "none stated; the books' own terms apply"
    size = (
        "74,004,228 sentences, about 985 million words; 4.6 GB as text, 5.2 GB prepared"
    )
    files = (RawFile("books_large_p1.txt"), RawFile("books_large_p2.txt"))


class Gutenberg(Books):
    """Any books of Project Gutenberg, one .txt file each, one sentence per line."""

    source = (
        "https://www.gutenberg.org (strip header and licence, split into sentences, "
        "part the words by spaces)"
    )
    licence = "public domain in the USA"
    size = "whatever is in the folder; the fingerprint says which text it was"
    files = (RawFile("*.txt"),)


def _all_texts(raw: Raw) -> list[pathlib.Path]:
    """Return all *.txt files below the folder, plain or packed, in sorted order.

    Raises:
      DataError: there is none, or there are two of one name.
    """
    found = list(raw.paths(".txt").values())
    if not found:
        raise raw.missing(
            f"{raw.folder}: no .txt file there, {PLAIN_OR_PACKED}; put one there for "
            "each book, with one sentence per line"
        )
    return found
