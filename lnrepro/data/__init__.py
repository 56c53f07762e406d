"""Data sets by name.

    from lnrepro import data
    columns = data.open_columns("mnist", "train")
    columns["image"]           # (55000, 28, 28) uint8
    data.fingerprint("mnist")  # "mnist/1.0.0/43f6...": name, version, checksum

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

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lnrepro.data.preparation import prepare
from lnrepro.data.ragged import Ragged
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
    "facts",
    "fingerprint",
    "folder_of",
    "open_columns",
    "open_config",
    "open_set",
    "prepare",
    "prepared",
    "raw_folder",
    "reader_of",
]


def open_set(name: str, data_dir: DataDir = None) -> SetFolder:
    """Open a prepared set; an embedded one is prepared first if necessary.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: there is no such set, it is not prepared, or it is damaged.
    """
    folder = folder_of(name, data_dir)
    if opened := open_folder(folder):
        return opened
    if not reader_of(name, data_dir).embedded:
        raise DataError(
            f"{name} is not prepared in {folder}; run `python scripts/prepare.py "
            f"{name} --raw DIR` with the official files in DIR"
        )
    opened = open_folder(prepare(name, data_dir=data_dir))
    assert opened is not None
    return opened


def prepared(name: str, data_dir: DataDir = None) -> bool:
    """Return whether a set is prepared.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: there is no such set, or it is damaged.
    """
    return open_folder(folder_of(name, data_dir)) is not None


def open_columns(
    name: str, split: str, data_dir: DataDir = None
) -> dict[str, np.ndarray | Ragged]:
    """Open a split as columns, see `SetFolder.columns`."""
    return open_set(name, data_dir).columns(split)


def open_config(spec: Any, split: str) -> dict[str, np.ndarray | Ragged]:
    """Open the columns of a split of the set that a config states.

    Args:
      spec: `config.data`, with the fields name, dir and train_examples.
      split: such as "train".

    Raises:
      DataError: as for `open_columns`, or the config states another size.
    """
    opened = open_set(spec.name, spec.dir)
    columns, size = opened.columns(split), opened.splits[split]
    if split == "train" and size != spec.train_examples:
        raise DataError(
            f"config.data.train_examples = {spec.train_examples}, but {spec.name} has "
            f"{size}"
        )
    return columns


def fingerprint(name: str, data_dir: DataDir = None) -> str:
    """Return "name/version/checksum" of a prepared set."""
    return open_set(name, data_dir).fingerprint


def facts(name: str, data_dir: DataDir = None) -> Mapping[str, Any]:
    """Return facts of a whole prepared set, such as its vocabulary; {} if none."""
    return open_set(name, data_dir).facts
