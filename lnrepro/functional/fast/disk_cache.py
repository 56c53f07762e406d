"""What is found out once for all processes of a user, as text files."""

import contextlib
import hashlib
import os
import pathlib
import tempfile
from typing import Any


def digest(*words: Any) -> str:
    """Return a name of what the words are, of 64 hexadecimal digits."""
    text = "\0".join(map(str, words))
    return hashlib.sha256(text.encode()).hexdigest()


def folder() -> pathlib.Path:
    """Return where it is kept, the same for the trainer and other programs.

    Raises:
      RuntimeError: the user has no home folder.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "lnrepro" / "kernels"


def read(name: str) -> str | None:
    """Return the text of a name, or None where there is none."""
    with contextlib.suppress(OSError, RuntimeError):
        return (folder() / name).read_text()
    return None


def names(pattern: str) -> list[str]:
    """Return the names that match, that of the newest text last."""
    with contextlib.suppress(OSError, RuntimeError):
        paths = sorted(folder().glob(pattern), key=os.path.getmtime)
        return [path.name for path in paths]
    return []


def write(name: str, text: str) -> None:
    """Keep a text.

    Args:
      name: a file name that tells what the text depends on.
      text: the text. Another process may write the same name.

    Raises:
      OSError, RuntimeError: it cannot be written: a user may have no home folder, and a
        disk may be full or read-only.
    """
    folder().mkdir(parents=True, exist_ok=True)
    # What a write that fails has made goes with the folder.
    with tempfile.TemporaryDirectory(dir=folder()) as made:
        path = pathlib.Path(made) / name
        path.write_text(text)
        path.replace(folder() / name)


def remove(name: str) -> None:
    """Remove a text, unless another process has done so."""
    (folder() / name).unlink(missing_ok=True)
