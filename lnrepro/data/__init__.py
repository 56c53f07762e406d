"""Data sets by name.

    from lnrepro import data
    columns = data.open_columns("mnist", "train")
    columns["image"]           # (55000, 28, 28) uint8
    data.fingerprint("mnist")  # "mnist/1.0.0/43f6...": name, version, checksum

Training reads columns: NumPy arrays that are mapped into memory, so that opening them
takes a millisecond and a batch is one indexing operation. `lnrepro.data.batches` makes
batches of them.

The same examples are also stored as ArrayRecord by tensorflow-datasets (TFDS), which
the project has to support. `open_source` gives random access to this copy, for Grain,
for other users of TFDS, and for examples that are not all numbers.

A set is prepared once, in `<data dir>/<name>/<version>/`, and never changes afterwards.
The data dir is the argument `data_dir`, else $LNREPRO_DATA, else ~/.cache/lnrepro. An
embedded set is prepared at its first use. Other sets are prepared from their official
files by `python scripts/prepare.py NAME --raw DIR`.

To add a set of your own, write a `Builder` and call `register`, or name the builder in
an entry point of the group "lnrepro.data": docs/your-own-data.md. Sets of this project
are in `TABLE`. This module imports neither TFDS nor Grain: reading columns needs NumPy
only.
"""

from __future__ import annotations

import difflib
import importlib
import os
import pathlib
import re
import tempfile
from importlib import metadata
from typing import TYPE_CHECKING, Any

from lnrepro.data import store
from lnrepro.data.store import SEAL
from lnrepro.engine.command_line import local_path
from lnrepro.engine.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from lnrepro.data.builder import Builder, Progress
    from lnrepro.data.ragged import Ragged
    from lnrepro.data.store import Source

__all__ = [
    "SEAL",
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
    "register",
    "split_sizes",
]

# Folder of all prepared sets; None is the default, see the top of this module.
DataDir = str | os.PathLike | None

# What a set of own files may be called.
OWN_NAME = re.compile(r"[A-Za-z0-9_]+")
# Other packages name their builders in entry points of this group.
ENTRY_POINTS = "lnrepro.data"

# Module and class of the builder of each set.
TABLE = {
    "mnist": "lnrepro.data.official.mnist:Mnist",
    "digits": "lnrepro.data.generated.digits:Digits",
    "binarized_mnist": "lnrepro.data.official.binarized_mnist:BinarizedMnist",
    "binarized_digits": "lnrepro.data.generated.digits:BinarizedDigits",
    "coco_captions": "lnrepro.data.official.captions:CocoCaptions",
    "captions_proxy": "lnrepro.data.official.captions:CaptionsProxy",
    "scenes": "lnrepro.data.generated.scenes:Scenes",
    "cnn": "lnrepro.data.official.cnn:Cnn",
    "cnn_top4": "lnrepro.data.official.cnn:CnnTop4",
    "gutenberg_cloze": "lnrepro.data.official.cnn:GutenbergCloze",
    "news_stories": "lnrepro.data.generated.news:NewsStories",
    "iam_ondb": "lnrepro.data.official.iam_ondb:IamOndb",
    "generated_strokes": "lnrepro.data.generated.pen_strokes:GeneratedStrokes",
    "bookcorpus": "lnrepro.data.official.books:BookCorpus",
    "gutenberg": "lnrepro.data.official.books:Gutenberg",
    "stories": "lnrepro.data.generated.story_sets:Stories",
    "sick": "lnrepro.data.official.sentences:Sick",
    "mr": "lnrepro.data.official.sentences:Mr",
    "cr": "lnrepro.data.official.sentences:Cr",
    "subj": "lnrepro.data.official.sentences:Subj",
    "mpqa": "lnrepro.data.official.sentences:Mpqa",
    "story_sick": "lnrepro.data.generated.story_sets:StorySick",
    "story_mr": "lnrepro.data.generated.story_sets:StoryMr",
    "story_cr": "lnrepro.data.generated.story_sets:StoryCr",
    "story_subj": "lnrepro.data.generated.story_sets:StorySubj",
    "story_mpqa": "lnrepro.data.generated.story_sets:StoryMpqa",
}


# Builders of the user's own sets.
_REGISTERED: dict[str, type[Builder]] = {}


def register(name: str, builder: type[Builder]) -> None:
    """Add a set of one's own for this process.

    Once it is prepared, other processes find it by its name and need no builder.

    Args:
      name: the set. Its earlier builder, if there is one, is replaced.
      builder: what reads its files.

    Raises:
      DataError: this project has a set of this name, or it cannot be a name.
    """
    _check_own_name(name)
    _REGISTERED[name] = builder


def builder_class(name: str, data_dir: DataDir = None) -> type[Builder]:
    """Return the builder of a set: its source, licence, size and official files.

    Args:
      name: the set. A set of own files has the builder of the set whose format it has.
      data_dir: the folder of all prepared sets, where own sets are found.

    Raises:
      DataError: there is no such set.
    """
    original = name
    # A set of own files says in its seal whose format it has.
    if not _is_known(name) and OWN_NAME.fullmatch(name):
        original = store.read_original(data_root(data_dir) / name)
    if original in TABLE:
        module, _, builder = TABLE[original].partition(":")
        return getattr(importlib.import_module(module), builder)
    if original in _REGISTERED:
        return _REGISTERED[original]
    for entry_point in metadata.entry_points(group=ENTRY_POINTS, name=original or name):
        return entry_point.load()
    known = sorted([*TABLE, *_REGISTERED])
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise DataError(
        f"no data set is called {name!r}; {hint}there are: {', '.join(known)}"
    )


def _is_known(name: str) -> bool:
    """Return whether a set has a builder in this process."""
    if name in TABLE or name in _REGISTERED:
        return True
    return bool(metadata.entry_points(group=ENTRY_POINTS, name=name))


def data_root(data_dir: DataDir = None) -> pathlib.Path:
    """Return the folder that holds the prepared sets: see the top of this module.

    Raises:
      UserError: it is not on a disk of this machine.
    """
    folder = data_dir or os.environ.get("LNREPRO_DATA") or "~/.cache/lnrepro"
    return local_path(folder, "the folder of the data sets")


def place(name: str, data_dir: DataDir = None) -> pathlib.Path:
    """Return the folder of a set, whether it is prepared or not.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: there is no such set.
    """
    folder = data_root(data_dir) / name
    if not _is_known(name) and OWN_NAME.fullmatch(name):
        there = store.find_sealed(folder)
        if there and store.seal_of(there).original is None:
            # It was prepared by a builder that is registered in another process.
            return there
    return folder / builder_class(name, data_dir).version


def prepared(name: str, data_dir: DataDir = None) -> bool:
    """Return whether a set is prepared, and all its files are there.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: there is no such set.
    """
    return store.read_seal(place(name, data_dir)) is not None


def damaged_files(name: str, data_dir: DataDir = None) -> list[str]:
    """Return the files of a prepared set whose content has changed.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Returns:
      Their paths within the folder of the set.

    Raises:
      DataError: there is no such set, or it is not whole.
    """
    return store.damaged_files(place(name, data_dir))


def prepare(
    name: str,
    raw: str | os.PathLike | None = None,
    data_dir: DataDir = None,
    *,
    own_name: str | None = None,
    progress: Progress | None = None,
) -> pathlib.Path:
    """Prepare a set from its official files, unless that is done already.

    With `own_name`, the files may be any of the same format. The set gets that name, so
    that it cannot be mistaken for the official one.

    The set is written to a temporary folder, which is then renamed. Therefore two
    processes may do this at once, and one that is killed leaves no half-written set.

    Args:
      name: the set.
      raw: the folder of the official files. Default: `<data dir>/raw/<name>`.
      data_dir: the folder of all prepared sets.
      own_name: name of a set of own files. None accepts the official files only.
      progress: called as `progress(what, done, total)` now and then.

    Returns:
      The folder of the prepared set.

    Raises:
      DataError: a file is missing or wrong, `own_name` is taken, or the data dir cannot
        be written.
    """
    builder = builder_class(name)
    root = data_root(data_dir)
    if own_name is not None:
        _check_own_name(own_name)
        if store.find_sealed(root / own_name):
            raise DataError(
                f"{own_name} is prepared already; choose another name, or remove "
                f"{root / own_name} first"
            )
    final = root / (own_name or name) / builder.version
    # A prepared set never changes, so nothing is left to do.
    if store.read_seal(final):
        return final
    from lnrepro.data.raw import Raw

    folder = pathlib.Path(raw or root / "raw" / name).expanduser()
    files = Raw(name, folder, builder.files, any_checksum=own_name is not None)
    try:
        root.mkdir(parents=True, exist_ok=True)
        # A folder in the data dir itself, so that the rename stays on one file system.
        with tempfile.TemporaryDirectory(
            prefix="unfinished-", dir=root, ignore_cleanup_errors=True
        ) as scratch:
            scratch = pathlib.Path(scratch)
            written = builder.write(files, scratch, progress or _no_progress)
            original = name if own_name else None
            store.seal(written, own_name or name, builder.version, original)
            final.parent.mkdir(exist_ok=True)
            store.publish(written.folder, final, scratch)
    except OSError as e:
        raise DataError(
            f"{name}: cannot write to {final.parent} ({e.strerror or e}); "
            "choose another data dir with $LNREPRO_DATA"
        ) from e
    return final


def _check_own_name(own_name: str) -> None:
    if own_name in TABLE:
        raise DataError(f"{own_name!r} is an official set; choose another name")
    if not OWN_NAME.fullmatch(own_name):
        raise DataError(
            f"{own_name!r} cannot be the name of a set; use letters, digits and _"
        )


def open_columns(
    name: str, split: str, data_dir: DataDir = None
) -> dict[str, np.ndarray | Ragged]:
    """Open a split as columns.

    Args:
      name: the set.
      split: such as "train".
      data_dir: the folder of all prepared sets.

    Returns:
      The features by name: read-only arrays with the examples along the first axis, or
      `Ragged` where examples differ in length.

    Raises:
      DataError: the set is not prepared, has no such split, or has no columns.
    """
    return store.read_columns(_folder(name, data_dir, split), split)


def open_source(name: str, split: str, data_dir: DataDir = None) -> Source:
    """Open a split for random access to single examples.

    Args:
      name: the set.
      split: such as "train".
      data_dir: the folder of all prepared sets.

    Returns:
      A sequence of examples, each a dict of arrays.

    Raises:
      DataError: the set is not prepared, has no such split, or has columns only.
    """
    return store.read_source(_folder(name, data_dir, split), split)


def open_config(spec: Any, split: str) -> dict[str, np.ndarray | Ragged]:
    """Open the columns of a split of the set that a config states.

    Args:
      spec: `config.data`, with the fields name, dir and train_examples.
      split: such as "train".

    Raises:
      DataError: as for `open_columns`, or the config states another size.
    """
    columns = open_columns(spec.name, split, spec.dir)
    size = len(next(iter(columns.values())))
    if split == "train" and size != spec.train_examples:
        raise DataError(
            f"config.data.train_examples = {spec.train_examples}, but {spec.name} has "
            f"{size}"
        )
    return columns


def fingerprint(name: str, data_dir: DataDir = None) -> str:
    """Return "name/version/checksum" of a prepared set.

    The checksum is of the decoded examples, whatever files they came from.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: the set is not prepared.
    """
    seal = store.seal_of(_folder(name, data_dir))
    # Sixteen hexadecimal digits are 64 bits, enough to tell data sets apart.
    return f"{name}/{seal.version}/{seal.sha256[:16]}"


def split_sizes(name: str, data_dir: DataDir = None) -> dict[str, int]:
    """Return the number of examples of each split.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: the set is not prepared.
    """
    return store.seal_of(_folder(name, data_dir)).splits


def facts(name: str, data_dir: DataDir = None) -> dict[str, Any]:
    """Return facts of a whole set, such as its vocabulary; {} if it has none.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: the set is not prepared.
    """
    return store.read_facts(_folder(name, data_dir))


def _no_progress(what: str, done: int, total: int) -> None:
    """Report nothing."""


def _folder(name: str, data_dir: DataDir, split: str | None = None) -> pathlib.Path:
    """Return the folder of a prepared set, and check that it has a split.

    An embedded set is prepared first if necessary.
    """
    folder = place(name, data_dir)
    if store.read_seal(folder) is None:
        builder = builder_class(name, data_dir)
        if not builder.embedded:
            state = "is half-written or damaged" if folder.exists() else "is not there"
            hint = ", or with --download" if any(f.urls for f in builder.files) else ""
            raise DataError(
                f"{name} is not prepared: {folder} {state}; run `python "
                f"scripts/prepare.py {name} --raw DIR` with the official files in DIR"
                f"{hint}"
            )
        prepare(name, data_dir=data_dir)
    splits = store.seal_of(folder).splits
    if split is not None and split not in splits:
        raise DataError(f"{name} has no split {split!r}; it has: {', '.join(splits)}")
    return folder
