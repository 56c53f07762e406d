"""Captions: their batches, and their words."""

import numpy as np
import pytest

from experiments.order_embeddings.captions import Captions
from experiments.order_embeddings.use import tokenise
from lnrepro.data.ragged import Ragged

RNG = np.random.default_rng(0)
# Captions of each of 40 images, and the ids of the words of each caption.
COUNTS = RNG.integers(1, 6, 40)
CAPTIONS = [RNG.integers(2, 50, n) for n in RNG.integers(1, 9, COUNTS.sum())]
STARTS = np.cumsum([0, *COUNTS])


def opened(vocabulary=50, longest=20):
    lengths = np.array([len(caption) for caption in CAPTIONS])
    ends = np.cumsum([0, *lengths])
    tokens = Ragged(np.concatenate(CAPTIONS), ends[STARTS])
    columns = {"tokens": tokens, "lengths": Ragged(lengths, STARTS)}
    return Captions(columns, vocabulary, longest)


@pytest.mark.parametrize("vocabulary", [50, 30])
def test_taking_captions_is_slicing_them(vocabulary):
    captions = opened(vocabulary)
    np.testing.assert_array_equal(captions.starts, STARTS)
    np.testing.assert_array_equal(captions.image, np.repeat(np.arange(40), COUNTS))
    some = RNG.permutation(len(CAPTIONS))[:60]
    for row, n, c in zip(*captions.take(some, 9), some, strict=True):
        np.testing.assert_array_equal(captions.ids(c), CAPTIONS[c])
        # A smaller vocabulary makes its largest ids unknown.
        wanted = np.zeros(9)
        wanted[: n - 1] = np.where(CAPTIONS[c] < vocabulary, CAPTIONS[c], 1)
        np.testing.assert_array_equal(row, wanted)


def test_captions_beyond_the_longest_bucket_are_cut_and_counted():
    cut = [c for c, words in enumerate(CAPTIONS) if len(words) > 5]
    message = rf"{len(cut)} of {len(CAPTIONS)} captions are longer than 5 words .* 8\)"
    with pytest.warns(UserWarning, match=message):
        captions = opened(longest=6)
    tokens, length = captions.take(np.array(cut), 6)
    assert (length == 6).all()
    assert tokens[:, :5].all()
    assert not tokens[:, 5].any()


def test_tokenising():
    words = tokenise("A man's dog, on  a (red) T-shirt. ")
    assert words == ["a", "mans", "dog", "on", "a", "red", "tshirt"]
