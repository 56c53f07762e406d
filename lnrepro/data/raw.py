"""Official files as they were distributed: found, unpacked within a bound, checked, downloaded. None is trusted."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import lzma
import os
import pathlib
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException

from lnrepro.engine.errors import DataError

PIECE = 1 << 20  # bytes read at a time
UNKNOWN_LIMIT = 1 << 31  # bytes that a file of unknown size may unpack to
TREE_LIMIT = 1 << 35  # bytes that all members of an archive may unpack to
EXPANSION = 128  # times its packed size that a file may unpack to; the official ones stay below 60, bombs reach 1000
ALWAYS = 1 << 26  # bytes that even the smallest packed file may unpack to
LONGEST_HEADER = 1 << 16  # bytes of a tar member's long name or extended header
TREE_PACKINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz")

# suffix -> (first bytes, opener)
PACKINGS = {".gz": (b"\x1f\x8b", gzip.open), ".xz": (b"\xfd7zXZ\x00", lzma.open)}
# What reading a damaged packed file raises; MemoryError: an .xz may ask for a dictionary of 4 GiB.
DAMAGED = (gzip.BadGzipFile, lzma.LZMAError, zlib.error, MemoryError)


@dataclasses.dataclass(frozen=True)
class RawFile:
    """One official file; `size` and `sha256` are of its unpacked content, so plain, .gz and .xz copies satisfy them."""

    name: str
    size: int | None = None
    sha256: str | None = None
    urls: tuple[str, ...] = ()  # tried in order; may point at a packed copy


class Raw:
    """The folder with a set's official files, as a builder reads them."""

    def __init__(
        self,
        dataset: str,
        folder: pathlib.Path,
        files: Sequence[RawFile] = (),
        any_checksum: bool = False,
    ) -> None:
        self.dataset, self.folder, self.any_checksum = dataset, folder, any_checksum
        self.files = {file.name: file for file in files}
        self._sums: dict[str, str] = {}

    def find(self, name: str) -> pathlib.Path | None:
        """The file `name`, plain or packed (.gz, .xz), or None where there is none."""
        return next(
            (
                p
                for p in (self.folder / (name + suffix) for suffix in ("", *PACKINGS))
                if p.is_file()
            ),
            None,
        )

    def path(self, name: str) -> pathlib.Path:
        """As `find`. Raises DataError where there is none."""
        if path := self.find(name):
            return path
        raise DataError(
            f"{self.folder / name}: there is no such file, plain or .gz or .xz; "
            f"`python scripts/prepare.py {self.dataset} --list` says where to get it"
        )

    def read(self, name: str) -> bytes:
        """The unpacked content of an official file. Raises DataError if it is missing, damaged or too long."""
        known = self.files[name].size
        content = unpack(
            self.path(name),
            UNKNOWN_LIMIT if self.any_checksum or known is None else known,
        )
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
        """Every file below `folder` whose name ends in `suffix`: its path from there on, "a/b.xml", and its content.

        Read from the folder itself, in sorted order, or else from the first archive (.tar, .tar.gz, .tgz, .tar.xz) of
        one of the stems `archives` that is there, in its order; members elsewhere than below a folder of that name are
        passed over. Nothing is unpacked to the disk. Raises DataError if there is neither, for a file of more than `limit` bytes, for
        a damaged archive, and for members with absolute names, with "..", or that are links or devices.
        """
        if (root := self.folder / folder).is_dir():
            for path in sorted(p for p in root.rglob(f"*{suffix}") if p.is_file()):
                yield (
                    _printable(path.relative_to(root).as_posix(), root),
                    plain(path, limit),
                )
            return
        names = [stem + packing for stem in archives for packing in TREE_PACKINGS]
        archive = next(
            (p for p in (self.folder / name for name in names) if p.is_file()), None
        )
        if archive is None:
            also = (
                f" and no {archives[0]}.tar, .tar.gz, .tgz or .tar.xz"
                if archives
                else ""
            )
            raise DataError(
                f"{root}: there is no such folder{also}; "
                f"`python scripts/prepare.py {self.dataset} --list` says where to get it"
            )
        for name, content in members(archive, suffix, limit):
            parts = pathlib.PurePosixPath(_printable(name, archive)).parts
            if folder in parts[:-1]:
                yield "/".join(parts[parts.index(folder) + 1 :]), content

    def verify(self) -> None:
        """Compare all files read with their known sums. Raises DataError.

        Called after they are parsed: a parser's errors say more.
        """
        for name, found in self._sums.items():
            wanted = self.files[name].sha256
            if wanted and found != wanted and not self.any_checksum:
                raise DataError(
                    f"{self.path(name)}: checksum differs, {_mismatch(found, wanted)}; "
                    "get the official file, or pass --any-checksum to use other files of this format"
                )


def unpack(path: pathlib.Path, limit: int = UNKNOWN_LIMIT) -> bytes:
    """Read a file whole, unpacking .gz and .xz, of at most `limit` bytes and no bomb. Raises DataError that names the file."""
    magic, opener = PACKINGS.get(path.suffix, (b"", open))
    try:
        with open(path, "rb") as f:
            head = f.read(max(4, len(magic)))
        if not head.startswith(magic):
            raise DataError(
                f"{path}: not a {path.suffix[1:]} file (it begins with {head[:4]!r}); download it again"
            )
        pieces, size, limit = [], 0, min(limit, room(path.stat().st_size))
        with opener(path, "rb") as f:
            while piece := f.read(min(PIECE, limit + 1 - size)):
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise DataError(
                        f"{path}: holds more than the {limit:,} bytes it may; get the official file"
                    )
    except EOFError as e:
        raise DataError(
            f"{path}: truncated, the packed data ends early; download it again"
        ) from e
    except DAMAGED as e:
        raise DataError(
            f"{path}: damaged, cannot be unpacked ({e or type(e).__name__}); download it again"
        ) from e
    except OSError as e:
        raise DataError(f"{path}: cannot be read ({e.strerror or e})") from e
    return b"".join(pieces)


def room(size: int) -> int:
    """Bytes that a packed file of `size` bytes may unpack to: more is no data but a bomb."""
    return max(ALWAYS, EXPANSION * size)


def plain(path: pathlib.Path, limit: int = UNKNOWN_LIMIT) -> bytes:
    """Read a file as it is, of at most `limit` bytes. Raises DataError that names the file."""
    try:
        with open(path, "rb") as f:
            content = f.read(limit + 1)
    except OSError as e:
        raise DataError(f"{path}: cannot be read ({e.strerror or e})") from e
    if len(content) > limit:
        raise DataError(f"{path}: is larger than the {limit:,} bytes it may be")
    return content


def members(
    archive: pathlib.Path, suffix: str, limit: int
) -> Iterator[tuple[str, bytes]]:
    """The regular files of a tar archive whose names end in `suffix`, in its order, read one after the other.

    Raises DataError for what `Raw.tree` refuses.
    """
    total = 0
    try:
        with open(archive, "rb") as f:
            head = f.read(8)
        opener = next(
            (opener for magic, opener in PACKINGS.values() if head.startswith(magic)),
            open,
        )
        with (
            opener(archive, "rb") as packed,
            tarfile.open(
                fileobj=_Bounded(packed, archive), mode="r|", tarinfo=_Member
            ) as tar,
        ):
            while (member := tar.next()) is not None:
                tar.members.clear()  # it would keep them all
                name, shown = (
                    pathlib.PurePosixPath(member.name),
                    ascii(member.name[:80]),
                )
                if name.is_absolute() or ".." in name.parts:
                    raise DataError(
                        f"{archive}: the member {shown} points out of the archive; do not trust it"
                    )
                if member.isdir():
                    continue
                if not member.isreg():
                    raise DataError(
                        f"{archive}: the member {shown} is a link or a device; do not trust it"
                    )
                total += member.size
                if (
                    (wanted := name.name.endswith(suffix)) and member.size > limit
                ) or total > TREE_LIMIT:
                    raise DataError(
                        f"{archive}: {shown} is larger than the {limit:,} bytes it may be"
                    )
                if wanted:
                    yield member.name, tar.extractfile(member).read()
    except EOFError as e:
        raise DataError(
            f"{archive}: truncated, the packed data ends early; download it again"
        ) from e
    except (tarfile.TarError, *DAMAGED, UnicodeError, ValueError) as e:
        raise DataError(
            f"{archive}: damaged, cannot be unpacked ({e or type(e).__name__}); download it again"
        ) from e
    except OSError as e:
        raise DataError(f"{archive}: cannot be read ({e.strerror or e})") from e


class _Bounded:
    """The unpacked bytes of an archive, as tarfile reads them, up to what it may unpack to."""

    def __init__(self, file, archive: pathlib.Path):
        self._file, self._archive, self._room = (
            file,
            archive,
            room(archive.stat().st_size),
        )
        self._left = self._room

    def read(self, size: int) -> bytes:
        piece = self._file.read(size)
        self._left -= len(piece)
        if self._left < 0:
            raise DataError(
                f"{self._archive}: larger than the {self._room:,} bytes it may unpack to"
            )
        return piece


class _Member(tarfile.TarInfo):
    """A member of an archive, whose header is looked at before tarfile acts on it.

    tarfile reads long names and extended headers whole, makes lists of a sparse member's pieces, and believes sizes
    below zero.
    """

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        found = super().frombuf(buf, encoding, errors)
        extended = found.type in (
            *tarfile.GNU_TYPES,
            tarfile.XHDTYPE,
            tarfile.XGLTYPE,
            tarfile.SOLARIS_XHDTYPE,
        )
        if found.size < 0 or (extended and found.size > LONGEST_HEADER):
            raise tarfile.ReadError(f"a header of {found.size:,} bytes")
        return found

    def _sparse(self, *_):
        raise tarfile.ReadError("a sparse member")

    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = (
        _sparse
    )


def _printable(name: str, where: object) -> str:
    """`name`. Raises DataError for one that would break an error message into lines."""
    if not name.isprintable():
        raise DataError(
            f"{where}: the name {name[:80]!a} cannot be printed; do not trust it"
        )
    return name


def download(
    file: RawFile,
    folder: pathlib.Path,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    timeout: float = 30.0,
) -> pathlib.Path:
    """Fetch an official file into `folder` and return its path; whole and with the known sum, or not at all.

    Tries each url in turn, `progress(done, total)` in bytes, `timeout` in seconds without an answer. Raises DataError
    with the last failure if none delivers.
    """
    failure = "no public address is known"
    for url in file.urls:
        suffix = pathlib.PurePosixPath(url).suffix
        target = folder / (file.name + (suffix if suffix in PACKINGS else ""))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(
                prefix="unfinished-", dir=folder, ignore_cleanup_errors=True
            ) as scratch:
                part = pathlib.Path(scratch) / target.name
                limit = file.size or UNKNOWN_LIMIT
                _fetch(url, part, limit, progress, timeout)
                found = hashlib.sha256(unpack(part, limit)).hexdigest()
                if file.sha256 and found != file.sha256:
                    raise DataError(
                        f"checksum differs, {_mismatch(found, file.sha256)}"
                    )
                os.replace(part, target)
            return target
        except (
            OSError,
            ValueError,
            HTTPException,
            DataError,
        ) as e:  # URLError and HTTPError are OSErrors
            failure = f"{url}: {getattr(e, 'reason', None) or e or type(e).__name__}"
    raise DataError(
        f"cannot download {file.name} ({failure}); fetch it by hand and name its folder with --raw"
    )


def _fetch(
    url: str,
    path: pathlib.Path,
    limit: int,
    progress: Callable[[int, int], None],
    timeout: float,
) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "lnrepro"})
    with (
        urllib.request.urlopen(request, timeout=timeout) as reply,
        open(path, "wb") as f,
    ):
        total, done = int(reply.headers.get("Content-Length") or 0), 0
        while piece := reply.read(PIECE):
            done += len(piece)
            if (
                done > limit + PIECE
            ):  # packing may lengthen what does not compress, a little
                raise DataError(
                    f"sends more than the {limit:,} bytes of the official file"
                )
            f.write(piece)
            progress(done, total)
        if done < total:
            raise DataError(f"the connection ended after {done:,} of {total:,} bytes")


def _mismatch(found: str, wanted: str) -> str:
    return f"sha256 of the content is {found[:12]}... and of the official file {wanted[:12]}..."
