"""Small idx files for the tests: the four files of MNIST with a few random images."""

import struct

import numpy as np

IMAGES, LABELS = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"


def header(magic: int, *sizes: int) -> bytes:
    return struct.pack(f">{1 + len(sizes)}I", magic, *sizes)


def pair(part: str, images: np.ndarray, labels: np.ndarray) -> dict[str, bytes]:
    """The two files of one part, by name."""
    image_file = header(2051, *images.shape) + bytes(images.astype(np.uint8))
    label_file = header(2049, len(labels)) + bytes(labels.astype(np.uint8))
    return {IMAGES.format(part): image_file, LABELS.format(part): label_file}


def files(train: int = 36, test: int = 10) -> dict[str, bytes]:
    """All four files, by name."""
    rng = np.random.default_rng(0)
    found = {}
    for part, n in (("train", train), ("t10k", test)):
        images = rng.integers(0, 256, (n, 28, 28))
        found |= pair(part, images, rng.integers(0, 10, n))
    return found
