"""The folder with the official files of a data set, as they were distributed.

Files are found, read and checked. Those that an operating system added are left out.
"""

import dataclasses
import hashlib
import pathlib
import unicodedata
from collections import defaultdict
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)

from lnrepro.data import files
from lnrepro.data.files import PLAIN_OR_PACKED, SUFFIXES
from lnrepro.errors import DataError
from lnrepro.folders import files_below

# How the names of tar archives end.
ARCHIVES = (".tar", *(f".tar{suffix}" for suffix in SUFFIXES), ".tgz", ".txz", ".tbz2")
# Files that are named among those that are left out.
NAMED = 5
# Called with what is being done, how much of it is done, and how much there is. The
# last one is 0 where it is not known.
Progress = Callable[[str, int, int], None]


def no_progress(what: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclasses.dataclass
class Files:
    """What was read of a raw folder, and what was left out.

    Attributes:
      read: the files that were read.
      copies: number of those that have the content of another one.
      left_out: the files that were left out.
    """

    read: set[str] = dataclasses.field(default_factory=set)
    copies: int = 0
    left_out: set[str] = dataclasses.field(default_factory=set)

    def leave_out(self, name: str) -> None:
        """Count a file as left out, also if it was read."""
        self.read.discard(name)
        self.left_out.add(name)

    def text(self) -> str:
        """Return one line; "" if there was no file."""
        if not self.read:
            return ""
        parts = [f"{len(self.read):,} read"]
        if self.copies:
            parts.append(f"{self.copies:,} of them with the content of another one")
        if self.left_out:
            names = [ascii(name)[1:-1] for name in sorted(self.left_out)[:NAMED]]
            more = ", ..." if len(self.left_out) > NAMED else ""
            parts.append(f"{len(self.left_out):,} left out: {', '.join(names)}{more}")
        return ", ".join(parts)


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
      seen: counts the files.
    """

    dataset: str
    folder: pathlib.Path
    checksums: Mapping[str, str | None]
    official: bool = True
    progress: Progress = no_progress
    seen: Files = dataclasses.field(default_factory=Files)

    def find(
        self, name: str, suffixes: Sequence[str] = ("", *SUFFIXES)
    ) -> pathlib.Path | None:
        """Return the path of a file with one of the suffixes; None if there is none."""
        for suffix in suffixes:
            path = self.folder / (name + suffix)
            if path.exists():
                self.seen.read.add(name + suffix)
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

    def paths(self, suffix: str, folder: str = ".") -> dict[str, pathlib.Path]:
        """Return the files below a folder, in sorted order.

        Linked folders are followed.

        Args:
          suffix: how their names end, in lower or upper case, apart from the suffix of
            a packing.
          folder: the folder, within the folder of the set.

        Returns:
          The path of each file by its name: the path below the folder, with "/", with
          the suffix in lower case, and without the suffix of a packing.

        Raises:
          DataError: a file is there both plain and packed, or its name cannot be
            printed.
        """
        root = self.folder / folder
        found: dict[str, pathlib.Path] = {}
        # Folders are sorted before what is in them.
        for path in files_below(root):
            below = path.relative_to(root).as_posix()
            name = _named(files.unpacked_name(below), suffix)
            where = pathlib.PurePosixPath(folder, below).as_posix()
            # A link that leads nowhere is an error when it is read.
            is_other = path.exists() and not path.is_file()
            if name is None or is_other:
                self.seen.leave_out(where)
                continue
            _check_name(name, found, root)
            self.seen.read.add(where)
            found[name] = path
        return found

    def count_copies(self, paths: Iterable[pathlib.Path]) -> None:
        """Count the files that have the content of another one."""
        by_size = defaultdict(list)
        for path in paths:
            by_size[path.stat().st_size].append(path)
        for same in by_size.values():
            if len(same) > 1:
                contents = {hashlib.sha256(p.read_bytes()).digest() for p in same}
                self.seen.copies += len(same) - len(contents)

    def tree(
        self, folder: str, archives: Collection[str], suffix: str
    ) -> Iterator[tuple[str, bytes]]:
        """Read all files below a folder, from the disk or else from a tar archive.

        Files on the disk come in sorted order, members of an archive in its order. Only
        members below a folder of the given name are read. Links are followed, those of
        an archive within it.

        Args:
          folder: name of the folder.
          archives: names of the archives without suffix. The first one that is there is
            read; its suffix is one of ARCHIVES.
          suffix: how the names of the wanted files end.

        Yields:
          The path below the folder, such as "a/b.xml", and the content of each file.
          No path comes twice.

        Raises:
          DataError: there is neither the folder nor an archive, a file cannot be read,
            or is there twice.
        """
        root = self.folder / folder
        if root.is_dir():
            found = self.paths(suffix, folder)
            contents = ((name, files.read(path)) for name, path in found.items())
        else:
            contents = self._members(folder, archives, suffix)
        known = set()
        for name, content in contents:
            # Equal hashes of different contents are rarer than damaged disks.
            self.seen.copies += hash(content) in known
            known.add(hash(content))
            yield name, content

    def _members(
        self, folder: str, archives: Collection[str], suffix: str
    ) -> Iterator[tuple[str, bytes]]:
        """Read the members of an archive below a folder, see `tree`."""
        at_hand = (self.find(stem, ARCHIVES) for stem in archives)
        archive = next(filter(None, at_hand), None)
        if archive is None:
            raise self.missing(
                f"{self.folder / folder}: there is no such folder, and no archive "
                f"{' or '.join(archives)}"
            )
        # Its members are counted.
        self.seen.read.discard(archive.name)
        seen = set()
        for member, content in files.members(archive, suffix):
            # The folder may lie at any depth of the archive.
            _, found, below = f"/{member}".partition(f"/{folder}/")
            if not found:
                continue
            name = _named(below, suffix)
            if name is None or content is None:
                self.seen.leave_out(member)
                continue
            _check_name(name, seen, archive)
            seen.add(name)
            self.seen.read.add(member)
            yield name, content

    def missing(self, what: str) -> DataError:
        """Return an error that says where to get the files."""
        if not self.folder.is_dir():
            what = f"{self.folder}: not a folder; give the folder of the unpacked files"
        for path in sorted(self.folder.glob("*")):
            if path.name.endswith((".zip", ".rar", ".7z", *ARCHIVES)):
                what += f"; unpack {path.name!a} there"
                break
        command = f"python scripts/prepare.py {self.dataset} --list"
        return DataError(f"{what}; `{command}` says where to get them")


def _named(path: str, suffix: str) -> str | None:
    """Return the name of a file; None if it is hidden, or has another suffix.

    macOS stores "é" as two characters, unlike other systems and most texts.
    """
    if files.is_system_file(path) or not path.lower().endswith(suffix):
        return None
    return unicodedata.normalize("NFC", path[: -len(suffix)]) + suffix


def _check_name(name: str, known: Collection[str], where: pathlib.Path) -> None:
    """Raise DataError if a name cannot be printed in one line, or is known already."""
    if not name.isprintable():
        raise DataError(
            f"{where}: the name {files.quoted(name)} cannot be printed; rename the file"
        )
    if name in known:
        raise DataError(
            f"{where}: {name} is there more than once, such as plain and packed; "
            "remove one of them"
        )
