"""Parsers of SICK and of labelled sentences."""

import lzma

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.readers import sentences
from lnrepro.data.readers.sentences import CR, SICK
from lnrepro.data.text import as_texts
from tests.data.reading import read, refused, write

ROW = "1\tA dog is running\tThe dog runs\t4.5\tENTAILMENT"


def table(*rows, header=sentences.HEADER, end="\n"):
    return (end.join([header, *rows]) + end).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_sick_rows_with_either_line_end(end):
    content = table(ROW, "2\tA man\tNo man is there\t1\tCONTRADICTION", end=end)
    assert sentences.parse_sick(content, "f") == [
        ("A dog is running", "The dog runs", 4.5),
        ("A man", "No man is there", 1.0),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            table(ROW, "2\tA man\t3.0\tNEUTRAL"),
            "f, line 3: not five columns with a score .*values",
        ),
        (table(ROW.replace("4.5", "5.1")), "f, line 2: .*score from 1 to 5 .*5.1"),
        (table(ROW.replace("4.5", "high")), "f, line 2: .*'high'"),
        (
            table(ROW.replace("A dog is running", " ")),
            "f, line 2: 1 of 1 are pairs with",
        ),
        (table(ROW, header="a\tb"), "f, line 1: the header is"),
    ],
)
def test_wrong_sick_names_the_line(content, message):
    with refused(message):
        sentences.parse_sick(content, "f")


def test_few_pairs_without_a_sentence_are_left_out():
    rows = [ROW] * 150
    rows[4] = ROW.replace("A dog is running", " ")
    with pytest.warns(UserWarning, match="f, line 6: 1 of 150 are pairs with an empty"):
        assert len(sentences.parse_sick(table(*rows), "f")) == 149


def test_sick_is_read_and_read_back(tmp_path):
    for i, name in enumerate(sentences.PAIRS):
        rows = [ROW.replace("4.5", f"{1 + i}.25")] * (i + 1)
        write(tmp_path, {name: table(*rows)})
    for i, columns in enumerate(read(SICK, tmp_path).splits.values()):
        assert as_texts(columns["a"]) == ["A dog is running"] * (i + 1)
        assert as_texts(columns["b"]) == ["The dog runs"] * (i + 1)
        wanted = np.full(i + 1, i + 1.25, np.float32)
        np.testing.assert_array_equal(columns["score"], wanted, strict=True)
    with refused("SICK_train.txt: checksum differs"):
        data.prepare("sick", tmp_path, tmp_path / "data")


@pytest.mark.filterwarnings("ignore:.*custrev")
def test_lines_end_at_newlines_alone(tmp_path):
    content = b"it's \x85 fun \n\n  \nna\xefve\x97so\r\nlast"
    write(tmp_path, {"custrev.pos": content, "custrev.neg": "-"})
    found = as_texts(read(CR, tmp_path).splits["sentences"]["text"])
    assert found == ["it's \u2026 fun", "na\u00efve\u2014so", "last", "-"]
    write(tmp_path, {"custrev.neg": " \n\n"})
    with refused("custrev.neg: contains no line of text"):
        read(CR, tmp_path)


def test_labels_follow_the_files(tmp_path):
    negative = lzma.compress("bad\u2014really .\n".encode("cp1252"))
    files = {"custrev.pos": "\ufeffgood .\n\nfine .\n", "custrev.neg.xz": negative}
    write(tmp_path, files)
    with pytest.warns(UserWarning, match=r"custrev.pos: 1 empty lines left out"):
        columns = read(CR, tmp_path).splits["sentences"]
    assert as_texts(columns["text"]) == ["good .", "fine .", "bad\u2014really ."]
    np.testing.assert_array_equal(columns["label"], np.int32([1, 1, 0]), strict=True)
