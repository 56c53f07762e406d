"""Vocabularies."""

from collections import Counter

import numpy as np

from lnrepro.data.text import Vocabulary


def test_frequent_words_first_and_ties_in_order_of_appearance():
    words = Vocabulary.of_counts(Counter(["a", "b", "c", "a", "<unk>", "d", "b"]))
    assert words.words == ("a", "b", "c", "d")
    assert len(words) == 6


def test_encoding_and_decoding():
    words = Vocabulary(["a", "b"])
    ids = words.encode(["b", "x", "a", "<eos>"])
    np.testing.assert_array_equal(ids, np.array([3, 1, 2, 0], np.int32), strict=True)
    assert words.decode(ids) == ["b", "<unk>", "a", "<eos>"]
    assert words.encode([]).shape == (0,)
    assert "a" in words
    assert "x" not in words
