"""Opening of input files: plain or packed files, tar archives, text and .npy arrays.

A file may be plain or packed with gzip, xz or bzip2; its first bytes tell. Text is in
UTF-8 or in UTF-16 with a byte order mark, and bytes that are neither are Windows-1252.
It is normalised to NFC, so that a word has one spelling.
Nothing in a file is executed. Every error is a `DataError` that names the file and says
what to do.
"""

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import pathlib
import re
import shutil
import tarfile
import tempfile
import unicodedata
import warnings
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from lnrepro.errors import DataError

# How the names of packed files end, their first bytes, and what opens them.
PACKINGS = {
    ".gz": (b"\x1f\x8b\x08", gzip.open),
    ".xz": (b"\xfd7zXZ\x00", lzma.open),
    ".bz2": (b"BZh", bz2.open),
}
SUFFIXES = tuple(PACKINGS)
PLAIN_OR_PACKED = "plain or .gz, .xz or .bz2"
# Other files that are often in place of the right one: first bytes, what the file is,
# and what to do.
WRONG_FILES = (
    (
        rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html|head)\b",
        "a web page, such as an error or login page",
        "download the file again, and look at it in a browser",
    ),
    (rb"PK(?:\x03\x04|\x05\x06)", "a zip archive", "unpack it"),
    (
        rb"version https://git-lfs\.github\.com/",
        "a Git LFS pointer in place of the file",
        "fetch the file with `git lfs pull`",
    ),
)
# Bytes that are read at a time.
BLOCK = 1 << 22
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Bytes that are not UTF-8, as the error handler "surrogateescape" decodes them.
ESCAPED = re.compile("[\udc80-\udcff]+")
# What to do with a file that is not what it claims to be.
AGAIN = "get the official file"
AS_UTF8 = "save the file as UTF-8 text"
# Files and folders that operating systems add, in lower case, besides hidden ones.
SYSTEM_NAMES = frozenset(
    ("__macosx", "desktop.ini", "thumbs.db", "$recycle.bin", "@eadir")
)


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Open a file for reading of its unpacked content.

    Raises:
      DataError: the file cannot be read, is damaged, or is clearly another file.
    """
    try:
        with path.open("rb") as file:
            content: Any = file
            for begins, opener in PACKINGS.values():
                if file.peek(16).startswith(begins):
                    content = opener(file)
            for begins, what, advice in WRONG_FILES:
                if re.match(begins, content.peek(64), re.IGNORECASE):
                    raise DataError(f"{path}: {what}; {advice}")
            yield content
    except (OSError, EOFError, lzma.LZMAError, zlib.error, tarfile.TarError) as e:
        # Some errors of damaged files are OSErrors too, without a number.
        if isinstance(e, OSError) and e.errno is not None:
            raise DataError(f"{path}: cannot be read ({e.strerror})") from e
        raise DataError(
            f"{path}: damaged or truncated ({e or type(e)}); download it again"
        ) from e


def read(path: pathlib.Path) -> bytes:
    """Read a whole file, unpacked.

    Raises:
      DataError: the file cannot be read, is damaged, or is clearly another file.
    """
    with _opened(path) as content:
        return content.read()


@contextlib.contextmanager
def plain_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the path of a plain file with the unpacked content of a file.

    This is the file itself, or a temporary file that is deleted at the end. A mapping
    of it into memory stays valid. $TMPDIR is the folder of temporary files.

    Raises:
      DataError: as for `read`, or the temporary file cannot be written.
    """
    with _opened(path) as content:
        if isinstance(content, io.BufferedReader):
            yield path
            return
        with tempfile.NamedTemporaryFile(prefix="unpacked-") as out:
            shutil.copyfileobj(content, out)
            out.flush()
            yield pathlib.Path(out.name)


def members(archive: pathlib.Path) -> Iterator[tuple[str, bytes | None]]:
    """Read the files of a tar archive, in its order.

    A packed archive is unpacked first, see `plain_file`.

    Args:
      archive: the archive, which may be packed.

    Yields:
      The name and the content of each file and link. The content is None if it is no
      file, and for a link that leads to no file of the same archive.

    Raises:
      DataError: the archive cannot be read or is damaged.
    """
    with plain_file(archive) as plain, tarfile.open(plain, "r:") as tar:
        for member in tar:
            file = None
            # tarfile follows links within the archive. Some lead nowhere or in circles.
            with contextlib.suppress(KeyError, RecursionError):
                file = tar.extractfile(member)
            if not member.isdir():
                yield member.name, file and file.read()


def load_npy(path: pathlib.Path) -> np.ndarray:
    """Map a .npy file into memory, which may be packed. Pickles are never read.

    Raises:
      DataError: the file cannot be read, or is not one plain array.
    """
    with plain_file(path) as plain:
        try:
            return np.load(plain, mmap_mode="r", allow_pickle=False)
        # NumPy raises many kinds of errors for damaged files.
        except Exception as e:
            raise DataError(
                f"{path}: not a plain .npy array ({e!r:.80}); get the file again"
            ) from e


def decode(content: bytes, where: object) -> str:
    r"""Decode a whole text file, as `text_blocks` does.

    >>> decode(b"caf\xc3\xa9", "f")
    'café'

    Args:
      content: content of the file.
      where: name of the file, for messages.

    Raises:
      DataError: it is not text.
    """
    blocks = _decoded(io.BytesIO(content), where)
    return "".join(text for _, text in blocks)


def text_blocks(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Read a text file, some whole lines at a time.

    Warns of bytes that are not UTF-8. They are read as Windows-1252.

    Args:
      path: the file, which may be packed.

    Yields:
      The number of the first line, and the lines. They end with a newline, except for
      the last one of a file that does not.

    Raises:
      DataError: the file cannot be read, or is not text.
    """
    with _opened(path) as content:
        yield from _decoded(content, path)


def _decoded(content: IO[bytes], where: object) -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of `text_blocks`."""
    # In how many places there are bytes that are not UTF-8, and the line of the first.
    places = first = 0
    number = 1
    try:
        is_utf16 = content.read(2) in UTF16_MARKS
        content.seek(0)
        if is_utf16:
            content = io.BytesIO(content.read().decode("utf-16").encode())
        while lines := content.readlines(BLOCK):
            # A byte order mark lies within a file if several files were joined.
            block = b"".join(lines).replace(codecs.BOM_UTF8, b"")
            # Old Macs ended lines with carriage returns.
            lone = block.count(b"\r") - block.count(b"\r\n")
            if lone > block.count(b"\n"):
                block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            nul = block.find(b"\0")
            if nul >= 0:
                line = number + block.count(b"\n", 0, nul)
                raise DataError(f"{where}, line {line}: a NUL byte; {AS_UTF8}")
            # Each byte that is not UTF-8 becomes a character from U+DC80 to U+DCFF.
            text = block.decode(errors="surrogateescape")
            if found := ESCAPED.search(text):
                first = first or number + text.count("\n", 0, found.start())
                text, count = ESCAPED.subn(_as_windows_1252, text)
                places += count
            # macOS and some editors store "é" as two characters, most texts as one.
            yield number, unicodedata.normalize("NFC", text)
            number += block.count(b"\n")
    except UnicodeError as e:
        raise DataError(
            f"{where}: not UTF-8, UTF-16 or Windows-1252 text ({e}); {AS_UTF8}"
        ) from None
    if places:
        warnings.warn(
            f"{where}, line {first}: not UTF-8, read as Windows-1252 ({places:,} such "
            "places)",
            stacklevel=2,
        )


def _as_windows_1252(escaped: re.Match[str]) -> str:
    return escaped[0].encode(errors="surrogateescape").decode("cp1252")


def is_system_file(path: str) -> bool:
    """Return whether a path with "/" is hidden or one that a system added.

    >>> is_system_file("a/._b.txt"), is_system_file("__MACOSX/b.txt")
    (True, True)
    """
    return any(
        (part.startswith(".") and part.strip(".")) or part.lower() in SYSTEM_NAMES
        for part in path.split("/")
    )


def unpacked_name(name: str) -> str:
    """Return the name of a file without the suffix of its packing."""
    for suffix in SUFFIXES:
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return name
