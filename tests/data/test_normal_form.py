"""A word has one spelling, whether its accents are characters of their own or not."""

import json
import unicodedata

import numpy as np

from experiments.skip_thoughts.encoding import tokens_of
from experiments.skip_thoughts.word2vec import Word2Vec
from lnrepro.data import files
from lnrepro.data.readers.caption_files import parse_karpathy
from lnrepro.data.readers.cnn_top4 import CNN_TOP4
from lnrepro.data.text import plain_text
from tests.data import test_books, test_cnn
from tests.data.reading import read

WORD = "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
APART = unicodedata.normalize("NFD", WORD)


def test_text_of_every_encoding_is_normalised():
    for encoding in ("utf-8", "utf-16"):
        content = f"{APART} {WORD}\n{APART}".encode(encoding)
        assert files.decode(content, "f") == f"{WORD} {WORD}\n{WORD}"


def test_texts_for_a_trained_network_are_normalised():
    assert plain_text(f"\u2018{APART}\u2019") == f"'{WORD}'"
    assert tokens_of(f"A {APART}.", lowercase=True) == ["a", WORD, "."]


def test_books_have_one_vocabulary(tmp_path):
    lines = [f"le {word} est fini .\n" for word in (WORD, APART, WORD, APART)]
    _, facts = test_books.prepare(tmp_path, {"a": "".join(lines)})
    assert sorted(facts["words"]) == sorted(["le", WORD, "est", "fini", "."])


def test_words_that_are_escaped_or_pickled_are_normalised(tmp_path):
    # JSON writes the accent as an escape, which is decoded after the file.
    images = [{"split": "val", "sentences": [{"tokens": [APART]}, {"tokens": [WORD]}]}]
    content = json.dumps({"images": images}).encode()
    assert parse_karpathy(content, "f")["valid"].by_image == [[[WORD], [WORD]]]
    words = test_cnn.TOP4["dict"] | {WORD: 8, APART: 9}
    passages = [[2, 8, 9, 3, 0], [5, 7, 0]]
    folder = test_cnn.top4(tmp_path, dict=words, train4_pass=passages)
    found = read(CNN_TOP4, folder)
    passage = test_cnn.as_words(found, "train", "passage")[0]
    assert passage == f"the {WORD} {WORD} @entity5"


def test_word_vectors_are_found_by_either_spelling(tmp_path):
    (tmp_path / "v").write_bytes(f"2 2\n{APART} 1 2\n{WORD} 3 4\n".encode())
    vectors = Word2Vec(tmp_path / "v")
    assert list(vectors.positions) == [WORD]
    np.testing.assert_array_equal(vectors[WORD], [1, 2])
