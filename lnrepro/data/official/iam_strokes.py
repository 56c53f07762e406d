"""Parser of the lineStrokes XML files of IAM-OnDB.

lnrepro/data/official/iam_ondb.py shows a file.

Shape letters: T points.
"""

from __future__ import annotations

from typing import NoReturn
from xml.parsers import expat

import numpy as np

from lnrepro.data.encodings import quoted
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
      DataError: the XML is broken or is not a line of handwriting. Document types are
        an error, and therefore also all entities and external references.
    """
    reader = _Reader(where)
    reader.read(content)
    found, ends = reader.found, reader.ends
    if "StrokeSet" not in reader.seen:
        raise DataError(f"{where}: no StrokeSet; {AGAIN}")
    if len(found) < 2 or not ends or ends[-1] != len(found):
        raise DataError(
            f"{where}: {len(found)} points in {len(ends)} strokes are not a line of "
            f"handwriting; {AGAIN}"
        )
    # One decimal coordinate makes the whole line a float, so that no digit is lost.
    is_whole = all(isinstance(number, int) for point in found for number in point)
    line = np.zeros((len(found), 3), np.int32 if is_whole else np.float64)
    line[:, :2] = found
    # A point at which a stroke ends has the number of points up to it in `ends`.
    line[np.array(ends) - 1, 2] = 1
    return line


class _Reader:
    """Reader of the elements of a lineStrokes XML file.

    Attributes:
      seen: names of the elements.
      found: the points.
      ends: number of points at the end of each stroke.
    """

    def __init__(self, where: object):
        self.seen: set[str] = set()
        self.found: list[tuple[float, float]] = []
        self.ends: list[int] = []
        self._where = where
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._document_type

    def read(self, content: bytes) -> None:
        """Read a whole file.

        Raises:
          DataError: the XML is broken, or a stroke or point is wrong.
        """
        try:
            self._parser.Parse(content, True)
        except expat.ExpatError as e:
            problem = expat.ErrorString(e.code)
            raise DataError(
                f"{self._where}, line {e.lineno}: broken XML ({problem}); {AGAIN}"
            ) from None
        # Python's codecs raise these errors.
        except (LookupError, ValueError) as e:
            raise DataError(
                f"{self._where}, line 1: unknown encoding ({quoted(str(e))}); {AGAIN}"
            ) from None

    def _fail(self, problem: str) -> NoReturn:
        line = self._parser.CurrentLineNumber
        raise DataError(f"{self._where}, line {line}: {problem}; {AGAIN}")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.seen.add(name)
        if name != "Point":
            return
        for key in ("x", "y"):
            if key not in attributes:
                self._fail(f"a Point without {key}")
        x, y = attributes["x"], attributes["y"]
        try:
            point = _number(x), _number(y)
        except ValueError:
            self._fail(f"a Point at {x[:12]!a}, {y[:12]!a}, which are not numbers")
        # No comparison with NaN is true.
        if not all(abs(number) < FARTHEST for number in point):
            self._fail(
                f"a Point at {x[:12]}, {y[:12]}; coordinates are numbers below "
                f"{FARTHEST}"
            )
        if "StrokeSet" not in self.seen:
            self._fail("a Point outside of a StrokeSet")
        self.found.append(point)

    def _end(self, name: str) -> None:
        if name == "Stroke":
            # A stroke without points would end the stroke before it a second time.
            if len(self.found) == (self.ends[-1] if self.ends else 0):
                self._fail("a Stroke without points")
            self.ends.append(len(self.found))

    def _document_type(self, *_: object) -> None:
        self._fail("a document type, which these files do not have")


def _number(text: str) -> int | float:
    """Return a number, an int where it has no decimals. Raise ValueError if none."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def offsets(line: np.ndarray) -> np.ndarray:
    """Convert points [T, 3] to offsets between them [T - 1, 3].

    The third column is 1 if the point at the end of the offset ends a stroke.
    """
    return np.concatenate([np.diff(line[:, :2], axis=0), line[1:, 2:]], axis=1)
