"""Format of a prepared data set.

A prepared set is one folder, <data dir>/<name>/<version>, which never changes:

    columns/train/image.npy           one feature of all examples, along the first axis
    columns/train/ink.offsets.npy     where each example begins in ink.npy
    features.json, *.array_record*    the same examples as ArrayRecord, written by TFDS
    facts.json                        facts of the whole set, if it has any
    sealed.json                       version, checksum, splits, size and checksum of
                                      each file

The last file to be written is sealed.json. A folder counts as prepared only if this
file can be read and every file that it lists has the size stated there. Checksums of
small files are compared when they are opened, those of all files by `damaged_files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lnrepro.data import ragged
from lnrepro.engine.errors import DataError

SEAL = "sealed.json"
FACTS = "facts.json"
# Columns of a split up to this many bytes are checked whenever they are opened. This
# takes at most 0.1 seconds.
CHECKED_BYTES = 64 * 2**20


class Written(NamedTuple):
    """A set that is written to disk and not yet sealed.

    Attributes:
      folder: where its files are.
      splits: number of examples of each split.
      digest: hashlib object, updated with all examples.
      facts: facts of the whole set, as JSON values.
    """

    folder: pathlib.Path
    splits: dict[str, int]
    digest: Any
    facts: dict[str, Any]


class Seal(NamedTuple):
    """Content of sealed.json.

    Attributes:
      name: the set.
      version: its version.
      sha256: checksum of the decoded examples and the facts.
      splits: number of examples of each split.
      files: size of each file in bytes.
      original: for a set of own files, the official set whose format it has.
      checksums: SHA-256 of each file. None in sets that an older version prepared.
    """

    name: str
    version: str
    sha256: str
    splits: dict[str, int]
    files: dict[str, int]
    original: str | None = None
    checksums: dict[str, str] | None = None


def seal(
    written: Written, name: str, version: str, original: str | None = None
) -> None:
    """Write the facts of a set and then its seal.

    Args:
      written: the set.
      name: its name.
      version: its version.
      original: for a set of own files, the official set whose format it has.
    """
    folder, digest = written.folder, written.digest
    if written.facts:
        # Sorted keys make the checksum independent of the order in which facts were
        # found.
        text = json.dumps(written.facts, ensure_ascii=False, sort_keys=True)
        digest.update(text.encode())
        (folder / FACTS).write_text(text, encoding="utf-8")
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    content = Seal(
        name,
        version,
        sha256=digest.hexdigest(),
        splits=written.splits,
        files={str(path.relative_to(folder)): path.stat().st_size for path in paths},
        original=original,
        checksums={str(path.relative_to(folder)): _checksum(path) for path in paths},
    )
    # The seal is written last: a folder without it is not prepared.
    (folder / SEAL).write_text(json.dumps(content._asdict(), indent=1))


def _checksum(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damaged_files(
    folder: pathlib.Path, files: Sequence[str] | None = None
) -> list[str]:
    """Return the files whose content has changed since the set was prepared.

    Args:
      folder: the prepared folder.
      files: paths within the folder. None checks all.

    Raises:
      DataError: the folder is not whole, or its seal holds no checksums of files.
    """
    checksums = seal_of(folder).checksums
    if not checksums:
        raise DataError(
            f"{folder} holds no checksums of its files, as it was prepared by an older "
            "version; remove that folder and prepare the set again"
        )
    names = checksums if files is None else files
    return [n for n in names if _checksum(folder / n) != checksums.get(n)]


def _check_small(folder: pathlib.Path, prefix: str) -> None:
    """Check the files below a prefix, if they are small.

    Raises:
      DataError: a file has changed.
    """
    seal = seal_of(folder)
    files = [name for name in seal.files if name.startswith(prefix)]
    if not seal.checksums or sum(seal.files[name] for name in files) > CHECKED_BYTES:
        return
    for name in damaged_files(folder, files):
        raise DataError(
            f"{folder / name} has changed since the set was prepared (other checksum); "
            "remove that folder and prepare the set again"
        )


def read_seal(folder: pathlib.Path) -> Seal | None:
    """Return the seal of a prepared folder, or None if the folder is not whole."""
    try:
        found = Seal(**json.loads((folder / SEAL).read_text()))
        # Sizes show truncated and missing files at no cost. Contents are not read here.
        for file, size in found.files.items():
            if (folder / file).stat().st_size != size:
                return None
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return found


def seal_of(folder: pathlib.Path) -> Seal:
    """Return the seal of a prepared folder.

    Raises:
      DataError: the folder is not whole.
    """
    seal = read_seal(folder)
    if seal is None:
        raise DataError(f"{folder} is half-written or damaged; prepare the set again")
    return seal


def find_sealed(folder: pathlib.Path) -> pathlib.Path | None:
    """Return the folder of the newest prepared version of a set, or None.

    Args:
      folder: the folder of all versions of the set.
    """
    sealed = [path.parent for path in folder.glob(f"*/{SEAL}")]
    for version in sorted(sealed, key=_version_number, reverse=True):
        if read_seal(version):
            return version
    return None


def _version_number(folder):
    """Return the version in a folder's name as numbers."""
    # As strings, 1.9.0 would be newer than 1.10.0.
    return [int(number) for number in re.findall(r"\d+", folder.name)]


def read_original(folder: pathlib.Path) -> str | None:
    """Return the official set whose format a set of own files has.

    Args:
      folder: the folder of all versions of the set.

    Returns:
      Its name, or None if no version is prepared.
    """
    found = find_sealed(folder)
    return seal_of(found).original if found else None


def publish(folder: pathlib.Path, final: pathlib.Path, scratch: pathlib.Path) -> None:
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
            if read_seal(final):
                return
            if attempt == 9 or not final.exists():
                raise
            # The folder is gone if another process has just removed it too.
            with contextlib.suppress(FileNotFoundError):
                final.rename(scratch / f"damaged-{attempt}")


def read_facts(folder: pathlib.Path) -> dict[str, Any]:
    """Return the facts of a prepared set, {} if it has none.

    Raises:
      DataError: they have changed since the set was prepared.
    """
    _check_small(folder, FACTS)
    file = folder / FACTS
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def read_columns(
    folder: pathlib.Path, split: str
) -> dict[str, np.ndarray | ragged.Ragged]:
    """Map the columns of a split into memory.

    Args:
      folder: the prepared folder.
      split: the split.

    Raises:
      DataError: the set has no columns, because its examples are not all numbers, or
        its files have changed since it was prepared.
    """
    _check_small(folder, f"columns/{split}/")
    columns = ragged.load(folder / "columns" / split)
    if not columns:
        raise DataError(
            f"{folder} ({split}): its examples are not all numbers, so that it has no "
            "columns; use open_source"
        )
    return columns


def read_source(folder: pathlib.Path, split: str) -> Source:
    """Open the ArrayRecord files of a split.

    Args:
      folder: the prepared folder.
      split: the split.

    Raises:
      DataError: there are no such files, or TFDS would import a module that they name.
    """
    features = folder / "features.json"
    if not features.exists():
        raise DataError(
            f"{folder} ({split}): it has columns only, no ArrayRecord; use open_columns"
        )
    _check_modules(features)
    import tensorflow_datasets as tfds

    builder: Any = tfds.builder_from_directory(str(folder))
    return Source(builder.as_data_source(split), f"{folder} ({split})")


def _check_modules(file: pathlib.Path) -> None:
    """Check that features.json names no module outside TFDS.

    TFDS imports each module that this file names. A prepared set may come from somebody
    else, so that it must not choose what is executed.

    Raises:
      DataError: it names another module, or cannot be read.
    """
    try:
        # The file is walked with a list and not by recursion, which nested JSON could
        # exhaust.
        pending = [json.loads(file.read_bytes())]
    except (OSError, ValueError, RecursionError) as e:
        raise DataError(
            f"{file}: cannot be read ({e}); remove that folder and prepare the set "
            "again"
        ) from None
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif _is_foreign_module(value):
            raise DataError(
                f"{file}: names {value!r:.80}, which TFDS would import; "
                "do not trust it, prepare the set again"
            )


def _is_foreign_module(value: Any) -> bool:
    """Return whether a JSON value can name a module outside TFDS."""
    own = "tensorflow_datasets.core.features."
    return isinstance(value, str) and "." in value and not value.startswith(own)


class Source:
    """Random access to the examples of a split, each a dict of NumPy arrays.

    `source[i]` is one example and `source.__getitems__(indices)` is a list of them, as
    Grain asks for. Negative numbers count from the end.
    """

    def __init__(self, records: Any, label: str):
        """Wrap an open split.

        Args:
          records: the data source of TFDS.
          label: what error messages call it.
        """
        self._records, self._label = records, label

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray]]:
        """Return several examples.

        Raises:
          IndexError: there is no such example.
          DataError: a file is damaged.
        """
        size = len(self)
        for index in indices:
            if not -size <= index < size:
                raise IndexError(
                    f"{self._label} has {size} examples; there is no number {index}"
                )
        # Negative numbers count from the end.
        rows = [int(index) % size for index in indices]
        try:
            return self._records.__getitems__(rows)
        except Exception as e:
            # The reader has no error class of its own. Every error of it means damage.
            reason = (str(e).splitlines() or [type(e).__name__])[0]
            raise DataError(
                f"{self._label}: cannot be read ({reason}); remove that folder and "
                "prepare the set again"
            ) from e

    def __repr__(self) -> str:
        return f"Source({self._label}, {len(self)} examples)"
