"""Folders of captions and features."""

import io
import itertools
import json

import numpy as np
import pytest

from lnrepro.data.readers import captions
from lnrepro.data.readers.caption_files import Split, parse_karpathy
from lnrepro.data.readers.captions import COCO_CAPTIONS
from lnrepro.data.text import Vocabulary
from tests.data.reading import read, write

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


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def as_text(lines):
    return "\n".join(map(str, lines)) + "\n"


def folder_files(sizes=ROWS):
    """The files of a small folder of the right layout."""
    found = {}
    for seed, (stem, rows) in enumerate(sizes.items()):
        found[f"{stem}.txt"] = as_text(lines_of(stem, rows))
        found[f"images/10crop/{stem}.npy"] = npy(unit_rows(rows, seed))
    return found


@pytest.fixture
def raw(tmp_path):
    return write(tmp_path, folder_files())


def captions_of(content, split):
    """The captions of a split as lines, and their number for each image."""
    vocabulary = Vocabulary([*content.facts["words"], *content.facts["dev_words"]])
    columns = content.splits[split]
    words = iter(vocabulary.decode(np.concatenate(columns["tokens"])))
    lines = [
        " ".join(itertools.islice(words, length))
        for length in np.concatenate(columns["lengths"])
    ]
    return lines, [len(lengths) for lengths in columns["lengths"]]


def test_a_folder_of_text_is_read(raw):
    # Two of three images are not of unit length.
    features = unit_rows(3) * np.array([[1], [1.02], [0.98]], np.float32)
    train = as_text([*lines_of("train", 4)[:19], "<unk> zebra c a c"])
    write(raw, {"images/10crop/val.npy": npy(features), "train.txt": train})
    content = read(COCO_CAPTIONS, raw)
    facts = content.facts
    np.testing.assert_array_equal(content.splits["valid"]["image"], features)
    assert captions_of(content, "train") == (train.splitlines(), [5] * 4)
    # Words of the training captions by frequency, and then those of valid. "test" is in
    # neither.
    flat = train.replace("<unk>", "").split()
    wanted = sorted(dict.fromkeys(flat), key=lambda w: (-flat.count(w), flat.index(w)))
    assert facts["words"] == wanted
    assert facts["dev_words"] == ["val"]
    assert captions_of(content, "test")[0][0] == "a <unk> of image 0 caption 0"
    assert facts["not_unit"] == {"train": 0, "valid": 2, "test": 0}
    assert content.counts == {"features": 8, "captions": 45}


def test_numbers_of_captions_may_differ(raw):
    counts = [1, 3, 2, 4]
    lines = [f"image {i}" for i in np.repeat(range(4), counts)]
    ids = as_text(np.repeat([40, 41, 42, 43], counts))
    # Empty lines at the end are no captions.
    write(raw, {"train.txt": as_text(lines) + "\n\n", "train_ids.txt": ids})
    content = read(COCO_CAPTIONS, raw)
    assert captions_of(content, "train") == (lines, counts)
    assert content.splits["train"]["id"].tolist() == [40, 41, 42, 43]
    assert content.facts["captions_per_image"] == [1, 5]


def image(split, n, texts):
    tokens = [{"tokens": text.split()} for text in texts]
    return {"split": split, "cocoid": n, "sentences": tokens}


def test_words_of_json_are_normalised():
    # JSON writes the accent as an escape, which is decoded after the file.
    content = json.dumps({"images": [image("val", 0, ["cafe\u0301"])]}).encode()
    assert parse_karpathy(content, "f")["valid"].by_image == [[["caf\u00e9"]]]


def test_words_of_the_first_1000_validation_images_are_known():
    by_image = [[[f"word{i}"]] for i in range(1001)]
    splits = {"train": Split([[["a"]]], np.arange(1))}
    splits["valid"] = Split(by_image, np.arange(1001))
    images = {split: np.ones((len(found.ids), 1)) for split, found in splits.items()}
    facts = captions.content_of(images, splits).facts
    assert facts["dev_words"] == [f"word{i}" for i in range(1000)]
