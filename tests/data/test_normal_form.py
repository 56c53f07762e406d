"""A word has one spelling, whether its accents are characters of their own or not.

`tests/data/test_files.py` has the same of text files.
"""

import json
import unicodedata

import numpy as np

from experiments.skip_thoughts.encoding import tokens_of
from experiments.skip_thoughts.word2vec import Word2Vec
from lnrepro.data.readers.caption_files import parse_karpathy
from lnrepro.data.readers.cnn_top4 import CNN_TOP4
from tests.data import test_cnn
from tests.data.reading import read

WORD = "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
APART = unicodedata.normalize("NFD", WORD)


def test_texts_for_a_trained_network_are_normalised():
    assert tokens_of(f"A \u2018{APART}\u2019.", lowercase=True) == [
        "a",
        "'",
        WORD,
        "'",
        ".",
    ]


def test_words_that_are_escaped_or_pickled_are_normalised(tmp_path):
    # JSON writes the accent as an escape, which is decoded after the file.
    images = [{"split": "val", "sentences": [{"tokens": [APART]}, {"tokens": [WORD]}]}]
    content = json.dumps({"images": images}).encode()
    assert parse_karpathy(content, "f")["valid"].by_image == [[[WORD], [WORD]]]
    words = test_cnn.TOP4["dict"] | {WORD: 8, APART: 9}
    passages = [[2, 8, 9, 3, 0], [5, 7, 0]]
    folder = test_cnn.top4(tmp_path, dict=words, train4_pass=passages)
    passage = test_cnn.as_words(read(CNN_TOP4, folder), "train", "passage")[0]
    assert passage == f"the {WORD} {WORD} @entity5"


def test_word_vectors_are_found_by_either_spelling(tmp_path):
    (tmp_path / "v").write_bytes(f"2 2\n{APART} 1 2\n{WORD} 3 4\n".encode())
    vectors = Word2Vec(tmp_path / "v")
    assert list(vectors.positions) == [WORD]
    np.testing.assert_array_equal(vectors[WORD], [1, 2])
