"""Official files as they were distributed: found, unpacked within a bound, checked, downloaded. Every file is taken for hostile."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import lzma
import os
import pathlib
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Sequence

from lnrepro.errors import DataError

PIECE = 1 << 20  # bytes read at a time
UNKNOWN_LIMIT = 1 << 31  # bytes that a file of unknown size may unpack to

# suffix -> (first bytes, opener)
PACKINGS = {".gz": (b"\x1f\x8b", gzip.open), ".xz": (b"\xfd7zXZ\x00", lzma.open)}


@dataclasses.dataclass(frozen=True)
class RawFile:
    """One official file. `size` and `sha256` are of the unpacked content, so plain, .gz and .xz copies all satisfy them."""

    name: str
    size: int | None = None
    sha256: str | None = None
    urls: tuple[str, ...] = ()  # tried in order; may point at a packed copy


class Raw:
    """The folder with a set's official files. A builder reads them here; `verify` then compares what was read with the known sums."""

    def __init__(self, dataset: str, folder: pathlib.Path, files: Sequence[RawFile] = (), any_checksum: bool = False):
        self.dataset, self.folder, self.any_checksum = dataset, folder, any_checksum
        self.files = {file.name: file for file in files}
        self._sums: dict[str, str] = {}

    def path(self, name: str) -> pathlib.Path:
        """The file `name`, plain or packed (.gz, .xz). Raises DataError where there is none."""
        for suffix in ("", *PACKINGS):
            if (path := self.folder / (name + suffix)).is_file():
                return path
        raise DataError(
            f"{self.folder / name}: there is no such file, plain or .gz or .xz; "
            f"`python scripts/prepare.py {self.dataset} --list` says where to get it"
        )

    def read(self, name: str) -> bytes:
        """The unpacked content of an official file. Raises DataError if it is missing, damaged, or longer than it may be."""
        known = self.files[name].size
        content = unpack(self.path(name), UNKNOWN_LIMIT if self.any_checksum or known is None else known)
        self._sums[name] = hashlib.sha256(content).hexdigest()
        return content

    def verify(self) -> None:
        """Compares all files read with their known sums. Parse first, then verify: the parser's errors say more."""
        for name, found in self._sums.items():
            wanted = self.files[name].sha256
            if wanted and found != wanted and not self.any_checksum:
                raise DataError(
                    f"{self.path(name)}: sha256 of the content is {found[:12]}..., the official file has {wanted[:12]}...; "
                    "get the official file, or pass --any-checksum to use other files of this format"
                )


def unpack(path: pathlib.Path, limit: int = UNKNOWN_LIMIT) -> bytes:
    """Reads a file whole, unpacking .gz and .xz, of at most `limit` bytes. Raises DataError that names the file."""
    magic, opener = PACKINGS.get(path.suffix, (b"", open))
    try:
        with open(path, "rb") as f:
            head = f.read(len(magic))
        if head != magic:
            raise DataError(f"{path}: not a {path.suffix[1:]} file (it begins with {head[:4]!r}); download it again")
        pieces, size = [], 0
        with opener(path, "rb") as f:
            while piece := f.read(min(PIECE, limit + 1 - size)):
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise DataError(f"{path}: holds more than the {limit:,} bytes it may have; get the official file")
    except EOFError as e:
        raise DataError(f"{path}: truncated, the packed data ends early; download it again") from e
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error) as e:
        raise DataError(f"{path}: damaged, cannot be unpacked ({e}); download it again") from e
    except OSError as e:
        raise DataError(f"{path}: cannot be read ({e.strerror or e})") from e
    return b"".join(pieces)


def download(
    file: RawFile,
    folder: pathlib.Path,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
    timeout: float = 30.0,
) -> pathlib.Path:
    """Fetches an official file into `folder` and returns its path; whole and with the known sum, or not at all.

    Tries each url in turn. Raises DataError with the last failure when none delivers.
    """
    failure = "no public address is known"
    for url in file.urls:
        suffix = pathlib.PurePosixPath(url).suffix
        target = folder / (file.name + (suffix if suffix in PACKINGS else ""))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="unfinished-", dir=folder, ignore_cleanup_errors=True) as scratch:
                part = pathlib.Path(scratch) / target.name
                _fetch(url, part, 2 * (file.size or UNKNOWN_LIMIT) + PIECE, progress, timeout)
                content = unpack(part, file.size or UNKNOWN_LIMIT)
                if file.sha256 and (found := hashlib.sha256(content).hexdigest()) != file.sha256:
                    raise DataError(
                        f"sha256 of the content is {found[:12]}..., the official file has {file.sha256[:12]}..."
                    )
                os.replace(part, target)
            return target
        except (OSError, ValueError, DataError) as e:  # URLError and HTTPError are OSErrors
            failure = f"{url}: {getattr(e, 'reason', None) or e}"
    raise DataError(
        f"cannot download {file.name} ({failure}); fetch it by hand, put it into a folder and pass that as --raw"
    )


def _fetch(url: str, path: pathlib.Path, limit: int, progress: Callable[[int, int], None], timeout: float) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "lnrepro"})
    with urllib.request.urlopen(request, timeout=timeout) as reply, open(path, "wb") as f:
        total, done = int(reply.headers.get("Content-Length") or 0), 0
        while piece := reply.read(PIECE):
            f.write(piece)
            done += len(piece)
            progress(done, total)
            if done > limit:
                raise DataError(f"sends more than {limit:,} bytes")
        if done < total:
            raise DataError(f"the connection ended after {done:,} of {total:,} bytes")
