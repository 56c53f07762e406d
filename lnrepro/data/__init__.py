"""Data sets by name: prepared once into ArrayRecord by a TFDS builder, then read by random access, without TensorFlow.

    from lnrepro import data
    source = data.open_source("mnist", "train")      # len(source), source[i], source.__getitems__([3, 1]) -> dicts of numpy
    columns = data.open_columns("mnist", "train")    # {"image": (N, 28, 28) uint8, "label": (N,) int32}: one fancy-index a batch
    config_line = data.fingerprint("mnist")          # "mnist/1.0.0/3f6c...": name, version, sha256 of the decoded examples

A prepared set lies in `<data_dir>/<name>/<version>/` and nothing in it changes afterwards. The data dir is the argument, else $LNREPRO_DATA,
else ~/.cache/lnrepro. Embedded sets prepare themselves at first use; the others come from their official files by
`python scripts/prepare.py NAME --raw DIR`. Anything wrong is a `DataError` of one line.

To add a set: write `lnrepro/data/<family>.py` with a `Builder` subclass (see `mnist.py`, the pattern) and give it a line in `TABLE`.

Nothing heavy is imported here: reading columns needs numpy alone, reading a source imports TFDS, preparing imports what the builder needs.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lnrepro.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from lnrepro.data.builder import Builder

__all__ = [
    "TABLE",
    "DataError",
    "builder_class",
    "data_root",
    "fingerprint",
    "open_columns",
    "open_source",
    "prepare",
    "prepared",
]


class Entry(NamedTuple):
    """Where a set's builder is, and the version of what it writes; raise the version whenever the examples change."""

    module: str
    builder: str
    version: str


TABLE: dict[str, Entry] = {
    "mnist": Entry("lnrepro.data.mnist", "Mnist", "1.0.0"),
    "digits": Entry("lnrepro.data.mnist", "Digits", "1.0.0"),
}

SEAL = "sealed.json"  # the last file written into a prepared folder: without it, and without all it lists, nothing counts as prepared


def builder_class(name: str) -> type[Builder]:
    """The builder class of a set, with its source, licence, size and raw files; imports TFDS. Raises DataError for an unknown name."""
    entry = _entry(name)
    return getattr(importlib.import_module(entry.module), entry.builder)


def data_root(data_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """The folder that holds the prepared sets: the argument, else $LNREPRO_DATA, else ~/.cache/lnrepro."""
    return pathlib.Path(data_dir or os.environ.get("LNREPRO_DATA") or "~/.cache/lnrepro").expanduser()


def prepared(name: str, data_dir: str | os.PathLike | None = None) -> bool:
    """Whether a set lies prepared and whole in the data dir."""
    return _seal(_folder(name, data_dir)) is not None


def prepare(
    name: str,
    raw: str | os.PathLike | None = None,
    data_dir: str | os.PathLike | None = None,
    *,
    any_checksum: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> pathlib.Path:
    """Prepares a set from the official files in folder `raw` and returns its folder; does nothing where it is prepared already.

    Written into a temporary folder and renamed, so two processes may do this at once and a killed one leaves nothing that counts.
    `any_checksum` admits other files of the same format. `progress(split, done, total)` is called now and then.
    `raw` defaults to `<data_dir>/raw/<name>`. Raises DataError for anything missing or wrong in the files.
    """
    final = _folder(name, data_dir)
    if _seal(final):
        return final
    cls = builder_class(name)
    from lnrepro.data.builder import build
    from lnrepro.data.raw import Raw

    files = Raw(name, pathlib.Path(raw or data_root(data_dir) / "raw" / name).expanduser(), cls.files, any_checksum)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="unfinished-", dir=final.parent, ignore_cleanup_errors=True) as scratch:
            folder = build(cls, files, pathlib.Path(scratch), progress or (lambda split, done, total: None))
            _publish(folder, final, pathlib.Path(scratch))
    except OSError as e:
        raise DataError(
            f"{name}: cannot write to {final.parent}: {e.strerror or e}; choose another place with LNREPRO_DATA or --data_dir"
        ) from e
    return final


def open_source(name: str, split: str, data_dir: str | os.PathLike | None = None) -> Source:
    """Opens a split for random access: `len(s)`, `s[i]` and `s.__getitems__(indices)` give dicts of numpy. Raises DataError."""
    folder = _open(name, split, data_dir)
    import tensorflow_datasets as tfds

    return Source(tfds.builder_from_directory(str(folder)).as_data_source(split), f"{name} ({split}) in {folder}")


def open_columns(name: str, split: str, data_dir: str | os.PathLike | None = None) -> dict[str, np.ndarray]:
    """Opens a split whose examples all have one shape as columns {name: (N, ...)}, read-only, memory-mapped. Raises DataError.

    The same numbers as `open_source`, written beside the records when the set is prepared: decoding 55,000 MNIST records takes
    1.3 s, mapping them nothing, and a batch is then one fancy-index per column.
    """
    folder = _open(name, split, data_dir)
    import numpy as np

    files = sorted((folder / "columns" / split).glob("*.npy"))
    if not files:
        raise DataError(f"{name}: its examples differ in shape, so it has no columns; read it with open_source")
    return {f.stem: np.load(f, mmap_mode="r") for f in files}


def fingerprint(name: str, data_dir: str | os.PathLike | None = None) -> str:
    """`name/version/checksum` of a prepared set; the checksum is over the decoded examples, whatever files they came from."""
    seal = _seal(_ready(name, data_dir))
    return f"{name}/{seal['version']}/{seal['sha256'][:16]}"


class Source:
    """A split: `len`, `[i]`, `__getitems__(indices)`, each example a dict of numpy. Reads ArrayRecord through TFDS."""

    def __init__(self, source: Any, where: str):
        self._source, self._where = source, where

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray]]:
        n = len(self)
        rows = [int(i) for i in indices]
        if any(not -n <= i < n for i in rows):
            raise IndexError(f"{self._where} has {n} examples, asked for {next(i for i in rows if not -n <= i < n)}")
        try:
            return self._source.__getitems__([i % n for i in rows])
        except Exception as e:
            raise DataError(
                f"{self._where} cannot be read: {_line(e)}; remove that folder and prepare the set again"
            ) from e

    def __repr__(self) -> str:
        return f"Source({self._where}, {len(self)} examples)"


def _entry(name: str) -> Entry:
    if name not in TABLE:
        import difflib

        near = difflib.get_close_matches(name, TABLE, 1)
        raise DataError(
            f"no data set is called {name!r}; {f'did you mean {near[0]!r}? ' if near else ''}there are: {', '.join(sorted(TABLE))}"
        )
    return TABLE[name]


def _folder(name: str, data_dir: str | os.PathLike | None) -> pathlib.Path:
    return data_root(data_dir) / name / _entry(name).version


def _seal(folder: pathlib.Path) -> dict[str, Any] | None:
    """What was sealed into a prepared folder, or None unless every file it lists is there with its size."""
    try:
        seal = json.loads((folder / SEAL).read_text())
        whole = all((folder / file).stat().st_size == size for file, size in seal["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return seal if whole else None


def _ready(name: str, data_dir: str | os.PathLike | None) -> pathlib.Path:
    """The set's folder; an embedded set that is not there yet is prepared first, any other is a DataError."""
    folder = _folder(name, data_dir)
    if _seal(folder) is None:
        if not builder_class(name).embedded:
            state = "is half-written or damaged" if folder.exists() else "is not there"
            raise DataError(
                f"{name} is not prepared: {folder} {state}; run `python scripts/prepare.py {name} --raw DIR` with the official files in DIR"
            )
        prepare(name, data_dir=data_dir)
    return folder


def _open(name: str, split: str, data_dir: str | os.PathLike | None) -> pathlib.Path:
    folder = _ready(name, data_dir)
    splits = _seal(folder)["splits"]
    if split not in splits:
        raise DataError(f"{name} has no split {split!r}; it has: {', '.join(splits)}")
    return folder


def _publish(folder: pathlib.Path, final: pathlib.Path, scratch: pathlib.Path) -> None:
    """Renames a sealed folder into place. Another process's whole folder stays; a half-written one goes to the scratch folder."""
    for attempt in range(10):
        try:
            return folder.rename(final)
        except OSError:
            if _seal(final):
                return None
            if not final.exists() or attempt == 9:
                raise
            final.rename(scratch / f"half-written-{attempt}")
    return None


def _line(e: BaseException) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0]
