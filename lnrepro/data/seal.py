"""The seal of a prepared set: the file sealed.json, which says what the folder holds.

It is the last file to be written. A folder counts as prepared only if its seal can be
read and every file that it lists has the size stated there.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

SEAL = "sealed.json"
FACTS = "facts.json"


class UnsealedSet(NamedTuple):
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
    facts: Mapping[str, Any]


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


def write(
    written: UnsealedSet, name: str, version: str, original: str | None = None
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
        checksums={str(path.relative_to(folder)): checksum(path) for path in paths},
    )
    (folder / SEAL).write_text(json.dumps(content._asdict(), indent=1))


def read(folder: pathlib.Path) -> Seal | None:
    """Return the seal of a folder, or None if the folder is not whole."""
    try:
        found = Seal(**json.loads((folder / SEAL).read_text()))
        # Sizes show truncated and missing files at no cost. Contents are not read here.
        for file, size in found.files.items():
            if (folder / file).stat().st_size != size:
                return None
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return found


def checksum(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
