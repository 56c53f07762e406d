"""A prepared data set: a folder of columns, and one JSON file that describes it.

    columns/train/image.npy        one feature of all examples, along the first axis
    columns/train/ink.npy          a feature whose examples differ in length, joined
    columns/train/ink.offsets.npy  where each example begins in ink.npy
    set.json                       name, version, checksum, sizes and facts

set.json is written last. A folder never changes afterwards.
"""

import dataclasses
import hashlib
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lnrepro.data import ragged
from lnrepro.data.ragged import Ragged
from lnrepro.data.raw_folder import Progress, no_progress
from lnrepro.data.reader import Columns, Values
from lnrepro.errors import DataError

SET_FILE = "set.json"
COLUMNS = "columns"
# Examples between two calls of `progress`.
CHUNK = 1000


@dataclasses.dataclass(frozen=True)
class SetFolder:
    """A prepared set.

    Attributes:
      folder: its folder.
      name: the set.
      version: its version.
      format: the set whose reader has made it; for own files, another name.
      by_file: whether `sha256` is of the files, and not of the examples.
      splits: number of examples of each split.
      facts: facts of the whole set, such as its vocabulary; {} if it has none.
      sha256: checksum of the content, see `checksum`.
      sizes: size of each file in bytes.
      files: how many files were read and left out, as text.
    """

    folder: pathlib.Path
    name: str
    version: str
    format: str
    by_file: bool
    splits: Mapping[str, int]
    facts: Mapping[str, Any]
    sha256: str = ""
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    files: str = ""

    @property
    def fingerprint(self) -> str:
        """Return "name/version/checksum".

        The checksum is of the examples and facts, whatever files they came from.
        """
        # Sixteen hexadecimal digits are 64 bits, enough to tell data sets apart.
        return f"{self.name}/{self.version}/{self.sha256[:16]}"

    def columns(self, split: str) -> dict[str, np.ndarray | Ragged]:
        """Return the columns of a split, mapped into memory.

        Args:
          split: such as "train".

        Returns:
          The features by name: read-only arrays with the examples along the first axis,
          or `Ragged` where examples differ in length.

        Raises:
          DataError: there is no such split.
        """
        if split not in self.splits:
            raise DataError(
                f"{self.name} has no split {split!r}; it has: {', '.join(self.splits)}"
            )
        return ragged.load(self.folder / COLUMNS / split)

    def check(self, wanted: Mapping[str, Values]) -> None:
        """Check the numbers of columns in all splits.

        Args:
          wanted: the columns that are needed, and the numbers that each may hold.

        Raises:
          DataError: a column is missing, or an example has another number.
        """
        for split in self.splits:
            columns = self.columns(split)
            for name, values in wanted.items():
                if name not in columns:
                    raise DataError(
                        f"{self.name}: the split {split} has no column {name!r}, only "
                        f"{', '.join(columns)}"
                    )
                if wrong := _first_wrong(columns[name], values):
                    row, number = wrong
                    raise DataError(
                        f"{self.name}: {name} of example {row} of {split} is {number}; "
                        f"{_words(values)} are needed"
                    )

    def checksum(self, progress: Progress = no_progress) -> str:
        """Return the SHA-256 of the content."""
        digest = hashlib.sha256()
        for split, size in sorted(self.splits.items()):
            place = self.folder / COLUMNS / split
            if self.by_file:
                for path in sorted(place.iterdir()):
                    digest.update(f"{path.name}:{path.stat().st_size};".encode())
                    with path.open("rb") as file:
                        hashlib.file_digest(file, lambda: digest)
                continue
            digest.update(f"{split}:{size};".encode())
            columns = sorted(ragged.load(place).items())
            for i in range(size):
                if i % CHUNK == 0:
                    progress(f"checking {split}", i, size)
                for name, column in columns:
                    value = column[i]
                    # Name, dtype and shape come before the bytes, so that equal bytes
                    # of other arrays give another checksum.
                    digest.update(f"{name}:{value.dtype.str}:{value.shape};".encode())
                    digest.update(value.tobytes())
        if self.facts:
            # Sorted keys make the checksum independent of the order of the facts.
            text = json.dumps(self.facts, ensure_ascii=False, sort_keys=True)
            digest.update(text.encode())
        return digest.hexdigest()

    def verify(self) -> None:
        """Compare the content with the checksum.

        Raises:
          DataError: it has changed since the set was prepared.
        """
        if self.checksum() != self.sha256:
            raise damaged(self.folder, "its content has another checksum")

    def seal(self, progress: Progress) -> "SetFolder":
        """Write set.json, when all columns are written.

        Returns:
          The set with its checksum and its sizes.
        """
        files = sorted(self.folder.rglob("*.npy"))
        sizes = {
            path.relative_to(self.folder).as_posix(): path.stat().st_size
            for path in files
        }
        sha256 = self.checksum(progress)
        sealed = dataclasses.replace(self, sha256=sha256, sizes=sizes)
        content = dataclasses.asdict(sealed)
        del content["folder"]
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (self.folder / SET_FILE).write_text(text, encoding="utf-8")
        return sealed


def _first_wrong(
    column: np.ndarray | Ragged, values: Values
) -> tuple[int, np.generic] | None:
    """Return the row and the number of the first wrong example; None if there is none.

    Args:
      column: the examples.
      values: the numbers that they may hold.
    """
    numbers = column.values if isinstance(column, Ragged) else column
    if not numbers.size:
        return None
    # Whole numbers are told by their type.
    is_wrong_type = values.whole and numbers.dtype.kind == "f"
    extremes = np.array([numbers.min(), numbers.max()])
    ragged.forget_pages(numbers)
    if not is_wrong_type and _are_right(extremes, values).all():
        return None
    right = _are_right(numbers, values) & ~np.array(is_wrong_type)
    first = int(np.argmin(right))
    row = first // max(1, math.prod(numbers.shape[1:]))
    if isinstance(column, Ragged):
        row = int(np.searchsorted(column.offsets, row, side="right")) - 1
    return row, numbers.reshape(-1)[first]


def _are_right(numbers: np.ndarray, values: Values) -> np.ndarray:
    # No comparison with NaN is true.
    is_inside = (values.least <= numbers) & (numbers <= values.most)
    return is_inside & np.isfinite(numbers)


def _words(values: Values) -> str:
    kind = "whole numbers" if values.whole else "finite numbers"
    if values.most < math.inf:
        return f"{kind} from {values.least:g} to {values.most:g}"
    return f"{kind} of at least {values.least:g}" if values.least > -math.inf else kind


def write_columns(columns: Columns, folder: pathlib.Path, where: object) -> int:
    """Write the columns of a split.

    Args:
      columns: the features by name.
      folder: where the files are written. It is called like the split.
      where: what the columns come from, for error messages.

    Returns:
      The number of examples.

    Raises:
      DataError: there are no examples, columns differ in length, or are no numbers.
    """
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) != 1 or not all(sizes.values()):
        raise DataError(
            f"{where}: the split {folder.name} needs examples, and as many in each "
            f"column; there are {sizes}"
        )
    folder.mkdir(parents=True)
    for name, column in columns.items():
        if not isinstance(column, np.ndarray):
            offsets = np.cumsum([0, *map(len, column)], dtype=np.int64)
            np.save(folder / f"{name}{ragged.OFFSETS}.npy", offsets)
            column = np.concatenate(column)
        # Booleans, integers, unsigned integers and floats.
        if column.dtype.kind not in "biuf":
            raise DataError(
                f"{name}: values of type {column.dtype}; columns hold numbers, and "
                "text as its bytes in UTF-8"
            )
        np.save(folder / f"{name}.npy", np.ascontiguousarray(column))
    return len(columns[name])


def open_folder(folder: pathlib.Path) -> SetFolder | None:
    """Open a prepared set. The sizes of its files are compared, but not their content.

    Args:
      folder: its folder.

    Returns:
      The set; None if none was prepared there.

    Raises:
      DataError: a file is damaged. The message names it.
    """
    file = folder / SET_FILE
    if not file.exists():
        return None
    try:
        found = SetFolder(folder, **json.loads(file.read_text(encoding="utf-8")))
        sizes = found.sizes.items()
    except (OSError, ValueError, TypeError, AttributeError):
        raise damaged(folder, f"{SET_FILE} cannot be read") from None
    for name, size in sizes:
        path = folder / name
        found_size = path.stat().st_size if path.is_file() else 0
        if found_size != size:
            raise damaged(
                folder, f"{name} has {found_size:,} bytes instead of {size:,}"
            )
    return found


def damaged(folder: pathlib.Path, problem: str) -> DataError:
    """Return the error of a set that has changed since it was prepared."""
    return DataError(f"{folder}: damaged, {problem}; remove it and prepare it again")
