"""Opening of input files: plain or packed files, tar archives, text and .npy arrays.

A file may be plain or packed with gzip, xz or bzip2; its first bytes tell. Text is in
UTF-8, in UTF-16 with a byte order mark, or else in Windows-1252, line by line. Nothing
in a file is executed. Every error is a `DataError` that names the file and says what to
do.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import itertools
import lzma
import pathlib
import re
import tarfile
import tempfile
import warnings
import zlib
from collections.abc import Iterable, Iterator
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
# Rows of an array that are checked at a time.
CHUNK = 1024
UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
AS_UTF8 = "save the file as UTF-8 text"
# Files and folders that operating systems add, in lower case.
SYSTEM_NAMES = frozenset(
    (".ds_store", "__macosx", "desktop.ini", "thumbs.db", "$recycle.bin", "@eadir")
)


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Open a file for reading of its unpacked content.

    Raises:
      DataError: the file cannot be read, is damaged, or is clearly another file.
    """
    try:
        with path.open("rb") as file:
            head = file.read(16)
            file.seek(0)
            content: Any = file
            for begins, opener in PACKINGS.values():
                if head.startswith(begins):
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


def _blocks(path: pathlib.Path) -> Iterator[bytes]:
    """Yield the unpacked content of a file, some bytes at a time."""
    with _opened(path) as content:
        while block := content.read(BLOCK):
            yield block


def read(path: pathlib.Path) -> bytes:
    """Read a whole file, unpacked.

    Raises:
      DataError: the file cannot be read, is damaged, or is clearly another file.
    """
    return b"".join(_blocks(path))


@contextlib.contextmanager
def plain_file(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the path of a plain file with the unpacked content of a file.

    This is the file itself, or a temporary file that is deleted at the end. A mapping
    of it into memory stays valid.

    Raises:
      DataError: as for `read`, or the temporary file cannot be written.
    """
    with _opened(path) as content:
        is_packed = isinstance(content, gzip.GzipFile | lzma.LZMAFile | bz2.BZ2File)
    if not is_packed:
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="unpacked-") as out:
        for block in _blocks(path):
            try:
                out.write(block)
                out.flush()
            except OSError as e:
                raise DataError(
                    f"{path}: cannot be unpacked into {tempfile.gettempdir()} "
                    f"({e.strerror}); unpack it yourself, or set TMPDIR"
                ) from e
        yield pathlib.Path(out.name)


def members(archive: pathlib.Path, suffix: str = "") -> Iterator[tuple[str, bytes]]:
    """Read the regular files of a tar archive, in its order. Nothing is unpacked.

    Args:
      archive: the archive, which may be packed.
      suffix: how the names of the wanted files end.

    Yields:
      The name and the content of each wanted file.

    Raises:
      DataError: the archive cannot be read or is damaged.
    """
    # Mode "r|" reads from front to back, as a packed archive must be.
    with _opened(archive) as content, tarfile.open(fileobj=content, mode="r|") as tar:
        for member in tar:
            # Without this, tarfile keeps all members in memory.
            tar.members = []  # pyright: ignore[reportAttributeAccessIssue]
            if member.isreg() and member.name.endswith(suffix):
                file = tar.extractfile(member)
                yield member.name, file.read() if file else b""


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
                f"{path}: not a plain .npy array ({quoted(str(e))}); get the file again"
            ) from e


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
        is_finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
        bad += (np.flatnonzero(~is_finite) + i).tolist()
    if bad:
        raise DataError(
            f"{where}, row {bad[0]}: contains NaN or infinity ({len(bad)} such rows); "
            "remove the row, or get the file again"
        )


def decode(content: bytes, where: object) -> str:
    r"""Decode a whole text file. Warns of lines that are not in UTF-8.

    >>> decode(b"caf\xc3\xa9", "f")
    'café'

    Args:
      content: content of the file.
      where: name of the file, for messages.

    Raises:
      DataError: it is not text.
    """
    return "".join(text for _, text in decode_blocks([content], where))


def text_blocks(
    path: pathlib.Path, longest: int | None = None
) -> Iterator[tuple[int, str]]:
    """Read a text file, some whole lines at a time. Warns of lines not in UTF-8.

    Args:
      path: the file, which may be packed.
      longest: the largest number of bytes of a line; None is any number.

    Yields:
      The number of the first line, and the lines. They end with a newline, except for
      the last one of a file that does not.

    Raises:
      DataError: the file cannot be read, is not text, or a line is too long.
    """
    return decode_blocks(_blocks(path), path, longest)


def decode_blocks(
    blocks: Iterable[bytes], where: object, longest: int | None = None
) -> Iterator[tuple[int, str]]:
    """Decode the blocks of a text file, see `text_blocks`.

    Args:
      blocks: the content. The first block has the whole byte order mark.
      where: name of the file, for messages.
      longest: the largest number of bytes of a line.
    """
    # Of the lines that are not in UTF-8: the number of the first one, their number, and
    # their bytes above 127. And all bytes of the file.
    first = lines = high = size = 0
    for number, block in _whole_lines(_as_utf8(blocks, where), where, longest):
        if (position := block.find(b"\0")) >= 0:
            line = number + block.count(b"\n", 0, position)
            raise DataError(f"{where}, line {line}: a NUL byte; {AS_UTF8}")
        size += len(block)
        try:
            text = block.decode()
        except UnicodeDecodeError:
            texts = []
            for i, line in enumerate(block.split(b"\n"), number):
                try:
                    texts.append(line.decode())
                except UnicodeDecodeError:
                    texts.append(line.decode("cp1252", "replace"))
                    first = first or i
                    lines += 1
                    high += sum(byte > 127 for byte in line)
            text = "\n".join(texts)
        yield number, text
    # Western text consists of ASCII for the most part.
    if high > max(1, size // 2):
        raise DataError(
            f"{where}: mostly not UTF-8, UTF-16 or Windows-1252 text ({high:,} of "
            f"{size:,} bytes); {AS_UTF8}"
        )
    if lines:
        warnings.warn(
            f"{where}, line {first}: not UTF-8, read as Windows-1252 ({lines:,} such "
            "lines)",
            stacklevel=2,
        )


def _whole_lines(
    blocks: Iterable[bytes], where: object, longest: int | None
) -> Iterator[tuple[int, bytes]]:
    """Yield blocks that end at a line, and the number of the first line of each."""
    number, pending = 1, b""
    for block in blocks:
        head, newline, tail = block.rpartition(b"\n")
        if newline:
            lines, pending = pending + head + newline, b""
            yield number, lines
            number += lines.count(b"\n")
        pending += tail
        if longest and len(pending) > longest:
            raise DataError(
                f"{where}, line {number}: longer than {longest:,} bytes; one sentence "
                "per line is needed"
            )
    if pending:
        yield number, pending


def _as_utf8(blocks: Iterable[bytes], where: object) -> Iterator[bytes]:
    """Yield blocks without a byte order mark, and those of UTF-16 text as UTF-8."""
    blocks = iter(blocks)
    first = next(blocks, b"")
    if first[:2] not in UTF16:
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(UTF16[first[:2]])()
    try:
        for block in itertools.chain([first[2:]], blocks):
            yield decoder.decode(block).encode()
        decoder.decode(b"", final=True)
    except UnicodeError:
        raise DataError(
            f"{where}: begins like UTF-16 text, but is none; {AS_UTF8}"
        ) from None


def is_system_file(path: str) -> bool:
    """Return whether a path with "/" is of a file that an operating system added.

    >>> is_system_file("a/._b.txt"), is_system_file("__MACOSX/b.txt")
    (True, True)
    """
    return any(
        part.startswith("._") or part.lower() in SYSTEM_NAMES
        for part in path.split("/")
    )


def unpacked_name(name: str) -> str:
    """Return the name of a file without the suffix of its packing."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def quoted(text: str) -> str:
    r"""Return the beginning of a text in quotes, as at most 80 characters of ASCII.

    >>> len(quoted("\u2028" * 1000))
    80
    """
    # An escaped character takes up to ten characters.
    return ascii(text[:80])[:80]
