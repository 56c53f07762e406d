"""Books as text files, for models that read sentences in order.

A file is one book: text with one tokenised sentence per line. Words are separated by
spaces:

    the boat came back at noon .
    `` where is the net ? '' asked mary .
    nobody answered .

`bookcorpus` has two files, which do not say where a book ends. Triples may therefore
contain sentences of two books, as in the authors' code. Own books are all .txt files of
a folder, one each.

A prepared set has one split, "train", and only the following columns.
`experiments.skip_thoughts.triples` makes batches of them.

    tokens   Ragged [lines] of uint32: word ids of each sentence. Id 0 is the end token,
             1 an unknown word, and the words follow by frequency. All words have an id.
             A vocabulary of size V consists of the ids below V.
    triples  [N] int32: line of the middle sentence of each triple. A triple is three
             sentences in a row of one book with at most LONGEST words each. Triples are
             sorted by the length of the middle sentence, and then by line.

Typographic quotation marks, dashes and spaces become those of ASCII, see
`lnrepro.data.text`. Files in which most full stops are attached to a word, as in raw
files of Project Gutenberg, are refused: scripts/convert_books.py converts them.

`SetFolder.facts` contains the words in the order of their ids and the number of triples
of each length.
"""

import pathlib
import re

from lnrepro.data.files import PLAIN_OR_PACKED, text_blocks
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import INDEX, INDICES, Content, Reader
from lnrepro.data.readers.book_files import index

FILES = ("books_large_p1.txt", "books_large_p2.txt")
BOOK = re.compile(r".+\.txt")


def write(raw: RawFolder, folder: pathlib.Path) -> Content:
    """Write the columns of the official files, or else of all .txt files.

    Raises:
      DataError: a file is missing, damaged or no tokenised text, or there is no triple.
    """
    if raw.official:
        paths = {name: raw.path(name) for name in FILES}
    else:
        paths = dict(raw.paths(BOOK.fullmatch))
    if not paths:
        raise raw.missing(
            f"{raw.folder}: no .txt file there, {PLAIN_OR_PACKED}; put one there for "
            "each book, with one sentence per line"
        )
    books = ((name, text_blocks(path)) for name, path in paths.items())
    return index(books, folder / "train", raw)


COLUMNS = {"tokens": INDICES, "triples": INDEX}
BOOKCORPUS = Reader(
    title="BookCorpus: 74,004,228 sentences of 11,038 unpublished books, in two files",
    write=write,
    configs=("configs/skip_thoughts.py",),
    source="https://yknzhu.wixsite.com/mbweb (no longer distributed there)",
    licence="none stated; the books' own terms apply",
    size=(
        "74,004,228 sentences, about 985 million words; 4.6 GB as text, 5.2 GB prepared"
    ),
    columns=COLUMNS,
    files=dict.fromkeys(FILES),
    # Zhu et al. (2015), Table 2. The files do not say where a book ends, so the number
    # of books cannot be compared.
    published={"train": 74_004_228},
)
