"""Folders of captions and features: reading, and the errors for wrong files."""

import bz2
import io
import itertools
import json

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.readers import caption_files as files
from lnrepro.data.readers.captions import COCO_CAPTIONS
from lnrepro.data.readers.captions import _frequent as frequent
from lnrepro.data.text import Vocabulary
from tests.data.reading import read, refused, write

ROWS = {"train": 4, "val": 3, "test": 2}


def lines_of(stem, rows):
    return [
        f"a {stem} of image {i} caption {'very ' * k}{k}"
        for i in range(rows)
        for k in range(5)
    ]


def unit_rows(rows, seed=0):
    x = np.abs(np.random.default_rng(seed).normal(size=(rows, 8))).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def with_infinity():
    features = unit_rows(4)
    features[1, 5] = np.inf
    return features


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def as_text(lines):
    return "\n".join(map(str, lines)) + "\n"


def folder_files():
    """The files of a small folder of the right layout."""
    found = {}
    for seed, (stem, rows) in enumerate(ROWS.items()):
        found[f"{stem}.txt"] = as_text(lines_of(stem, rows))
        found[f"images/10crop/{stem}.npy"] = npy(unit_rows(rows, seed))
    return found


@pytest.fixture
def raw(tmp_path):
    return write(tmp_path / "raw", folder_files())


def captions_of(content, split):
    """The captions of a split as lines, and their number for each image."""
    vocabulary = Vocabulary([*content.facts["words"], *content.facts["dev_words"]])
    columns = content.splits[split]
    words = iter(vocabulary.decode(np.concatenate(columns["tokens"])))
    lines = [
        " ".join(itertools.islice(words, length))
        for length in np.concatenate(columns["lengths"])
    ]
    assert not list(words)
    return lines, [len(lengths) for lengths in columns["lengths"]]


def test_a_folder_of_text_is_read(raw):
    content = read(COCO_CAPTIONS, raw)
    columns, facts = content.splits["valid"], content.facts
    np.testing.assert_array_equal(columns["image"], unit_rows(3, 1))
    assert columns["id"].tolist() == [0, 1, 2]
    assert captions_of(content, "train") == (lines_of("train", 4), [5] * 4)
    # Words of the training captions by frequency, and then those of valid. "test" is in
    # neither.
    assert facts["words"][0] == "very"
    assert {"a", "of", "image", "caption"} <= set(facts["words"][1:6])
    assert facts["dev_words"] == ["val"]
    assert captions_of(content, "test")[0][0] == "a <unk> of image 0 caption 0"
    assert "captions_per_image" not in facts
    assert content.counts == {"features": 8, "captions": 45}


@pytest.mark.parametrize("repeats", [1, 5])
def test_ids_are_one_an_image_or_one_a_caption(raw, repeats):
    write(raw, {"val_ids.txt": as_text(np.repeat([7, 9, 11], repeats))})
    content = read(COCO_CAPTIONS, raw)
    assert content.splits["valid"]["id"].tolist() == [7, 9, 11]
    assert captions_of(content, "valid")[0] == [
        line.replace("test", "<unk>") for line in lines_of("val", 3)
    ]


def test_numbers_of_captions_may_differ(raw):
    counts, lines = [1, 3, 2, 4], []
    for image, count in enumerate(counts):
        lines += [f"image {image} caption {k}" for k in range(count)]
    ids = as_text(np.repeat([40, 41, 42, 43], counts))
    # Empty lines at the end are no captions.
    write(raw, {"train.txt": as_text(lines) + "\n\n", "train_ids.txt": ids})
    content = read(COCO_CAPTIONS, raw)
    assert captions_of(content, "train") == (lines, counts)
    assert content.splits["train"]["id"].tolist() == [40, 41, 42, 43]
    assert content.facts["captions_per_image"] == [1, 5]


def many(raw, images, empty):
    """Write training files of several images, some of whose captions are empty."""
    lines = lines_of("train", images)
    for i in empty:
        lines[i] = " "
    features = {"images/10crop/train.npy": npy(unit_rows(images))}
    write(raw, {"train.txt": as_text(lines), **features})
    return lines


def test_few_empty_captions_are_left_out_and_nothing_shifts(raw):
    lines = many(raw, 60, [7])
    with pytest.warns(UserWarning, match="train.txt, caption 8: 1 of 300 are captions"):
        content = read(COCO_CAPTIONS, raw)
    wanted = [line for line in lines if line.strip()]
    assert captions_of(content, "train") == (wanted, [5, 4, *[5] * 58])
    many(raw, 60, [7, 10, 11, 12])
    with refused("train.txt, caption 8: 4 of 300 are captions without words"):
        read(COCO_CAPTIONS, raw)


def test_an_image_whose_captions_are_all_empty_goes_with_its_features(raw):
    many(raw, 600, range(15, 20))
    with pytest.warns(UserWarning, match="5 of 3,000 are captions without words"):
        columns = read(COCO_CAPTIONS, raw).splits["train"]
    wanted = np.delete(np.arange(600), 3)
    np.testing.assert_array_equal(columns["image"], unit_rows(600)[wanted])
    np.testing.assert_array_equal(columns["id"], wanted)


def image(split, n, texts):
    tokens = [{"tokens": text.split()} for text in texts]
    return {"split": split, "cocoid": n, "sentences": tokens}


def test_karpathys_file_is_the_same_set_as_text(raw):
    stems = [stem for stem, rows in ROWS.items() for _ in range(rows)]
    lines = [line for stem, rows in ROWS.items() for line in lines_of(stem, rows)]
    for stem in ROWS:
        ids = [n for n, other in enumerate(stems) if other == stem]
        write(raw, {f"{stem}_ids.txt": as_text(ids)})
    wanted = read(COCO_CAPTIONS, raw)
    images = [
        # A sixth caption is not used, and an empty one gives way to others.
        image(stem, n, ["", *lines[5 * n : 5 * n + 5], "x"])
        for n, stem in enumerate(stems)
    ]
    # The last training image is one of "restval".
    images[3]["split"] = "restval"
    packed = bz2.compress(json.dumps({"images": images}).encode())
    write(raw, {"dataset_coco.json.bz2": packed})
    for stem in ROWS:
        (raw / f"{stem}.txt").unlink()
    found = read(COCO_CAPTIONS, raw)
    assert found.facts == wanted.facts
    for split in wanted.splits:
        assert captions_of(found, split) == captions_of(wanted, split)
        for name in ("id", "image"):
            column = found.splits[split][name]
            np.testing.assert_array_equal(column, wanted.splits[split][name])


BAD_JSON = {
    "no json": b"{",
    "no images": b"[]",
    "no split": b'{"images": [{}]}',
    "split": json.dumps({"images": [image("dev", 1, ["a"])]}).encode(),
    "infinity": b'{"images": [{"cocoid": 1e999, "split": "val", "sentences": []}]}',
    "huge": b'{"images": [{"cocoid": 9%s, "sentences": []}]}' % (b"9" * 30),
    "text": b'{"images": [{"split": "val", "sentences": [{"tokens": "abc"}]}]}',
    "deep": b'{"images": [{"sentences": [{"tokens": [' + b"[" * 900 + b"]" * 900,
    "half a pair": b'{"images": [{"sentences": [{"tokens": ["\\ud800"]}]}]}',
}


@pytest.mark.parametrize("kind", BAD_JSON)
def test_wrong_json_is_refused(kind):
    with refused("f: not JSON with a list of images that have split, cocoid and"):
        files.parse_karpathy(BAD_JSON[kind], "f")


BAD = {
    "count": ("train.txt", as_text(range(21)), "21 captions are not the same number"),
    "empty": ("train.txt", "\n \n", "contains no caption"),
    "id": ("train_ids.txt", "1\nx\n", "not one image id per line .*'x'"),
    "ids": ("train_ids.txt", "1\n2\n", "2 ids of 2 images, which are not one for"),
    "none": ("images/10crop/train.npy", npy(unit_rows(4)[:0]), r"float32 \(0, 8\) ins"),
    "dtype": ("images/10crop/train.npy", npy(np.eye(4)), r"float64 \(4, 4\) instead"),
    "rows": ("images/10crop/val.npy", npy(unit_rows(2)), "15 captions are not the sam"),
    "cut": ("images/10crop/val.npy", npy(unit_rows(3))[:-9], "not a plain .npy array"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_wrong_files_are_named(raw, kind):
    file, content, message = BAD[kind]
    write(raw, {file: content})
    with refused(f"{file.rpartition('/')[2].replace('_ids', '')[:4]}.*{message}"):
        read(COCO_CAPTIONS, raw)


def test_features_that_are_not_of_unit_length_are_counted_in_one_warning(raw):
    features = unit_rows(4) * np.array([[1], [3], [1], [0.5]], np.float32)
    write(raw, {"images/10crop/train.npy": npy(features)})
    message = r"2 of 4 images are not of unit length \(0\.5 to 3\)"
    with pytest.warns(UserWarning, match=message) as caught:
        content = read(COCO_CAPTIONS, raw)
    assert len(caught) == 1
    assert content.facts["not_unit"] == {"train": 2, "valid": 0, "test": 0}


def test_only_the_published_sizes_are_coco(raw, tmp_path):
    with refused("not the official coco_captions: train 4 instead of 113,287; .* --as"):
        data.prepare("coco_captions", raw, tmp_path / "data")


@pytest.mark.filterwarnings("ignore:.*unit length")
@pytest.mark.parametrize(
    ("stem", "features", "message"),
    [
        ("train", with_infinity(), "image of example 1 of train is inf"),
        ("test", np.ones((2, 9), np.float32), r"images of different shapes.*\(9,\)"),
    ],
)
def test_features_that_do_not_fit_are_named(raw, tmp_path, stem, features, message):
    write(raw, {f"images/10crop/{stem}.npy": npy(features)})
    with refused(f"{raw}.*{message}"):
        data.prepare("coco_captions", raw, tmp_path / "data", own_name="own")


def test_marks_of_joined_files_are_in_no_word(raw):
    lines = as_text(lines_of("train", 4)).encode()
    write(raw, {"train.txt": lines[:99] + b"\xef\xbb\xbf" + lines[99:]})
    assert captions_of(read(COCO_CAPTIONS, raw), "train")[0] == lines_of("train", 4)


def test_frequent_words_first_and_ties_in_order_of_appearance():
    words = frequent([[["a", "b", "c"], ["a"]], [["<unk>", "d", "b"]]])
    assert words == ["a", "b", "c", "d"]
