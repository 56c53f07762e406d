"""Vocabularies."""

from collections import Counter

import numpy as np
import pytest

from lnrepro.data.text import Vocabulary


def test_frequent_words_first_and_ties_in_order_of_appearance():
    counts = Counter("the cat saw the <unk> dog and the cat sat".split())
    words = Vocabulary.of_counts(counts)
    assert words.words == ("the", "cat", "saw", "dog", "and", "sat")
    assert len(words) == 8


def test_encoding_and_decoding():
    words = Vocabulary(["a", "b"])
    ids = words.encode(["b", "x", "a", "<eos>"])
    np.testing.assert_array_equal(ids, np.array([3, 1, 2, 0], np.int32), strict=True)
    assert words.decode(ids) == ["b", "<unk>", "a", "<eos>"]
    assert words.encode([]).shape == (0,)
    assert "a" in words
    assert "x" not in words


def test_a_word_that_occurs_twice():
    with pytest.raises(ValueError, match="'a' is in the vocabulary twice"):
        Vocabulary(["a", "b", "a"])
