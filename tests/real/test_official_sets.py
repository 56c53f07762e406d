"""The official files: their counts and statistics, and the kept fingerprints."""

import tarfile

import numpy as np
import pytest

from experiments.skip_thoughts.triples import EqualLengths, Triples
from lnrepro import data
from lnrepro.data.text import as_texts


def mnist(train, valid, test):
    images, labels = (
        np.concatenate([valid[name], train[name]]) for name in ("image", "label")
    )
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(labels).tolist() == counts
    counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(test["label"]).tolist() == counts
    assert images.mean() == pytest.approx(33.3184, abs=1e-4)
    # The first training images are valid: 5, 0, 4, 1, 9, ... in every listing of MNIST.
    assert valid["label"][:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


def binarized_mnist(*splits):
    for columns, mean in zip(splits, (0.130562, 0.131127, 0.132512), strict=True):
        images = columns["image"]
        assert images.mean() == pytest.approx(mean, abs=1e-6)


def iam_ondb(train, valid):
    # The lines of trainset, testset_v, testset_t and testset_f: Graves (2013).
    lists = np.concatenate([train["list"], valid["list"]])
    assert np.bincount(lists).tolist() == [5364, 1438, 1518, 3859]
    steps = train["strokes"].values
    assert steps.mean(0) == pytest.approx([8.18, 0.11, 0.04], abs=5e-3)
    assert steps[:, :2].std(0) == pytest.approx([41.95, 37.12], abs=5e-3)
    assert (train["text"].values == 0).mean() == pytest.approx(0.014, abs=5e-4)


def sick(train, trial, test):
    first = as_texts(test["a"])[0]
    assert first == "There is no boy playing outdoors and there is no man smiling"


def mr(sentences):
    texts = as_texts(sentences["text"])
    assert texts[0].startswith("the rock is destined to be")
    assert sentences["label"].tolist() == [1] * 5331 + [0] * 5331
    # The dashes, ellipses and quotation marks of Windows-1252 are there.
    assert {"\u2014", "\u2013", "\u2026", "\u2018"} & set("".join(texts))


SENTENCES = "sentence_classification"
# The set, its folder, its fingerprint, the sizes of its splits, and more that is known.
OFFICIAL = [
    ("mnist", "mnist", "43f62791fc3ae99c", [55_000, 5000, 10_000], mnist),
    (
        "binarized_mnist",
        "binarized_mnist",
        "d078bce36cd8dd15",
        [50_000, 10_000, 10_000],
        binarized_mnist,
    ),
    ("iam_ondb", "iam-ondb", "07f2ff4037766602", [10_741, 1438], iam_ondb),
    ("sick", "sick", "96f54f757dfc8feb", [4500, 500, 4927], sick),
    ("mr", SENTENCES, "74d74ad8250e1d11", [10_662], mr),
    ("cr", SENTENCES, "9ae0d354b7b4a1c9", [3771], None),
    ("subj", SENTENCES, "10b5b2ee6f594404", [10_000], None),
    ("mpqa", SENTENCES, "d85215e7ca720044", [10_603], None),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder", "checksum", "sizes", "check"),
    OFFICIAL,
    ids=[name for name, *_ in OFFICIAL],
)
def test_official_sets(real_data, tmp_path, name, folder, checksum, sizes, check):
    data.prepare(name, real_data / folder, tmp_path)
    opened = data.open_set(name, tmp_path)
    assert opened.fingerprint == f"{name}/1.0.0/{checksum}"
    assert list(opened.splits.values()) == sizes
    if check:
        check(*map(opened.columns, opened.splits))


@pytest.mark.slow
def test_novels(real_data, tmp_path):
    archive = real_data / "gutenberg" / "gutenberg_sentences_19books.tar.xz"
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "raw", filter="data")
    data.prepare("bookcorpus", tmp_path / "raw", tmp_path, own_name="gutenberg")
    opened = data.open_set("gutenberg", tmp_path)
    assert opened.fingerprint == "gutenberg/1.0.0/0033bf0039ba4752"
    assert (opened.facts["books"], opened.facts["lines"]) == (19, 214_263)
    books = Triples(opened, 20_000)
    plan = EqualLengths(books.by_length, 64, 0, (5, 10, 15, 20, 25, 30))
    rows = np.concatenate([plan.rows(k) for k in range(plan.steps_per_epoch)])
    assert len(np.unique(rows)) == len(rows) == 64 * plan.steps_per_epoch
    assert len(books) - len(rows) < 64 * 29
