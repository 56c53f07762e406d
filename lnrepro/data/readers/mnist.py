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
in section 6.6 of the paper. test has 10,000 images. Own images are divided alike, or
valid is drawn from all training images if the first ones lack a label.

An example is {"image": [height, width] uint8, "label": [] int32 from 0 to 9}. Pixels
are not scaled, so they are 0 to 255.
"""

import math
import warnings
from collections.abc import Mapping

import numpy as np

from lnrepro.data.files import AGAIN
from lnrepro.data.raw_folder import RawFolder
from lnrepro.data.reader import BYTES, ColumnSpec, Content, Reader
from lnrepro.data.shuffle import permutation
from lnrepro.errors import DataError


def read(raw: RawFolder) -> Content:
    """Read the four files."""
    train, test = _read_part(raw, "train"), _read_part(raw, "t10k")
    return Content(divided(train) | {"test": test})


def divided(train: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Return the splits train and valid of the columns of the training images.

    Warns if the first images lack a label, such as of files that are sorted by label.
    """
    # A twelfth of 60,000 is the 5,000 of the paper. Own files of other sizes are
    # divided alike, and need one image at least for each part.
    count = len(train["image"])
    is_valid = np.arange(count) < max(1, count // 12)
    labels = train.get("label", np.zeros(count))
    if missing := set(labels.tolist()) - set(labels[is_valid].tolist()):
        warnings.warn(
            f"the first {is_valid.sum():,} training images have no label "
            f"{min(missing)}; valid is drawn from all {count:,}",
            stacklevel=2,
        )
        is_valid = is_valid[permutation(0, 0, count)]
    return {
        "train": {name: column[~is_valid] for name, column in train.items()},
        "valid": {name: column[is_valid] for name, column in train.items()},
    }


def _read_part(raw: RawFolder, part: str) -> dict[str, np.ndarray]:
    """Read the images and labels of a part, "train" or "t10k"."""
    images = _read_idx(raw, f"{part}-images-idx3-ubyte", 3)
    labels = _read_idx(raw, f"{part}-labels-idx1-ubyte", 1)
    if images.shape != (len(labels), 28, 28):
        raise DataError(
            f"{raw.folder}/{part}-*: images of shape {images.shape} and {len(labels)} "
            f"labels; images of 28 x 28 pixels and one label for each are needed; "
            f"{AGAIN}s"
        )
    return {"image": images, "label": labels.astype(np.int32)}


def _read_idx(raw: RawFolder, name: str, ndim: int) -> np.ndarray:
    """Read an idx file of unsigned bytes.

    Args:
      raw: the folder.
      name: the file.
      ndim: number of dimensions.

    Raises:
      DataError: the header is wrong or does not fit to the size of the content, or
        there is no value.
    """
    content = raw.read(name)
    # The magic number of unsigned bytes.
    wanted, header = 0x800 + ndim, 4 + 4 * ndim
    # A header of fewer bytes has a wrong magic number or no size.
    numbers = np.frombuffer(content[:header].ljust(header, b"\0"), ">u4").tolist()
    magic, *shape = numbers
    found = len(content) - header
    if magic != wanted or math.prod(shape) != found or not found:
        raise DataError(
            f"{raw.path(name)}: the header is {numbers} instead of the magic number "
            f"{wanted} and the sizes of the {found} bytes that follow; {AGAIN}"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


# SHA-256 of the unpacked content of each official file.
CHECKSUMS = {
    "train-images-idx3-ubyte": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    ),
    "train-labels-idx1-ubyte": (
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
    ),
    "t10k-images-idx3-ubyte": (
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    ),
    "t10k-labels-idx1-ubyte": (
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
    ),
}
DIGIT = ColumnSpec(0, 9, integer=True, ndim=0)
MNIST = Reader(
    title="MNIST: 70,000 handwritten digits, 28x28",
    read=read,
    configs=("configs/mnist.py", "configs/convnet.py"),
    source=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/NAME.gz, a mirror of "
        "http://yann.lecun.com/exdb/mnist/"
    ),
    licence=(
        "copyright Yann LeCun and Corinna Cortes; "
        "commonly distributed under CC BY-SA 3.0"
    ),
    size="55,000 train, 5,000 valid, 10,000 test; 12 MB to download, 55 MB prepared",
    columns={"image": BYTES, "label": DIGIT},
    files=CHECKSUMS,
    sha256="43f62791fc3ae99c",
)
