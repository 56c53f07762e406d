"""The parser of idx files, the prepared set, and the errors for wrong files."""

import gzip
import lzma

import numpy as np
import pytest

from lnrepro import data
from lnrepro.errors import DataError
from tests.data import idx, unchecked

TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A data folder with `mnist` of 36 + 10 random images, and the official files."""
    contents, root = idx.files(), tmp_path_factory.mktemp("mnist")
    unchecked.prepare("mnist", idx.write(root / "raw", contents), root / "data")
    return root / "data", contents


def test_examples_are_the_files_bytes_in_order_with_the_first_twelfth_as_valid(small):
    root, contents = small
    pixels = np.frombuffer(contents[TRAIN_IMAGES], np.uint8, offset=16).reshape(
        36, 28, 28
    )
    classes = np.frombuffer(contents[TRAIN_LABELS], np.uint8, offset=8)
    for split, rows in {"valid": slice(0, 3), "train": slice(3, 36)}.items():
        source = data.open_source("mnist", split, root)
        assert len(source) == len(pixels[rows])
        for i, (image, label) in enumerate(
            zip(pixels[rows], classes[rows], strict=True)
        ):
            np.testing.assert_array_equal(source[i]["image"], image)
            assert source[i]["label"] == label
            assert (source[i]["image"].dtype, source[i]["label"].dtype) == (
                np.uint8,
                np.int32,
            )
    assert len(data.open_source("mnist", "test", root)) == 10


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_columns_hold_what_the_records_hold(small, split):
    source, columns = (
        data.open_source("mnist", split, small[0]),
        data.open_columns("mnist", split, small[0]),
    )
    examples = source.__getitems__(np.arange(len(source)))
    assert set(columns) == set(examples[0])
    for name, column in columns.items():
        np.testing.assert_array_equal(
            column, np.stack([example[name] for example in examples]), strict=True
        )
        assert not column.flags.writeable


def test_a_source_takes_any_order_and_refuses_what_is_not_there(small):
    source = data.open_source("mnist", "test", small[0])
    last, first = source.__getitems__([9, 0])
    np.testing.assert_array_equal(last["image"], source[-1]["image"])
    np.testing.assert_array_equal(first["image"], source[0]["image"])
    assert source.__getitems__([]) == []
    for i in (10, -11):
        with pytest.raises(IndexError, match=f"10 examples; there is no number {i}"):
            source[i]


def test_the_fingerprint_is_of_the_content(small, tmp_path):
    root, contents = small
    changed = bytearray(contents[TRAIN_IMAGES])
    changed[-1] ^= 1
    prints = []
    for i, (files, packed) in enumerate(
        [(contents, False), (contents | {TRAIN_IMAGES: bytes(changed)}, True)]
    ):
        unchecked.prepare(
            "mnist",
            idx.write(tmp_path / f"raw{i}", files, packed),
            tmp_path / f"{i}",
        )
        prints.append(data.fingerprint("mnist", tmp_path / f"{i}"))
    assert prints[0] == data.fingerprint("mnist", root)
    assert prints[1] != prints[0]
    assert prints[0].startswith("mnist/1.0.0/")


def test_xz_files_are_read_too(small, tmp_path):
    raw = idx.write(tmp_path / "raw", small[1], packed=False)
    for path in list(raw.iterdir()):
        path.with_name(path.name + ".xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()
    unchecked.prepare("mnist", raw, tmp_path / "data")
    assert data.fingerprint("mnist", tmp_path / "data") == data.fingerprint(
        "mnist", small[0]
    )


def labels(*values):
    return idx.header(2049, len(values)) + bytes(values)


good = idx.files()
BAD = {
    "truncated": (
        TRAIN_IMAGES,
        good[TRAIN_IMAGES][:-100],
        "truncated, .* 36 x 28 x 28 = 28224 bytes and 28124",
    ),
    "truncated header": (
        TRAIN_IMAGES,
        good[TRAIN_IMAGES][:9],
        "truncated, 9 bytes are less than the 16",
    ),
    "empty": (TRAIN_LABELS, b"", "truncated, 0 bytes are less than the 8"),
    "too long": (
        TRAIN_IMAGES,
        good[TRAIN_IMAGES] + b"x",
        "too long, .* and 28225 follow",
    ),
    "wrong magic": (
        TRAIN_IMAGES,
        b"\0\0\x0b\3" + good[TRAIN_IMAGES][4:],
        "magic number 2819 instead of 2051",
    ),
    "labels for images": (
        TRAIN_IMAGES,
        good[TRAIN_LABELS],
        "magic number 2049 instead of 2051",
    ),
    "images for labels": (
        TRAIN_LABELS,
        good[TRAIN_IMAGES],
        "magic number 2051 instead of 2049",
    ),
    "terabytes": (
        TRAIN_IMAGES,
        idx.header(2051, *[2**32 - 1] * 3),
        "truncated, the header says",
    ),
    "no images of no size": (
        TRAIN_IMAGES,
        idx.header(2051, 0, 2**32 - 1, 2**32 - 1),
        "empty, the header says 0 x 429",
    ),
    "no images": (
        TRAIN_IMAGES,
        idx.header(2051, 0, 28, 28),
        "contains 0 x 28 x 28 values instead of images of 28 x 28",
    ),
    "other sizes": (
        TRAIN_IMAGES,
        idx.header(2051, 36, 14, 14) + bytes(36 * 14 * 14),
        "contains 36 x 14 x 14 values instead",
    ),
    "count mismatch": (
        TRAIN_LABELS,
        labels(*[1] * 35),
        "35 labels for the 36 images in train-images-idx3-ubyte",
    ),
    "label out of range": (
        TRAIN_LABELS,
        labels(*[1] * 20, 10, *[1] * 15),
        "label 10 at 20 is not in 0..9",
    ),
}


def refuses(raw, root, match, file, prepare=unchecked.prepare):
    """Check that `prepare` fails with one line and leaves nothing."""
    with pytest.raises(DataError, match=match) as failure:
        prepare("mnist", raw, root)
    line = str(failure.value)
    assert "\n" not in line
    assert str(raw / file) in line
    assert not data.prepared("mnist", root)
    assert not [path for path in root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("packed", [True, False], ids=["gz", "plain"])
def test_bad_content(case, packed, tmp_path):
    file, content, message = BAD[case]
    raw = idx.write(tmp_path / "raw", good | {file: content}, packed)
    refuses(raw, tmp_path / "data", message, file)


PACKED_BAD = {
    "not gzip": (
        lambda packed: b"<html>not here</html>",
        "a web page, such as an error or login page; download the file again",
    ),
    "cut short": (
        lambda packed: packed[: len(packed) // 2],
        "truncated, the packed data ends early",
    ),
    "empty": (lambda packed: b"", "truncated, 0 bytes are less than the 16"),
    "garbled": (
        lambda packed: packed[:300] + bytes(50) + packed[350:],
        "damaged, cannot be unpacked|truncated",
    ),
    "wrong sum": (
        lambda packed: packed[:-8] + bytes(4) + packed[-4:],
        "damaged, cannot be unpacked .*CRC",
    ),
}


@pytest.mark.parametrize("case", PACKED_BAD)
def test_bad_packing(case, tmp_path):
    raw = idx.write(tmp_path / "raw", good)
    path = raw / f"{TRAIN_IMAGES}.gz"
    damage, message = PACKED_BAD[case]
    path.write_bytes(damage(path.read_bytes()))
    refuses(raw, tmp_path / "data", message, TRAIN_IMAGES)


def test_other_files_need_a_flag(tmp_path):
    raw = idx.write(tmp_path / "raw", good)
    refuses(
        raw,
        tmp_path / "data",
        "checksum differs, sha256 .* ba891046e650.*--as NAME",
        TRAIN_IMAGES,
        data.prepare,
    )


def test_a_missing_file_is_named_with_the_way_to_get_it(tmp_path):
    raw = idx.write(tmp_path / "raw", good)
    (raw / f"{TRAIN_LABELS}.gz").unlink()
    refuses(
        raw,
        tmp_path / "data",
        "no such file.*scripts/prepare.py mnist --list",
        TRAIN_LABELS,
    )


def test_a_bomb_is_not_unpacked_beyond_the_official_size(tmp_path):
    raw = idx.write(tmp_path / "raw", good)
    (raw / f"{TRAIN_LABELS}.gz").write_bytes(gzip.compress(bytes(60_009)))
    refuses(
        raw,
        tmp_path / "data",
        "holds more than the 60,008 bytes it may",
        TRAIN_LABELS,
        data.prepare,
    )


def test_digits_are_scikit_learns_and_prepare_themselves(tmp_path, monkeypatch):
    from sklearn.datasets import load_digits

    monkeypatch.setenv("LNREPRO_DATA", str(tmp_path))
    splits = [
        data.open_columns("digits", split) for split in ("train", "valid", "test")
    ]
    assert [len(split["label"]) for split in splits] == [1437, 180, 180]
    bunch = load_digits()
    np.testing.assert_array_equal(
        np.concatenate([split["image"] for split in splits]), bunch.images
    )
    np.testing.assert_array_equal(
        np.concatenate([split["label"] for split in splits]), bunch.target
    )
    assert {split["image"].dtype for split in splits} == {np.dtype(np.uint8)}
