"""A small data set for the tests: numbers in train.txt and test.txt; and own sets."""

import pathlib
from typing import Any

import numpy as np

from lnrepro import data
from lnrepro.data import files
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Content, Reader

FILES = {"train.txt": "3 10 7 1000 25", "test.txt": "8 8"}


def read(raw: RawFolder) -> Content:
    """Read numbers: their values, their digits, and how many there are."""
    splits = {}
    for split in ("train", "test"):
        path = raw.path(f"{split}.txt")
        words = files.decode(raw.read(f"{split}.txt"), path).split()
        splits[split] = {
            "value": np.array(words, np.int32),
            "digits": [np.frombuffer(word.encode(), np.uint8) for word in words],
        }
    numbers = sum(len(columns["value"]) for columns in splits.values())
    return Content(splits, {"words": ["ä", "b"]}, {"numbers": numbers})


READER = Reader(
    title="Numbers in two files.",
    read=read,
    source="made up",
    licence="none",
    size="5 train, 2 test",
    files=dict.fromkeys(FILES),
)


def prepare_own(folder: pathlib.Path, splits: Any, **fields: Any) -> None:
    """Prepare the set "own" of these columns, whose reader has these fields."""
    reader = Reader(title="Own.", read=lambda raw: Content(splits), **fields)
    data.prepare("own", folder, folder, reader=reader)
