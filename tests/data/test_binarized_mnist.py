"""The parser of .amat files."""

import numpy as np
import pytest

from lnrepro.data.readers import binarized_mnist as bm
from tests.data.reading import read, refused, write

IMAGES = (np.random.RandomState(0).rand(5, 28, 28) < 0.3).astype(np.uint8)
TEXT = "".join(" ".join(map(str, image.ravel())) + "\n" for image in IMAGES).encode()


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        TEXT.rstrip(),
        TEXT.replace(b"\n", b" \r\n"),
        b"\xef\xbb\xbf" + TEXT,
        TEXT + b"\n\n",
    ],
)
def test_text_is_read_with_any_spaces_and_line_ends(content):
    found = bm.parse(content, "f")
    np.testing.assert_array_equal(found, IMAGES, strict=True)


def test_a_folder_is_read(tmp_path):
    for split in bm.CHECKSUMS:
        write(tmp_path, {bm.FILE.format(split): TEXT})
    splits = read(bm.BINARIZED_MNIST, tmp_path).splits
    assert {split: len(columns["image"]) for split, columns in splits.items()} == {
        "train": 5,
        "valid": 5,
        "test": 5,
    }


LINE = 2 * 784


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TEXT.replace(b"\n", b" 1\n", 1), "f, line 1: 785 characters, of which 0 are"),
        (TEXT[: LINE + 7] + b"1" + TEXT[LINE + 8 :], "f, line 2: 785 char"),
        (TEXT[:20] + b"7" + TEXT[21:], "f, line 1: .*which 1 are neither 0"),
        (TEXT[:LINE] + b"nan" + TEXT[LINE + 1 :], "f, line 2: .*which 3 are neither"),
    ],
)
def test_wrong_lines_are_named(content, message):
    with refused(message):
        bm.parse(content, "f")
