"""The official caption files: COCO's JSON, order-embedding text, Flickr30k."""

import gzip

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.official import caption_files as files
from lnrepro.data.official import captions as cap


def tokens(line: str) -> list[str]:
    """A line of the text files without the full stop that some distributions keep."""
    return [t for t in line.split() if t != "."]


def test_coco_json_holds_the_captions_of_the_text_files(real_data):
    file = real_data / "captions" / "coco" / "captions_val2017.json"
    found = files.parse_coco(file.read_bytes(), file)
    assert len(found) == 5000
    assert sum(map(len, found.values())) == 25_014
    folder = real_data / "captions" / "coco_precomp"
    text = [tokens(line) for line in (folder / "dev_caps.txt").read_text().splitlines()]
    ids = [int(i) for i in (folder / "dev_ids.txt").read_text().split()]
    assert len(text) == len(ids) == 5000
    shared = [n for n in range(0, 5000, 5) if ids[n] in found]
    assert len(shared) == 106
    same = 0
    for n in shared:
        wanted = {" ".join(files.tokenise(" ".join(line))) for line in text[n : n + 5]}
        same += len(wanted & {" ".join(files.tokenise(t)) for t in found[ids[n]][:6]})
    assert (
        same / (5 * len(shared)) > 0.95
    )  # the two distributions differ in a few hyphens and typing errors


def test_karpathy_test_captions_are_five_to_each_of_5000_images(real_data):
    file = real_data / "captions" / "coco_precomp" / "testall_caps.txt"
    lines = files.parse_text(file.read_bytes(), file)
    assert len(lines) == 25_000
    assert 10 < np.mean([len(line) for line in lines]) < 13


@pytest.mark.slow
def test_a_folder_of_all_of_flickr30k(real_data, tmp_path, monkeypatch):
    """All real captions, with features of 10 numbers in place of 4,096."""
    for module in (cap, files):
        monkeypatch.setattr(module, "FEATURES", 10)
    raw = tmp_path / "raw"
    (raw / "images" / "10crop").mkdir(parents=True)
    rows = {}
    for stem, theirs in (("train", "train"), ("val", "val"), ("test", "test_2016")):
        folder = real_data / "captions" / "multi30k_task2_en"
        columns = [
            gzip.open(
                folder / f"{theirs}.{k}.en.gz", "rt", encoding="utf-8"
            ).readlines()
            for k in range(1, 6)
        ]
        captions = [
            " ".join(files.tokenise(line))
            for image in zip(*columns, strict=True)
            for line in image
        ]
        (raw / f"{stem}.txt").write_text("\n".join(captions) + "\n", encoding="utf-8")
        rows[stem] = len(captions) // 5
        np.save(
            raw / "images" / "10crop" / f"{stem}.npy",
            np.full((rows[stem], 10), 10**-0.5, np.float32),
        )
    assert rows == {"train": 29_000, "val": 1_014, "test": 1_000}
    data.prepare("captions_proxy", raw, tmp_path / "data")
    facts = data.facts("captions_proxy", tmp_path / "data")
    assert len(facts["words"]) == 19_407
    assert facts["words"][:5] == ["a", "in", "the", "on", "and"]
    train = data.open_columns("captions_proxy", "train", tmp_path / "data")
    with pytest.warns(
        UserWarning, match=r"1427 of 145,000 captions are longer than 29 words"
    ):
        captions = cap.Captions(train, 2 + len(facts["words"]), 30)
    assert captions.lengths.mean() == pytest.approx(13.2, abs=0.1)
