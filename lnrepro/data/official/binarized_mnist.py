"""Binary digits for generative models: `binarized_mnist`, Larochelle's fixed binarisation, from the three official
.amat files; `binarized_digits`, scikit-learn's real digits enlarged to 28x28 and binarised once, embedded.

An example is {"image": (28, 28) uint8, each 0 or 1}; there are no labels. Bounds in nats on the one and on the other
cannot be compared. The .amat files are text, one image per line: 784 times "0" or "1" with single spaces between, row
by row. Files that circulate under the same names are MATLAB 5.0 files with one variable X, (N, 784) zeros and ones; the
first bytes tell which it is, plain or packed.
Splits of binarized_mnist: 50,000 train, 10,000 valid, 10,000 test, in the files' order; of binarized_digits, as of
`digits`: 1,297 train, 250 valid, 250 test.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lnrepro.data.builder import Builder, Example, array
from lnrepro.data.official import matlab
from lnrepro.data.raw import Raw, RawFile
from lnrepro.engine.errors import DataError

SIDE = 28
PIXELS = SIDE * SIDE
HOME = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/"
ROWS = {"train": 50_000, "valid": 10_000, "test": 10_000}
LARGEST = (
    ROWS["train"] * PIXELS * 8 + 1024
)  # bytes of a MATLAB file's images, unpacked, if they are doubles


def _official(split: str, sha256: str) -> RawFile:
    name = f"binarized_mnist_{split}.amat"
    return RawFile(name, ROWS[split] * 2 * PIXELS, sha256, (HOME + name,))


class BinarizedMnist(Builder):
    """Binarised MNIST: 70,000 images of 28x28 bits, each pixel drawn once with its grey level as probability."""

    source = HOME
    licence = "none stated; derived from MNIST by R. Salakhutdinov and I. Murray, distributed by H. Larochelle"
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

    def features(self):
        """28x28 bytes, each 0 or 1."""
        return {"image": array((SIDE, SIDE), np.uint8)}

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Reads the three files: 50,000, 10,000 and 10,000 images, or any number with --any-checksum."""
        splits = {}
        for split, rows in ROWS.items():
            name = f"binarized_mnist_{split}.amat"
            images = parse(raw.read(name), raw.path(name))
            if len(images) != rows and not raw.any_checksum:
                what = "short" if len(images) < rows else "too long"
                raise DataError(
                    f"{raw.path(name)}: {what}, {len(images):,} images instead of {rows:,}; download it again"
                )
            splits[split] = Images(images)
        return splits


class BinarizedDigits(Builder):
    """The 1,797 digits of scikit-learn (8x8, 17 grey levels), enlarged to 28x28 and binarised with a fixed seed."""

    source = "https://archive.ics.uci.edu/dataset/80 (test part, as in sklearn.datasets.load_digits)"
    licence = "CC BY 4.0 (E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI)"
    size = "1,297 train, 250 valid, 250 test; nothing to download, 3 MB prepared"
    embedded = True

    def features(self):
        """28x28 bytes, each 0 or 1."""
        return {"image": array((SIDE, SIDE), np.uint8)}

    def examples(self, raw: Raw) -> dict[str, Sequence[Example]]:
        """Enlarges, binarises and cuts scikit-learn's order as the set `digits` does."""
        from sklearn.datasets import load_digits

        images = binarise(enlarge(load_digits().images / 16.0))
        cuts = {
            "train": slice(0, 1297),
            "valid": slice(1297, 1547),
            "test": slice(1547, 1797),
        }
        return {split: Images(images[cut]) for split, cut in cuts.items()}


class Images(Sequence):
    """Images (N, 28, 28) as a sequence of examples."""

    def __init__(self, images: np.ndarray):
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Example:
        return {"image": self.images[i]}


def enlarge(images: np.ndarray) -> np.ndarray:
    """Grey images (N, 8, 8) in 0..1 -> (N, 28, 28) in 0..1: by cubic convolution to the middle 24x24 pixels.

    The contrast is raised fivefold about one half: enlarged grey levels, taken as probabilities, would give fog.
    Source of the kernel: Keys (1981), a = -1/2.
    """
    side = images.shape[1]
    centres = (
        np.arange(24) + 0.5
    ) * side / 24 - 0.5  # of the large image's pixels, on the small image's grid
    t = np.abs(centres[:, None] - np.arange(-1, side + 1))
    near, far = 1.5 * t**3 - 2.5 * t**2 + 1, -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2
    weights = np.where(t <= 1, near, np.where(t < 2, far, 0))[
        :, 1:-1
    ]  # what lies outside the image is paper
    large = np.einsum("ya,nab,xb->nyx", weights, images, weights)
    return np.pad(np.clip(5 * (large - 0.5) + 0.5, 0, 1), ((0, 0), (2, 2), (2, 2)))


def binarise(images: np.ndarray, seed: int = 0) -> np.ndarray:
    """One draw per pixel: (N, H, W) probabilities -> uint8 zeros and ones, the same ones for a seed everywhere.

    The numbers come from the bit generator itself (its stream is fixed by contract, a Generator's methods are not).
    """
    bits = np.random.PCG64(seed).random_raw(images.size).reshape(images.shape)
    return ((bits >> np.uint64(11)) * 2.0**-53 < images).astype(np.uint8)


def parse(content: bytes, where: object) -> np.ndarray:
    """The content of an .amat file, text or MATLAB 5.0 -> (N, 28, 28) uint8 zeros and ones.

    Raises DataError that begins with `where`.
    """
    if content.startswith(matlab.MAGIC):
        images = _parse_matlab(content, where)
    else:
        images = _parse_text(content, where)
    return images.reshape(-1, SIDE, SIDE)


def _parse_text(content: bytes, where: object) -> np.ndarray:
    """Text -> (N, 784). The official layout is one pattern of bytes; anything else is taken line by line."""
    if not content.strip():
        raise DataError(f"{where}: empty; download it again")
    stride = 2 * PIXELS  # 784 digits, 783 spaces, a newline
    if len(content) % stride == 0:
        table = np.frombuffer(content, np.uint8).reshape(-1, stride)
        digits, gaps = table[:, ::2], table[:, 1::2]
        if (
            (gaps[:, :-1] == ord(" ")).all()
            and (gaps[:, -1] == ord("\n")).all()
            and ((digits | 1) == ord("1")).all()
        ):
            return digits - np.uint8(ord("0"))
    rows = []
    lines = content.splitlines()
    for number, line in enumerate(lines, 1):
        values = line.split()
        if not values and number == len(lines):
            break
        if bad := next((v for v in values if v not in (b"0", b"1")), None):
            shown = ascii(bad[:12].decode("latin-1"))
            raise DataError(
                f"{where}, line {number}: the value {shown} is neither 0 nor 1; get the official file"
            )
        if len(values) != PIXELS:
            cut = (
                number == len(lines)
                and not content.endswith(b"\n")
                and len(values) < PIXELS
            )
            hint = (
                "short: the file ends within a line; download it again"
                if cut
                else "get the official file"
            )
            raise DataError(
                f"{where}, line {number}: {len(values)} columns instead of {PIXELS}; {hint}"
            )
        rows.append(np.array(values, dtype="S1").view(np.uint8) - np.uint8(ord("0")))
    return np.stack(rows)


def _parse_matlab(content: bytes, where: object) -> np.ndarray:
    """MATLAB 5.0 with one variable X -> (N, 784)."""
    try:
        found = matlab.variables(content, LARGEST)
    except ValueError as e:
        raise DataError(f"{where}: damaged MATLAB file ({e}); download it again") from e
    if [v.name for v in found] != ["X"]:
        names = ", ".join(v.name for v in found[:5]) or "none"
        raise DataError(
            f"{where}: a MATLAB file with the variables {names} instead of X alone; get the official file"
        )
    _, shape, kind, values = found[0]
    if len(shape) != 2 or shape[1] != PIXELS or shape[0] < 1:
        sizes = " x ".join(map(str, shape[:5]))
        raise DataError(
            f"{where}: X is {sizes} instead of N x {PIXELS}; get the official file"
        )
    if values is None:
        raise DataError(
            f"{where}: X holds {kind} values instead of 0 and 1; get the official file"
        )
    wrong = np.argwhere((values != 0) & (values != 1))
    if len(wrong):
        row, column = wrong[0]
        raise DataError(
            f"{where}, row {row + 1}: the value {values[row, column]} is neither 0 nor 1; get the official file"
        )
    return values.astype(np.uint8, order="C")
