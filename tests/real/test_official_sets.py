"""The official files: the sizes of their splits, and the kept fingerprints."""

import tarfile

import pytest

from lnrepro import data

SENTENCES = "sentence_classification"
# The set, its folder, its fingerprint, and the sizes of its splits.
OFFICIAL = [
    ("mnist", "mnist", "43f62791fc3ae99c", [55_000, 5000, 10_000]),
    (
        "binarized_mnist",
        "binarized_mnist",
        "d078bce36cd8dd15",
        [50_000, 10_000, 10_000],
    ),
    ("iam_ondb", "iam-ondb", "07f2ff4037766602", [10_741, 1438]),
    ("sick", "sick", "96f54f757dfc8feb", [4500, 500, 4927]),
    ("mr", SENTENCES, "74d74ad8250e1d11", [10_662]),
    ("cr", SENTENCES, "9ae0d354b7b4a1c9", [3771]),
    ("subj", SENTENCES, "10b5b2ee6f594404", [10_000]),
    ("mpqa", SENTENCES, "d85215e7ca720044", [10_603]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "folder", "checksum", "sizes"), OFFICIAL)
def test_official_sets(real_data, tmp_path, name, folder, checksum, sizes):
    data.prepare(name, real_data / folder, tmp_path)
    opened = data.open_set(name, tmp_path)
    assert opened.fingerprint == f"{name}/1.0.0/{checksum}"
    assert list(opened.splits.values()) == sizes


@pytest.mark.slow
def test_novels(real_data, tmp_path):
    archive = real_data / "gutenberg" / "gutenberg_sentences_19books.tar.xz"
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "raw", filter="data")
    data.prepare("bookcorpus", tmp_path / "raw", tmp_path, own_name="gutenberg")
    opened = data.open_set("gutenberg", tmp_path)
    assert opened.fingerprint == "gutenberg/1.0.0/0033bf0039ba4752"
    assert (opened.facts["books"], opened.facts["lines"]) == (19, 214_263)
