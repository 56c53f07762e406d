"""JSON that every parser reads: a number that is not finite is null."""

import json
import os
import pathlib
import zlib
from typing import Any

from lnrepro.errors import UserError

# The errors of JSON that is damaged, or lacks the fields that are read of it.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON.

    Args:
      value: JSON values; Mappings and sequences are written as objects and arrays.
      indent: number of spaces of an indentation; None writes one line.
    """
    # Python writes NaN and Infinity as words, which become None when they are read.
    words = json.dumps(value, default=dict)
    read_back = json.loads(words, parse_constant=lambda word: None)
    return json.dumps(read_back, indent=indent, allow_nan=False)


def write(path: pathlib.Path, value: Any) -> None:
    """Write a JSON file and make its folder if need be; see `replace`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, text(value, indent=2) + "\n")


def replace(path: pathlib.Path, contents: str) -> None:
    """Replace a text file, so that it is the old one or the new one, whole.

    This holds for readers, for a killed process and for a machine that loses its power.

    Args:
      path: the file.
      contents: what it will hold.

    Raises:
      OSError: the system refuses it.
    """
    new = path.with_suffix(".new")
    with open(new, "w", encoding="utf-8") as file:
        file.write(contents)
        file.flush()
        # Without this, a crash may leave the new name with none of the contents.
        os.fsync(file.fileno())
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_checked(path: pathlib.Path, digest: int | None) -> bytes:
    """Read a file that belongs to a config.json.

    Args:
      path: the file.
      digest: the CRC-32 of its bytes that stands there; None where it was written
        before it had one, and is not checked.

    Raises:
      UserError: the file is not the one that was written.
      OSError: it cannot be read.
    """
    content = path.read_bytes()
    if digest is not None and zlib.crc32(content) != digest:
        raise UserError(
            f"{path} does not match its digest in config.json; get the whole folder "
            "again"
        )
    return content
