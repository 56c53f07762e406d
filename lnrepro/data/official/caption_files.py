"""Parsers of the files that contain captions and image features.

Captions come in one of three formats. The first one is text, see captions.py. The
second one is Karpathy's dataset_coco.json. The third one is COCO's captions_*.json
together with {train,val,test}_ids.txt, which have one image id per line:

    dataset_coco.json
        {"images": [{"split": "train", "cocoid": 7, "sentences": [
            {"tokens": ["a", "red", "kite"]}, ...]}, ...]}
    captions_train2014.json
        {"annotations": [{"image_id": 7, "id": 1, "caption": "A red kite."}, ...]}

COCO's captions are converted to lower case, without punctuation, as Karpathy did. Of
both JSON formats the first five captions of an image are used. The files may be damaged
or hostile, so that all values are checked.
"""

from __future__ import annotations

import codecs
import json
import pathlib
import string
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lnrepro.data.raw import Raw, unpack
from lnrepro.data.text import is_text
from lnrepro.engine.errors import DataError

PER_IMAGE = 5
FEATURES = 4096
# Our names of the splits, and the names in the files.
SPLITS = {"train": "train", "valid": "val", "test": "test"}
# Characters of a line.
LONGEST = 1 << 16
# Bytes of a file of captions. Karpathy's file has 150 MB.
LARGEST = 1 << 29
# Rows of features that are checked at once.
CHUNK = 1024
PUNCTUATION = str.maketrans("", "", string.punctuation)

# Captions, each a list of words. Those of one image are in a row.
Lines = list[list[str]]


class Split(NamedTuple):
    """Captions of a split.

    Attributes:
      captions: the captions.
      ids: ids of the images [N].
      counts: number of captions of each image [N].
    """

    captions: Lines
    ids: np.ndarray
    counts: np.ndarray


def tokenise(text: str) -> list[str]:
    """Return the words of a caption in lower case, without punctuation."""
    return text.lower().translate(PUNCTUATION).split()


def read_captions(raw: Raw, rows: Mapping[str, int]) -> dict[str, Split]:
    """Read the captions of all splits, in the first format that is there.

    Args:
      raw: the folder.
      rows: number of images of each split.

    Raises:
      DataError: a file is missing or wrong.
    """
    if raw.find("train.txt"):
        return {
            split: _read_text(raw, stem, rows[split]) for split, stem in SPLITS.items()
        }
    if file := raw.find("dataset_coco.json"):
        return parse_karpathy(unpack(file, LARGEST), file)
    texts: dict[int, list[str]] = {}
    for file in sorted(raw.folder.glob("captions_*.json")):
        texts |= parse_coco(unpack(file, LARGEST), file)
    if not texts:
        # This raises the error that says which files are needed.
        raw.path("train.txt")
    found: dict[str, Split] = {}
    for split, stem in SPLITS.items():
        ids, where = _read_ids(raw, stem), raw.path(f"{stem}_ids.txt")
        if len(ids) != rows[split]:
            # The file may have one line per caption.
            ids = ids[np.flatnonzero(np.diff(ids, prepend=-1))]
        if missing := [image for image in ids.tolist() if image not in texts]:
            raise DataError(
                f"{where}: no captions_*.json has the image {missing[0]} "
                f"({len(missing)} images are missing)"
            )
        captions, counts = [], []
        for image in ids.tolist():
            words = _first([tokenise(text) for text in texts[image]], image, where)
            captions += words
            counts.append(len(words))
        found[split] = Split(captions, ids, np.array(counts))
    return found


def _read_text(raw: Raw, stem: str, rows: int) -> Split:
    """Read a text file of captions, and the ids that say to which image each belongs.

    Args:
      raw: the folder.
      stem: name of the split in the files.
      rows: number of images. Without a file of ids, or with one id per image, each
        image has the same number of captions.
    """
    file = raw.path(f"{stem}.txt")
    captions = parse_text(unpack(file, LARGEST), file)
    ids = np.arange(rows, dtype=np.int64)
    if where := raw.find(f"{stem}_ids.txt"):
        ids = _read_ids(raw, stem)
        if len(ids) == len(captions):
            starts = np.flatnonzero(np.diff(ids, prepend=-1))
            counts = np.diff(starts, append=len(ids))
            return Split(captions, ids[starts], counts)
        if len(ids) != rows:
            raise DataError(
                f"{where}: {len(ids)} ids, which are not one for each of {rows} images "
                f"or of {len(captions)} captions"
            )
    if len(captions) % rows:
        raise DataError(
            f"{file}: {len(captions)} captions are not the same number for each of "
            f"{rows} images; if the numbers differ, write {stem}_ids.txt with the "
            "number of the image of each caption"
        )
    return Split(captions, ids, np.full(rows, len(captions) // rows))


def parse_text(content: bytes, where: object) -> Lines:
    """Parse a text file with one caption per line.

    Args:
      content: content of the file.
      where: name of the file, for error messages.

    Raises:
      DataError: a line is not a caption, or there is none.
    """
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as e:
        number = content.count(b"\n", 0, e.start) + 1
        raise DataError(
            f"{where}, line {number}: not UTF-8 text; get the official file"
        ) from e
    if not lines[-1]:
        lines.pop()
    captions = []
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST:
            raise DataError(
                f"{where}, line {number}: {len(line)} characters are too many for a "
                "caption; get the official file"
            )
        words = line.split()
        if not words:
            raise DataError(
                f"{where}, line {number}: empty caption; every caption needs words"
            )
        captions.append(words)
    if not captions:
        raise DataError(f"{where}: contains no caption")
    return captions


def parse_karpathy(content: bytes, where: object) -> dict[str, Split]:
    """Parse Karpathy's dataset_coco.json.

    The images of "restval" are training images. They follow those of "train".

    Args:
      content: content of the file.
      where: name of the file, for error messages.

    Raises:
      DataError: a value is missing or wrong, or a split is empty.
    """
    captions = {"train": [], "restval": [], "val": [], "test": []}
    ids = {name: [] for name in captions}
    counts = {name: [] for name in captions}
    for n, image in enumerate(_load_list(content, "images", where)):
        words = []
        try:
            split, number = _text(image["split"]), _integer(image.get("cocoid", n))
            for sentence in _list(image["sentences"]):
                words.append([_text(token) for token in _list(sentence["tokens"])])
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise DataError(
                f"{where}: images[{n}] has no usable split, cocoid and "
                f"sentences[].tokens ({str(e)[:80]!a})"
            ) from e
        if split not in ids:
            raise DataError(
                f"{where}: images[{n}] is of the split {split[:20]!a}, which is not "
                f"one of {', '.join(ids)}"
            )
        words = _first(words, number, where)
        captions[split] += words
        ids[split].append(number)
        counts[split].append(len(words))
    for lists in (captions, ids, counts):
        lists["train"] += lists["restval"]
    found = {}
    for split, stem in SPLITS.items():
        if not ids[stem]:
            raise DataError(f"{where}: has no images of the split {split}")
        found[split] = Split(
            captions[stem], np.array(ids[stem], np.int64), np.array(counts[stem])
        )
    return found


def parse_coco(content: bytes, where: object) -> dict[int, list[str]]:
    """Parse one of COCO's captions_*.json.

    Args:
      content: content of the file.
      where: name of the file, for error messages.

    Returns:
      The captions of each image by its id, in the order of their own ids.

    Raises:
      DataError: a value is missing or wrong.
    """
    found: dict[int, list[tuple[int, str]]] = {}
    for n, note in enumerate(_load_list(content, "annotations", where)):
        try:
            caption = _integer(note["id"]), _text(note["caption"])
            found.setdefault(_integer(note["image_id"]), []).append(caption)
        except (KeyError, TypeError, ValueError) as e:
            raise DataError(
                f"{where}: annotations[{n}] has no usable image_id, id and caption "
                f"({str(e)[:80]!a})"
            ) from e
    return {
        image: [text for _, text in sorted(notes)] for image, notes in found.items()
    }


def read_features(file: pathlib.Path) -> np.ndarray:
    """Map a .npy file of features [N, D] into memory. Pickles are never read.

    Raises:
      DataError: the file is missing, or is not a float32 array of this shape.
    """
    try:
        found = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as e:
        raise DataError(
            f"{file}: there is no such file; the features must be unpacked, because "
            "they are memory-mapped"
        ) from e
    # NumPy raises many kinds of errors for damaged files.
    except Exception as e:
        reason = ascii(str(e)[:80])
        if "allow_pickle" in reason or "Python objects" in reason:
            reason = "it contains pickled objects, which are never read"
        raise DataError(
            f"{file}: not a plain .npy array ({reason}); get the official file"
        ) from e
    if not isinstance(found, np.ndarray):
        problem = "an archive of arrays (.npz) instead of one .npy array"
    elif found.dtype != np.float32:
        problem = f"contains {str(found.dtype)[:40]} values instead of float32"
    elif found.ndim != 2 or not found.size:
        shape = " x ".join(map(str, found.shape[:5]))
        problem = f"is {shape} instead of images x features"
    else:
        return found
    raise DataError(f"{file}: {problem}; get the official file")


def check_features(images: np.ndarray, where: object) -> int:
    """Check that features are finite, and warn if rows do not have unit length.

    Args:
      images: features [N, D].
      where: name of the file, for messages.

    Returns:
      The number of rows whose length differs from 1 by more than 1 %.

    Raises:
      DataError: a value is NaN or infinite.
    """
    lengths = np.empty(len(images))
    for i in range(0, len(images), CHUNK):
        rows = images[i : i + CHUNK].astype(np.float64)
        lengths[i : i + CHUNK] = np.linalg.norm(rows, axis=1)
    if len(bad := np.flatnonzero(~np.isfinite(lengths))):
        raise DataError(
            f"{where}, row {bad[0]}: contains NaN or infinity ({len(bad)} such rows); "
            "get the official file"
        )
    if count := int((np.abs(lengths - 1) > 0.01).sum()):
        warnings.warn(
            f"{where}: {count:,} of {len(images):,} rows are not of unit length "
            f"({lengths.min():.3g} to {lengths.max():.3g}); these are not the authors' "
            "features",
            stacklevel=2,
        )
    return count


def _read_ids(raw: Raw, stem: str) -> np.ndarray:
    """Return the ids [n] int64 in the file _ids.txt of a split.

    Args:
      raw: the folder.
      stem: name of the split in the files.
    """
    where = raw.path(f"{stem}_ids.txt")
    lines = unpack(where).removeprefix(codecs.BOM_UTF8).split()
    for number, line in enumerate(lines, 1):
        # A number of 18 digits fits into int64.
        if not line.isdigit() or len(line) > 18:
            shown = ascii(line[:20].decode("latin-1"))
            raise DataError(f"{where}, line {number}: {shown} is not an image id")
    if not lines:
        raise DataError(f"{where}: contains no image id; get the official file")
    return np.array(lines, np.int64)


def _first(captions: Lines, image: int, where: object) -> Lines:
    """Return the first five captions of an image. Raise DataError if one is empty."""
    if not captions:
        raise DataError(f"{where}: image {image} has no captions")
    if not all(captions[:PER_IMAGE]):
        raise DataError(
            f"{where}: image {image} has an empty caption; every caption needs words"
        )
    return captions[:PER_IMAGE]


def _load_list(content: bytes, name: str, where: object) -> list:
    """Return the list of this name in a JSON file. Raise DataError if there is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as e:
        reason = str(e).splitlines()[0]
        raise DataError(f"{where}: not JSON ({reason}); download it again") from e
    values = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(values, list) or not values:
        raise DataError(f"{where}: has no list of {name}; get the official file")
    return values


def _list(value: Any) -> list:
    """Return a list. Raise TypeError for other JSON values."""
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} instead of a list")
    return value


def _text(value: Any) -> str:
    """Return a string. Raise TypeError or ValueError for other JSON values."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of text")
    if not is_text(value):
        raise ValueError(f"{value[:20]!a} cannot be encoded as UTF-8")
    return value


def _integer(value: Any) -> int:
    """Return an integer that fits into int64. Raise ValueError for others."""
    if type(value) is not int or abs(value) >= 2**63:
        raise ValueError("not an integer of 64 bits")
    return value
