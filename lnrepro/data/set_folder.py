"""A prepared data set: a folder of columns, and one JSON file that describes it.

    columns/train/image.npy        one feature of all examples, along the first axis
    columns/train/ink.npy          a feature whose examples differ in length, joined
    columns/train/ink.offsets.npy  where each example begins in ink.npy
    set.json                       name, version, checksum, sizes and facts

set.json is written last. A folder never changes afterwards.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from lnrepro.data import ragged
from lnrepro.data.columns import check_column
from lnrepro.data.ragged import Stored
from lnrepro.data.reader import ColumnSpec
from lnrepro.errors import DataError

SET_FILE = "set.json"
COLUMNS = "columns"
# Larger files are verified by `prepare.py --verify` only, which takes longer.
VERIFIED_BYTES = 64 * 2**20


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
      digests: SHA-256 of the facts, and of each file of at most VERIFIED_BYTES; {} for
        sets that were prepared by an older version.
      files: how many files were read and left out, see `RawFolder.summary`.
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
    digests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    files: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Return "name/version/checksum".

        The checksum is of the examples and facts, whatever files they came from.
        """
        # Sixteen hexadecimal digits are 64 bits, enough to tell data sets apart.
        return f"{self.name}/{self.version}/{self.sha256[:16]}"

    def columns(self, split: str) -> dict[str, Stored]:
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

    def check(self, wanted: Mapping[str, ColumnSpec]) -> None:
        """Check columns in all splits.

        Args:
          wanted: the columns that are needed, and what each may hold.

        Raises:
          DataError: a column is missing, or an example is not as specified.
        """
        for split in self.splits:
            columns = self.columns(split)
            for name, spec in wanted.items():
                if name not in columns:
                    raise DataError(
                        f"{self.name}: the split {split} has no column {name!r}, only "
                        f"{', '.join(columns)}"
                    )
                check_column(columns[name], spec, f"{self.name}: {name}", split)

    def checksum(self) -> str:
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
                for name, column in columns:
                    value = column[i]
                    # Name, dtype and shape come before the bytes, so that equal bytes
                    # of other arrays give another checksum.
                    digest.update(f"{name}:{value.dtype.str}:{value.shape};".encode())
                    digest.update(value.tobytes())
        if self.facts:
            digest.update(self._facts_text())
        return digest.hexdigest()

    def verify(self) -> None:
        """Compare the content with the checksum.

        Raises:
          DataError: it has changed since the set was prepared.
        """
        if self.checksum() != self.sha256:
            raise damaged(self.folder, "its content has another checksum")

    def verify_small_files(self) -> None:
        """Compare the facts, and the files of at most VERIFIED_BYTES, with `digests`.

        Raises:
          DataError: one has changed since the set was prepared.
        """
        for name, digest in self.digests.items():
            if self._digest(name) != digest:
                raise damaged(self.folder, f"{name} has another checksum")

    def _digest(self, name: str) -> str:
        """Return the SHA-256 of a file of columns, or of the facts for SET_FILE."""
        if name == SET_FILE:
            return hashlib.sha256(self._facts_text()).hexdigest()
        path = self.folder / name
        return _digest_of_file(path, path.stat().st_mtime_ns)

    def _facts_text(self) -> bytes:
        # Sorted keys make a checksum independent of the order of the facts.
        return json.dumps(self.facts, ensure_ascii=False, sort_keys=True).encode()

    def seal(self) -> "SetFolder":
        """Write set.json, when all columns are written.

        Returns:
          The set with its checksum and its sizes.
        """
        sizes = {}
        for path in sorted(self.folder.rglob("*.npy")):
            sizes[path.relative_to(self.folder).as_posix()] = path.stat().st_size
        small = [name for name, size in sizes.items() if size <= VERIFIED_BYTES]
        digests = {name: self._digest(name) for name in [*small, SET_FILE]}
        sealed = dataclasses.replace(
            self, sha256=self.checksum(), sizes=sizes, digests=digests
        )
        content = dataclasses.asdict(sealed)
        del content["folder"]
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (self.folder / SET_FILE).write_text(text, encoding="utf-8")
        return sealed


@functools.cache
def _digest_of_file(path: pathlib.Path, changed: int) -> str:
    """Return the SHA-256 of a file that changed last at a time, read once a process."""
    del changed
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
