"""Kinds of files, told by their first bytes or their names.

There are packings that every reader unpacks, kinds of files that no reader takes, with
what to do about each, and files that operating systems add.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import importlib
import lzma
import re
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

# First bytes that tell what a file is. The mark of a tar archive ends at byte 262, and
# that of HDF5 in a MATLAB file at byte 520.
HEAD = 1024


def _zstd() -> Any:
    """Return the module that reads zstd, or None: Python has it from 3.14 on."""
    for name in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


ZSTD = _zstd()


class Packing(NamedTuple):
    """A packing of single files.

    Attributes:
      suffix: how names of packed files end.
      begins: the first bytes.
      open: file -> file of its unpacked content; None if no library for it is there.
    """

    suffix: str
    begins: re.Pattern[bytes]
    open: Callable[[BinaryIO], Any] | None


PACKINGS = (
    Packing(".gz", re.compile(rb"\x1f\x8b\x08"), gzip.open),
    Packing(".xz", re.compile(rb"\xfd7zXZ\x00"), lzma.open),
    # The second mark is that of an empty file.
    Packing(
        ".bz2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", re.DOTALL), bz2.open
    ),
    Packing(".zst", re.compile(rb"\x28\xb5\x2f\xfd"), ZSTD.open if ZSTD else None),
)
SUFFIXES = tuple(packing.suffix for packing in PACKINGS)
# What a message calls a file that may be packed.
PLAIN_OR_PACKED = "plain or .gz, .xz, .bz2 or .zst"


class Foreign(NamedTuple):
    """A kind of file that no reader takes.

    Attributes:
      begins: pattern of its first bytes.
      what: what the file is.
      advice: what to do with it.
    """

    begins: re.Pattern[bytes]
    what: str
    advice: str


def _foreign(pattern: bytes, what: str, advice: str) -> Foreign:
    return Foreign(re.compile(pattern, re.DOTALL | re.IGNORECASE), what, advice)


TAR = _foreign(rb".{257}ustar", "a tar archive", "unpack it, and give the file in it")
ZIP = _foreign(rb"PK(?:\x03\x04|\x05\x06)", "a zip archive", "unpack it")
# In the order in which they are tried.
FOREIGN = (
    _foreign(
        rb"version https://git-lfs\.github\.com/",
        "a Git LFS pointer in place of the file",
        "fetch the file with `git lfs pull`",
    ),
    _foreign(
        rb"[^\n]{0,200}/annex/objects/",
        "a git-annex pointer in place of the file",
        "fetch the file with `git annex get`",
    ),
    _foreign(
        rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.{0,600}?-->\s*)?"
        rb"<(?:!doctype\s+html|html|head|error)\b",
        "a web page, such as an error or login page",
        "download the file again, and look at it in a browser",
    ),
    _foreign(
        rb"MATLAB 7\.3",
        "a MATLAB 7.3 file (HDF5)",
        "save it in MATLAB with the option -v7",
    ),
    _foreign(
        rb"(?:.{512})?\x89HDF\r\n\x1a\n",
        "an HDF5 file",
        "convert it to the format that docs/your-own-data.md describes",
    ),
    _foreign(
        rb"PK\x03\x04.{26}[^\x00]{0,200}?\.npy",
        "an archive of arrays (.npz)",
        "save its array as a .npy file",
    ),
    ZIP,
    _foreign(rb"Rar!\x1a\x07|7z\xbc\xaf\x27\x1c", "a RAR or 7z archive", "unpack it"),
    TAR,
    _foreign(rb"%PDF-|\{\\rtf", "a PDF or RTF document", "save it as plain text"),
    _foreign(
        b"|".join(packing.begins.pattern for packing in PACKINGS),
        "packed twice",
        "unpack it once",
    ),
)

# Files and folders that operating systems add, in lower case.
SYSTEM_NAMES = frozenset(
    (
        ".ds_store",
        ".appledouble",
        ".directory",
        ".fseventsd",
        ".spotlight-v100",
        ".trashes",
        "__macosx",
        "icon\r",
        "desktop.ini",
        "ehthumbs.db",
        "thumbs.db",
        "$recycle.bin",
        "system volume information",
        "@eadir",
    )
)


def is_system_file(path: str) -> bool:
    """Return whether a path with "/" is of a file that an operating system added.

    >>> is_system_file("a/._b.txt"), is_system_file("__MACOSX/b.txt")
    (True, True)
    """
    return any(
        part.startswith("._")
        or part.endswith(":Zone.Identifier")
        or part.lower() in SYSTEM_NAMES
        for part in path.split("/")
    )


def unpacked_name(name: str) -> str:
    """Return the name of a file without the suffix of its packing."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def foreign(head: bytes, *, is_archive: bool = False) -> Foreign | None:
    """Return the kind of a file that no reader takes, or None.

    Args:
      head: its first HEAD bytes.
      is_archive: whether tar archives are taken.
    """
    for kind in FOREIGN:
        if kind.begins.match(head) and not (is_archive and kind is TAR):
            return kind
    return None
