"""Downloads of official files."""

from __future__ import annotations

import hashlib
import os
import pathlib
import tempfile
import urllib.request
from collections.abc import Callable
from http.client import HTTPException

from lnrepro.data.file_kinds import SUFFIXES
from lnrepro.data.old_files import PIECE, UNKNOWN_LIMIT, unpack
from lnrepro.data.raw import RawFile, checksum_problem
from lnrepro.errors import DataError


def _no_progress(done: int, total: int) -> None:
    """Report nothing."""


def download(
    file: RawFile,
    folder: pathlib.Path,
    *,
    progress: Callable[[int, int], None] = _no_progress,
    timeout: float = 30.0,
) -> pathlib.Path:
    """Download an official file.

    A file appears in the folder only when it is complete and its checksum is right.

    Args:
      file: the file, with its addresses, which are tried in order.
      folder: where to put it.
      progress: called as `progress(done, total)` in bytes.
      timeout: seconds to wait for an answer.

    Returns:
      The path of the file, which may be packed.

    Raises:
      DataError: no address delivers the file.
    """
    failure = "no public address is known"
    for url in file.urls:
        suffix = pathlib.PurePosixPath(url).suffix
        target = folder / (file.name + (suffix if suffix in SUFFIXES else ""))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(
                prefix="unfinished-", dir=folder, ignore_cleanup_errors=True
            ) as scratch:
                part = pathlib.Path(scratch) / target.name
                # The content is checked before the file gets its final name. The
                # scratch folder is on the same file system, so that the rename is
                # atomic.
                limit = file.size or UNKNOWN_LIMIT
                _fetch(url, part, limit, progress, timeout)
                found = hashlib.sha256(unpack(part, limit)).hexdigest()
                if problem := checksum_problem(file, found):
                    raise DataError(problem)
                os.replace(part, target)
            return target
        # URLError and HTTPError are OSErrors.
        except (OSError, ValueError, HTTPException, DataError) as e:
            failure = f"{url}: {getattr(e, 'reason', None) or e or type(e).__name__}"
    raise DataError(
        f"cannot download {file.name} ({failure}); fetch it by hand and name its "
        "folder with --raw"
    )


def _fetch(
    url: str,
    path: pathlib.Path,
    limit: int,
    progress: Callable[[int, int], None],
    timeout: float,
) -> None:
    """Download one address into a file, whose content has at most `limit` bytes."""
    request = urllib.request.Request(url, headers={"User-Agent": "lnrepro"})
    with (
        urllib.request.urlopen(request, timeout=timeout) as reply,
        open(path, "wb") as f,
    ):
        total, done = int(reply.headers.get("Content-Length") or 0), 0
        while piece := reply.read(PIECE):
            done += len(piece)
            # A packed file can be a little larger than its content.
            if done > limit + PIECE:
                raise DataError(
                    f"sends more than the {limit:,} bytes of the official file"
                )
            f.write(piece)
            progress(done, total)
    # A connection that ends early raises no error by itself.
    if done < total:
        raise DataError(f"the connection ended after {done:,} of {total:,} bytes")
