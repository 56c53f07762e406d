"""The official caption files: order-embedding text, and Flickr30k."""

import gzip

import numpy as np
import pytest

from experiments.order_embeddings.captions import Captions
from experiments.order_embeddings.use import tokenise
from lnrepro import data
from lnrepro.data.readers import caption_files as files


def test_karpathy_test_captions_are_five_to_each_of_5000_images(real_data):
    file = real_data / "captions" / "coco_precomp" / "testall_caps.txt"
    lines = files.parse_text(file.read_bytes(), file)
    assert len(lines) == 25_000
    assert 10 < np.mean([len(line) for line in lines]) < 13


@pytest.mark.slow
def test_a_folder_of_all_of_flickr30k(real_data, tmp_path):
    """All real captions, with features of 10 numbers in place of 4,096."""
    raw = tmp_path / "raw"
    (raw / "images" / "10crop").mkdir(parents=True)
    folder = real_data / "captions" / "multi30k_task2_en"
    rows = {"train": 29_000, "val": 1_014, "test": 1_000}
    for stem, theirs in (("train", "train"), ("val", "val"), ("test", "test_2016")):
        columns = []
        for k in range(1, 6):
            with gzip.open(folder / f"{theirs}.{k}.en.gz", "rt", encoding="utf-8") as f:
                columns.append([" ".join(tokenise(line)) for line in f])
        captions = ["\n".join(image) for image in zip(*columns, strict=True)]
        (raw / f"{stem}.txt").write_text("\n".join(captions) + "\n", encoding="utf-8")
        features = np.full((rows[stem], 10), 10**-0.5, np.float32)
        np.save(raw / "images" / "10crop" / f"{stem}.npy", features)
    data.prepare("coco_captions", raw, tmp_path / "data", own_name="flickr30k")
    assert data.open_set("flickr30k", tmp_path / "data").fingerprint == (
        "flickr30k/1.0.0/3110fcc3fa3388d2"
    )
    facts = data.open_set("flickr30k", tmp_path / "data").facts
    assert len(facts["words"]) == 19_407
    assert facts["words"][:5] == ["a", "in", "the", "on", "and"]
    train = data.open_columns("flickr30k", "train", tmp_path / "data")
    message = r"1427 of 145,000 captions are longer than 29 words"
    with pytest.warns(UserWarning, match=message):
        captions = Captions(train, 2 + len(facts["words"]), 30)
    assert captions.lengths.mean() == pytest.approx(13.2, abs=0.1)
