"""The split of the training images."""

import numpy as np
import pytest

from lnrepro.data.readers.mnist import divided


@pytest.mark.filterwarnings("error")
def test_valid_is_the_first_twelfth_of_the_training_images():
    train = {"image": np.arange(600), "label": np.arange(600) % 10}
    splits = divided(train)
    for name, column in train.items():
        np.testing.assert_array_equal(splits["valid"][name], column[:50])
        np.testing.assert_array_equal(splits["train"][name], column[50:])


def test_valid_of_sorted_files_is_drawn_from_all_images():
    train = {"image": np.arange(600), "label": np.arange(600) // 60}
    with pytest.warns(UserWarning, match="the first 50 training .* no label 1; valid"):
        splits = divided(train)
    for columns in splits.values():
        np.testing.assert_array_equal(columns["label"], columns["image"] // 60)
        assert set(columns["label"]) == set(range(10))
    valid, rest = splits["valid"]["image"], splits["train"]["image"]
    assert len(valid) == 50
    assert sorted([*valid, *rest]) == list(range(600))
    assert (np.diff(rest) > 0).all()
