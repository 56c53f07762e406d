"""Data sets by name.

    from lnrepro import data
    opened = data.open_set("mnist")
    opened.columns("train")["image"]  # (55000, 28, 28) uint8
    opened.fingerprint                # "mnist/1.0.0/43f6...": name, version, checksum
    opened.facts                      # facts of the whole set, such as its vocabulary

There are four concepts:

- A *reader* turns the official files of a set into columns: `lnrepro.data.reader`.
- A *set folder* holds the columns, which are mapped into memory, and one JSON file:
  `lnrepro.data.set_folder`.
- A *plan* says which rows form batch k: `lnrepro.data.plan`.
- A *stream* makes the batches ahead: `lnrepro.data.batches`.

A set is prepared once, in `<data dir>/<name>/<version>/`, and never changes afterwards.
The data dir is the argument `data_dir`, else $LNREPRO_DATA, else ~/.cache/lnrepro. An
embedded set is prepared at its first use. Other sets are prepared from their official
files by `python scripts/prepare.py NAME --raw DIR`.

Reading columns needs NumPy only.
"""

from lnrepro.data.preparation import prepare
from lnrepro.data.ragged import Stored
from lnrepro.data.set_folder import SetFolder, open_folder
from lnrepro.data.table import (
    TABLE,
    DataDir,
    data_root,
    folder_of,
    raw_folder,
    reader_of,
)
from lnrepro.errors import DataError

__all__ = [
    "TABLE",
    "DataError",
    "data_root",
    "folder_of",
    "open_columns",
    "open_set",
    "prepare",
    "raw_folder",
    "reader_of",
]


def open_set(name: str, data_dir: DataDir = None) -> SetFolder:
    """Open a prepared set; an embedded one is prepared first if necessary.

    Files of at most `set_folder.VERIFIED_BYTES` are verified, once in a process.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: there is no such set, it is not prepared, or it is damaged.
    """
    folder = folder_of(name, data_dir)
    opened = open_folder(folder)
    if not opened:
        if not reader_of(name, data_dir).embedded:
            raise DataError(
                f"{name} is not prepared in {folder}; run `python scripts/prepare.py "
                f"{name} --raw DIR` with the official files in DIR; `python "
                f"scripts/prepare.py {name} --list` says where they come from"
            )
        opened = open_folder(prepare(name, data_dir=data_dir))
        assert opened is not None
    opened.verify_small_files()
    return opened


def open_columns(name: str, split: str, data_dir: DataDir = None) -> dict[str, Stored]:
    """Open a split as columns, see `open_set` and `SetFolder.columns`."""
    return open_set(name, data_dir).columns(split)
