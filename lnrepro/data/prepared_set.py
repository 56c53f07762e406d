"""A prepared data set, opened for reading.

A prepared set is one folder, <data dir>/<name>/<version>, which never changes:

    columns/train/image.npy           one feature of all examples, along the first axis
    columns/train/ink.offsets.npy     where each example begins in ink.npy
    features.json, *.array_record*    the same examples as ArrayRecord, where they were
                                      asked for, or where examples are not all numbers
    facts.json                        facts of the whole set, if it has any
    sealed.json                       version, checksum, splits, size and checksum of
                                      each file

A process opens a folder once. Checksums of small files are compared then, those of all
files by `Prepared.damaged_files`.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from lnrepro.data import ragged, seal
from lnrepro.data.seal import FACTS, SEAL
from lnrepro.data.source import Source, open_records
from lnrepro.errors import DataError

# Columns of a split up to this many bytes are checked when they are opened. This takes
# at most 0.1 seconds.
CHECKED_BYTES = 64 * 2**20


class Prepared:
    """A prepared set.

    Attributes:
      folder: its folder.
      seal: the content of its sealed.json.
    """

    def __init__(self, folder: pathlib.Path, content: seal.Seal):
        self.folder, self.seal = folder, content
        self._columns: dict[str, dict[str, np.ndarray | ragged.Ragged]] = {}

    @property
    def fingerprint(self) -> str:
        """Return "name/version/checksum".

        The checksum is of the decoded examples, whatever files they came from.
        """
        # Sixteen hexadecimal digits are 64 bits, enough to tell data sets apart.
        return f"{self.seal.name}/{self.seal.version}/{self.seal.sha256[:16]}"

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """Facts of the whole set, such as its vocabulary; {} if it has none.

        Raises:
          DataError: they have changed since the set was prepared.
        """
        self._check_small(FACTS)
        file = self.folder / FACTS
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def columns(self, split: str) -> dict[str, np.ndarray | ragged.Ragged]:
        """Return the columns of a split, mapped into memory.

        Args:
          split: such as "train".

        Returns:
          The features by name: read-only arrays with the examples along the first axis,
          or `Ragged` where examples differ in length.

        Raises:
          DataError: there is no such split, the set has no columns, because its
            examples are not all numbers, or files have changed since it was prepared.
        """
        self._check_split(split)
        if split not in self._columns:
            self._check_small(f"columns/{split}/")
            self._columns[split] = ragged.load(self.folder / "columns" / split)
        if not self._columns[split]:
            raise DataError(
                f"{self.folder} ({split}): its examples are not all numbers, so that "
                "it has no columns; use open_source"
            )
        return dict(self._columns[split])

    def source(self, split: str) -> Source:
        """Open a split for random access to single examples, each a dict of arrays.

        Args:
          split: such as "train".

        Raises:
          DataError: there is no such split, or the set has columns only.
        """
        self._check_split(split)
        return open_records(self.folder, split, self.seal.original or self.seal.name)

    def damaged_files(self, files: Sequence[str] | None = None) -> list[str]:
        """Return the files whose content has changed since the set was prepared.

        Args:
          files: paths within the folder. None checks all.

        Raises:
          DataError: the seal holds no checksums of files.
        """
        checksums = self.seal.checksums
        if not checksums:
            raise DataError(
                f"{self.folder} holds no checksums of its files, as it was prepared by "
                "an older version; remove that folder and prepare the set again"
            )
        names = checksums if files is None else files
        return [n for n in names if seal.checksum(self.folder / n) != checksums.get(n)]

    def _check_split(self, split: str) -> None:
        if split not in self.seal.splits:
            raise DataError(
                f"{self.seal.name} has no split {split!r}; it has: "
                f"{', '.join(self.seal.splits)}"
            )

    def _check_small(self, prefix: str) -> None:
        """Check the files below a prefix, if they are small.

        Raises:
          DataError: a file has changed.
        """
        # The seal lists every file, also those of other splits.
        sizes = self.seal.files
        files = [name for name in sizes if name.startswith(prefix)]
        if not self.seal.checksums or sum(sizes[n] for n in files) > CHECKED_BYTES:
            return
        for name in self.damaged_files(files):
            raise DataError(
                f"{self.folder / name} has changed since the set was prepared (other "
                "checksum); remove that folder and prepare the set again"
            )


# The folders that this process has opened, each with the state of its files.
_OPEN: dict[pathlib.Path, tuple[Any, Prepared]] = {}


def open_folder(folder: pathlib.Path) -> Prepared | None:
    """Open a prepared folder; None if it is not whole.

    A folder that is open already, and whose files are the same, is not read again.
    """
    if folder in _OPEN:
        stamp, opened = _OPEN[folder]
        if stamp == _stamp(folder, opened.seal):
            return opened
    # Reading the seal compares the sizes of all files with the disk.
    found = seal.read(folder)
    if found is None:
        return None
    opened = Prepared(folder, found)
    _OPEN[folder] = _stamp(folder, found), opened
    return opened


def _stamp(folder: pathlib.Path, content: seal.Seal) -> Any:
    """Return sizes and times of all files of a set; None if one is missing."""
    try:
        stats = [(folder / file).stat() for file in (SEAL, *content.files)]
    except OSError:
        return None
    return [(stat.st_size, stat.st_mtime_ns) for stat in stats]


def newest(folder: pathlib.Path) -> Prepared | None:
    """Open the newest prepared version of a set; None if there is none.

    Args:
      folder: the folder of all versions of the set.
    """
    sealed = [path.parent for path in folder.glob(f"*/{SEAL}")]
    for version in sorted(sealed, key=_version_number, reverse=True):
        if opened := open_folder(version):
            return opened
    return None


def _version_number(folder):
    """Return the version in a folder's name as numbers."""
    # As strings, 1.9.0 would be newer than 1.10.0.
    return [int(number) for number in re.findall(r"\d+", folder.name)]
