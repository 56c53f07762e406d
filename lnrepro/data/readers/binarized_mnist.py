"""Binary images of digits, 28x28, for generative models.

`binarized_mnist` is the fixed binarisation of Larochelle, in three .amat files. They
are text with one image per line. A line has 784 digits, row by row, with single spaces
between them. These are the first digits of three lines:

    0 0 0 1 1 0 0
    0 0 1 1 0 0 0
    0 1 1 0 0 0 0

The splits have 50,000, 10,000 and 10,000 images, in the order of the files. An example
is {"image": [28, 28] uint8}, where each pixel is 0 or 1.
"""

import numpy as np

from lnrepro.data.files import decode
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import ColumnSpec, Content, Reader
from lnrepro.errors import DataError

SIDE = 28
PIXELS = SIDE * SIDE
FILE = "binarized_mnist_{}.amat"
# SHA-256 of the unpacked content of each official file.
CHECKSUMS = {
    "train": "ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d",
    "valid": "1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2",
    "test": "e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c",
}


def read(raw: RawFolder) -> Content:
    """Read the three files. Own files may have any number of images."""
    splits = {}
    for split in CHECKSUMS:
        name = FILE.format(split)
        splits[split] = {"image": parse(raw.read(name), raw.path(name))}
    return Content(splits)


def parse(content: bytes, where: object) -> np.ndarray:
    """Parse an .amat file.

    Args:
      content: content of the file.
      where: name of the file, for error messages.

    Returns:
      The images [N, 28, 28] uint8.

    Raises:
      DataError: a line does not have 784 digits 0 or 1.
    """
    lines = decode(content, where).rstrip().encode().splitlines()
    images = np.empty((len(lines), PIXELS), np.uint8)
    for i, line in enumerate(lines):
        digits = line.translate(None, b" \t")
        wrong = digits.translate(None, b"01")
        if wrong or len(digits) != PIXELS:
            raise DataError(
                f"{where}, line {i + 1}: {len(digits)} characters, of which "
                f"{len(wrong)} are neither 0 nor 1, instead of {PIXELS} digits; get "
                "the official file"
            )
        images[i] = np.frombuffer(digits, np.uint8) - np.uint8(ord("0"))
    return images.reshape(-1, SIDE, SIDE)


# A pixel is 0 or 1.
COLUMNS = {"image": ColumnSpec(0, 1, integer=True, ndim=2, ragged=False)}
BINARIZED_MNIST = Reader(
    title="Binarised MNIST: 70,000 images of 28x28 bits, drawn with the grey levels",
    read=read,
    configs=("configs/draw.py",),
    source="http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/NAME",
    licence=(
        "none stated; derived from MNIST by R. Salakhutdinov and I. Murray, "
        "distributed by H. Larochelle"
    ),
    size="50,000 train, 10,000 valid, 10,000 test; 110 MB to download, 55 MB prepared",
    columns=COLUMNS,
    files={FILE.format(split): sha256 for split, sha256 in CHECKSUMS.items()},
    sha256="d078bce36cd8dd15",
)
