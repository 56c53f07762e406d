"""The parser of idx files, and the errors for wrong files."""

import numpy as np
import pytest

from lnrepro.data.readers.mnist import MNIST
from tests.data import idx
from tests.data.reading import read, refused

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
GOOD = idx.files()
# So many that the first twelfth has every label.
MANY = idx.files(train=600)


def test_the_first_twelfth_of_the_training_images_is_valid(tmp_path):
    splits = read(MNIST, idx.write(tmp_path, MANY)).splits
    pixels = np.frombuffer(MANY[IMAGES], np.uint8, offset=16).reshape(600, 28, 28)
    classes = np.frombuffer(MANY[LABELS], np.uint8, offset=8)
    for split, rows in {"valid": slice(50), "train": slice(50, 600)}.items():
        columns = splits[split]
        np.testing.assert_array_equal(columns["image"], pixels[rows])
        np.testing.assert_array_equal(columns["label"], classes[rows])
        assert columns["label"].dtype == np.int32
    assert len(splits["test"]["label"]) == 10


def test_valid_of_sorted_files_is_drawn_from_all_images(tmp_path):
    images, labels = np.zeros((600, 28, 28)), np.repeat(np.arange(10), 60)
    # Each image is known by its first two pixels.
    images[:, 0, :2] = np.stack(np.divmod(np.arange(600), 256), 1)
    raw = idx.write(tmp_path, MANY | idx.pair("train", images, labels))
    with pytest.warns(UserWarning, match="the first 50 training .* no label 1; valid"):
        splits = read(MNIST, raw).splits
    numbers = {}
    for split in ("valid", "train"):
        columns = splits[split]
        high, low = columns["image"][:, 0, :2].astype(int).T
        numbers[split] = (256 * high + low).tolist()
        assert columns["label"].tolist() == [n // 60 for n in numbers[split]]
        assert numbers[split] == sorted(numbers[split])
        assert set(columns["label"].tolist()) == set(range(10))
    assert len(numbers["valid"]) == 50
    assert sorted(numbers["valid"] + numbers["train"]) == list(range(600))


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
        r"images of shape \(36, 14, 14\) and 36 labels; images of 28 x 28",
    ),
    "count": (
        LABELS,
        idx.header(2049, 35) + bytes(35),
        r"\(36, 28, 28\) and 35 labels",
    ),
    "few": (LABELS, b"<html>", "a web page, .*; download the file again"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_files_are_named(case, tmp_path):
    file, content, message = BAD[case]
    raw = idx.write(tmp_path, GOOD | {file: content}, packed=False)
    with refused(f"({file}|train-.): .*{message}"):
        read(MNIST, raw)
