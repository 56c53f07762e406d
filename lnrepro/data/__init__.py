"""Data sets by name: prepared once into ArrayRecord by a TFDS builder, then read by random access, without TensorFlow.

    from lnrepro import data
    source = data.open_source("mnist", "train")    # len(source), source[i], source.__getitems__([3, 1]): dicts of numpy
    columns = data.open_columns("mnist", "train")  # {"image": (N, 28, 28) uint8, "label": (N,) int32}
    line = data.fingerprint("mnist")               # "mnist/1.0.0/43f6...": name, version, sha256 of the examples

A prepared set lies in `<data_dir>/<name>/<version>/` and nothing in it changes afterwards. The data dir is the
argument, else $LNREPRO_DATA, else ~/.cache/lnrepro. Embedded sets prepare themselves at first use; the others come from
their official files by `python scripts/prepare.py NAME --raw DIR`. Anything wrong is a `DataError` of one line.

To add a set: write `lnrepro/data/official/<family>.py` with a `Builder` subclass (`mnist.py` is the pattern) and give it a line
in `TABLE`.

Nothing heavy is imported here: columns and fingerprints need numpy alone, a source imports TFDS (0.2 s), preparing
imports what the builder needs.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lnrepro.engine.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from lnrepro.data.builder import Builder
    from lnrepro.data.ragged import Ragged

__all__ = [
    "TABLE",
    "DataError",
    "builder_class",
    "data_root",
    "facts",
    "fingerprint",
    "open_columns",
    "open_config",
    "open_source",
    "place",
    "prepare",
    "prepared",
]


class Entry(NamedTuple):
    """Where a set's builder is, and the version of what it writes; raise the version whenever the examples change."""

    module: str
    builder: str
    version: str


TABLE: dict[str, Entry] = {
    "mnist": Entry("lnrepro.data.official.mnist", "Mnist", "1.0.0"),
    "digits": Entry("lnrepro.data.official.mnist", "Digits", "1.0.0"),
    "binarized_mnist": Entry(
        "lnrepro.data.official.binarized_mnist", "BinarizedMnist", "1.0.0"
    ),
    "binarized_digits": Entry(
        "lnrepro.data.official.binarized_mnist", "BinarizedDigits", "1.0.0"
    ),
    "coco_captions": Entry("lnrepro.data.official.captions", "CocoCaptions", "1.0.0"),
    "captions_proxy": Entry("lnrepro.data.official.captions", "CaptionsProxy", "1.0.0"),
    "scenes": Entry("lnrepro.data.generated.scenes", "Scenes", "1.0.0"),
    "cnn": Entry("lnrepro.data.official.cnn", "Cnn", "1.0.0"),
    "cnn_top4": Entry("lnrepro.data.official.cnn", "CnnTop4", "1.0.0"),
    "gutenberg_cloze": Entry("lnrepro.data.official.cnn", "GutenbergCloze", "1.0.0"),
    "news_stories": Entry("lnrepro.data.official.cnn", "NewsStories", "1.0.0"),
    "iam_ondb": Entry("lnrepro.data.official.iam_ondb", "IamOndb", "1.0.0"),
    "generated_strokes": Entry(
        "lnrepro.data.generated.pen_strokes", "GeneratedStrokes", "1.0.0"
    ),
    "bookcorpus": Entry("lnrepro.data.official.books", "BookCorpus", "1.0.0"),
    "gutenberg": Entry("lnrepro.data.official.books", "Gutenberg", "1.0.0"),
    "stories": Entry("lnrepro.data.official.books", "Stories", "1.0.0"),
    "sick": Entry("lnrepro.data.official.sentences", "Sick", "1.0.0"),
    "mr": Entry("lnrepro.data.official.sentences", "Mr", "1.0.0"),
    "cr": Entry("lnrepro.data.official.sentences", "Cr", "1.0.0"),
    "subj": Entry("lnrepro.data.official.sentences", "Subj", "1.0.0"),
    "mpqa": Entry("lnrepro.data.official.sentences", "Mpqa", "1.0.0"),
    "story_sick": Entry("lnrepro.data.official.sentences", "StorySick", "1.0.0"),
    "story_mr": Entry("lnrepro.data.official.sentences", "StoryMr", "1.0.0"),
    "story_cr": Entry("lnrepro.data.official.sentences", "StoryCr", "1.0.0"),
    "story_subj": Entry("lnrepro.data.official.sentences", "StorySubj", "1.0.0"),
    "story_mpqa": Entry("lnrepro.data.official.sentences", "StoryMpqa", "1.0.0"),
}

# The last file written into a prepared folder: without it, and all the files it lists, nothing counts as prepared.
SEAL = "sealed.json"
# What the builder said of the whole set, where it said anything.
FACTS = "facts.json"


def builder_class(name: str) -> type[Builder]:
    """The builder class of a set: its source, licence, size, raw files. Raises DataError for an unknown name."""
    entry = _entry(name)
    return getattr(importlib.import_module(entry.module), entry.builder)


def data_root(data_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """The folder that holds the prepared sets: the argument, else $LNREPRO_DATA, else ~/.cache/lnrepro."""
    return pathlib.Path(
        data_dir or os.environ.get("LNREPRO_DATA") or "~/.cache/lnrepro"
    ).expanduser()


def place(name: str, data_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """The folder where a set lies, or would lie, prepared. Raises DataError for an unknown name."""
    return data_root(data_dir) / name / _entry(name).version


def prepared(name: str, data_dir: str | os.PathLike | None = None) -> bool:
    """Whether a set lies prepared and whole in the data dir."""
    return _seal(place(name, data_dir)) is not None


def prepare(
    name: str,
    raw: str | os.PathLike | None = None,
    data_dir: str | os.PathLike | None = None,
    *,
    any_checksum: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> pathlib.Path:
    """Prepare a set from the official files in folder `raw` (default: `<data_dir>/raw/<name>`) and return its folder.

    Does nothing where the set is prepared already. Written into a temporary folder and renamed, so two processes may do
    this at once and a killed one leaves nothing that counts. `any_checksum` admits other files of the same format.
    `progress(what, done, total)` is called now and then. Raises DataError for anything missing or wrong in the files.
    """
    final = place(name, data_dir)
    if _seal(final):
        return final
    cls = builder_class(name)
    from lnrepro.data.builder import build
    from lnrepro.data.raw import Raw

    files = Raw(
        name,
        pathlib.Path(raw or data_root(data_dir) / "raw" / name).expanduser(),
        cls.files,
        any_checksum,
    )
    try:
        root = data_root(data_dir)
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix="unfinished-", dir=root, ignore_cleanup_errors=True
        ) as scratch:
            folder = build(
                cls,
                files,
                pathlib.Path(scratch),
                progress or (lambda what, done, total: None),
            )
            final.parent.mkdir(exist_ok=True)
            _publish(folder, final, pathlib.Path(scratch))
    except OSError as e:
        raise DataError(
            f"{name}: cannot write to {final.parent} ({e.strerror or e}); choose another data dir with $LNREPRO_DATA"
        ) from e
    return final


def open_source(
    name: str, split: str, data_dir: str | os.PathLike | None = None
) -> Source:
    """Open a split for random access: `len(s)`, `s[i]` and `s.__getitems__(indices)`. Raises DataError."""
    folder = _open(name, split, data_dir)
    import tensorflow_datasets as tfds

    if not (folder / "features.json").exists():
        raise DataError(
            f"{name} ({split}): too large for records, it has columns only; use open_columns"
        )
    _no_foreign_classes(folder / "features.json")
    return Source(
        tfds.builder_from_directory(str(folder)).as_data_source(split),
        f"{name} ({split}) in {folder}",
    )


def _no_foreign_classes(path: pathlib.Path) -> None:
    """TFDS imports whatever module this file names; a prepared set from others shall execute nothing."""
    try:
        pending = [json.loads(path.read_bytes())]
    except (OSError, ValueError, RecursionError) as e:
        raise DataError(
            f"{path}: cannot be read ({e}); remove that folder, prepare the set again"
        ) from None
    while pending:
        value = pending.pop()
        if isinstance(value, dict | list):
            pending += value.values() if isinstance(value, dict) else value
        elif (
            isinstance(value, str)
            and "." in value
            and not value.startswith("tensorflow_datasets.core.features.")
        ):
            raise DataError(
                f"{path}: names {value!r:.80}, which TFDS would import; do not trust it, prepare the set again"
            )


def open_columns(
    name: str, split: str, data_dir: str | os.PathLike | None = None
) -> dict[str, np.ndarray | Ragged]:
    """Open a split as read-only columns {name: (N, ...)}; `Ragged` where examples differ in length. Raises DataError.

    The same numbers as from `open_source`, written beside the records when the set is prepared and memory-mapped here:
    decoding 55,000 MNIST records takes 1.3 s at every start, mapping them a millisecond; a batch is one fancy-index.
    """
    folder = _open(name, split, data_dir)
    from lnrepro.data import ragged

    columns = ragged.load(folder / "columns" / split)
    if not columns:
        raise DataError(
            f"{name} ({split}): its examples are not all numbers, so it has no columns; use open_source"
        )
    return columns


def open_config(spec: Any, split: str) -> dict[str, np.ndarray | Ragged]:
    """`open_columns` of a config's `data` field (name, dir, train_examples). Raises DataError if the size is not the config's."""
    columns = open_columns(spec.name, split, spec.dir)
    rows = len(next(iter(columns.values())))
    if split == "train" and rows != spec.train_examples:
        raise DataError(
            f"config.data.train_examples = {spec.train_examples}, but {spec.name} has {rows}"
        )
    return columns


def fingerprint(name: str, data_dir: str | os.PathLike | None = None) -> str:
    """`name/version/checksum` of a prepared set; the sum is over the decoded examples, whatever files held them."""
    seal = _seal(_ready(name, data_dir))
    return f"{name}/{seal['version']}/{seal['sha256'][:16]}"


def facts(name: str, data_dir: str | os.PathLike | None = None) -> dict[str, Any]:
    """What the builder says of the whole set (vocabulary, statistics, files skipped), {} if nothing. Raises DataError."""
    file = _ready(name, data_dir) / FACTS
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


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
        if outside := [i for i in rows if not -n <= i < n]:
            raise IndexError(
                f"{self._where} has {n} examples; there is no number {outside[0]}"
            )
        try:
            return self._source.__getitems__([i % n for i in rows])
        except (
            Exception
        ) as e:  # the reader raises what it likes; whatever it is, the file is damaged
            what = (str(e).splitlines() or [type(e).__name__])[0]
            raise DataError(
                f"{self._where} cannot be read ({what}); remove that folder, prepare the set again"
            ) from e

    def __repr__(self) -> str:
        return f"Source({self._where}, {len(self)} examples)"


def _entry(name: str) -> Entry:
    if name not in TABLE:
        import difflib

        near = difflib.get_close_matches(name, TABLE, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise DataError(
            f"no data set is called {name!r}; {hint}there are: {', '.join(sorted(TABLE))}"
        )
    return TABLE[name]


def _seal(folder: pathlib.Path) -> dict[str, Any] | None:
    """What was sealed into a prepared folder, or None unless every file it lists is there with its size."""
    try:
        seal = json.loads((folder / SEAL).read_text())
        whole = all(
            (folder / file).stat().st_size == size
            for file, size in seal["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return seal if whole else None


def _ready(name: str, data_dir: str | os.PathLike | None) -> pathlib.Path:
    """The set's folder; an embedded set that is not there yet is prepared first, any other is a DataError."""
    folder = place(name, data_dir)
    if _seal(folder) is None:
        if not builder_class(name).embedded:
            state = "is half-written or damaged" if folder.exists() else "is not there"
            raise DataError(
                f"{name} is not prepared: {folder} {state}; "
                f"run `python scripts/prepare.py {name} --raw DIR` with the official files in DIR"
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
    """Rename a sealed folder into place; a whole one that another process put there stays, a half-written one goes."""
    for attempt in range(10):
        try:
            folder.rename(final)
            return
        except OSError:
            if _seal(final):
                return
            if attempt == 9 or not final.exists():
                raise
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                final.rename(scratch / f"half-written-{attempt}")
