"""`digits` and `binarized_digits`: the handwritten digits in scikit-learn, embedded.

`digits` has the images as they are, 8x8 with 17 grey levels, which are not scaled. An
example is {"image": [8, 8] uint8 from 0 to 16, "label": [] int32 from 0 to 9}. It
stands in for MNIST.

`binarized_digits` has them enlarged to 28x28 and binarised once. An example is
{"image": [28, 28] uint8}, where each pixel is 0 or 1. It stands in for binarised MNIST.
Bounds in nats on the two sets cannot be compared.

The splits follow the order of scikit-learn.
"""

from typing import Any

import numpy as np

from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import Columns, ColumnSpec, Content, Reader
from lnrepro.data.readers import binarized_mnist
from lnrepro.data.readers.mnist import DIGIT

SOURCE = (
    "https://archive.ics.uci.edu/dataset/80 "
    "(its test part, as sklearn.datasets.load_digits gives it)"
)
LICENCE = (
    "CC BY 4.0 (E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI)"
)


def read_digits(raw: RawFolder) -> Content:
    """Split the digits in scikit-learn's order."""
    digits = load()
    image, label = digits.images.astype(np.uint8), digits.target.astype(np.int32)
    return divided({"image": image, "label": label}, 1437, 180)


def read_binarized_digits(raw: RawFolder) -> Content:
    """Enlarge and binarise the digits, and split them in scikit-learn's order."""
    # 16 is the largest grey level.
    grey = load().images / 16.0
    return divided({"image": binarise(enlarge(grey))}, 1297, 250)


def load() -> Any:
    """Return scikit-learn's digits, with `images` and `target`."""
    from sklearn.datasets import load_digits

    return load_digits()


def divided(columns: Columns, train: int, valid: int) -> Content:
    """Return `train` examples, then `valid` examples, and the others as test."""
    splits = {split: {} for split in ("train", "valid", "test")}
    for name, column in columns.items():
        parts = np.split(column, [train, train + valid])
        for split, part in zip(splits.values(), parts, strict=True):
            split[name] = part
    return Content(splits)


DIGITS = Reader(
    title="The 1,797 handwritten digits of scikit-learn, 8x8 with 17 grey levels",
    read=read_digits,
    source=SOURCE,
    licence=LICENCE,
    size="1,437 train, 180 valid, 180 test; nothing to download, 0.1 MB prepared",
    columns={"image": ColumnSpec(0, 16, integer=True, ndim=2), "label": DIGIT},
    embedded=True,
)
BINARIZED_DIGITS = Reader(
    title="The 1,797 digits of scikit-learn, enlarged to 28x28 and binarised once",
    read=read_binarized_digits,
    configs=("configs/draw.py",),
    source=SOURCE,
    licence=LICENCE,
    size="1,297 train, 250 valid, 250 test; nothing to download, 1.4 MB prepared",
    columns=binarized_mnist.COLUMNS,
    embedded=True,
)


def enlarge(images: np.ndarray) -> np.ndarray:
    """Enlarge grey images from 8x8 to 28x28 by cubic convolution.

    The result has 24x24 pixels and a border of two pixels. The contrast is raised
    fivefold around 1/2, because binarised grey edges would be mostly noise.

    Args:
      images: grey levels from 0 to 1 [N, 8, 8].

    Returns:
      Grey levels from 0 to 1 [N, 28, 28].

    References:
      Keys (1981), for the kernel with a = -1/2.
    """
    side = images.shape[1]
    # Centres of the new pixels, in units of the old pixels.
    centres = (np.arange(24) + 0.5) * side / 24 - 0.5
    t = np.abs(centres[:, None] - np.arange(side))
    near, far = 1.5 * t**3 - 2.5 * t**2 + 1, -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2
    # Pixels outside of the image are 0, so that they need no weights.
    weights = np.where(t <= 1, near, np.where(t < 2, far, 0))
    large = np.einsum("ya,nab,xb->nyx", weights, images, weights)
    return np.pad(np.clip(5 * (large - 0.5) + 0.5, 0, 1), ((0, 0), (2, 2), (2, 2)))


def binarise(images: np.ndarray) -> np.ndarray:
    """Draw each pixel as 0 or 1.

    The random numbers come from the bit generator, whose stream NumPy guarantees. The
    methods of Generator may change between versions.

    Args:
      images: probabilities of 1 [N, H, W].

    Returns:
      The binary images [N, H, W] uint8.
    """
    bits = np.random.PCG64(0).random_raw(images.size).reshape(images.shape)
    return ((bits >> np.uint64(11)) * 2.0**-53 < images).astype(np.uint8)
