"""Parsers of the files that contain captions.

They come in one of three formats. The first one is text, see captions.py. The
second one is Karpathy's dataset_coco.json. The third one is COCO's captions_*.json
together with {train,val,test}_ids.txt, which have one image id per line:

    dataset_coco.json
        {"images": [{"split": "train", "cocoid": 7, "sentences": [
            {"tokens": ["a", "red", "kite"]}, ...]}, ...]}
    captions_train2014.json
        {"annotations": [{"image_id": 7, "id": 1, "caption": "A red kite."}, ...]}

COCO's captions are converted to lower case, without punctuation, as Karpathy did. Of
both JSON formats the first five captions of an image are used. The files may be damaged
or hostile, so that all values are checked. Captions without words are left out if they
are few.
"""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lnrepro.data.encodings import decode, quoted
from lnrepro.data.old_files import unpack
from lnrepro.data.raw import Raw, few
from lnrepro.data.text import is_text
from lnrepro.errors import DataError

PER_IMAGE = 5
FEATURES = 4096
# Our names of the splits, and the names in the files.
SPLITS = {"train": "train", "valid": "val", "test": "test"}
# Characters of a line.
LONGEST = 1 << 16
# Bytes of a file of captions. Karpathy's file has 150 MB.
LARGEST = 1 << 29
PUNCTUATION = str.maketrans("", "", string.punctuation)

# Captions, each a list of words. Those of one image are in a row.
Lines = list[list[str]]


class Split(NamedTuple):
    """Captions of a split.

    Attributes:
      captions: the captions.
      ids: ids of the images [N].
      counts: number of captions of each image [N].
      rows: row of the features of each image [N]; None is one row for each image.
    """

    captions: Lines
    ids: np.ndarray
    counts: np.ndarray
    rows: np.ndarray | None = None


def tokenise(text: str) -> list[str]:
    """Return the words of a caption in lower case, without punctuation."""
    return text.lower().translate(PUNCTUATION).split()


def read_captions(raw: Raw, rows: Mapping[str, int]) -> dict[str, Split]:
    """Read the captions of all splits, in the first format that is there.

    Args:
      raw: the folder.
      rows: number of rows of the features of each split.

    Raises:
      DataError: a file is missing or wrong.
    """
    # The authors' own files come first. The JSON files need a decision about
    # punctuation and capitals that these have already made.
    if raw.find("train.txt"):
        return {
            split: _read_text(raw, stem, rows[split]) for split, stem in SPLITS.items()
        }
    if file := raw.find("dataset_coco.json"):
        return parse_karpathy(unpack(file, LARGEST), file, raw.notes)
    texts: dict[int, list[str]] = {}
    for name, file in raw.paths(".json").items():
        if not name.rpartition("/")[2].startswith("captions_"):
            continue
        found = parse_coco(unpack(file, LARGEST), file, raw.notes)
        # The 2014 and 2017 releases share images. The same captions may come from both.
        for image in found.keys() & texts.keys():
            if found[image] != texts[image]:
                raise DataError(
                    f"{file}: has other captions of the image {image} than another "
                    "captions_*.json; remove one of these files"
                )
        texts |= found
    if not texts:
        # This raises the error that says which files are needed.
        raw.path("train.txt")
    return {
        split: _read_ids_of_coco(raw, stem, rows[split], texts)
        for split, stem in SPLITS.items()
    }


def _read_ids_of_coco(
    raw: Raw, stem: str, rows: int, texts: Mapping[int, list[str]]
) -> Split:
    """Return the captions of the images that the _ids.txt of a split names.

    Args:
      raw: the folder.
      stem: name of the split in the files.
      rows: number of rows of the features.
      texts: the captions of each image.
    """
    ids, where = _read_ids(raw, stem), raw.path(f"{stem}_ids.txt")
    if len(ids) != rows or (np.diff(ids) == 0).any():
        # The file may have one line per caption.
        ids = ids[np.flatnonzero(np.diff(ids, prepend=-1))]
    if missing := [image for image in ids.tolist() if image not in texts]:
        raise DataError(
            f"{where}: no captions_*.json has the image {missing[0]} "
            f"({len(missing)} images are missing)"
        )
    # Captions follow the order of the ids, which is that of the features.
    captions, counts = [], []
    for image in ids.tolist():
        words = _first([tokenise(text) for text in texts[image]], image, where)
        captions += words
        counts.append(len(words))
    return Split(captions, ids, np.array(counts))


def _read_text(raw: Raw, stem: str, rows: int) -> Split:
    """Read a text file of captions, and the ids that say to which image each belongs.

    Args:
      raw: the folder.
      stem: name of the split in the files.
      rows: number of rows of the features. Without a file of ids, or with one id per
        row, each row has the same number of captions.
    """
    file = raw.path(f"{stem}.txt")
    captions = parse_text(unpack(file, LARGEST), file, raw.notes)
    # Without a file of ids, an image is called by its position.
    ids = np.arange(rows, dtype=np.int64)
    if where := raw.find(f"{stem}_ids.txt"):
        ids = _read_ids(raw, stem)
        # Empty lines at the end are no captions.
        while len(captions) > max(len(ids), rows) and not captions[-1]:
            captions.pop()
        if len(ids) == len(captions):
            starts = np.flatnonzero(np.diff(ids, prepend=-1))
            counts = np.diff(starts, append=len(ids))
            return Split(captions, ids[starts], counts)
        if rows == len(captions) and rows % len(ids) == 0:
            # The features, but not the ids, are repeated for each caption.
            return Split(captions, ids, np.full(len(ids), rows // len(ids)))
        if len(ids) != rows:
            raise DataError(
                f"{where}: {len(ids)} ids, which are not one for each of {rows} images "
                f"or of {len(captions)} captions"
            )
    # A text editor may have added empty lines at the end.
    while len(captions) % rows and not captions[-1]:
        captions.pop()
    if len(captions) % rows:
        raise DataError(
            f"{file}: {len(captions)} captions are not the same number for each of "
            f"{rows} images; if the numbers differ, write {stem}_ids.txt with the "
            "number of the image of each caption"
        )
    return Split(captions, ids, np.full(rows, len(captions) // rows))


def parse_text(
    content: bytes, where: object, notes: Counter[str] | None = None
) -> Lines:
    """Parse a text file with one caption per line.

    Args:
      content: content of the file.
      where: name of the file, for error messages.
      notes: what is odd in the text is counted here.

    Returns:
      The words of each line. An empty line has none, and keeps its place.

    Raises:
      DataError: a line is not a caption, or there is none, or many are empty.
    """
    # str.splitlines would also cut at form feeds and at U+2028.
    lines = decode(content, where, notes).split("\n")
    if not lines[-1]:
        lines.pop()
    captions = []
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST:
            raise DataError(
                f"{where}, line {number}: {len(line)} characters are too many for a "
                "caption; get the official file"
            )
        captions.append(line.split())
    if not any(captions):
        raise DataError(f"{where}: contains no caption")
    empty = [number for number, words in enumerate(captions, 1) if not words]
    # Empty lines at the end may be no captions.
    last = max(number for number, words in enumerate(captions, 1) if words)
    inside = [number for number in empty if number < last]
    if len(inside) > few(len(captions)):
        raise DataError(
            f"{where}, line {inside[0]}: empty caption ({len(inside)} such lines); "
            "every caption needs words"
        )
    return captions


def parse_karpathy(
    content: bytes, where: object, notes: Counter[str] | None = None
) -> dict[str, Split]:
    """Parse Karpathy's dataset_coco.json.

    The images of "restval" are training images. They follow those of "train".

    Args:
      content: content of the file.
      where: name of the file, for error messages.
      notes: what is odd in the text is counted here.

    Raises:
      DataError: a value is missing or wrong, or a split is empty.
    """
    captions = {"train": [], "restval": [], "val": [], "test": []}
    ids = {name: [] for name in captions}
    counts = {name: [] for name in captions}
    for n, image in enumerate(_load_list(content, "images", where, notes)):
        words = []
        try:
            split, number = _text(image["split"]), _integer(image.get("cocoid", n))
            for sentence in _list(image["sentences"]):
                words.append([_text(token) for token in _list(sentence["tokens"])])
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise DataError(
                f"{where}: images[{n}] has no usable split, cocoid and "
                f"sentences[].tokens ({quoted(str(e))})"
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
    # Karpathy's "restval" images are those of COCO's validation set that he uses for
    # training; the authors train on both.
    for lists in (captions, ids, counts):
        lists["train"] += lists["restval"]
    found = {}
    for split, stem in SPLITS.items():
        if not ids[stem]:
            raise DataError(f"{where}: has no images of the split {split}")
        found[split] = Split(
            captions[stem], np.array(ids[stem], np.int64), np.array(counts[stem])
        )
        check_empty(found[split], where)
    return found


def parse_coco(
    content: bytes, where: object, notes: Counter[str] | None = None
) -> dict[int, list[str]]:
    """Parse one of COCO's captions_*.json.

    Args:
      content: content of the file.
      where: name of the file, for error messages.
      notes: what is odd in the text is counted here.

    Returns:
      The captions of each image by its id, in the order of their own ids.

    Raises:
      DataError: a value is missing or wrong.
    """
    found: dict[int, list[tuple[int, str]]] = {}
    for n, note in enumerate(_load_list(content, "annotations", where, notes)):
        try:
            caption = _integer(note["id"]), _text(note["caption"])
            found.setdefault(_integer(note["image_id"]), []).append(caption)
        except (KeyError, TypeError, ValueError) as e:
            raise DataError(
                f"{where}: annotations[{n}] has no usable image_id, id and caption "
                f"({quoted(str(e))})"
            ) from e
    # The order of the file is not that of the ids. Sorting makes the first five
    # captions the same in every release.
    return {
        image: [text for _, text in sorted(notes)] for image, notes in found.items()
    }


def without_empty(split: Split, where: object) -> tuple[Split, int]:
    """Leave out captions without words, and images that have no others.

    Args:
      split: the captions, with a row of the features for each image.
      where: name of the split, for error messages.

    Returns:
      The other captions, and how many were left out.

    Raises:
      DataError: many captions are empty.
    """
    check_empty(split, where)
    is_empty = np.array([not words for words in split.captions], bool)
    if not is_empty.any():
        return split, 0
    # An image whose captions are all empty is left out with its row of features.
    image_of = np.repeat(np.arange(len(split.ids)), split.counts)
    counts = np.bincount(image_of[~is_empty], minlength=len(split.ids))
    kept = counts > 0
    captions = [words for words in split.captions if words]
    rows = np.arange(len(kept)) if split.rows is None else split.rows
    others = Split(captions, split.ids[kept], counts[kept], rows[kept])
    return others, int(is_empty.sum())


def check_empty(split: Split, where: object) -> None:
    """Raise DataError if many captions have no words.

    Args:
      split: the captions.
      where: name of the file, for error messages.
    """
    empty = [i for i, words in enumerate(split.captions) if not words]
    if len(empty) > few(len(split.captions)):
        image = np.searchsorted(np.cumsum(split.counts), empty[0], side="right")
        raise DataError(
            f"{where}: image {split.ids[image]} has an empty caption ({len(empty):,} "
            f"of {len(split.captions):,} captions are empty); every caption needs words"
        )


def _read_ids(raw: Raw, stem: str) -> np.ndarray:
    """Return the ids [n] int64 in the file _ids.txt of a split.

    Args:
      raw: the folder.
      stem: name of the split in the files.
    """
    where = raw.path(f"{stem}_ids.txt")
    lines = decode(unpack(where), where, raw.notes).split()
    for number, line in enumerate(lines, 1):
        # A number of 18 digits fits into int64.
        if not (line.isascii() and line.isdigit()) or len(line) > 18:
            shown = ascii(line[:20])
            raise DataError(f"{where}, line {number}: {shown} is not an image id")
    if not lines:
        raise DataError(f"{where}: contains no image id; get the official file")
    return np.array(lines, np.int64)


def _first(captions: Lines, image: int, where: object) -> Lines:
    """Return the first five captions of an image, those with words before others."""
    if not captions:
        raise DataError(f"{where}: image {image} has no captions")
    full = [words for words in captions if words]
    return (full + [[]] * (len(captions) - len(full)))[:PER_IMAGE]


def _load_list(
    content: bytes, name: str, where: object, notes: Counter[str] | None
) -> list:
    """Return the list of this name in a JSON file. Raise DataError if there is none."""
    try:
        found = json.loads(decode(content, where, notes))
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
