"""Prepare a data set: read its official files, write it, and seal it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile

from lnrepro.data import raw as official
from lnrepro.data import seal
from lnrepro.data.builder import NOTES, Progress
from lnrepro.data.prepared_set import newest
from lnrepro.data.registry import DataDir, builder_class, check_own_name, data_root
from lnrepro.errors import DataError


def prepare(
    name: str,
    raw: str | os.PathLike | None = None,
    data_dir: DataDir = None,
    *,
    own_name: str | None = None,
    records: bool = False,
    progress: Progress | None = None,
) -> pathlib.Path:
    """Prepare a set from its official files, unless that is done already.

    With `own_name`, the files may be any of the same format. The set gets that name, so
    that it cannot be mistaken for the official one.

    The set is written to a temporary folder, which is then renamed. Therefore two
    processes may do this at once, and one that is killed leaves no half-written set.

    Args:
      name: the set.
      raw: the folder of the official files. Default: `<data dir>/raw/<name>`.
      data_dir: the folder of all prepared sets.
      own_name: name of a set of own files. None accepts the official files only.
      records: keep the ArrayRecord files that TFDS writes, which `open_source` reads.
        Training reads the columns. Sets whose examples are not all numbers have no
        columns, so that they always keep them.
      progress: called as `progress(what, done, total)` now and then.

    Returns:
      The folder of the prepared set.

    Raises:
      DataError: a file is missing or wrong, `own_name` is taken, or the data dir cannot
        be written.
    """
    builder = builder_class(name)
    root = data_root(data_dir)
    if own_name is not None:
        check_own_name(own_name)
        if newest(root / own_name):
            raise DataError(
                f"{own_name} is prepared already; choose another name, or remove "
                f"{root / own_name} first"
            )
    final = root / (own_name or name) / builder.version
    # A prepared set never changes, so nothing is left to do.
    if seal.read(final):
        return final
    folder = pathlib.Path(raw or root / "raw" / name).expanduser()
    files = official.Raw(name, folder, builder.files, any_checksum=own_name is not None)
    try:
        root.mkdir(parents=True, exist_ok=True)
        # A folder in the data dir itself, so that the rename stays on one file system.
        with tempfile.TemporaryDirectory(
            prefix="unfinished-", dir=root, ignore_cleanup_errors=True
        ) as scratch:
            scratch = pathlib.Path(scratch)
            written = builder.write(files, scratch, progress or _no_progress)
            if not records and (written.folder / "columns").exists():
                _remove_records(written.folder)
            original = name if own_name else None
            seal.write(written, own_name or name, builder.version, original)
            final.parent.mkdir(exist_ok=True)
            _publish(written.folder, final, scratch)
    except OSError as e:
        raise DataError(
            f"{name}: cannot write to {final.parent} ({e.strerror or e}); "
            "choose another data dir with $LNREPRO_DATA"
        ) from e
    return final


def _no_progress(what: str, done: int, total: int) -> None:
    """Report nothing."""


def _remove_records(folder: pathlib.Path) -> None:
    """Remove what TFDS wrote into a folder; leave the columns and the notes."""
    for path in folder.iterdir():
        if path.is_file() and path.name != NOTES:
            path.unlink()


def _publish(folder: pathlib.Path, final: pathlib.Path, scratch: pathlib.Path) -> None:
    """Move a sealed folder to its final place.

    A whole set that another process has put there stays. A damaged one is removed.

    Args:
      folder: the sealed folder.
      final: its final place.
      scratch: a temporary folder on the same file system.

    Raises:
      OSError: the folder cannot be moved.
    """
    # The rename fails if another process was faster, or if a damaged set is there.
    for attempt in range(10):
        try:
            folder.rename(final)
            return
        except OSError:
            if seal.read(final):
                return
            if attempt == 9 or not final.exists():
                raise
            # The folder is gone if another process has just removed it too.
            with contextlib.suppress(FileNotFoundError):
                final.rename(scratch / f"damaged-{attempt}")
