"""Parser of the lineStrokes XML files of IAM-OnDB.

lnrepro/data/readers/iam_ondb.py shows a file.

Shape letters: T points.
"""

from collections.abc import Sequence
from xml.etree import ElementTree

import numpy as np

from lnrepro.data.files import AGAIN
from lnrepro.errors import DataError

# Largest coordinate. The official lines stay below 10,000.
FARTHEST = 100_000


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
        strokes = [_stroke(s) for s in root.findall(".//StrokeSet/Stroke")]
    # Broken XML, an unknown encoding, a missing coordinate, and one that is no number.
    except (ElementTree.ParseError, LookupError, ValueError) as e:
        raise DataError(f"{where}: no line of strokes ({e!r:.80}); {AGAIN}") from None
    lengths = [len(stroke) for stroke in strokes]
    if sum(lengths) < 2 or 0 in lengths:
        raise DataError(
            f"{where}: strokes of {lengths[:9]} points; a line needs two points, and "
            f"a stroke one; {AGAIN}"
        )
    numbers = np.concatenate(strokes)
    # No comparison with NaN is true.
    is_far = ~(np.abs(numbers) < FARTHEST).all(axis=1)
    if is_far.any():
        first = int(np.argmax(is_far))
        raise DataError(
            f"{where}, point {first + 1}: {numbers[first].tolist()} are not two "
            f"numbers below {FARTHEST}; {AGAIN}"
        )
    is_whole = (numbers == np.rint(numbers)).all()
    return joined(strokes, np.int32 if is_whole else np.float64)


def _stroke(stroke: ElementTree.Element) -> np.ndarray:
    """Return the points of a stroke [n, 2]."""
    points = [(p.attrib["x"], p.attrib["y"]) for p in stroke.findall("Point")]
    return np.array(points, np.float64)


def joined(strokes: Sequence[np.ndarray], dtype: type[np.generic]) -> np.ndarray:
    """Join strokes [n, 2] to points [T, 3], see `points`."""
    ends = np.cumsum([len(stroke) for stroke in strokes])
    line = np.zeros((ends[-1], 3), dtype)
    line[:, :2] = np.concatenate(strokes)
    line[ends - 1, 2] = 1
    return line


def offsets(line: np.ndarray) -> np.ndarray:
    """Convert points [T, 3] to offsets between them [T - 1, 3].

    The third column is 1 if the point at the end of the offset ends a stroke.
    """
    return np.concatenate([np.diff(line[:, :2], axis=0), line[1:, 2:]], axis=1)
