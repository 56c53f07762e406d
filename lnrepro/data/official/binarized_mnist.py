"""Binary images of digits, 28x28, for generative models.

`binarized_mnist` is the fixed binarisation of Larochelle, in three .amat files. They
are text with one image per line. A line has 784 digits, row by row, with single spaces
between them. These are the first digits of three lines:

    0 0 0 1 1 0 0
    0 0 1 1 0 0 0
    0 1 1 0 0 0 0

Other files of the same names are MATLAB 5.0 files with one variable X [N, 784]. The
first bytes of the file tell which format it is. The splits have 50,000, 10,000 and
10,000 images, in the order of the files.

An example is {"image": [28, 28] uint8}, where each pixel is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.encodings import decode
from lnrepro.data.official import matlab
from lnrepro.data.raw import Raw, RawFile
from lnrepro.errors import DataError

SIDE = 28
PIXELS = SIDE * SIDE
HOME = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/"
ROWS = {"train": 50_000, "valid": 10_000, "test": 10_000}
# Bytes of an unpacked MATLAB file whose values are float64.
LARGEST = ROWS["train"] * PIXELS * 8 + 1024


def _official(split: str, sha256: str) -> RawFile:
    name = f"binarized_mnist_{split}.amat"
    return RawFile(name, ROWS[split] * 2 * PIXELS, sha256, (HOME + name,))


class BinaryImages(Builder):
    """Base class of the sets of binary images."""

    configs = ("configs/draw.py",)

    def features(self):
        """Return the features of an example."""
        return {"image": array((SIDE, SIDE), np.uint8)}


class BinarizedMnist(BinaryImages):
    """Binarised MNIST: 70,000 images of 28x28 bits, drawn with the grey levels."""

    source = HOME
    licence = (
        "none stated; derived from MNIST by R. Salakhutdinov and I. Murray, "
        "distributed by H. Larochelle"
    )
    size = (
        "50,000 train, 10,000 valid, 10,000 test; 110 MB to download, 115 MB prepared"
    )
    files = (
        _official(
            "train", "ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d"
        ),
        _official(
            "valid", "1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2"
        ),
        _official(
            "test", "e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c"
        ),
    )

    def examples(self, raw: Raw) -> Mapping[str, Sequence[Example]]:
        """Read the three files. Own files may have any number of images."""
        splits = {}
        for split, rows in ROWS.items():
            name = f"binarized_mnist_{split}.amat"
            # A download may end early between two lines, so the number of images is
            # checked too.
            images = parse(raw.read(name), raw.path(name))
            if len(images) != rows and not raw.any_checksum:
                problem = "short" if len(images) < rows else "too long"
                raise DataError(
                    f"{raw.path(name)}: {problem}, {len(images):,} images instead of "
                    f"{rows:,}; download it again"
                )
            splits[split] = [{"image": image} for image in images]
        return splits


def parse(content: bytes, where: object) -> np.ndarray:
    """Parse an .amat file, which is text or MATLAB 5.0.

    Args:
      content: content of the file.
      where: name of the file, for error messages.

    Returns:
      The images [N, 28, 28] uint8.

    Raises:
      DataError: the content does not have one of these formats.
    """
    is_matlab = content.startswith(matlab.MAGIC)
    images = (_parse_matlab if is_matlab else _parse_text)(content, where)
    return images.reshape(-1, SIDE, SIDE)


def _parse_text(content: bytes, where: object) -> np.ndarray:
    """Parse a text file. Return the images [N, 784] uint8."""
    if not content.isascii():
        content = decode(content, where).encode()
    # A byte order mark alone is empty too.
    if not content.strip():
        raise DataError(f"{where}: empty; download it again")
    # Lines of the official files have 784 digits, 783 spaces and a newline. They can be
    # parsed as a table of bytes.
    if len(content) % (2 * PIXELS) == 0:
        table = np.frombuffer(content, np.uint8).reshape(-1, PIXELS, 2)
        digits, separators = table[..., 0], table[..., 1]
        if (
            (separators[:, :-1] == ord(" ")).all()
            and (separators[:, -1] == ord("\n")).all()
            and ((digits | 1) == ord("1")).all()
        ):
            return digits - np.uint8(ord("0"))
    # Other line ends or spaces: slower, line by line, so that a message can name the
    # line.
    lines = content.splitlines()
    if not lines[-1].strip():
        lines.pop()
    rows = []
    for number, line in enumerate(lines, 1):
        values = line.split()
        for value in values:
            if value not in (b"0", b"1"):
                shown = ascii(value[:12].decode("latin-1"))
                raise DataError(
                    f"{where}, line {number}: the value {shown} is neither 0 nor 1; "
                    "get the official file"
                )
        if len(values) != PIXELS:
            advice = "get the official file"
            is_last = number == len(lines) and not content.endswith(b"\n")
            if is_last and len(values) < PIXELS:
                advice = "short: the file ends within a line; download it again"
            raise DataError(
                f"{where}, line {number}: {len(values)} columns instead of {PIXELS}; "
                f"{advice}"
            )
        rows.append(np.array(values, dtype="S1").view(np.uint8) - np.uint8(ord("0")))
    return np.stack(rows)


def _parse_matlab(content: bytes, where: object) -> np.ndarray:
    """Parse a MATLAB 5.0 file with one variable X. Return the images [N, 784] uint8."""
    try:
        found = matlab.variables(content, LARGEST)
    except ValueError as e:
        raise DataError(f"{where}: damaged MATLAB file ({e}); download it again") from e

    def error(problem: str) -> DataError:
        return DataError(f"{where}{problem}; get the official file")

    # The file of another data set would have other variables.
    names = [variable.name for variable in found]
    if names != ["X"]:
        shown = ", ".join(names[:5]) or "none"
        raise error(f": a MATLAB file with the variables {shown} instead of X alone")
    _, shape, kind, values = found[0]
    if len(shape) != 2 or shape[1] != PIXELS or shape[0] < 1:
        sizes = " x ".join(map(str, shape[:5]))
        raise error(f": X is {sizes} instead of N x {PIXELS}")
    if values is None:
        raise error(f": X contains {kind} values instead of 0 and 1")
    wrong = np.argwhere((values != 0) & (values != 1))
    if len(wrong):
        row, column = wrong[0]
        value = values[row, column]
        raise error(f", row {row + 1}: the value {value} is neither 0 nor 1")
    return values.astype(np.uint8, order="C")
