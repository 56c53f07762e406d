"""SICK."""

import numpy as np
import pytest

from lnrepro.data.readers import sentences
from lnrepro.data.readers.sentences import SICK
from lnrepro.data.text import as_texts
from tests.data.reading import read, write

ROW = "1\tA dog is running\tThe dog runs\t4.5\tENTAILMENT"


def table(*rows, header=sentences.HEADER, end="\n"):
    return (end.join([header, *rows]) + end).encode()


def test_sick_is_read_and_few_pairs_without_a_sentence_are_left_out(tmp_path):
    rows = [ROW.replace("4.5", f"{1 + i % 4}.25") for i in range(150)]
    rows[4] = ROW.replace("A dog is running", " ")
    write(tmp_path, dict.fromkeys(sentences.PAIRS, table(*rows)))
    with pytest.warns(UserWarning, match="line 6: 1 of 150 are pairs with an empty"):
        splits = read(SICK, tmp_path).splits
    assert list(splits) == ["train", "trial", "test"]
    scores = np.delete(1.25 + np.arange(150, dtype=np.float32) % 4, 4)
    for columns in splits.values():
        np.testing.assert_array_equal(columns["score"], scores, strict=True)
        assert as_texts(columns["a"]) == ["A dog is running"] * 149
        assert as_texts(columns["b"]) == ["The dog runs"] * 149
