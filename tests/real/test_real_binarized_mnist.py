"""The official .amat files: sizes, means and the checksums they are known by."""

import pytest

from lnrepro import data

MEANS = {
    "train": (50_000, 0.130562),
    "valid": (10_000, 0.131127),
    "test": (10_000, 0.132512),
}


@pytest.mark.slow
def test_official_files_prepare_and_read_back(real_data, tmp_path):
    data.prepare("binarized_mnist", real_data / "binarized_mnist", tmp_path)
    for split, (rows, mean) in MEANS.items():
        images = data.open_columns("binarized_mnist", split, tmp_path)["image"]
        assert images.shape == (rows, 28, 28)
        assert images.max() == 1
        assert abs(images.mean() - mean) < 1e-6
        # The corner is paper in every image.
        assert not images[:, 0, 0].any()
    assert data.open_set("binarized_mnist", tmp_path).fingerprint.startswith(
        "binarized_mnist/1.0.0/d078bce36cd8dd15"
    )
