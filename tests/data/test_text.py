"""Vocabularies."""

import numpy as np

from lnrepro.data.text import Vocabulary


def test_encoding_and_decoding():
    words = Vocabulary(["a", "b"])
    assert len(words) == 4
    ids = words.encode(["b", "x", "a", "<eos>"])
    np.testing.assert_array_equal(ids, np.array([3, 1, 2, 0], np.int32), strict=True)
    assert words.decode(ids) == ["b", "<unk>", "a", "<eos>"]
    assert words.encode([]).shape == (0,)
    assert "a" in words
    assert "x" not in words
