"""JSON that every parser reads: a number that is not finite is null."""

import json
import math
import os
import pathlib
import stat
from collections.abc import Mapping
from typing import Any

from lnrepro.errors import RunError, UserError

# Larger files of a run are refused. The largest is metrics.jsonl: two million records
# have 229 MB.
MOST_BYTES = 2**30
# The errors of JSON that is damaged, or lacks the fields that are read of it.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON.

    Args:
      value: JSON values; Mappings and sequences are written as objects and arrays.
      indent: number of spaces of an indentation; None writes one line.
    """
    return json.dumps(_without_nan(value), indent=indent, allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return value


def write(path: pathlib.Path, value: Any) -> None:
    """Write a JSON file and make its folder if need be; see `replace`.

    Raises:
      RunError: the system refuses it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, text(value, indent=2) + "\n")
    except OSError as e:
        raise RunError(f"cannot write {path}: {e.strerror}") from e


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


def read_bytes(path: pathlib.Path) -> bytes:
    """Read a file of a run, which may come from a stranger.

    Raises:
      UserError: it is a pipe, a device or a folder, or too large.
      OSError: it cannot be read.
    """
    status = path.stat()
    # To open a pipe would wait for ever, and /dev/zero has no end.
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} is no regular file; copy the run again")
    if status.st_size > MOST_BYTES:
        raise UserError(
            f"{path} has {status.st_size:,} bytes, and at most {MOST_BYTES:,} are read"
        )
    return path.read_bytes()


def read_object(path: pathlib.Path) -> dict[str, Any] | None:
    """Read a JSON file; None if it holds something else than an object.

    Raises:
      UserError: see `read_bytes`.
      OSError: it cannot be read.
    """
    try:
        value = json.loads(read_bytes(path))
    # JSON that is nested too deeply is a RecursionError.
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
