"""The captions of Flickr30k."""

import gzip

import numpy as np
import pytest

from experiments.order_embeddings.captions import Captions
from experiments.order_embeddings.use import tokenise
from lnrepro import data


@pytest.mark.slow
def test_a_folder_of_all_of_flickr30k(real_data, tmp_path):
    """All real captions, with features of 10 numbers in place of 4,096."""
    folder = real_data / "captions" / "multi30k_task2_en"
    for stem, theirs in (("train", "train"), ("val", "val"), ("test", "test_2016")):
        lines = []
        for file in sorted(folder.glob(f"{theirs}.[1-5].en.gz")):
            text = gzip.open(file, "rt", encoding="utf-8")
            lines.append([" ".join(tokenise(line)) for line in text])
        captions = np.array(lines).T.ravel()
        features = np.full((len(lines[0]), 10), 10**-0.5, np.float32)
        out = tmp_path / f"images/10crop/{stem}.npy"
        out.parent.mkdir(parents=True, exist_ok=True)
        np.save(out, features)
        (tmp_path / f"{stem}.txt").write_text("\n".join(captions), encoding="utf-8")
    data.prepare("coco_captions", tmp_path, tmp_path, own_name="flickr30k")
    opened = data.open_set("flickr30k", tmp_path)
    assert opened.fingerprint == "flickr30k/1.0.0/3110fcc3fa3388d2"
    assert list(opened.splits.values()) == [29_000, 1014, 1000]
    words = opened.facts["words"]
    assert (len(words), words[:5]) == (19_407, ["a", "in", "the", "on", "and"])
    message = r"1427 of 145,000 captions are longer than 29 words"
    with pytest.warns(UserWarning, match=message):
        captions = Captions(opened.columns("train"), 2 + len(words), 30)
    assert captions.lengths.mean() == pytest.approx(13.2, abs=0.1)
