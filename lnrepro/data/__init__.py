"""Data sets by name.

    from lnrepro import data
    columns = data.open_columns("mnist", "train")
    columns["image"]           # (55000, 28, 28) uint8
    data.fingerprint("mnist")  # "mnist/1.0.0/43f6...": name, version, checksum

Training reads columns: NumPy arrays that are mapped into memory, so that opening them
takes a millisecond and a batch is one indexing operation. `lnrepro.data.batches` makes
batches of them. `open_set` opens a set once, for several splits and its facts.

A set is defined and written by tensorflow-datasets (TFDS), as ArrayRecord, and copied
into columns. `scripts/prepare.py NAME --records` keeps the ArrayRecord files too.
`open_source` gives random access to them, for Grain and for other users of TFDS.

A set is prepared once, in `<data dir>/<name>/<version>/`, and never changes afterwards.
The data dir is the argument `data_dir`, else $LNREPRO_DATA, else ~/.cache/lnrepro. An
embedded set is prepared at its first use. Other sets are prepared from their official
files by `python scripts/prepare.py NAME --raw DIR`.

This module imports neither TFDS nor Grain: reading columns needs NumPy only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lnrepro.data.preparation import prepare
from lnrepro.data.prepared_set import Prepared, open_folder
from lnrepro.data.registry import (
    TABLE,
    DataDir,
    builder_class,
    data_root,
    register,
    set_folder,
)
from lnrepro.data.seal import SEAL
from lnrepro.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from lnrepro.data.ragged import Ragged
    from lnrepro.data.source import Source

__all__ = [
    "SEAL",
    "TABLE",
    "DataError",
    "builder_class",
    "data_root",
    "facts",
    "fingerprint",
    "open_columns",
    "open_config",
    "open_set",
    "open_source",
    "prepare",
    "prepared",
    "register",
    "set_folder",
    "split_sizes",
]


def open_set(name: str, data_dir: DataDir = None) -> Prepared:
    """Open a prepared set; an embedded one is prepared first if necessary.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: there is no such set, or it is not prepared.
    """
    folder = set_folder(name, data_dir)
    if opened := open_folder(folder):
        return opened
    builder = builder_class(name, data_dir)
    if not builder.embedded:
        state = "is half-written or damaged" if folder.exists() else "is not there"
        hint = ", or with --download" if any(f.urls for f in builder.files) else ""
        raise DataError(
            f"{name} is not prepared: {folder} {state}; run `python "
            f"scripts/prepare.py {name} --raw DIR` with the official files in DIR"
            f"{hint}"
        )
    opened = open_folder(prepare(name, data_dir=data_dir))
    if opened is None:
        raise DataError(f"{folder} is half-written or damaged; prepare the set again")
    return opened


def prepared(name: str, data_dir: DataDir = None) -> bool:
    """Return whether a set is prepared, and all its files are there.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: there is no such set.
    """
    return open_folder(set_folder(name, data_dir)) is not None


def open_columns(
    name: str, split: str, data_dir: DataDir = None
) -> dict[str, np.ndarray | Ragged]:
    """Open a split as columns, see `Prepared.columns`."""
    return open_set(name, data_dir).columns(split)


def open_source(name: str, split: str, data_dir: DataDir = None) -> Source:
    """Open a split for random access to single examples, see `Prepared.source`."""
    return open_set(name, data_dir).source(split)


def open_config(spec: Any, split: str) -> dict[str, np.ndarray | Ragged]:
    """Open the columns of a split of the set that a config states.

    Args:
      spec: `config.data`, with the fields name, dir and train_examples.
      split: such as "train".

    Raises:
      DataError: as for `open_columns`, or the config states another size.
    """
    columns = open_columns(spec.name, split, spec.dir)
    size = len(next(iter(columns.values())))
    if split == "train" and size != spec.train_examples:
        raise DataError(
            f"config.data.train_examples = {spec.train_examples}, but {spec.name} has "
            f"{size}"
        )
    return columns


def fingerprint(name: str, data_dir: DataDir = None) -> str:
    """Return "name/version/checksum" of a prepared set, see `Prepared.fingerprint`."""
    return open_set(name, data_dir).fingerprint


def split_sizes(name: str, data_dir: DataDir = None) -> dict[str, int]:
    """Return the number of examples of each split of a prepared set."""
    return open_set(name, data_dir).seal.splits


def facts(name: str, data_dir: DataDir = None) -> dict[str, Any]:
    """Return facts of a whole prepared set, see `Prepared.facts`."""
    return open_set(name, data_dir).facts
