"""Official files of a data set, as they were distributed.

Files are found, unpacked and checked. They may be damaged or hostile, so that the size
of what is unpacked has a limit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import hashlib
import lzma
import pathlib
import sys
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from lnrepro.engine.errors import DataError

# Bytes read at a time.
PIECE = 1 << 20
# Bytes that a file of unknown size may unpack to.
UNKNOWN_LIMIT = 1 << 31
# Bytes that all members of an archive may unpack to.
TREE_LIMIT = 1 << 35
# A file may unpack to this many times its packed size. The official files stay below 60
# times. Decompression bombs reach 1000 times.
EXPANSION = 128
# Bytes that even the smallest packed file may unpack to.
ALWAYS = 1 << 26
# Bytes of a tar member's long name or extended header.
LONGEST_HEADER = 1 << 16
TREE_PACKINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz")

# First bytes and opener of each packing, by suffix.
PACKINGS = {".gz": (b"\x1f\x8b", gzip.open), ".xz": (b"\xfd7zXZ\x00", lzma.open)}
# Errors of the openers for damaged files. An .xz file may ask for a dictionary of
# 4 GiB, which is a MemoryError.
DAMAGED = (gzip.BadGzipFile, lzma.LZMAError, zlib.error, MemoryError)


@dataclasses.dataclass(frozen=True)
class RawFile:
    """One official file, which may be there plain, as .gz or as .xz.

    Attributes:
      name: its name without the suffix of the packing.
      size: bytes of its unpacked content, if known.
      sha256: checksum of its unpacked content, if known.
      urls: where to download it, plain or packed. They are tried in order.
    """

    name: str
    size: int | None = None
    sha256: str | None = None
    urls: tuple[str, ...] = ()


class Raw:
    """The folder with the official files of a set."""

    def __init__(
        self,
        dataset: str,
        folder: pathlib.Path,
        files: Sequence[RawFile] = (),
        any_checksum: bool = False,
    ):
        """Describe the folder.

        Args:
          dataset: name of the set.
          folder: where the files are.
          files: the official files.
          any_checksum: accept other files of the same format.
        """
        self.dataset, self.folder, self.any_checksum = dataset, folder, any_checksum
        self.files = {file.name: file for file in files}
        self._sums: dict[str, str] = {}

    def find(self, name: str) -> pathlib.Path | None:
        """Return the path of a file, plain or packed; None if there is none."""
        for suffix in ("", *PACKINGS):
            path = self.folder / (name + suffix)
            if path.is_file():
                return path
        return None

    def path(self, name: str) -> pathlib.Path:
        """Return the path of a file, plain or packed.

        Raises:
          DataError: there is no such file.
        """
        if path := self.find(name):
            return path
        raise self._missing(
            f"{self.folder / name}: there is no such file, plain or .gz or .xz"
        )

    def read(self, name: str) -> bytes:
        """Return the unpacked content of an official file.

        Raises:
          DataError: the file is missing, damaged or too long.
        """
        size = self.files[name].size
        limit = UNKNOWN_LIMIT if self.any_checksum or size is None else size
        content = unpack(self.path(name), limit)
        self._sums[name] = hashlib.sha256(content).hexdigest()
        return content

    def tree(
        self,
        folder: str,
        archives: Sequence[str] = (),
        *,
        suffix: str = "",
        limit: int = UNKNOWN_LIMIT,
    ) -> Iterator[tuple[str, bytes]]:
        """Read all files below a folder, from the disk or else from a tar archive.

        Files on the disk come in sorted order, members of an archive in its order. Only
        members below a folder of the given name are read. Nothing is unpacked to disk.

        Args:
          folder: name of the folder.
          archives: names of the archives without suffix. The first one that is there is
            read; its suffix is .tar, .tar.gz, .tgz or .tar.xz.
          suffix: how the names of the wanted files end.
          limit: bytes that a file may have.

        Yields:
          The path below the folder, such as "a/b.xml", and the content of each file.

        Raises:
          DataError: there is neither the folder nor an archive, the archive is damaged,
            a file is too large, or a member has an absolute name, a name with "..", or
            is a link or a device.
        """
        root = self.folder / folder
        if root.is_dir():
            paths = [path for path in root.rglob(f"*{suffix}") if path.is_file()]
            for path in sorted(paths):
                name = _printable(path.relative_to(root).as_posix(), root)
                yield name, plain(path, limit)
            return
        archive = self._find_archive(root, archives)
        for name, content in members(archive, suffix, limit):
            parts = pathlib.PurePosixPath(_printable(name, archive)).parts
            # The folder may lie at any depth of the archive. Its path is left out of
            # the name.
            if folder in parts[:-1]:
                yield "/".join(parts[parts.index(folder) + 1 :]), content

    def _find_archive(
        self, root: pathlib.Path, archives: Sequence[str]
    ) -> pathlib.Path:
        for stem in archives:
            for packing in TREE_PACKINGS:
                path = self.folder / (stem + packing)
                if path.is_file():
                    return path
        also = ""
        if archives:
            also = f" and no {archives[0]}.tar, .tar.gz, .tgz or .tar.xz"
        raise self._missing(f"{root}: there is no such folder{also}")

    def _missing(self, what: str) -> DataError:
        """Return an error with the command that says where to get the files."""
        command = f"python scripts/prepare.py {self.dataset} --list"
        return DataError(f"{what}; `{command}` says where to get it")

    def verify(self) -> None:
        """Compare the checksums of all files that were read with the known ones.

        Call this after parsing, because the errors of the parser say more.

        Raises:
          DataError: a checksum differs.
        """
        if self.any_checksum:
            return
        for name, found in self._sums.items():
            if problem := checksum_problem(self.files[name], found):
                raise DataError(
                    f"{self.path(name)}: {problem}; get the official file, or pass "
                    "--as NAME to prepare other files of this format"
                )


def checksum_problem(file: RawFile, found: str) -> str | None:
    """Compare a checksum with that of the official file.

    Args:
      file: the official file.
      found: the SHA-256 of the unpacked content.

    Returns:
      What is wrong, or None.
    """
    if file.sha256 in (None, found):
        return None
    return (
        f"checksum differs, sha256 of the content is {found[:12]}... and of the "
        f"official file {file.sha256[:12]}..."
    )


def unpack(path: pathlib.Path, limit: int = UNKNOWN_LIMIT) -> bytes:
    """Read a whole file, which is unpacked if its suffix is .gz or .xz.

    Args:
      path: the file.
      limit: bytes that its content may have.

    Raises:
      DataError: it cannot be read, is damaged, too long, or a decompression bomb.
    """
    magic, opener = PACKINGS.get(path.suffix, (b"", open))
    with _one_line_errors(path):
        head = _head(path)
        if not head.startswith(magic):
            raise DataError(
                f"{path}: not a {path.suffix[1:]} file (it begins with {head[:4]!r}); "
                "download it again"
            )
        with opener(path, "rb") as packed:
            file = _Bounded(packed, path, limit)
            return b"".join(iter(functools.partial(file.read, PIECE), b""))


def room(size: int) -> int:
    """Return how many bytes a packed file of `size` bytes may unpack to."""
    return max(ALWAYS, EXPANSION * size)


def plain(path: pathlib.Path, limit: int = UNKNOWN_LIMIT) -> bytes:
    """Read a whole file without unpacking it.

    Args:
      path: the file.
      limit: bytes that it may have.

    Raises:
      DataError: it cannot be read or is too long.
    """
    with _one_line_errors(path), open(path, "rb") as f:
        # One byte more than allowed shows that the file is too large, without reading
        # all of it.
        content = f.read(limit + 1)
    if len(content) > limit:
        raise DataError(f"{path}: is larger than the {limit:,} bytes it may be")
    return content


def members(
    archive: pathlib.Path, suffix: str, limit: int
) -> Iterator[tuple[str, bytes]]:
    """Read the regular files of a tar archive one after the other.

    Args:
      archive: the archive.
      suffix: how the names of the wanted files end.
      limit: bytes that a wanted file may have.

    Yields:
      The name and the content of each wanted file.

    Raises:
      DataError: as for `Raw.tree`.
    """
    total = 0
    with _one_line_errors(archive):
        # The packing is told by the first bytes, whatever the name of the archive says.
        head, opener = _head(archive), open
        for magic, packing_opener in PACKINGS.values():
            if head.startswith(magic):
                opener = packing_opener
        with opener(archive, "rb") as packed:
            content: Any = _Bounded(packed, archive)
            # Mode "r|" reads the archive from front to back without seeking, since
            # `_Bounded` has no seek.
            tar: Any = tarfile.open(fileobj=content, mode="r|", tarinfo=_Member)
            with tar:
                while (member := tar.next()) is not None:
                    # Without this, tarfile keeps all members in memory.
                    tar.members.clear()
                    _check_member(archive, member)
                    wanted = member.isreg() and member.name.endswith(suffix)
                    # Members that are not wanted are read too on the way, so they count
                    # in the total.
                    total += member.size
                    if (wanted and member.size > limit) or total > TREE_LIMIT:
                        raise DataError(
                            f"{archive}: {member.name[:80]!a} is larger than the "
                            f"{limit:,} bytes it may be"
                        )
                    if wanted:
                        yield member.name, tar.extractfile(member).read()


def _check_member(archive: pathlib.Path, member: tarfile.TarInfo) -> None:
    """Check that a member is a file or a folder inside the archive."""
    name = pathlib.PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        problem = "points out of the archive"
    elif member.isdir() or member.isreg():
        return
    else:
        problem = "is a link or a device"
    raise DataError(
        f"{archive}: the member {member.name[:80]!a} {problem}; do not trust it"
    )


@contextlib.contextmanager
def _one_line_errors(path: pathlib.Path) -> Iterator[None]:
    """Turn what reading a file may raise into a DataError that names the file."""
    try:
        yield
    except EOFError as e:
        raise DataError(
            f"{path}: truncated, the packed data ends early; download it again"
        ) from e
    except (*DAMAGED, tarfile.TarError, ValueError) as e:
        reason = e or type(e).__name__
        raise DataError(
            f"{path}: damaged, cannot be unpacked ({reason}); download it again"
        ) from e
    except OSError as e:
        raise DataError(f"{path}: cannot be read ({e.strerror or e})") from e


def _head(path: pathlib.Path) -> bytes:
    """Return the first bytes of a file."""
    with open(path, "rb") as f:
        return f.read(8)


class _Bounded:
    """The unpacked bytes of a file, up to a limit."""

    def __init__(self, file, path: pathlib.Path, limit: int = sys.maxsize):
        self._file, self._path = file, path
        # The limit of the content, or the limit on the ratio of expansion if that is
        # smaller.
        self._limit = min(limit, room(path.stat().st_size))
        self._read = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
          DataError: the file unpacks to more than the limit.
        """
        piece = self._file.read(size)
        self._read += len(piece)
        if self._read > self._limit:
            raise DataError(
                f"{self._path}: holds more than the {self._limit:,} bytes it may; get "
                "the official file"
            )
        return piece


class _Member(tarfile.TarInfo):
    """A member of an archive whose header is checked before tarfile uses it.

    Without the checks, tarfile reads names and extended headers of any length, accepts
    negative sizes, and keeps a list of any length for a sparse member.
    """

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        """Parse a header of 512 bytes."""
        found = super().frombuf(buf, encoding, errors)
        extended = (
            *tarfile.GNU_TYPES,
            tarfile.XHDTYPE,
            tarfile.XGLTYPE,
            tarfile.SOLARIS_XHDTYPE,
        )
        too_long = found.type in extended and found.size > LONGEST_HEADER
        if found.size < 0 or too_long:
            raise tarfile.ReadError(f"a header of {found.size:,} bytes")
        return found

    def _refuse_sparse(self, *_):
        raise tarfile.ReadError("a sparse member")

    _proc_sparse = _refuse_sparse
    _proc_gnusparse_00 = _refuse_sparse
    _proc_gnusparse_01 = _refuse_sparse
    _proc_gnusparse_10 = _refuse_sparse


def _printable(name: str, where: pathlib.Path) -> str:
    """Return a name that fits into one line of an error message.

    Raises:
      DataError: the name cannot be printed.
    """
    if not name.isprintable():
        raise DataError(
            f"{where}: the name {name[:80]!a} cannot be printed; do not trust it"
        )
    return name
