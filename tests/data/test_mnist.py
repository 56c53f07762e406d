"""The parser of idx files, and the errors for wrong files."""

import numpy as np
import pytest

from lnrepro.data.readers.mnist import MNIST
from tests.data import idx
from tests.data.reading import read, refused

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
GOOD = idx.files()


def test_the_first_twelfth_of_the_training_images_is_valid(tmp_path):
    splits = read(MNIST, idx.write(tmp_path, GOOD)).splits
    pixels = np.frombuffer(GOOD[IMAGES], np.uint8, offset=16).reshape(36, 28, 28)
    classes = np.frombuffer(GOOD[LABELS], np.uint8, offset=8)
    for split, rows in {"valid": slice(3), "train": slice(3, 36)}.items():
        columns = splits[split]
        np.testing.assert_array_equal(columns["image"], pixels[rows])
        np.testing.assert_array_equal(columns["label"], classes[rows])
        assert columns["label"].dtype == np.int32
    assert len(splits["test"]["label"]) == 10


# The file, its content, and the error.
BAD = {
    "truncated": (
        IMAGES,
        GOOD[IMAGES][:-100],
        r"\[2051, 36, 28, 28\] .* the 28124 bytes",
    ),
    "labels": (IMAGES, GOOD[LABELS], r"\[2049, 36, .*magic number 2051"),
    "terabytes": (
        IMAGES,
        idx.header(2051, *[2**32 - 1] * 3),
        "the 0 bytes that follow",
    ),
    "sizes": (
        IMAGES,
        idx.header(2051, 36, 14, 14) + bytes(36 * 14 * 14),
        r"images of shape \(36, 14, 14\) and 36 labels .*; images of 28 x 28",
    ),
    "count": (
        LABELS,
        idx.header(2049, 35) + bytes(35),
        r"\(36, 28, 28\) and 35 labels",
    ),
    "range": (
        LABELS,
        idx.header(2049, 36) + bytes(20) + b"\x0a" + bytes(15),
        "labels from 0 to 10",
    ),
    "few": (LABELS, b"<html>", "a web page, .*; download the file again"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_files_are_named(case, tmp_path):
    file, content, message = BAD[case]
    raw = idx.write(tmp_path, GOOD | {file: content}, packed=False)
    with refused(f"({file}|train-.): .*{message}"):
        read(MNIST, raw)
