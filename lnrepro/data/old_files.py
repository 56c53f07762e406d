"""Opening of input files by their first bytes, whatever their names say.

A file may be plain, or packed with gzip, xz, bzip2 or zstd. It may be damaged or
hostile, so that the size of what is unpacked has a limit, and everything but a regular
file is refused before it is read.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import lzma
import os
import pathlib
import stat
import tempfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from lnrepro.data.file_kinds import HEAD, PACKINGS, ZSTD, foreign
from lnrepro.errors import DataError

# Bytes read at a time.
PIECE = 1 << 20
# Bytes that a file of unknown size may unpack to.
UNKNOWN_LIMIT = 1 << 31
# A file may unpack to this many times its packed size. The official files stay below 60
# times. Decompression bombs reach 1000 times.
EXPANSION = 128
# Bytes that even the smallest packed file may unpack to.
ALWAYS = 1 << 26
# Errors of the openers for damaged files. An .xz file may ask for a dictionary of
# 4 GiB, which is a MemoryError. Headers of headers in a tar archive are a
# RecursionError.
DAMAGED: tuple[type[Exception], ...] = (
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    MemoryError,
    RecursionError,
    *([ZSTD.ZstdError] if ZSTD else []),
)


def room(size: int) -> int:
    """Return how many bytes a packed file of `size` bytes may unpack to."""
    return max(ALWAYS, EXPANSION * size)


class Content:
    """The unpacked content of a file, read from front to back up to a limit.

    Attributes:
      path: the file.
      size: its bytes on the disk.
      is_packed: whether it is packed.
    """

    def __init__(
        self,
        path: pathlib.Path,
        limit: int = UNKNOWN_LIMIT,
        *,
        is_archive: bool = False,
    ):
        """Open a file.

        Args:
          path: the file.
          limit: bytes that its content may have.
          is_archive: whether it is to be a tar archive.

        Raises:
          DataError: it cannot be read, is no regular file, or is of a kind that no
            reader takes.
        """
        self.path = path
        self._limit, self._read = limit, 0
        self._files = contextlib.ExitStack()
        try:
            self._open()
            self._head = self._next(HEAD)
            if kind := foreign(self._head, is_archive=is_archive):
                raise DataError(f"{path}: {kind.what}; {kind.advice}")
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with _one_line_errors(self.path):
            self._file: Any = self._files.enter_context(_open_regular(self.path))
            self.size = os.fstat(self._file.fileno()).st_size
            # The limit on the ratio of expansion may be smaller.
            self._limit = min(self._limit, room(self.size))
            head = self._file.read(HEAD)
            self._file.seek(0)
            self._stream = self._file
            self.is_packed = False
            for packing in PACKINGS:
                if packing.begins.match(head):
                    self.is_packed = True
                    if packing.open is None:
                        raise DataError(
                            f"{self.path}: packed with zstd, which needs Python 3.14 "
                            "or `pip install backports.zstd`; or unpack it yourself"
                        )
                    self._stream = self._files.enter_context(packing.open(self._file))

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`.

        Raises:
          DataError: the file is damaged, or unpacks to more than the limit.
        """
        piece, self._head = self._head[:size], self._head[size:]
        return piece or self._next(size)

    def _next(self, size: int) -> bytes:
        with _one_line_errors(self.path):
            piece = self._stream.read(size)
        self._read += len(piece)
        if self._read > self._limit:
            raise DataError(
                f"{self.path}: holds more than the {self._limit:,} bytes it may; get "
                "the official file"
            )
        return piece

    def tell(self) -> int:
        """Return how many bytes of the file on the disk have been read."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._files.close()

    def __enter__(self) -> Content:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unpack(path: pathlib.Path, limit: int = UNKNOWN_LIMIT) -> bytes:
    """Read a whole file, unpacked.

    Args:
      path: the file.
      limit: bytes that its content may have.

    Raises:
      DataError: it cannot be read, is damaged, too long, a decompression bomb, or of a
        kind that no reader takes.
    """
    with Content(path, limit) as content:
        return b"".join(iter(functools.partial(content.read, PIECE), b""))


@contextlib.contextmanager
def mappable(path: pathlib.Path, limit: int) -> Iterator[pathlib.Path]:
    """Yield the path of a plain file with the unpacked content of a file.

    It is the file itself, or a temporary file that is deleted at the end. A mapping of
    it into memory stays valid.

    Args:
      path: the file.
      limit: bytes that its content may have.

    Raises:
      DataError: as for `unpack`, or the temporary file cannot be written.
    """
    with Content(path, limit) as content:
        if not content.is_packed:
            yield path
            return
        with tempfile.NamedTemporaryFile(prefix="unpacked-") as out:
            try:
                for piece in iter(functools.partial(content.read, PIECE), b""):
                    out.write(piece)
                out.flush()
            except OSError as e:
                raise DataError(
                    f"{path}: cannot be unpacked into {tempfile.gettempdir()} "
                    f"({e.strerror or e}); unpack it yourself, or set TMPDIR"
                ) from e
            yield pathlib.Path(out.name)


def _open_regular(path: pathlib.Path) -> BinaryIO:
    """Open a regular file. Refuse others, which may have no end or wait forever."""
    # Opening a FIFO would wait for its other end without O_NONBLOCK.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.open(path, flags)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(file, "rb")
    os.close(file)
    kind = "a device, FIFO or socket"
    if stat.S_ISDIR(mode):
        kind = "a folder"
    raise DataError(f"{path}: {kind}; a regular file is needed")


@contextlib.contextmanager
def _one_line_errors(path: pathlib.Path) -> Iterator[None]:
    """Turn what reading a file may raise into a DataError that names the file."""
    try:
        yield
    except EOFError as e:
        raise DataError(
            f"{path}: truncated, the packed data ends early; download it again"
        ) from e
    except (*DAMAGED, ValueError) as e:
        reason = e or type(e).__name__
        raise DataError(
            f"{path}: damaged, cannot be unpacked ({reason}); download it again"
        ) from e
    except OSError as e:
        # Damaged .bz2 files are OSErrors without a number.
        if e.errno is None:
            raise DataError(
                f"{path}: damaged, cannot be unpacked ({e}); download it again"
            ) from e
        raise DataError(f"{path}: cannot be read ({e.strerror or e})") from e
