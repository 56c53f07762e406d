"""Prepare a data set: read its official files and write its columns."""

import os
import pathlib
import tempfile
from collections import Counter

import numpy as np

from lnrepro.data import set_folder, table
from lnrepro.data.columns import write_columns
from lnrepro.data.raw_folder import Progress, RawFolder, no_progress
from lnrepro.data.reader import NUMBERS, Content, Reader
from lnrepro.data.set_folder import COLUMNS, SetFolder
from lnrepro.data.table import DataDir
from lnrepro.errors import DataError


def prepare(
    name: str,
    raw: str | os.PathLike | None = None,
    data_dir: DataDir = None,
    *,
    own_name: str | None = None,
    reader: Reader | None = None,
    progress: Progress = no_progress,
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
      reader: what reads the files. Default: the reader of the set. With a reader of
        one's own, `name` is a name of one's own too, unless it knows the checksum.
      progress: called as `progress(what, done, total)` now and then.

    Returns:
      The folder of the prepared set.

    Raises:
      DataError: a file is missing or wrong, the files are not the official ones,
        `own_name` is taken, or the data dir cannot be written.
    """
    root = table.data_root(data_dir)
    if reader and not (name in table.TABLE and reader.sha256):
        # Of what another reader reads, only a checksum shows that it is official.
        own_name = own_name or name
    reader = reader or table.reader_of(name, data_dir)
    if own_name is None:
        final = table.folder_of(name, data_dir)
        # A prepared set never changes, so nothing is left to do.
        if set_folder.open_folder(final):
            return final
    else:
        final = root / own_name / reader.version
        if own_name in table.TABLE or not table.OWN_NAME.fullmatch(own_name):
            raise DataError(
                f"{own_name!r} cannot be the name of a set of own files; choose "
                "letters, digits and _, and no name that `prepare.py --list` shows"
            )
        if any((root / own_name).glob(f"*/{set_folder.SET_FILE}")):
            raise DataError(
                f"{own_name} is prepared already; choose another name, or remove "
                f"{root / own_name} first"
            )
    folder = table.raw_folder(name, raw, data_dir)
    files = RawFolder(name, folder, reader.files, own_name is None, progress)
    content = reader.read(files) if reader.read else None
    try:
        root.mkdir(parents=True, exist_ok=True)
        # A folder in the data dir itself, so that the rename stays on one file system.
        with tempfile.TemporaryDirectory(
            prefix="unfinished-", dir=root, ignore_cleanup_errors=True
        ) as scratch:
            written = pathlib.Path(scratch) / "set"
            _write(reader, files, content, written, own_name or name)
            final.parent.mkdir(exist_ok=True)
            try:
                written.rename(final)
            except OSError:
                # Another process may have been faster.
                if not (final / set_folder.SET_FILE).exists():
                    raise
    except OSError as e:
        raise DataError(
            f"{name}: cannot write to {final} ({e.strerror or e}); remove what is "
            "there, or choose another data dir with $LNREPRO_DATA"
        ) from e
    return final


def _write(
    reader: Reader,
    raw: RawFolder,
    content: Content | None,
    folder: pathlib.Path,
    name: str,
) -> None:
    """Write the columns of a set, and describe them.

    Args:
      reader: what reads the files.
      raw: the files.
      content: what was read. None if the reader writes the columns itself.
      folder: where the set is written.
      name: its name.

    Raises:
      DataError: a file is missing or wrong, or the content is not the official one.
    """
    columns = folder / COLUMNS
    if by_file := content is None:
        assert reader.write
        content = reader.write(raw, columns)
        sizes = dict(content.splits)
    else:
        sizes = {
            split: write_columns(found, columns / split, raw.folder)
            for split, found in content.splits.items()
        }
    made = SetFolder(
        folder,
        name,
        reader.version,
        raw.dataset,
        by_file,
        sizes,
        dict(content.facts),
        files=raw.summary(),
    )
    _check_columns(made, reader, raw.folder)
    counts = Counter(sizes) + Counter(content.counts)
    problems = [
        f"{what} {counts[what]:,} instead of {published:,}"
        for what, published in reader.published.items()
        if counts[what] != published
    ]
    sealed = made.seal()
    if not sealed.sha256.startswith(reader.sha256):
        problems.append("its content has another checksum")
    if raw.official and problems:
        raise DataError(
            f"{raw.folder}: not the official {raw.dataset}: {problems[0]}; get the "
            "official files, or pass --as NAME to prepare other files of this format"
        )


def _check_columns(made: SetFolder, reader: Reader, where: pathlib.Path) -> None:
    """Check the columns of a set that was written.

    Raises:
      DataError: a number is not in its range, or images have different shapes.
    """
    wanted = dict(reader.columns)
    shapes = {}
    for split in made.splits:
        columns = made.columns(split)
        wanted = dict.fromkeys(columns, NUMBERS) | wanted
        # Other columns may differ, such as captions of which an image has five or six.
        if isinstance(image := columns.get("image"), np.ndarray):
            shapes[split] = image.shape[1:]
    if len(set(shapes.values())) > 1:
        raise DataError(
            f"{where}: images of different shapes: {shapes}; correct the files"
        )
    try:
        made.check(wanted)
    except DataError as e:
        raise DataError(f"{where}: {e}; correct the files") from None
