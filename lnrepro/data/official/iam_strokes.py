"""Parser of the lineStrokes XML files of IAM-OnDB.

lnrepro/data/official/iam_ondb.py shows a file.

Shape letters: T points.
"""

from __future__ import annotations

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
    except ElementTree.ParseError as e:
        raise DataError(f"{where}: broken XML ({e}); {AGAIN}") from None
    # The header names an encoding that Python or its XML parser does not have.
    except (LookupError, ValueError) as e:
        raise DataError(f"{where}, line 1: {quoted(str(e))}; {AGAIN}") from None
    coordinates: list[tuple[str | None, str | None]] = []
    ends = []
    for number, stroke in enumerate(root.findall(".//StrokeSet/Stroke"), 1):
        found = stroke.findall("Point")
        if not found:
            raise DataError(f"{where}: stroke {number} has no points; {AGAIN}")
        coordinates += [(point.get("x"), point.get("y")) for point in found]
        ends.append(len(coordinates))
    if len(coordinates) < 2:
        raise DataError(
            f"{where}: {len(coordinates)} points in {len(ends)} strokes of a StrokeSet "
            f"are not a line of handwriting; {AGAIN}"
        )
    try:
        # A missing coordinate is None, which becomes NaN.
        numbers = np.array(coordinates, np.float64)
    except ValueError as e:
        problem = quoted(str(e))
        raise DataError(
            f"{where}: a coordinate of a Point: {problem}; {AGAIN}"
        ) from None
    # No comparison with NaN is true.
    is_near = (np.abs(numbers) < FARTHEST).all(axis=1)
    if not is_near.all():
        first = int(np.argmin(is_near))
        x, y = coordinates[first]
        raise DataError(
            f"{where}, point {first + 1}: x={x!s:.12} and y={y!s:.12} are not two "
            f"numbers below {FARTHEST}; {AGAIN}"
        )
    is_whole = (numbers == np.rint(numbers)).all()
    line = np.zeros((len(numbers), 3), np.int32 if is_whole else np.float64)
    line[:, :2] = numbers
    line[np.array(ends) - 1, 2] = 1
    return line


def offsets(line: np.ndarray) -> np.ndarray:
    """Convert points [T, 3] to offsets between them [T - 1, 3].

    The third column is 1 if the point at the end of the offset ends a stroke.
    """
    return np.concatenate([np.diff(line[:, :2], axis=0), line[1:, 2:]], axis=1)
