"""MATLAB 5.0 files with arrays of numbers, read in memory that the file's own bytes, or a bound, account for.

scipy.io reads the same format, and takes sizes from the file at their word: a few bytes make it reserve 4 GiB.
Source: "MAT-File Format", The MathWorks, version 5.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

MAGIC = b"MATLAB 5.0"
HEADER = 128  # bytes: 124 of text, version, order of bytes
MATRIX, COMPRESSED = 14, 15
TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_NAMES = (
    "cell struct object char sparse double single int8 uint8 int16 uint16 int32 uint32"
)
CLASSES = dict(enumerate(_NAMES.split(), 1))
NUMBERS = frozenset(range(6, 14))  # classes
COMPLEX = 0x0800  # flag


class Variable(NamedTuple):
    """A variable; `values` is None for those that are no arrays of numbers."""

    name: str
    shape: tuple[int, ...]
    kind: str
    values: np.ndarray | None


def variables(content: bytes, limit: int) -> list[Variable]:
    """The variables of a file, of at most `limit` bytes unpacked. Raises ValueError with what is wrong with the file."""
    order = {b"IM": "<", b"MI": ">"}.get(content[HEADER - 2 : HEADER])
    if order is None:
        raise ValueError("no byte order in its header")
    found = []
    for kind, data in _elements(memoryview(content)[HEADER:], order):
        if kind == COMPRESSED:
            data = _unpacked(data, limit)
            limit -= len(data)
            ((kind, data),) = _elements(data, order)
        if kind == MATRIX:
            found.append(_matrix(data, order))
    return found


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """(type, bytes) of the elements that lie one behind another."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("truncated within an element")
        kind, size = struct.unpack_from(f"{order}2I", data, at)
        begin = at + 8
        if (
            kind >> 16
        ):  # a short element: its size stands in the type, its bytes in the place of the size
            kind, size, begin, at = kind & 0xFFFF, kind >> 16, at + 4, at + 8
            if size > 4:
                raise ValueError(f"a short element of {size} bytes")
        else:
            at = begin + size + (-size % 8 if kind != COMPRESSED else 0)
        if begin + size > len(data):
            raise ValueError(
                f"an element of {size:,} bytes, of which there are {len(data) - begin:,}"
            )
        yield kind, data[begin : begin + size]


def _unpacked(data: memoryview, limit: int) -> memoryview:
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(data, limit + 1)
    except zlib.error as e:
        raise ValueError(str(e)) from e
    if len(found) > limit:
        raise ValueError(f"it unpacks to more than the {limit:,} bytes it may")
    if not unpacker.eof:
        raise ValueError("truncated within packed data")
    return memoryview(found)


def _matrix(data: memoryview, order: str) -> Variable:
    parts = _elements(data, order)
    try:
        (_, flags), (_, sizes), (_, name) = next(parts), next(parts), next(parts)
        (flags,) = struct.unpack_from(f"{order}I", flags)
        shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    except (StopIteration, struct.error) as e:
        raise ValueError("a variable without flags, sizes or name") from e
    kind = CLASSES.get(flags & 0xFF, "unknown")
    if flags & 0xFF not in NUMBERS or flags & COMPLEX:
        return Variable(
            _text(name), shape, "complex" if flags & COMPLEX else kind, None
        )
    stored, values = next(parts, (0, None))
    if stored not in TYPES or len(shape) < 2 or min(shape) < 0:
        raise ValueError("a variable without numbers")
    dtype = np.dtype(order + TYPES[stored])
    if math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(
            f"{' x '.join(map(str, shape))} numbers in {len(values):,} bytes"
        )
    return Variable(
        _text(name), shape, kind, np.frombuffer(values, dtype).reshape(shape, order="F")
    )


def _text(name: memoryview) -> str:
    return ascii(name.tobytes()[:40].decode("latin-1"))[1:-1]
