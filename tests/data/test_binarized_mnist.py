import gzip
import io
import struct

import numpy as np
import pytest
from scipy.io import savemat

from lnrepro import data
from lnrepro.data.generated import digits
from lnrepro.data.official import binarized_mnist as bm
from lnrepro.data.official import matlab
from lnrepro.errors import DataError
from tests.data import unchecked

ROWS = {"train": 7, "valid": 3, "test": 2}


def images(rows, seed=0):
    return (np.random.RandomState(seed).rand(rows, 28, 28) < 0.3).astype(np.uint8)


def as_text(images):
    return "".join(
        " ".join(map(str, image.ravel())) + "\n" for image in images
    ).encode()


def as_matlab(values, name="X"):
    file = io.BytesIO()
    savemat(file, {name: values}, do_compression=True)
    return file.getvalue()


@pytest.fixture
def raw(tmp_path):
    """A folder with three small .amat files, and the images in them."""
    kept = {}
    for seed, (split, rows) in enumerate(ROWS.items()):
        kept[split] = images(rows, seed)
        (tmp_path / f"binarized_mnist_{split}.amat").write_bytes(as_text(kept[split]))
    return tmp_path, kept


def test_text_and_matlab_hold_the_same_images():
    wanted = images(5)
    np.testing.assert_array_equal(bm.parse(as_text(wanted), "f"), wanted)
    np.testing.assert_array_equal(
        bm.parse(as_text(wanted).replace(b"\n", b" \r\n"), "f"), wanted
    )
    np.testing.assert_array_equal(bm.parse(as_text(wanted)[:-1], "f"), wanted)
    for dtype in (np.uint8, np.float64):
        np.testing.assert_array_equal(
            bm.parse(as_matlab(wanted.reshape(5, 784).astype(dtype)), "f"), wanted
        )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8", "u8"]
)
def test_matlab_arrays_are_scipys(dtype, packed):
    wanted = np.arange(6).reshape(3, 2).astype(dtype)
    file = io.BytesIO()
    savemat(
        file,
        {"X": wanted, "cell": np.array(["a"], object), "z": wanted * 1j},
        do_compression=packed,
    )
    found = {v.name: v for v in matlab.variables(file.getvalue(), 10**4)}
    assert found.keys() == {"X", "cell", "z"}
    assert found["cell"].values is None
    assert (found["z"].kind, found["z"].values) == ("complex", None)
    if dtype != "u8":  # a class that the official files do not use
        np.testing.assert_array_equal(found["X"].values, wanted)


def test_a_matlab_file_takes_no_more_memory_than_it_may(monkeypatch):
    bomb = as_matlab(np.zeros((2000, 784), np.uint8))
    assert len(bomb) < 2000
    monkeypatch.setattr(bm, "LARGEST", 1_500_000)
    with pytest.raises(
        DataError,
        match=r"f: damaged MATLAB file .it unpacks to more than the 1,500,000 bytes "
        "it may",
    ):
        bm.parse(bomb, "f")
    whole = bytearray(as_matlab(np.zeros((1, 784), np.uint8)))
    whole[128:136] = struct.pack("<2I", 14, 2**32 - 8)
    with pytest.raises(
        DataError,
        match=r"f: damaged MATLAB file .an element of 4,294,967,288 bytes, but only",
    ):
        bm.parse(bytes(whole), "f")


def test_one_wrong_byte_never_passes_as_the_official_pattern():
    content = bytearray(as_text(images(3)))
    for place, byte, message in (
        (0, b"2", "line 1"),
        (2 * 784 + 7, b"0", "line 2"),
        (2 * 784 - 1, b" ", "line 1"),
    ):
        broken = content.copy()
        broken[place : place + 1] = byte
        with pytest.raises(DataError, match=message):
            bm.parse(bytes(broken), "f")


def test_prepared_and_read_back(raw, tmp_path_factory):
    folder, kept = raw
    target = tmp_path_factory.mktemp("data")
    packed = folder / "binarized_mnist_valid.amat"
    (folder / "binarized_mnist_valid.amat.gz").write_bytes(
        gzip.compress(packed.read_bytes())
    )
    packed.unlink()
    (folder / "binarized_mnist_test.amat").write_bytes(
        as_matlab(kept["test"].reshape(-1, 784))
    )
    unchecked.prepare("binarized_mnist", folder, target)
    for split, wanted in kept.items():
        found = data.open_columns("binarized_mnist", split, target)["image"]
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(
            data.open_source("binarized_mnist", split, target)[1]["image"], wanted[1]
        )


GOOD = as_text(images(2))
BAD_FILES = {
    "columns": (GOOD.replace(b"\n", b" 1\n", 1), "line 1: 785 columns instead of 784"),
    "columns later": (GOOD[:-3] + b"\n", "line 2: 783 columns instead of 784"),
    "value": (GOOD[:20] + b"7" + GOOD[21:], "line 1: the value '7' is neither 0 nor 1"),
    "grey": (
        GOOD[:1568] + b"0.5" + GOOD[1569:],
        "line 2: the value '0.5' is neither 0 nor 1",
    ),
    "not text": (
        b"\x89PNG\r\n\x1a\n" + GOOD,
        "line 1: the value .* is neither 0 nor 1",
    ),
    "cut line": (GOOD[:2000], "line 2: 216 columns instead of 784; short"),
    "short": (GOOD, r"short, 2 images instead of 50,000"),
    "empty": (b"", "empty"),
    "only a byte order mark": (b"\xef\xbb\xbf", "empty"),
    "variable": (
        as_matlab(np.zeros((2, 784), np.uint8), "Y"),
        "the variables Y instead of X",
    ),
    "shape": (
        as_matlab(np.zeros((2, 783), np.uint8)),
        "X is 2 x 783 instead of N x 784",
    ),
    "cube": (
        as_matlab(np.zeros((2, 28, 28), np.uint8)),
        "X is 2 x 28 x 28 instead of N x 784",
    ),
    "matlab value": (
        as_matlab(np.eye(784)[:3] * 2),
        "row 1: the value 2.0 is neither 0 nor 1",
    ),
    "cells": (as_matlab(np.full((2, 784), "0", object)), "X contains cell values"),
    "cut matlab": (as_matlab(images(9).reshape(9, 784))[:400], "damaged MATLAB file"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_file_is_one_clear_line_and_leaves_nothing(raw, tmp_path_factory, kind):
    content, message = BAD_FILES[kind]
    target = tmp_path_factory.mktemp("data")
    file = raw[0] / "binarized_mnist_train.amat"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message) as e:
        data.prepare("binarized_mnist", raw[0], target)
    assert str(file) in str(e.value)
    assert "\n" not in str(e.value)
    assert not data.prepared("binarized_mnist", target)
    assert not list(target.glob("binarized_mnist/*"))


def test_truncated_gzip_and_missing_file(raw, tmp_path):
    file = raw[0] / "binarized_mnist_train.amat"
    packed = gzip.compress(file.read_bytes())
    file.unlink()
    with pytest.raises(DataError, match="no such file"):
        data.prepare("binarized_mnist", raw[0], tmp_path / "data")
    (raw[0] / "binarized_mnist_train.amat.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="truncated"):
        data.prepare("binarized_mnist", raw[0], tmp_path / "data")


def test_other_images_than_the_official_ones_are_refused_by_their_sum(
    raw, tmp_path, monkeypatch
):
    monkeypatch.setattr(bm, "ROWS", ROWS)
    with pytest.raises(DataError, match="sha256"):
        data.prepare("binarized_mnist", raw[0], tmp_path / "data")


def test_embedded_digits_are_the_same_everywhere(tmp_path):
    assert data.fingerprint("binarized_digits", tmp_path).startswith(
        "binarized_digits/1.0.0/68d5e2ed2f6f33f1"
    )
    columns = {
        split: data.open_columns("binarized_digits", split, tmp_path)["image"]
        for split in ROWS
    }
    assert {k: len(v) for k, v in columns.items()} == {
        "train": 1297,
        "valid": 250,
        "test": 250,
    }
    train = columns["train"]
    assert set(np.unique(train)) == {0, 1}
    assert 0.15 < train.mean() < 0.25
    assert not train[:, :2].any()
    assert not train[:, :, -2:].any()


def test_enlarging_keeps_paper_ink_and_symmetry():
    grey = np.zeros((1, 8, 8))
    grey[0, 2:6, 2:6] = 1
    large = digits.enlarge(grey)[0]
    assert large.shape == (28, 28)
    assert large[14, 14] == 1
    assert large[0, 0] == 0
    np.testing.assert_allclose(large, large[::-1], atol=1e-12)
    np.testing.assert_allclose(large, large.T, atol=1e-12)
    assert abs(large.sum() - 12 * 12) < 12  # a 4x4 square, three times as large


def test_binarising_draws_each_pixel_with_its_grey_level():
    grey = np.full((2000, 4, 4), 0.3)
    drawn = digits.binarise(grey)
    assert abs(drawn.mean() - 0.3) < 5 * np.sqrt(0.21 / grey.size)
    assert not (drawn[0] == drawn).all()
    np.testing.assert_array_equal(drawn, digits.binarise(grey))
    assert digits.binarise(np.ones((1, 28, 28))).all()
    assert not digits.binarise(np.zeros((1, 28, 28))).any()


@pytest.mark.parametrize("value", ["nan", "inf", "1e400"])
def test_values_that_are_not_finite_are_named(value):
    values = ["0"] * 784
    values[5] = value
    content = ("0 " * 784).strip() + "\n" + " ".join(values) + "\n"
    with pytest.raises(DataError, match=f"f, line 2: the value '{value}' is neither"):
        bm.parse(content.encode(), "f")
    out = io.BytesIO()
    savemat(out, {"X": np.array([[0] * 784, values], np.float64)})
    with pytest.raises(DataError, match=r"f, row 2: the value .* is neither 0 nor 1"):
        bm.parse(out.getvalue(), "f")
