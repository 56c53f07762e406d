"""Lines of handwriting as pen strokes, with their text.

An example is one line with these features, for T points and U characters:

    strokes        [T - 1, 3]: dx and dy to the next point in units of the whiteboard,
                   where y grows downwards; 1 if that point ends a stroke
    text           [U] uint8: symbol numbers, see `encode`
    transcription  UTF-8 bytes of the text
    id             ASCII bytes, such as "a01-000u-01"
    list           index in LISTS of iam_ondb.py

`SetFolder.facts` contains:

    mean, std  of dx and dy in the training lines
    symbols    the symbols
    other      how often each character occurs that is not a symbol
"""

import itertools
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lnrepro.data.reader import TEXT, ColumnSpec, Content
from lnrepro.data.text import as_bytes

SYMBOLS = (
    "<other>",
    *" ',.",
    *string.ascii_uppercase,
    *string.ascii_lowercase,
)
NUMBERS = {symbol: i for i, symbol in enumerate(SYMBOLS)}


COLUMNS = {
    "strokes": ColumnSpec(ndim=2),
    "text": ColumnSpec(0, len(SYMBOLS) - 1, integer=True, ndim=1),
    "transcription": TEXT,
    "id": TEXT,
    "list": ColumnSpec(0, 3, integer=True, ndim=0),
}


class Line(NamedTuple):
    """A line of handwriting.

    Attributes:
      strokes: offsets [T - 1, 3], int32 or float32.
      text: the transcription.
      id: the form and the number of the line.
      list: index of its list in LISTS.
    """

    strokes: np.ndarray
    text: str
    id: str
    list: int


def content_of(splits: Mapping[str, Sequence[Line]]) -> Content:
    """Return the columns of lines, and the facts that do not depend on the files.

    Args:
      splits: the lines of each split.
    """
    every_line = list(itertools.chain.from_iterable(splits.values()))
    # Official coordinates are whole numbers, which int32 keeps exactly.
    is_whole = all(line.strokes.dtype.kind == "i" for line in every_line)
    dtype = np.int32 if is_whole else np.float32
    columns, other = {}, Counter()
    for line in every_line:
        other.update(c for c in line.text if c not in NUMBERS)
    for split, lines in splits.items():
        columns[split] = {
            "strokes": [line.strokes.astype(dtype) for line in lines],
            "text": [encode(line.text) for line in lines],
            "transcription": [as_bytes(line.text) for line in lines],
            "id": [as_bytes(line.id) for line in lines],
            "list": np.array([line.list for line in lines], np.uint8),
        }
    # Sums over millions of offsets are taken in float64.
    steps = np.concatenate([line.strokes[:, :2] for line in splits["train"]])
    steps = steps.astype(np.float64)
    facts = {
        "mean": steps.mean(0).tolist(),
        "std": steps.std(0).tolist(),
        "symbols": list(SYMBOLS),
        "other": dict(other.most_common()),
    }
    return Content(columns, facts)


def encode(text: str, numbers: Mapping[str, int] = NUMBERS) -> np.ndarray:
    """Return the symbol numbers of a text [U] uint8; 0 for what is no symbol."""
    return np.array([numbers.get(c, 0) for c in text], np.uint8)
