"""The official MNIST files: what is known about them, after preparation."""

import numpy as np
import pytest

from lnrepro import data

TRAIN_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST_COUNTS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.mark.slow
def test_official_mnist(real_data, tmp_path):
    data.prepare("mnist", real_data / "mnist", tmp_path)
    train, valid, test = (
        data.open_columns("mnist", split, tmp_path)
        for split in ("train", "valid", "test")
    )
    assert [len(split["label"]) for split in (train, valid, test)] == [
        55_000,
        5_000,
        10_000,
    ]
    assert train["image"].shape == (55_000, 28, 28)

    images, labels = (
        np.concatenate([valid[name], train[name]]) for name in ("image", "label")
    )
    assert np.bincount(labels).tolist() == TRAIN_COUNTS
    assert np.bincount(test["label"]).tolist() == TEST_COUNTS
    assert images.mean() == pytest.approx(33.3184, abs=1e-4)
    assert test["image"].mean() == pytest.approx(33.7912, abs=1e-4)
    assert (images.min(), images.max()) == (0, 255)
    # The first training images are valid: 5, 0, 4, 1, 9, 2, 1, 3, 1, 4 in every listing
    # of MNIST.
    assert valid["label"][:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]

    assert (
        data.open_set("mnist", tmp_path).fingerprint == "mnist/1.0.0/43f62791fc3ae99c"
    )
