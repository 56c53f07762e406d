"""The folder with the official files of a data set, as they were distributed.

Files are found, read and checked. Those that an operating system added are left out.
"""

import dataclasses
import hashlib
import pathlib
import unicodedata
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, TypeVar

from lnrepro.data import files
from lnrepro.data.files import PLAIN_OR_PACKED, SUFFIXES
from lnrepro.errors import DataError
from lnrepro.folders import files_below

T = TypeVar("T")
# Whether a file of a name is read.
Wanted = Callable[[str], object]
# How the names of tar archives end.
ARCHIVES = (".tar", *(f".tar{suffix}" for suffix in SUFFIXES), ".tgz", ".txz", ".tbz2")
# Files that are named among those that are left out.
NAMED = 5
# Called with what is being done, how much of it is done, and how much there is. The
# last one is 0 where it is not known.
Progress = Callable[[str, int, int], None]


def no_progress(what: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclasses.dataclass(frozen=True)
class RawFolder:
    """The folder with the official files of a set, or with own files of its format.

    Attributes:
      dataset: name of the set whose format the files have.
      folder: where the files are.
      checksums: the official files, see `Reader.files`.
      official: whether the files must be the official ones. If not, the set gets
        another name (--as), and other files of the same format are accepted.
      progress: called now and then where reading takes long.
      found: the places of the files that were read.
      left_out: the places of the other files.
    """

    dataset: str
    folder: pathlib.Path
    checksums: Mapping[str, str | None]
    official: bool = True
    progress: Progress = no_progress
    found: set[str] = dataclasses.field(default_factory=set)
    left_out: set[str] = dataclasses.field(default_factory=set)

    def find(self, name: str) -> pathlib.Path | None:
        """Return the path of a file, plain or packed; None if there is none."""
        for suffix in ("", *SUFFIXES):
            path = self.folder / (name + suffix)
            if path.exists():
                self.found.add(name)
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
          DataError: the file is missing, damaged, or not the official one.
        """
        path = self.path(name)
        content = files.read(path)
        wanted = self.checksums.get(name) if self.official else None
        found = hashlib.sha256(content).hexdigest()
        if wanted and wanted != found:
            raise DataError(
                f"{path}: checksum differs, sha256 of the content is {found[:12]}... "
                f"and of the official file {wanted[:12]}...; get the official file, or "
                "pass --as NAME to prepare other files of this format"
            )
        return content

    def paths(
        self, wanted: Wanted, folder: str = "."
    ) -> Iterator[tuple[str, pathlib.Path]]:
        """Yield the files below a folder, in sorted order.

        Linked folders are followed.

        Args:
          wanted: whether a file of a name is read.
          folder: the folder, within the folder of the set.

        Yields:
          The name and the path of each file. The name is the path below the folder,
          with "/", with the suffix in lower case, and without the suffix of a packing.

        Raises:
          DataError: a file is there both plain and packed.
        """
        root = self.folder / folder
        below = (
            (path.relative_to(root).as_posix(), path) for path in files_below(root)
        )
        return self._chosen(below, wanted, folder)

    def tree(
        self, folder: str, archives: Sequence[str], wanted: Wanted
    ) -> Iterator[tuple[str, bytes]]:
        """Read all files below a folder, from the disk or else from a tar archive.

        Files on the disk come in sorted order, members of an archive in its order. Only
        members below a folder of the given name are read. Links are followed, those of
        an archive within it.

        Args:
          folder: name of the folder.
          archives: names of the archives without suffix. The first one that is there is
            read; its suffix is one of ARCHIVES.
          wanted: whether a file of a name is read.

        Yields:
          The path below the folder, such as "a/b.xml", and the content of each file.
          No path comes twice.

        Raises:
          DataError: there is neither the folder nor an archive, a file cannot be read,
            or is there twice.
        """
        if (self.folder / folder).is_dir():
            found = self.paths(wanted, folder)
            return ((name, files.read(path)) for name, path in found)
        return self._chosen(self._members(folder, archives), wanted, folder)

    def _members(
        self, folder: str, archives: Sequence[str]
    ) -> Iterator[tuple[str, bytes | None]]:
        """Read the members of an archive below a folder, see `files.members`."""
        names = (stem + ending for stem in archives for ending in ARCHIVES)
        paths = (self.folder / name for name in names)
        archive = next(filter(pathlib.Path.exists, paths), None)
        if archive is None:
            raise self.missing(
                f"{self.folder / folder}: there is no such folder, and no archive "
                f"{' or '.join(archives)}"
            )
        for member, content in files.members(archive):
            # The folder may lie at any depth of the archive.
            _, found, below = f"/{member}".partition(f"/{folder}/")
            if found:
                yield below, content

    def _chosen(
        self, below: Iterable[tuple[str, T | None]], wanted: Wanted, folder: str
    ) -> Iterator[tuple[str, T]]:
        """Yield the names and contents of wanted files, and count all files.

        Args:
          below: the path of each file below the folder, and its content or where that
            is; None if it is no file.
          wanted: whether a file of a name is read.
          folder: the folder.

        Raises:
          DataError: a name is there twice.
        """
        for path, content in below:
            stem, dot, suffix = files.unpacked_name(path).rpartition(".")
            # macOS stores "é" as two characters, unlike other systems and most texts.
            name = unicodedata.normalize("NFC", stem) + dot + suffix.lower()
            place = pathlib.PurePosixPath(folder, name).as_posix()
            if files.is_system_file(path) or content is None or not wanted(name):
                self.left_out.add(pathlib.PurePosixPath(folder, path).as_posix())
                continue
            if place in self.found:
                raise DataError(
                    f"{self.folder / folder}: {name} is there more than once, such as "
                    "plain and packed; remove one of them"
                )
            self.found.add(place)
            yield name, content

    def summary(self) -> dict[str, Any]:
        """Return counts of the files, and the first that were left out, as JSON."""
        counts = {
            "files read": len(self.found),
            "files left out": len(self.left_out),
            "such as": ", ".join(sorted(self.left_out)[:NAMED]),
        }
        return {what: count for what, count in counts.items() if count}

    def missing(self, what: str) -> DataError:
        """Return an error that says where to get the files."""
        if not self.folder.is_dir():
            what = f"{self.folder}: not a folder; give the folder of the unpacked files"
        for path in sorted(self.folder.glob("*")):
            if path.name.endswith((".zip", ".rar", ".7z", *ARCHIVES)):
                what += f"; unpack {path.name} there"
                break
        command = f"python scripts/prepare.py {self.dataset} --list"
        return DataError(f"{what}; `{command}` says where to get them")
