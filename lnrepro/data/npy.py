"""Reading of .npy files, which may be damaged or hostile."""

from __future__ import annotations

import os
import pathlib

import numpy as np

from lnrepro.data.encodings import quoted
from lnrepro.data.old_files import mappable
from lnrepro.errors import DataError

# Bytes that a packed file may unpack to.
LIMIT = 1 << 36
# Bytes of a header. NumPy reads any number of them before it refuses more than this.
HEADER_LIMIT = 10_000
# Rows that are checked at once.
CHUNK = 1024


def open_npy(path: str | os.PathLike) -> np.ndarray:
    """Map a .npy file into memory, which may be packed. Pickles are never read.

    Raises:
      DataError: the file cannot be read, or is not one plain array.
    """
    path = pathlib.Path(path).expanduser()
    try:
        with mappable(path, LIMIT) as plain:
            _check_header(plain)
            found = np.load(plain, mmap_mode="r", allow_pickle=False)
    except DataError:
        raise
    # NumPy raises many kinds of errors for damaged files.
    except Exception as e:
        reason = quoted(str(e))
        if "allow_pickle" in reason or "Python objects" in reason:
            reason = "it contains pickled objects, which are never read"
        raise DataError(
            f"{path}: not a plain .npy array ({reason}); get the file again"
        ) from e
    return found


def _check_header(file: pathlib.Path) -> None:
    """Raise ValueError if a .npy file states a header that NumPy must not read."""
    with file.open("rb") as opened:
        start = opened.read(12)
    # In version 1 the length has two bytes.
    length = int.from_bytes(start[8:12], "little")
    is_long = start.startswith(b"\x93NUMPY") and start[6:7] != b"\1"
    if is_long and length > HEADER_LIMIT:
        raise ValueError(f"a header of {length:,} bytes")


def check_finite(array: np.ndarray, where: object) -> None:
    """Check that all numbers are finite, also as float32.

    Args:
      array: [N, ...].
      where: name of the file, for error messages.

    Raises:
      DataError: a number is not finite. The message names the row.
    """
    bad: list[int] = []
    for i in range(0, len(array), CHUNK):
        with np.errstate(over="ignore"):
            rows = array[i : i + CHUNK].astype(np.float32)
        axes = tuple(range(1, rows.ndim))
        is_finite = np.isfinite(rows).all(axis=axes)
        bad += (np.flatnonzero(~is_finite) + i).tolist()
    if bad:
        raise DataError(
            f"{where}, row {bad[0]}: contains NaN or infinity ({len(bad)} such rows); "
            "remove the row, or get the file again"
        )
