"""Parsers of the files that contain captions.

They come in one of two formats. The first one is text, see captions.py. The second one
is Karpathy's dataset_coco.json, of which the first five captions of an image are used:

    {"images": [{"split": "train", "cocoid": 7, "sentences": [
        {"tokens": ["a", "red", "kite"]}, ...]}, ...]}
"""

import itertools
import json
import operator
import unicodedata
from typing import NamedTuple

import numpy as np

from lnrepro.data import files
from lnrepro.data.files import AGAIN, decode
from lnrepro.data.raw_folder import RawFolder
from lnrepro.errors import DataError

PER_IMAGE = 5
# Our names of the splits, and the names in the files.
SPLITS = {"train": "train", "valid": "val", "test": "test"}

# Captions, each a list of words, and the captions of each image.
Lines = list[list[str]]
ByImage = list[Lines]


class Split(NamedTuple):
    """Captions of a split.

    Attributes:
      by_image: the captions of each image.
      ids: ids of the images [N].
      where: the file, for messages.
    """

    by_image: ByImage
    ids: np.ndarray
    where: object = "captions"


def read_text(raw: RawFolder, stem: str, rows: int) -> Split:
    """Read a text file of captions, and the ids that say to which image each belongs.

    Args:
      raw: the folder.
      stem: name of the split in the files.
      rows: number of images. Without a file of ids, or with one id for each image, all
        images have the same number of captions.

    Raises:
      DataError: a file is missing or wrong, or the numbers do not fit.
    """
    where = raw.path(f"{stem}.txt")
    captions = parse_text(files.read(where), where)
    # Without a file of ids, an image is called by its position.
    ids = np.arange(rows)
    if ids_file := raw.find(f"{stem}_ids.txt"):
        try:
            ids = np.array(decode(files.read(ids_file), ids_file).split(), np.int64)
        except (ValueError, OverflowError) as e:
            raise DataError(
                f"{ids_file}: not one image id per line ({e!r:.80}); {AGAIN}"
            ) from None
    if len(ids) == rows:
        # From one id for each image to one for each caption.
        ids = np.repeat(ids, len(captions) // rows)
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    if len(captions) != len(ids) or len(starts) != rows:
        raise DataError(
            f"{where}: {len(captions)} captions are not the same number for each of "
            f"{rows} images; if the numbers differ, write {stem}_ids.txt with the "
            f"number of the image of each caption (now {len(ids)} ids of {len(starts)} "
            "images)"
        )
    bounds = itertools.pairwise([*starts, len(captions)])
    return Split([captions[start:end] for start, end in bounds], ids[starts], where)


def parse_text(content: bytes, where: object) -> Lines:
    """Parse a text file with one caption per line.

    Args:
      content: content of the file.
      where: name of the file, for messages.

    Returns:
      The words of each line. An empty line has none, and keeps its place, except at
      the end of the file.

    Raises:
      DataError: it is not text, or there is no caption.
    """
    # str.splitlines would also cut at form feeds and at U+2028.
    lines = decode(content, where).rstrip().split("\n")
    captions = [line.split() for line in lines]
    if not any(captions):
        raise DataError(f"{where}: contains no caption; {AGAIN}")
    return captions


def parse_karpathy(content: bytes, where: object) -> dict[str, Split]:
    """Parse Karpathy's dataset_coco.json.

    The images of "restval" are those of COCO's validation set that Karpathy uses for
    training, as the authors do. They follow those of "train".

    Args:
      content: content of the file.
      where: name of the file, for messages.

    Raises:
      DataError: a value is missing or wrong.
    """
    try:
        images = json.loads(decode(content, where))["images"]
        found = {name: [] for name in ("train", "restval", "val", "test")}
        for n, image in enumerate(images):
            captions = [_words(sentence["tokens"]) for sentence in image["sentences"]]
            number = np.int64(image.get("cocoid", n))
            # Captions with words come before others.
            first = sorted(captions, key=operator.not_)[:PER_IMAGE]
            found[image["split"]].append((number, first))
    # A damaged file, and missing and other values, raise many kinds of errors.
    except Exception as e:
        raise DataError(
            f"{where}: not JSON with a list of images that have split, cocoid and "
            f"sentences[].tokens ({e!r:.80}); {AGAIN}"
        ) from e
    found["train"] += found["restval"]
    splits = {}
    for split, stem in SPLITS.items():
        ids = np.array([number for number, _ in found[stem]], np.int64)
        splits[split] = Split([captions for _, captions in found[stem]], ids, where)
    return splits


def _words(tokens: object) -> list[str]:
    """Return a list of words. Raise TypeError or ValueError for other JSON values."""
    if not isinstance(tokens, list):
        raise TypeError("tokens are no list")
    words = [unicodedata.normalize("NFC", token) for token in tokens]
    # Half of a surrogate pair, which JSON may contain, cannot be encoded.
    " ".join(words).encode()
    return words
