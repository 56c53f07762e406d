"""Files of word vectors."""

import gzip
import unicodedata

import numpy as np
import pytest

from experiments.skip_thoughts.word2vec import Word2Vec
from tests.data.reading import refused

# 10 and 32 are the bytes of a newline and of a space.
VECTORS = {
    "</s>": [0.5, -1.0, 2.0],
    "na\u00efve": [1.0, 10.0, 32.0],
    "New_York": [3.0, 4.0, 5.0],
}
# Words with spaces and numbers in them, as in the files of GloVe.
GLOVE = {
    "the": [1e-3, 2, 3],
    ", .": [0.5, -1, 2],
    "at name@domain.com": [1, 2, 3],
    "a\tb": [4, 5, 6],
    "1998": [7, 8, 9],
    "3.5 2": [1, 1, 1],
}


def binary(vectors, newline=b""):
    content = f"{len(vectors)} 3\n".encode()
    for word, vector in vectors.items():
        content += word.encode() + b" " + np.asarray(vector, "<f4").tobytes() + newline
    return content


def text(vectors, end=b"\n", header=True):
    lines = [f"{len(vectors)} 3"] if header else []
    lines += [f"{word} {' '.join(map(str, v))}" for word, v in vectors.items()]
    return end.join(line.encode() for line in lines) + end


def opened(tmp_path, content):
    (tmp_path / "v").write_bytes(content)
    return Word2Vec(tmp_path / "v")


# A word that occurs twice, also in the other spelling of its accent, has its first
# vector.
APART = unicodedata.normalize("NFD", text(VECTORS).decode()).encode()
TWICE = APART.replace(b"3 3", b"4 3", 1) + "na\u00efve 0 0 0\n".encode()


@pytest.mark.parametrize(
    ("content", "vectors"),
    [
        (binary(VECTORS), VECTORS),
        (binary(VECTORS, b"\n"), VECTORS),
        *((text(GLOVE, end), GLOVE) for end in (b"\n", b"\t\r\n")),
        *((text(GLOVE, end, False), GLOVE) for end in (b" \r\n", b"\n\n")),
        (text(VECTORS).strip(), VECTORS),
        (gzip.compress(text(VECTORS)), VECTORS),
        (TWICE, VECTORS),
        (b"a 1 2 3", {"a": [1, 2, 3]}),
    ],
)
def test_vectors_are_read_in_every_format(tmp_path, content, vectors):
    found = opened(tmp_path, content)
    assert (list(found.positions), found.size) == (list(vectors), 3)
    assert "naive" not in found
    for word, vector in vectors.items():
        np.testing.assert_array_equal(found[word], np.float32(vector), strict=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (binary(VECTORS)[:-1], "damaged or truncated at byte 40"),
        (binary(VECTORS) + b"more", "has more words, but its first line says 3"),
        (b"3 2\na 1 2\nb 1 2\n", "has 2 words, but its first line says 3"),
        (b"3 2\na 1 2\nb 1\nc 1 2\n", "line 3 is not a word and 2 numbers after it"),
        (b"3 3\n", "begins with b'3 3.n', which does not fit it"),
        (f"3 {10**30}\n".encode() + b"a" * 99, "begins with b'3 1000"),
        (b"", "empty"),
    ],
)
def test_wrong_files_are_named(tmp_path, content, message):
    with refused(f"v: .*{message}"):
        opened(tmp_path, content)


@pytest.mark.parametrize("value", ["inf", "nan", "1e39", "9" * 400])
def test_vectors_that_are_not_finite_are_named(tmp_path, value):
    in_text = f"red 1 2\nsky blue 0.5 {value}\n".encode()
    with np.errstate(over="ignore"):
        in_binary = binary(VECTORS | {"sky": [1, float(value), 2]})
    for content, word in ((in_text, "sky blue"), (in_binary, "sky")):
        found = opened(tmp_path, content)
        with refused(f"v: the vector of '{word}' contains NaN, infinity or no number"):
            found[word]
