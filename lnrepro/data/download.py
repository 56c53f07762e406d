"""Downloads of official files."""

from __future__ import annotations

import hashlib
import os
import pathlib
import tempfile
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException

from lnrepro.data import files
from lnrepro.data.raw_folder import Progress, RawFile, no_progress
from lnrepro.errors import DataError

# Bytes that are read at a time.
PIECE = 1 << 20


def download(
    file: RawFile,
    folder: pathlib.Path,
    *,
    progress: Progress = no_progress,
    timeout: float = 30.0,
) -> pathlib.Path:
    """Download an official file.

    A file appears in the folder only when it is complete and its checksum is right.

    Args:
      file: the file, with its addresses, which are tried in order.
      folder: where to put it.
      progress: called as `progress(name, done, total)` in bytes.
      timeout: seconds to wait for an answer.

    Returns:
      The path of the file, which may be packed.

    Raises:
      DataError: no address delivers the file, or it cannot be written.
    """
    problem = "no public address is known"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # On the same file system as the folder, so that the rename is atomic.
        with tempfile.TemporaryDirectory(
            prefix="unfinished-", dir=folder, ignore_cleanup_errors=True
        ) as scratch:
            for url in file.urls:
                suffix = pathlib.PurePosixPath(url).suffix
                name = file.name + (suffix if suffix in files.SUFFIXES else "")
                part = pathlib.Path(scratch) / name
                try:
                    _fetch(url, part, file, progress, timeout)
                except DataError as e:
                    problem = f"{url}: {e}"
                    continue
                os.replace(part, folder / name)
                return folder / name
    except OSError as e:
        raise DataError(f"{folder}: cannot be written ({e.strerror or e})") from e
    raise DataError(
        f"cannot download {file.name} ({problem}); fetch it by hand and name its "
        "folder with --raw"
    )


def _fetch(
    url: str, path: pathlib.Path, file: RawFile, progress: Progress, timeout: float
) -> None:
    """Download one address into a file, and check its content.

    Raises:
      DataError: the address does not deliver the file.
      OSError: the file cannot be written.
    """
    done = total = 0
    with path.open("wb") as out:
        for piece, total in _pieces(url, timeout):
            out.write(piece)
            done += len(piece)
            progress(file.name, done, total)
    # A connection that ends early raises no error by itself.
    if done < total:
        raise DataError(f"the connection ended after {done:,} of {total:,} bytes")
    found = hashlib.sha256(files.read(path)).hexdigest()
    if file.sha256 not in (None, found):
        raise DataError(f"checksum differs, sha256 of the content is {found[:12]}...")


def _pieces(url: str, timeout: float) -> Iterator[tuple[bytes, int]]:
    """Yield what an address sends, and how many bytes it says it will send.

    Raises:
      DataError: it cannot be read.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "lnrepro"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            total = int(reply.headers.get("Content-Length") or 0)
            while piece := reply.read(PIECE):
                yield piece, total
    # URLError and HTTPError are OSErrors.
    except (OSError, ValueError, HTTPException) as e:
        raise DataError(str(getattr(e, "reason", None) or e or type(e))) from e
