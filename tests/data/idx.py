"""Small idx files for the tests: the four files of MNIST with a few random images."""

import gzip
import pathlib
import struct

import numpy as np

IMAGES, LABELS = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"


def header(magic: int, *sizes: int) -> bytes:
    return struct.pack(f">{1 + len(sizes)}I", magic, *sizes)


def pair(part: str, images: np.ndarray, labels: np.ndarray) -> dict[str, bytes]:
    """The two files of one part, by name."""
    return {
        IMAGES.format(part): header(2051, *images.shape)
        + images.astype(np.uint8).tobytes(),
        LABELS.format(part): header(2049, len(labels))
        + labels.astype(np.uint8).tobytes(),
    }


def files(seed: int = 0, train: int = 36, test: int = 10) -> dict[str, bytes]:
    """All four files, by name."""
    rng = np.random.default_rng(seed)
    return {
        name: content
        for part, n in (("train", train), ("t10k", test))
        for name, content in pair(
            part, rng.integers(0, 256, (n, 28, 28)), rng.integers(0, 10, n)
        ).items()
    }


def write(
    folder: pathlib.Path, contents: dict[str, bytes], packed: bool = True
) -> pathlib.Path:
    """Write files into a folder, as .gz or plain, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = folder / (name + ".gz" * packed)
        path.write_bytes(gzip.compress(content) if packed else content)
    return folder
