"""The files of caption folders, parsed: .txt, Karpathy's and COCO's JSON, ids, and .npy of features. None is trusted."""

from __future__ import annotations

import json
import pathlib
import string
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from lnrepro.data.raw import Raw, unpack
from lnrepro.data.text import is_text
from lnrepro.engine.errors import DataError

PER_IMAGE = 5
FEATURES = 4096
SPLITS = {"train": "train", "valid": "val", "test": "test"}  # ours, and the files'
LONGEST = 1 << 16  # characters of a line
LARGEST = 1 << 29  # bytes of a file of captions; Karpathy's has 150 MB
CHUNK = 1024  # rows of features checked at once
PUNCTUATION = str.maketrans("", "", string.punctuation)

Lines = list[list[str]]  # captions, each a list of tokens; five to an image


def tokenise(text: str) -> list[str]:
    """A caption's words as Karpathy has them: small letters, punctuation deleted, cut at white space."""
    return text.lower().translate(PUNCTUATION).split()


def read_captions(raw: Raw) -> tuple[dict[str, Lines], dict[str, np.ndarray]]:
    """Captions (5 N lists of tokens) and image ids (N,) of every split, from whichever form of them the folder holds."""
    if raw.find("train.txt"):
        captions = {
            split: parse_text(
                unpack(raw.path(f"{stem}.txt"), LARGEST), raw.path(f"{stem}.txt")
            )
            for split, stem in SPLITS.items()
        }
        return captions, {
            split: _ids(raw, stem, len(captions[split]) // PER_IMAGE)
            for split, stem in SPLITS.items()
        }
    if file := raw.find("dataset_coco.json"):
        found = parse_karpathy(unpack(file, LARGEST), file)
        return {k: v[0] for k, v in found.items()}, {k: v[1] for k, v in found.items()}
    texts: dict[int, list[str]] = {}
    for file in sorted(raw.folder.glob("captions_*.json")):
        texts |= parse_coco(unpack(file, LARGEST), file)
    if not texts:
        raw.path("train.txt")  # says what is missing
    ids = {split: _ids(raw, stem, None) for split, stem in SPLITS.items()}
    captions = {}
    for split, stem in SPLITS.items():
        where = raw.path(f"{stem}_ids.txt")
        if missing := [int(i) for i in ids[split] if int(i) not in texts]:
            raise DataError(
                f"{where}: no captions_*.json has the image {missing[0]} ({len(missing)} missing in all)"
            )
        captions[split] = [
            c
            for i in ids[split]
            for c in _five([tokenise(t) for t in texts[int(i)]], int(i), where)
        ]
    return captions, ids


def parse_text(content: bytes, where: object) -> Lines:
    """One caption a line -> lists of tokens, five to an image. Raises DataError that begins with `where` and the line."""
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as e:
        number = content.count(b"\n", 0, e.start) + 1
        raise DataError(
            f"{where}, line {number}: not UTF-8 text; get the official file"
        ) from e
    lines = lines[:-1] if lines[-1] == "" else lines
    captions = []
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST:
            raise DataError(
                f"{where}, line {number}: {len(line)} characters are no caption; get the official file"
            )
        if not (tokens := line.split()):
            raise DataError(
                f"{where}, line {number}: empty caption; every image needs {PER_IMAGE} that say something"
            )
        captions.append(tokens)
    if not captions or len(captions) % PER_IMAGE:
        raise DataError(
            f"{where}: {len(captions)} captions are not {PER_IMAGE} for each image; the file is cut, or not of this layout"
        )
    return captions


def parse_karpathy(
    content: bytes, where: object
) -> dict[str, tuple[Lines, np.ndarray]]:
    """Karpathy's dataset_coco.json -> {split: (captions, ids)}; "restval" images are training images, behind "train"."""
    parts: dict[str, list[tuple[int, Lines]]] = {
        name: [] for name in ("train", "restval", "val", "test")
    }
    for n, image in enumerate(_listed(_json(content, where), "images", where)):
        try:
            split, number = _text(image["split"]), _number(image.get("cocoid", n))
            tokens = [
                [_text(t) for t in _list(s["tokens"])]
                for s in _list(image["sentences"])
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            what = str(e)[:80]
            raise DataError(
                f"{where}: images[{n}] has no usable split, cocoid and sentences[].tokens ({what!a})"
            ) from e
        if split not in parts:
            raise DataError(
                f"{where}: images[{n}] is of the split {split[:20]!a}; there are {', '.join(parts)}"
            )
        parts[split].append((number, _five(tokens, number, where)))
    parts = {
        "train": parts["train"] + parts["restval"],
        "valid": parts["val"],
        "test": parts["test"],
    }
    if empty := [split for split, images in parts.items() if not images]:
        raise DataError(f"{where}: has no images of the split {empty[0]}")
    return {
        split: (
            [c for _, five in images for c in five],
            np.array([number for number, _ in images], np.int64),
        )
        for split, images in parts.items()
    }


def parse_coco(content: bytes, where: object) -> dict[int, list[str]]:
    """COCO's captions_*.json -> {image id: its captions, by annotation id}."""
    found: dict[int, list[tuple[int, str]]] = {}
    for n, note in enumerate(_listed(_json(content, where), "annotations", where)):
        try:
            caption = _number(note["id"]), _text(note["caption"])
            found.setdefault(_number(note["image_id"]), []).append(caption)
        except (KeyError, TypeError, ValueError) as e:
            what = str(e)[:80]
            raise DataError(
                f"{where}: annotations[{n}] has no usable image_id, id and caption ({what!a})"
            ) from e
    return {
        image: [text for _, text in sorted(notes)] for image, notes in found.items()
    }


def read_features(file: pathlib.Path) -> np.ndarray:
    """A .npy of float32 (N, 4096), memory-mapped, never unpickled. Raises DataError that names the file."""
    try:
        found = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as e:
        raise DataError(
            f"{file}: there is no such file; the features must be unpacked, for they are memory-mapped"
        ) from e
    except Exception as e:  # numpy raises whatever the damaged bytes lead it to
        pickled = "allow_pickle" in str(e) or "Python objects" in str(e)
        why = (
            "it holds pickled objects, which are never read"
            if pickled
            else ascii(str(e)[:80])
        )
        raise DataError(
            f"{file}: not a plain .npy array ({why}); get the official file"
        ) from e
    if not isinstance(found, np.ndarray):
        raise DataError(
            f"{file}: an archive of arrays (.npz) instead of one .npy array; get the official file"
        )
    if found.dtype != np.float32:
        raise DataError(
            f"{file}: holds {str(found.dtype)[:40]} values instead of float32; get the official file"
        )
    if found.ndim != 2 or found.shape[1] != FEATURES or not len(found):
        raise DataError(
            f"{file}: is {' x '.join(map(str, found.shape[:5]))} instead of N x {FEATURES}; get the official file"
        )
    return found


def check_features(images: np.ndarray, where: object) -> int:
    """How many rows are not of unit length (to 1 %), with one warning that counts them. Raises DataError for NaN and inf."""
    lengths = np.concatenate(
        [
            np.linalg.norm(images[i : i + CHUNK].astype(np.float64), axis=1)
            for i in range(0, len(images), CHUNK)
        ]
    )
    if len(bad := np.flatnonzero(~np.isfinite(lengths))):
        raise DataError(
            f"{where}, row {bad[0]}: holds NaN or infinity ({len(bad)} such rows); get the official file"
        )
    if count := int((np.abs(lengths - 1) > 0.01).sum()):
        warnings.warn(
            f"{where}: {count:,} of {len(images):,} rows are not of unit length ({lengths.min():.3g} to "
            f"{lengths.max():.3g}); the authors' features are, so these come from elsewhere",
            stacklevel=2,
        )
    return count


def _ids(raw: Raw, stem: str, count: int | None) -> np.ndarray:
    """The image ids of a split's _ids.txt, one line an image or five; 0, 1, ... where there is no such file.

    `count`: how many images there must be; None if the file itself says so, and then it must be there.
    """
    name = f"{stem}_ids.txt"
    if count is not None and not raw.find(name):
        return np.arange(count, dtype=np.int64)
    where = raw.path(name)
    lines = unpack(where).split()
    for number, line in enumerate(lines, 1):
        if not line.isdigit() or len(line) > 18:
            raise DataError(
                f"{where}, line {number}: {line[:20].decode('latin-1')!a} is no image id"
            )
    found = np.array(lines, np.int64)
    five = found[: len(found) // PER_IMAGE * PER_IMAGE].reshape(-1, PER_IMAGE)
    if len(found) % PER_IMAGE == 0 and (five == five[:, :1]).all():
        found = five[:, 0]
    if not len(found):
        raise DataError(f"{where}: holds no image id; get the official file")
    if count not in (None, len(found)):
        raise DataError(
            f"{where}: {len(found)} images, but there are captions of {count}"
        )
    return found


def _five(captions: Lines, image: int, where: object) -> Lines:
    """The first five captions of an image. Raises DataError if there are fewer, or one is empty."""
    if len(captions) < PER_IMAGE:
        raise DataError(
            f"{where}: image {image} has {len(captions)} captions; every image needs {PER_IMAGE}"
        )
    if not all(captions[:PER_IMAGE]):
        raise DataError(
            f"{where}: image {image} has an empty caption; every image needs {PER_IMAGE} that say something"
        )
    return captions[:PER_IMAGE]


def _json(content: bytes, where: object) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as e:
        raise DataError(
            f"{where}: not JSON ({str(e).splitlines()[0]}); download it again"
        ) from e


def _list(value: Any) -> list:
    """A list of JSON. Raises TypeError for all else."""
    if not isinstance(value, list):
        raise TypeError(f"{type(value).__name__} instead of a list")
    return value


def _text(value: Any) -> str:
    """A string of JSON. Raises TypeError for all else, ValueError for halves of surrogate pairs, which no file can hold."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of text")
    if not is_text(value):
        raise ValueError(f"{value[:20]!a} is no text")
    return value


def _number(value: Any) -> int:
    """A whole number of JSON that fits int64. Raises ValueError for all else."""
    if type(value) is not int or abs(value) >= 2**63:
        raise ValueError("not a whole number of 64 bits")
    return value


def _listed(found: Any, name: str, where: object) -> list:
    listed = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(listed, list) or not listed:
        raise DataError(f"{where}: has no list of {name}; get the official file")
    return listed
