"""Images of handwritten digits with labels.

`mnist` has four idx files: images and labels of the training part and of the test part.
An idx file contains big-endian uint32 numbers, followed by the values, here uint8. The
first number is 0x800 plus the number of dimensions, and the next ones are the sizes. A
file with 60,000 images begins like this:

    00 00 08 03    unsigned bytes in 3 dimensions
    00 00 ea 60    60,000 images
    00 00 00 1c    28 rows
    00 00 00 1c    28 columns
    00 00 7f ff    pixels, row by row

The first 5,000 training images are the split valid, and the other 55,000 are train, as
in section 6.6 of the paper. test has 10,000 images.

An example is {"image": [height, width] uint8, "label": [] int32 from 0 to 9}. Pixels
are not scaled, so they are 0 to 255.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.raw import Raw, RawFile
from lnrepro.errors import DataError

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
AGAIN = "get the official file (scripts/prepare.py mnist --download)"
# The first number of an idx file of unsigned bytes, without the dimensions.
UBYTE_MAGIC = 0x800


def _official(name: str, size: int, sha256: str) -> RawFile:
    urls = tuple(f"{mirror}{name}.gz" for mirror in MIRRORS)
    return RawFile(name, size, sha256, urls)


class Mnist(Builder):
    """MNIST: 70,000 handwritten digits, 28x28."""

    configs = ("configs/mnist.py", "configs/convnet.py")
    source = "http://yann.lecun.com/exdb/mnist/, mirrors: " + " ".join(MIRRORS)
    licence = (
        "copyright Yann LeCun and Corinna Cortes; "
        "commonly distributed under CC BY-SA 3.0"
    )
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
        """Return the features of an example."""
        return {"image": array((28, 28), np.uint8), "label": array((), np.int32)}

    def examples(self, raw: Raw) -> Mapping[str, Sequence[Example]]:
        """Read the four files. The first twelfth of the training images is valid."""
        # A twelfth of 60,000 is the 5,000 of the paper. Own files of other sizes are
        # divided alike.
        train, test = _read_part(raw, "train"), _read_part(raw, "t10k")
        valid = len(train) // 12
        if not valid:
            raise DataError(
                f"{raw.folder}: {len(train)} training images are too few to use a "
                f"twelfth as the split valid; {AGAIN}"
            )
        return {"train": train[valid:], "valid": train[:valid], "test": test}


def examples_of(images: np.ndarray, labels: np.ndarray) -> list[Example]:
    """Make examples of images [N, height, width] and labels [N]."""
    labels = labels.astype(np.int32)
    pairs = zip(images, labels, strict=True)
    return [{"image": image, "label": label} for image, label in pairs]


def parse_idx(content: bytes, ndim: int, where: object) -> np.ndarray:
    """Parse an idx file of unsigned bytes.

    Args:
      content: content of the file.
      ndim: number of dimensions.
      where: name of the file, for error messages.

    Returns:
      The array, uint8.

    Raises:
      DataError: the header is wrong or does not fit to the size of the content.
    """
    wanted, header = UBYTE_MAGIC + ndim, 4 + 4 * ndim
    if len(content) < header:
        raise DataError(
            f"{where}: truncated, {len(content)} bytes are less than the {header} of "
            f"an idx header; {AGAIN}"
        )
    # The sizes come from the file, so that they are compared with its length before
    # anything is allocated.
    magic, *shape = np.frombuffer(content, ">u4", 1 + ndim).tolist()
    if magic != wanted:
        raise DataError(
            f"{where}: magic number {magic} instead of {wanted}, not an "
            f"idx{ndim}-ubyte file; {AGAIN}"
        )
    expected, found = math.prod(shape), len(content) - header
    sizes = " x ".join(map(str, shape))
    if expected != found:
        problem = "truncated" if found < expected else "too long"
        raise DataError(
            f"{where}: {problem}, the header says {sizes} = {expected} bytes and "
            f"{found} follow; {AGAIN}"
        )
    # NumPy cannot make an empty array with sizes such as 0 x 4294967295 x 4294967295.
    if not found and max(shape) >= 1 << 31:
        raise DataError(f"{where}: empty, the header says {sizes} bytes; {AGAIN}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read_part(raw: Raw, part: str) -> list[Example]:
    """Read the images and labels of a part, "train" or "t10k"."""
    image_file, label_file = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    images = parse_idx(raw.read(image_file), 3, raw.path(image_file))
    labels = parse_idx(raw.read(label_file), 1, raw.path(label_file))
    if not len(images) or images.shape[1:] != (28, 28):
        sizes = " x ".join(map(str, images.shape))
        raise DataError(
            f"{raw.path(image_file)}: contains {sizes} values instead of images of "
            f"28 x 28; {AGAIN}"
        )
    if len(images) != len(labels):
        raise DataError(
            f"{raw.path(label_file)}: {len(labels)} labels for the {len(images)} "
            f"images in {image_file}; {AGAIN}"
        )
    # There are ten digits, so another label means a damaged file.
    if len(bad := np.flatnonzero(labels > 9)):
        raise DataError(
            f"{raw.path(label_file)}: label {labels[bad[0]]} at {bad[0]} is not in "
            f"0..9; {AGAIN}"
        )
    return examples_of(images, labels)
