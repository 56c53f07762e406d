"""The official SICK, MR, CR, SUBJ and MPQA files, and novels: known counts."""

import tarfile

import numpy as np
import pytest

from experiments.skip_thoughts.triples import EqualLengths, Triples
from lnrepro import data
from lnrepro.data.text import as_texts

COUNTS = {
    "mr": (5331, 5331),
    "cr": (2405, 1366),
    "subj": (5000, 5000),
    "mpqa": (3311, 7292),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_official_classification_sets(real_data, tmp_path, name):
    data.prepare(name, real_data / "sentence_classification", tmp_path)
    columns = data.open_columns(name, "sentences", tmp_path)
    texts, labels = as_texts(columns["text"]), columns["label"]
    positive, negative = COUNTS[name]
    assert (int(labels.sum()), len(texts)) == (positive, positive + negative)
    assert labels.tolist() == [1] * positive + [0] * negative
    assert all(text == text.strip() and "\n" not in text for text in texts)
    if name == "mr":
        assert texts[0].startswith("the rock is destined to be")
        assert any("\u2014" in text or "\u2013" in text for text in texts), (
            "the dashes of Windows-1252 are there"
        )
        assert any("\u2026" in text or "\u2018" in text for text in texts)


@pytest.mark.slow
def test_official_sick(real_data, tmp_path):
    data.prepare("sick", real_data / "sick", tmp_path)
    for split, count in {"train": 4500, "trial": 500, "test": 4927}.items():
        columns = data.open_columns("sick", split, tmp_path)
        a, b = as_texts(columns["a"]), as_texts(columns["b"])
        scores = columns["score"]
        assert len(a) == len(b) == len(scores) == count
        assert (scores.min(), scores.max()) == (1, 5)
        assert not any(text.endswith("\r") for text in (*a, *b))
    assert a[0] == "There is no boy playing outdoors and there is no man smiling"


@pytest.mark.slow
def test_novels(real_data, tmp_path):
    archive = real_data / "gutenberg" / "gutenberg_sentences_19books.tar.xz"
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "raw", filter="data")
    (raw,) = (tmp_path / "raw").iterdir()
    data.prepare("bookcorpus", raw, tmp_path, own_name="gutenberg")
    assert (
        data.open_set("gutenberg", tmp_path).fingerprint
        == "gutenberg/1.0.0/0033bf0039ba4752"
    )
    facts = data.open_set("gutenberg", tmp_path).facts
    assert (facts["books"], facts["lines"], facts["empty_lines_left_out"]) == (
        19,
        214_263,
        0,
    )
    assert facts["tokens"] == 5_032_685
    lines = [
        line.split()
        for path in sorted(raw.glob("*.txt"))
        for line in path.read_text().split("\n")
        if line.strip()
    ]
    books = Triples(data.open_set("gutenberg", tmp_path), 20_000)
    assert books.tokens.lengths.tolist() == [len(line) for line in lines]
    plan = EqualLengths(books.by_length, 64, 0, (5, 10, 15, 20, 25, 30))
    rows = np.concatenate([plan.rows(k) for k in range(plan.steps_per_epoch)])
    assert len(np.unique(rows)) == len(rows) == 64 * plan.steps_per_epoch
    assert len(books) - len(rows) < 64 * 29
