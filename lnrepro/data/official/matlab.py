"""Parser of MATLAB 5.0 files that contain arrays of numbers.

A file has a header of 128 bytes, which ends with the version and the byte order. Then
elements follow. An element has a type, a size in bytes, and that many bytes. An element
of type 15 contains another element, compressed with zlib. An element of type 14 is a
variable. It contains elements itself: flags, shape, name, and values in column-major
order:

    4d 41 54 4c 41 42 20 35 2e 30 ... 00 01 49 4d    "MATLAB 5.0", version, "IM"
    0e 00 00 00 30 00 00 00                          variable, 48 bytes
      06 00 00 00 08 00 00 00 06 00 00 00 00 ...     flags, 8 bytes: class 6, double
      05 00 00 00 08 00 00 00 01 00 00 00 02 ...     shape, 8 bytes: 1 x 2
      01 00 01 00 58 00 00 00                        name, small element of 1 byte: "X"
      02 00 02 00 00 01 00 00                        values, 2 bytes of type uint8: 0, 1

The memory that is used never exceeds the size of the file or a given limit. scipy.io
reads the same format but trusts the sizes in the file, so that a few bytes can make it
allocate 4 GiB.

References:
  The MathWorks, "MAT-File Format", version 5.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

MAGIC = b"MATLAB 5.0"
HEADER = 128
# Types of elements.
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
# Classes of variables, from 1.
_NAMES = (
    "cell struct object char sparse double single int8 uint8 int16 uint16 int32 uint32"
)
CLASSES = dict(enumerate(_NAMES.split(), 1))
NUMBERS = frozenset(range(6, 14))
# Flag of complex numbers.
COMPLEX = 0x0800


class Variable(NamedTuple):
    """A variable.

    Attributes:
      name: its name.
      shape: its shape.
      kind: its class, such as "double".
      values: its values. None if it is not an array of real numbers.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    values: np.ndarray | None


def variables(content: bytes, limit: int) -> list[Variable]:
    """Parse a file.

    Args:
      content: content of the file.
      limit: bytes that its compressed elements may unpack to.

    Raises:
      ValueError: the file is damaged or unpacks to more bytes.
    """
    order = {b"IM": "<", b"MI": ">"}.get(content[HEADER - 2 : HEADER])
    if order is None:
        raise ValueError("no byte order in its header")
    found = []
    for kind, data in _elements(memoryview(content)[HEADER:], order):
        if kind == COMPRESSED:
            data = _unpack(data, limit)
            limit -= len(data)
            ((kind, data),) = _elements(data, order)
        if kind == MATRIX:
            found.append(_variable(data, order))
    return found


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the type and the bytes of each element."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("truncated within an element")
        kind, size = struct.unpack_from(f"{order}2I", data, at)
        begin, small = at + 8, kind >> 16
        if small:
            # A small element has its size in the upper half of the type, and its bytes
            # in place of the size.
            kind, size, begin, at = kind & 0xFFFF, small, at + 4, begin
            if size > 4:
                raise ValueError(f"a small element of {size} bytes")
        else:
            # Elements are padded to a multiple of 8 bytes, except for compressed ones.
            padding = 0 if kind == COMPRESSED else -size % 8
            at = begin + size + padding
        if begin + size > len(data):
            raise ValueError(
                f"an element of {size:,} bytes, but only {len(data) - begin:,} follow"
            )
        yield kind, data[begin : begin + size]


def _unpack(data: memoryview, limit: int) -> memoryview:
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(data, limit + 1)
    except zlib.error as e:
        raise ValueError(str(e)) from e
    if len(found) > limit:
        raise ValueError(f"it unpacks to more than the {limit:,} bytes it may")
    if not unpacker.eof:
        raise ValueError("truncated within compressed data")
    return memoryview(found)


def _variable(data: memoryview, order: str) -> Variable:
    parts = _elements(data, order)
    try:
        (_, flags), (_, sizes), (_, name) = next(parts), next(parts), next(parts)
        (flags,) = struct.unpack_from(f"{order}I", flags)
        shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    except (StopIteration, struct.error) as e:
        raise ValueError("a variable without flags, sizes or name") from e
    # The name is escaped, because error messages contain it.
    shown_name = ascii(name.tobytes()[:40].decode("latin-1"))[1:-1]
    kind = "complex" if flags & COMPLEX else CLASSES.get(flags & 0xFF, "unknown")
    if flags & 0xFF not in NUMBERS or flags & COMPLEX:
        return Variable(shown_name, shape, kind, None)
    stored, values = next(parts, (0, memoryview(b"")))
    if stored not in TYPES or len(shape) < 2 or min(shape) < 0:
        raise ValueError("a variable without numbers")
    dtype = np.dtype(order + TYPES[stored])
    if math.prod(shape) * dtype.itemsize != len(values):
        sizes = " x ".join(map(str, shape))
        raise ValueError(f"{sizes} numbers in {len(values):,} bytes")
    array = np.frombuffer(values, dtype).reshape(shape, order="F")
    return Variable(shown_name, shape, kind, array)
