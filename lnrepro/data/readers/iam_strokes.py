"""Parser of the lineStrokes XML files of IAM-OnDB.

lnrepro/data/readers/iam_ondb.py shows a file.

Shape letters: T points.
"""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

import numpy as np

from lnrepro.data.files import quoted
from lnrepro.errors import DataError

# Largest coordinate. The official lines stay below 10,000.
FARTHEST = 100_000
AGAIN = "get the official file"


def points(content: bytes, where: object) -> np.ndarray:
    """Parse a lineStrokes XML file.

    Args:
      content: content of the file.
      where: name of the file, for error messages.

    Returns:
      The points [T, 3]: x, y, and 1 if the point ends a stroke. They are int32, or
      float64 if a coordinate has decimals.

    Raises:
      DataError: the XML is broken or is not a line of handwriting.
    """
    try:
        root = ElementTree.fromstring(content)
        strokes = [s.findall("Point") for s in root.findall(".//StrokeSet/Stroke")]
        found = itertools.chain.from_iterable(strokes)
        texts = [(point.attrib["x"], point.attrib["y"]) for point in found]
        numbers = np.array(texts, np.float64).reshape(-1, 2)
    # Broken XML, an unknown encoding, a missing coordinate, and one that is no number.
    except (ElementTree.ParseError, LookupError, ValueError) as e:
        problem = quoted(f"{type(e).__name__}: {e}")
        raise DataError(f"{where}: no line of strokes ({problem}); {AGAIN}") from None
    lengths = [len(stroke) for stroke in strokes]
    if len(texts) < 2 or 0 in lengths:
        raise DataError(
            f"{where}: strokes of {lengths[:9]} points; a line needs two points, and "
            f"a stroke one; {AGAIN}"
        )
    # No comparison with NaN is true.
    is_near = (np.abs(numbers) < FARTHEST).all(axis=1)
    if not is_near.all():
        first = int(np.argmin(is_near))
        raise DataError(
            f"{where}, point {first + 1}: {quoted(' '.join(texts[first]))} are not two "
            f"numbers below {FARTHEST}; {AGAIN}"
        )
    is_whole = (numbers == np.rint(numbers)).all()
    line = np.zeros((len(numbers), 3), np.int32 if is_whole else np.float64)
    line[:, :2] = numbers
    line[np.cumsum(lengths) - 1, 2] = 1
    return line


def offsets(line: np.ndarray) -> np.ndarray:
    """Convert points [T, 3] to offsets between them [T - 1, 3].

    The third column is 1 if the point at the end of the offset ends a stroke.
    """
    return np.concatenate([np.diff(line[:, :2], axis=0), line[1:, 2:]], axis=1)
