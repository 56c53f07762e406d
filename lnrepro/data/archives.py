"""Reading of tar archives, which may be damaged or hostile.

Nothing is unpacked to disk, and nothing in a header is trusted.
"""

from __future__ import annotations

import pathlib
import tarfile
from collections.abc import Iterator
from typing import Any

from lnrepro.data.encodings import quoted
from lnrepro.data.file_kinds import SUFFIXES
from lnrepro.data.old_files import DAMAGED, Content
from lnrepro.errors import DataError

# Bytes that all members of an archive may unpack to.
TREE_LIMIT = 1 << 35
# Bytes of a tar member's long name or extended header.
LONGEST_HEADER = 1 << 16
# How the names of archives end.
TREE_PACKINGS = (
    ".tar",
    *(f".tar{suffix}" for suffix in SUFFIXES),
    ".tgz",
    ".txz",
    ".tbz2",
)


def members(
    archive: pathlib.Path, suffix: str, limit: int
) -> Iterator[tuple[str, bytes]]:
    """Read the regular files of a tar archive one after the other.

    Args:
      archive: the archive.
      suffix: how the names of the wanted files end.
      limit: bytes that a wanted file may have.

    Yields:
      The name and the content of each wanted file.

    Raises:
      DataError: the archive is damaged, a file is too large, or a member has an
        absolute name, a name with "..", or is a link or a device.
    """
    total = 0
    with Content(archive, TREE_LIMIT + (1 << 20), is_archive=True) as content:
        try:
            # Mode "r|" reads the archive from front to back without seeking, since
            # `Content` has no seek.
            stream: Any = content
            tar: Any = tarfile.open(
                fileobj=stream, mode="r|", tarinfo=_Member, encoding="utf-8"
            )
            with tar:
                while (member := tar.next()) is not None:
                    # Without this, tarfile keeps all members in memory.
                    tar.members.clear()
                    _check_member(archive, member)
                    wanted = member.isreg() and member.name.endswith(suffix)
                    # Members that are not wanted are read too on the way, so they count
                    # in the total.
                    total += member.size
                    if (wanted and member.size > limit) or total > TREE_LIMIT:
                        raise DataError(
                            f"{archive}: {quoted(member.name)} is larger than the "
                            f"{limit:,} bytes it may be"
                        )
                    if wanted:
                        yield member.name, tar.extractfile(member).read()
        except (*DAMAGED, tarfile.TarError, ValueError, EOFError) as e:
            reason = e or type(e).__name__
            raise DataError(
                f"{archive}: damaged, cannot be unpacked ({reason}); download it again"
            ) from e


def _check_member(archive: pathlib.Path, member: tarfile.TarInfo) -> None:
    """Check that a member is a file or a folder inside the archive."""
    name = pathlib.PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        problem = "points out of the archive"
    elif member.isdir() or member.isreg():
        return
    else:
        problem = "is a link or a device"
    raise DataError(
        f"{archive}: the member {quoted(member.name)} {problem}; do not trust it"
    )


class _Member(tarfile.TarInfo):
    """A member of an archive whose header is checked before tarfile uses it.

    Without the checks, tarfile reads names and extended headers of any length, accepts
    negative sizes, and keeps a list of any length for a sparse member.
    """

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        """Parse a header of 512 bytes."""
        found = super().frombuf(buf, encoding, errors)
        extended = (
            *tarfile.GNU_TYPES,
            tarfile.XHDTYPE,
            tarfile.XGLTYPE,
            tarfile.SOLARIS_XHDTYPE,
        )
        too_long = found.type in extended and found.size > LONGEST_HEADER
        if found.size < 0 or too_long:
            raise tarfile.ReadError(f"a header of {found.size:,} bytes")
        return found

    def _refuse_sparse(self, *_):
        raise tarfile.ReadError("a sparse member")

    _proc_sparse = _refuse_sparse
    _proc_gnusparse_00 = _refuse_sparse
    _proc_gnusparse_01 = _refuse_sparse
    _proc_gnusparse_10 = _refuse_sparse
