"""Downloads of official files."""

from __future__ import annotations

import hashlib
import os
import pathlib
import tempfile
import urllib.error
import urllib.request
from http.client import HTTPException

from lnrepro.data import files
from lnrepro.data.raw_folder import Progress, RawFile, no_progress
from lnrepro.errors import DataError

# Bytes that are read at a time.
PIECE = 1 << 20
# What an address may raise that does not deliver a file.
FAILURES = (
    urllib.error.URLError,
    HTTPException,
    ConnectionError,
    TimeoutError,
    DataError,
)


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
                except FAILURES as e:
                    problem = f"{url}: {getattr(e, 'reason', None) or e or type(e)}"
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
    """Download one address into a file, and check its content."""
    request = urllib.request.Request(url, headers={"User-Agent": "lnrepro"})
    done = 0
    with (
        urllib.request.urlopen(request, timeout=timeout) as reply,
        path.open("wb") as out,
    ):
        total = int(reply.headers.get("Content-Length", 0))
        while piece := reply.read(PIECE):
            out.write(piece)
            done += len(piece)
            progress(file.name, done, total)
    # A connection that ends early raises no error by itself.
    if done < total:
        raise DataError(f"the connection ended after {done:,} of {total:,} bytes")
    found = hashlib.sha256(files.read(path)).hexdigest()
    if file.sha256 not in (None, found):
        raise DataError(f"checksum differs, sha256 of the content is {found[:12]}...")
