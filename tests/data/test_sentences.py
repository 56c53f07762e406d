"""SICK."""

import numpy as np

from lnrepro.data.readers import sentences
from lnrepro.data.readers.sentences import SICK
from lnrepro.data.text import as_texts
from tests.data.reading import read, write

ROW = "1\tA dog is running\tThe dog runs\t4.5\tENTAILMENT"


def table(*rows, header=sentences.HEADER, end="\n"):
    return (end.join([header, *rows]) + end).encode()


def test_pairs_are_read(tmp_path):
    rows = [ROW, "2\tA man\tNo man is there\t1\tCONTRADICTION"]
    write(tmp_path, dict.fromkeys(sentences.PAIRS, table(*rows)))
    splits = read(SICK, tmp_path).splits
    assert list(splits) == ["train", "trial", "test"]
    for columns in splits.values():
        scores = np.array([4.5, 1], np.float32)
        np.testing.assert_array_equal(columns["score"], scores, strict=True)
        assert as_texts(columns["a"]) == ["A dog is running", "A man"]
        assert as_texts(columns["b"]) == ["The dog runs", "No man is there"]
