"""Which data sets there are, and who builds them.

To add a set of your own, write a `Builder` and call `register`, or name the builder in
an entry point of the group "lnrepro.data": docs/your-own-data.md. Sets of this project
are in `TABLE`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import pathlib
import re
from importlib import metadata
from typing import TYPE_CHECKING

from lnrepro.checks import local_path
from lnrepro.data.prepared_set import newest
from lnrepro.errors import DataError

if TYPE_CHECKING:
    from lnrepro.data.builder import Builder

# Folder of all prepared sets; None is $LNREPRO_DATA, or ~/.cache/lnrepro without it.
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


def data_root(data_dir: DataDir = None) -> pathlib.Path:
    """Return the folder that holds the prepared sets.

    Raises:
      UserError: it is not on a disk of this machine.
    """
    folder = data_dir or os.environ.get("LNREPRO_DATA") or "~/.cache/lnrepro"
    return local_path(folder, "the folder of the data sets")


def register(name: str, builder: type[Builder]) -> None:
    """Add a set of one's own for this process.

    Once it is prepared, other processes find it by its name and need no builder.

    Args:
      name: the set. Its earlier builder, if there is one, is replaced.
      builder: what reads its files.

    Raises:
      DataError: this project has a set of this name, or it cannot be a name.
    """
    check_own_name(name)
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
    if not is_known(name) and OWN_NAME.fullmatch(name):
        own = newest(data_root(data_dir) / name)
        original = own.seal.original if own else None
    if original in TABLE:
        module, _, builder = TABLE[original].partition(":")
        return getattr(importlib.import_module(module), builder)
    if original in _REGISTERED:
        return _REGISTERED[original]
    # Other packages come last, so that they cannot replace a set of this project.
    for entry_point in metadata.entry_points(group=ENTRY_POINTS, name=original or name):
        return entry_point.load()
    known = sorted([*TABLE, *_REGISTERED])
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise DataError(
        f"no data set is called {name!r}; {hint}there are: {', '.join(known)}"
    )


def is_known(name: str) -> bool:
    """Return whether a set has a builder in this process."""
    if name in TABLE or name in _REGISTERED:
        return True
    return bool(metadata.entry_points(group=ENTRY_POINTS, name=name))


def set_folder(name: str, data_dir: DataDir = None) -> pathlib.Path:
    """Return the folder of a set, whether it is prepared or not.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: there is no such set.
    """
    folder = data_root(data_dir) / name
    if not is_known(name) and OWN_NAME.fullmatch(name):
        own = newest(folder)
        if own and own.seal.original is None:
            # It was prepared by a builder that is registered in another process.
            return own.folder
    return folder / builder_class(name, data_dir).version


def check_own_name(own_name: str) -> None:
    """Check the name of a set of own files.

    Raises:
      DataError: a set of this project has it, or it cannot be a name.
    """
    if own_name in TABLE:
        raise DataError(f"{own_name!r} is an official set; choose another name")
    if not OWN_NAME.fullmatch(own_name):
        raise DataError(
            f"{own_name!r} cannot be the name of a set; use letters, digits and _"
        )
