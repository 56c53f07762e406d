"""Handwritten digits: `mnist` from the four official idx files, `digits` (8x8) from inside scikit-learn.

An example is {"image": (height, width) uint8, "label": () int32 in 0..9}. Pixels are stored as they come: 0..255 for
mnist, 0..16 for digits. Splits of mnist: the first 5,000 training images are valid, the other 55,000 train (the number
in section 6.6), 10,000 test. Splits of digits, in scikit-learn's order: 1,437 train, 180 valid, 180 test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.raw import Raw, RawFile
from lnrepro.engine.errors import DataError

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
AGAIN = "get the official file (scripts/prepare.py mnist --download)"
UBYTE = 8  # the type code in an idx file's magic number


def _official(name: str, size: int, sha256: str) -> RawFile:
    return RawFile(
        name, size, sha256, tuple(f"{mirror}{name}.gz" for mirror in MIRRORS)
    )


class Mnist(Builder):
    """MNIST: 70,000 handwritten digits, 28x28."""

    source = "http://yann.lecun.com/exdb/mnist/, mirrors: " + " ".join(MIRRORS)
    licence = "copyright Yann LeCun and Corinna Cortes; commonly distributed under CC BY-SA 3.0"
    size = "55,000 train, 5,000 valid, 10,000 test; 12 MB to download, 75 MB prepared"
    files = (
        _official(
            "train-images-idx3-ubyte",
            47040016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        _official(
            "train-labels-idx1-ubyte",
            60008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        _official(
            "t10k-images-idx3-ubyte",
            7840016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        _official(
            "t10k-labels-idx1-ubyte",
            10008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    )

    def features(self):
        """28x28 bytes, each 0..255, and a class."""
        return {"image": array((28, 28), np.uint8), "label": array((), np.int32)}

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Read the four idx files; the first twelfth of the training images (5,000 of the official 60,000) is valid."""
        images, labels = _labelled(raw, "train")
        valid = len(images) // 12
        if not valid:
            raise DataError(
                f"{raw.folder}: {len(images)} training images are too few to set a twelfth aside; {AGAIN}"
            )
        return {
            "train": Pairs(images[valid:], labels[valid:]),
            "valid": Pairs(images[:valid], labels[:valid]),
            "test": Pairs(*_labelled(raw, "t10k")),
        }


class Digits(Builder):
    """The 1,797 handwritten digits, 8x8 with 17 grey levels, that ship inside scikit-learn."""

    source = "https://archive.ics.uci.edu/dataset/80 (its test part, as sklearn.datasets.load_digits gives it)"
    licence = "CC BY 4.0 (E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI)"
    size = "1,437 train, 180 valid, 180 test; nothing to download, 0.7 MB prepared"
    embedded = True

    def features(self):
        """8x8 bytes, each 0..16, and a class."""
        return {"image": array((8, 8), np.uint8), "label": array((), np.int32)}

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Cut scikit-learn's order into train, valid and test."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        images, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.int32)
        cuts = {
            "train": slice(0, 1437),
            "valid": slice(1437, 1617),
            "test": slice(1617, 1797),
        }
        return {split: Pairs(images[cut], labels[cut]) for split, cut in cuts.items()}


class Pairs(Sequence):
    """Images (N, height, width) and labels (N,) as a sequence of examples."""

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Example:
        return {"image": self.images[i], "label": self.labels[i]}


def parse_idx(content: bytes, ndim: int, where: object) -> np.ndarray:
    """An idx file of unsigned bytes -> array of `ndim` dimensions.

    Header: bytes 0, 0, 8 (unsigned byte), ndim, then the sizes as big-endian uint32. Raises DataError that begins with
    `where`, the file's path.
    """
    wanted, header = UBYTE << 8 | ndim, 4 + 4 * ndim
    if len(content) < header:
        raise DataError(
            f"{where}: truncated, {len(content)} bytes cannot hold the {header} of an idx header; {AGAIN}"
        )
    magic, *shape = np.frombuffer(content, ">u4", 1 + ndim).tolist()
    if magic != wanted:
        raise DataError(
            f"{where}: magic number {magic} instead of {wanted}, not an idx{ndim}-ubyte file; {AGAIN}"
        )
    promised, found = math.prod(shape), len(content) - header
    sizes = " x ".join(map(str, shape))
    if promised != found:
        what = "truncated" if found < promised else "too long"
        raise DataError(
            f"{where}: {what}, the header counts {sizes} = {promised} bytes and {found} follow; {AGAIN}"
        )
    if (
        not found and max(shape) >= 1 << 31
    ):  # 0 x 4,294,967,295 x 4,294,967,295 is more than NumPy can shape
        raise DataError(f"{where}: empty, the header counts {sizes} bytes; {AGAIN}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _labelled(raw: Raw, part: str) -> tuple[np.ndarray, np.ndarray]:
    """The images (N, 28, 28) and labels (N,) of one part, "train" or "t10k"."""
    image_file, label_file = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    images = parse_idx(raw.read(image_file), 3, raw.path(image_file))
    labels = parse_idx(raw.read(label_file), 1, raw.path(label_file))
    if not len(images) or images.shape[1:] != (28, 28):
        sizes = " x ".join(map(str, images.shape))
        raise DataError(
            f"{raw.path(image_file)}: holds {sizes} instead of some images of 28 x 28; {AGAIN}"
        )
    if len(images) != len(labels):
        raise DataError(
            f"{raw.path(label_file)}: {len(labels)} labels for the {len(images)} images in {image_file}; {AGAIN}"
        )
    if len(bad := np.flatnonzero(labels > 9)):
        raise DataError(
            f"{raw.path(label_file)}: label {labels[bad[0]]} at {bad[0]} is not in 0..9; {AGAIN}"
        )
    return images, labels.astype(np.int32)
