"""Which data sets there are, and where they are prepared.

To add a set to this project, add a line to `TABLE`. Other packages name their readers
in entry points of the group "lnrepro.data": docs/data.md.
"""

import difflib
import os
import pathlib
import re
from importlib import metadata

from lnrepro.data.reader import Reader
from lnrepro.data.set_folder import SET_FILE, open_folder
from lnrepro.errors import DataError
from lnrepro.paths import local_path

# Folder of all prepared sets; None is $LNREPRO_DATA, or ~/.cache/lnrepro without it.
DataDir = str | os.PathLike | None

# What a set of own files may be called.
OWN_NAME = re.compile(r"[A-Za-z0-9_]+")
# Other packages name their readers in entry points of this group.
ENTRY_POINTS = "lnrepro.data"

# Module and name of the reader of each set.
TABLE = {
    "mnist": "lnrepro.data.readers.mnist:MNIST",
    "digits": "lnrepro.data.generated.digits:DIGITS",
    "binarized_mnist": "lnrepro.data.readers.binarized_mnist:BINARIZED_MNIST",
    "binarized_digits": "lnrepro.data.generated.digits:BINARIZED_DIGITS",
    "coco_captions": "lnrepro.data.readers.captions:COCO_CAPTIONS",
    "scenes": "lnrepro.data.generated.scenes:SCENES",
    "cnn": "lnrepro.data.readers.cnn:CNN",
    "cnn_top4": "lnrepro.data.readers.cnn_top4:CNN_TOP4",
    "news_stories": "lnrepro.data.generated.news:NEWS_STORIES",
    "iam_ondb": "lnrepro.data.readers.iam_ondb:IAM_ONDB",
    "generated_strokes": "lnrepro.data.generated.pen_strokes:GENERATED_STROKES",
    "bookcorpus": "lnrepro.data.readers.books:BOOKCORPUS",
    "stories": "lnrepro.data.generated.story_sets:STORIES",
    "sick": "lnrepro.data.readers.sentences:SICK",
    "mr": "lnrepro.data.readers.sentences:MR",
    "cr": "lnrepro.data.readers.sentences:CR",
    "subj": "lnrepro.data.readers.sentences:SUBJ",
    "mpqa": "lnrepro.data.readers.sentences:MPQA",
    "story_sick": "lnrepro.data.generated.story_sets:STORY_SICK",
    "story_mr": "lnrepro.data.generated.story_sets:STORY_MR",
    "story_cr": "lnrepro.data.generated.story_sets:STORY_CR",
    "story_subj": "lnrepro.data.generated.story_sets:STORY_SUBJ",
    "story_mpqa": "lnrepro.data.generated.story_sets:STORY_MPQA",
}

# Sets that configs name and that are no official ones, and the formats of their files.
STAND_INS = {
    "captions_proxy": "coco_captions",
    "gutenberg": "bookcorpus",
    "gutenberg_cloze": "cnn",
}


def data_root(data_dir: DataDir = None) -> pathlib.Path:
    """Return the folder that holds the prepared sets.

    Raises:
      UserError: it is not on a disk of this machine.
    """
    folder = data_dir or os.environ.get("LNREPRO_DATA") or "~/.cache/lnrepro"
    return local_path(folder, "the folder of the data sets")


def known_reader(name: str) -> Reader | None:
    """Return the reader of a set; None if this process knows none of this name."""
    if name in TABLE:
        return metadata.EntryPoint(name, TABLE[name], ENTRY_POINTS).load()
    for entry_point in metadata.entry_points(group=ENTRY_POINTS, name=name):
        return entry_point.load()
    return None


def reader_of(name: str, data_dir: DataDir = None) -> Reader:
    """Return the reader of a set: its source, licence, size and official files.

    Args:
      name: the set. One of own files has the reader of the set whose format it has.
      data_dir: the folder of all prepared sets, where own sets are found.

    Raises:
      DataError: there is no such set, or it is damaged.
    """
    if found := known_reader(name):
        return found
    own = open_folder(folder_of(name, data_dir))
    if own is None or own.format == name:
        raise _unknown(name)
    return reader_of(own.format, data_dir)


def folder_of(name: str, data_dir: DataDir = None) -> pathlib.Path:
    """Return the folder of a set, whether it is prepared or not.

    Args:
      name: the set.
      data_dir: the folder of all prepared sets.

    Raises:
      DataError: there is no such set.
    """
    folder = data_root(data_dir) / name
    if found := known_reader(name):
        return folder / found.version
    # A set of own files.
    if OWN_NAME.fullmatch(name) and (sets := sorted(folder.glob(f"*/{SET_FILE}"))):
        return sets[-1].parent
    raise _unknown(name)


def raw_folder(
    name: str, raw: str | os.PathLike | None = None, data_dir: DataDir = None
) -> pathlib.Path:
    """Return the folder of the official files of a set.

    Args:
      name: the set.
      raw: the folder, if it is named. Default: `<data dir>/raw/<name>`.
      data_dir: the folder of all prepared sets.
    """
    return pathlib.Path(raw or data_root(data_dir) / "raw" / name).expanduser()


def _unknown(name: str) -> DataError:
    if name in STAND_INS:
        return DataError(
            f"{name} is not prepared; run `python scripts/prepare.py "
            f"{STAND_INS[name]} --raw DIR --as {name}` with its files in DIR; "
            "docs/data.md says where they come from"
        )
    known = sorted(TABLE)
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return DataError(
        f"no data set is called {name!r}; {hint}there are: {', '.join(known)}"
    )
