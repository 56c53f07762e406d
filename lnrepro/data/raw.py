"""The folder with the official files of a data set, as they were distributed.

Files are found and checked. Those that an operating system added are left out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence

from lnrepro.data.archives import TREE_PACKINGS, members
from lnrepro.data.encodings import quoted
from lnrepro.data.file_kinds import (
    HEAD,
    PLAIN_OR_PACKED,
    SUFFIXES,
    foreign,
    is_system_file,
    unpacked_name,
)
from lnrepro.data.old_files import UNKNOWN_LIMIT, unpack
from lnrepro.errors import DataError

# Archives that are not read, which may lie where a folder is looked for.
OTHER_ARCHIVES = (".zip", ".rar", ".7z", *TREE_PACKINGS)


@dataclasses.dataclass(frozen=True)
class RawFile:
    """One official file, which may be there plain or packed.

    Attributes:
      name: its name without the suffix of the packing.
      size: bytes of its unpacked content, if known.
      sha256: checksum of its unpacked content, if known.
      urls: where to download it, plain or packed. They are tried in order.
    """

    name: str
    size: int | None = None
    sha256: str | None = None
    urls: tuple[str, ...] = ()


class Raw:
    """The folder with the official files of a set.

    Attributes:
      dataset: name of the set.
      folder: where the files are.
      any_checksum: whether other files of the same format are accepted.
      files: the official files by name.
      notes: what readers left out or found odd, and how often. `prepare.py` prints it.
    """

    def __init__(
        self,
        dataset: str,
        folder: pathlib.Path,
        files: Sequence[RawFile] = (),
        any_checksum: bool = False,
    ):
        """Describe the folder, see the attributes."""
        self.dataset, self.folder, self.any_checksum = dataset, folder, any_checksum
        self.files = {file.name: file for file in files}
        self.notes: Counter[str] = Counter()
        self._sums: dict[str, str] = {}

    def find(self, name: str) -> pathlib.Path | None:
        """Return the path of a file, plain or packed; None if there is none."""
        for suffix in ("", *SUFFIXES):
            path = self.folder / (name + suffix)
            if path.exists():
                return path
        return None

    def path(self, name: str) -> pathlib.Path:
        """Return the path of a file, plain or packed.

        Raises:
          DataError: there is no such file.
        """
        if path := self.find(name):
            return path
        raise self.missing(
            f"{self.folder / name}: there is no such file, {PLAIN_OR_PACKED}"
        )

    def read(self, name: str) -> bytes:
        """Return the unpacked content of an official file.

        Raises:
          DataError: the file is missing, damaged or too long.
        """
        # Where the official size is known, nothing longer is unpacked.
        size = self.files[name].size
        limit = UNKNOWN_LIMIT if self.any_checksum or size is None else size
        content = unpack(self.path(name), limit)
        self._sums[name] = hashlib.sha256(content).hexdigest()
        return content

    def paths(self, suffix: str, folder: str = ".") -> dict[str, pathlib.Path]:
        """Return the files below a folder, in sorted order.

        Files that an operating system added are counted and left out.

        Args:
          suffix: how their names end, apart from the suffix of a packing.
          folder: the folder, within the folder of the set.

        Returns:
          The path of each file by its name: the path below the folder, with "/", and
          without the suffix of a packing.

        Raises:
          DataError: a file is there both plain and packed, or its name cannot be
            printed.
        """
        root = self.folder / folder
        found: dict[str, pathlib.Path] = {}
        for path in root.rglob("*"):
            name = _name_on_disk(path.relative_to(root))
            if path.is_dir() or self._is_system_file(name):
                continue
            if (name := unpacked_name(name)).endswith(suffix):
                name = _printable(name, root)
                if name in found:
                    raise _twice(root, name)
                found[name] = path
        return {name: found[name] for name in sorted(found, key=_parts)}

    def tree(
        self,
        folder: str,
        archives: Sequence[str] = (),
        *,
        suffix: str = "",
        limit: int = UNKNOWN_LIMIT,
    ) -> Iterator[tuple[str, bytes]]:
        """Read all files below a folder, from the disk or else from a tar archive.

        Files on the disk come in sorted order, members of an archive in its order. Only
        members below a folder of the given name are read. Nothing is unpacked to disk.

        Args:
          folder: name of the folder.
          archives: names of the archives without suffix. The first one that is there is
            read; its suffix is one of TREE_PACKINGS.
          suffix: how the names of the wanted files end.
          limit: bytes that a file may have.

        Yields:
          The path below the folder, such as "a/b.xml", and the content of each file.
          No path comes twice.

        Raises:
          DataError: there is neither the folder nor an archive, the archive is damaged,
            a file is too large or there twice, or a member has an absolute name, a name
            with "..", or is a link or a device.
        """
        root = self.folder / folder
        if root.is_dir():
            for name, path in self.paths(suffix, folder).items():
                yield name, unpack(path, limit)
            return
        archive = self._find_archive(root, archives)
        seen = set()
        for member, content in members(archive, suffix, limit):
            # The folder may lie at any depth of the archive. Its path is left out of
            # the name.
            _, found, name = f"/{_printable(member, archive)}".partition(f"/{folder}/")
            if not found or self._is_system_file(member):
                continue
            name = "/".join(_parts(name))
            if name in seen:
                raise _twice(archive, name)
            seen.add(name)
            yield name, content

    def note_repeats(self, what: str, values: Iterable[Hashable]) -> None:
        """Count the values that are equal to an earlier one.

        Args:
          what: what they are, in plural.
          values: the values.
        """
        # Hashes take less memory than the values.
        hashes = [hash(value) for value in values]
        if repeats := len(hashes) - len(set(hashes)):
            self.notes[f"repeated {what}"] += repeats

    def _is_system_file(self, name: str) -> bool:
        if not is_system_file(name):
            return False
        self.notes["files of the operating system left out"] += 1
        return True

    def _find_archive(
        self, root: pathlib.Path, archives: Sequence[str]
    ) -> pathlib.Path:
        # An archive is read where it lies, without being unpacked.
        for stem in archives:
            for packing in TREE_PACKINGS:
                path = self.folder / (stem + packing)
                if path.is_file():
                    return path
        also = ""
        if archives:
            also = f" and no {archives[0]}.tar, plain or packed"
        raise self.missing(f"{root}: there is no such folder{also}")

    def missing(self, what: str) -> DataError:
        """Return an error that says where the files are, or where to get them."""
        command = f"python scripts/prepare.py {self.dataset} --list"
        advice = f"`{command}` says where to get it"
        if self.folder.is_file():
            with open(self.folder, "rb") as f:
                kind = foreign(f.read(HEAD))
            shown = kind.what if kind else "a file"
            return DataError(
                f"{self.folder}: {shown}; unpack it, and give the folder of the files"
            )
        if not self.folder.is_dir():
            return DataError(f"{what}; the folder does not exist; {advice}")
        for path in sorted(self.folder.iterdir()):
            if path.name.endswith(OTHER_ARCHIVES) and not is_system_file(path.name):
                return DataError(f"{what}; unpack {path.name!a} there, or {advice}")
        return DataError(f"{what}; {advice}")

    def verify(self) -> None:
        """Compare the checksums of all files that were read with the known ones.

        Call this after parsing, because the errors of the parser say more.

        Raises:
          DataError: a checksum differs.
        """
        if self.any_checksum:
            return
        for name, found in self._sums.items():
            if problem := checksum_problem(self.files[name], found):
                raise DataError(
                    f"{self.path(name)}: {problem}; get the official file, or pass "
                    "--as NAME to prepare other files of this format"
                )


def checksum_problem(file: RawFile, found: str) -> str | None:
    """Compare a checksum with that of the official file.

    Args:
      file: the official file.
      found: the SHA-256 of the unpacked content.

    Returns:
      What is wrong, or None.
    """
    if file.sha256 in (None, found):
        return None
    return (
        f"checksum differs, sha256 of the content is {found[:12]}... and of the "
        f"official file {file.sha256[:12]}..."
    )


def few(count: int) -> int:
    """Return how many of `count` units may be unusable and are left out: 1 %."""
    return count // 100


def _parts(name: str) -> tuple[str, ...]:
    return pathlib.PurePosixPath(name).parts


def _twice(where: pathlib.Path, name: str) -> DataError:
    return DataError(
        f"{where}: {name} is there more than once, such as plain and packed; remove "
        "one of them"
    )


def _name_on_disk(path: pathlib.Path) -> str:
    """Return a path with "/", whatever encoding the locale has."""
    try:
        return os.fsencode(path.as_posix()).decode("utf-8")
    except UnicodeDecodeError:
        return path.as_posix()


def _printable(name: str, where: pathlib.Path) -> str:
    """Return a name that fits into one line of an error message.

    Raises:
      DataError: the name cannot be printed.
    """
    if not name.isprintable():
        raise DataError(
            f"{where}: the name {quoted(name)} cannot be printed; do not trust it"
        )
    return name
