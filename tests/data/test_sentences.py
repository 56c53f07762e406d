"""Parsers of SICK, of labelled sentences and of word2vec files."""

import bz2
import gzip
import lzma
from collections import Counter

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.builder import read_notes
from lnrepro.data.generated import stories
from lnrepro.data.official import sentences
from lnrepro.data.official.word2vec import Word2Vec
from lnrepro.errors import DataError
from tests.data import unchecked

HEADER = "\t".join(sentences.HEADER)


def table(*rows, header=HEADER, end="\n"):
    return (end.join([header, *rows]) + end).encode()


ROW = "1\tA dog is running\tThe dog runs\t4.5\tENTAILMENT"


# -- SICK


def test_sick_rows_with_either_line_end():
    rows = [ROW, "2\tA man\tNo man is there\t1\tCONTRADICTION"]
    wanted = [
        ("A dog is running", "The dog runs", 4.5),
        ("A man", "No man is there", 1.0),
    ]
    for end in ("\n", "\r\n"):
        assert sentences.parse_sick(table(*rows, end=end), "f") == wanted


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (table(ROW, "2\tA man\t3.0\tNEUTRAL"), "f, line 3: 4 columns instead of 5"),
        (
            table(ROW.replace("4.5", "5.1")),
            "f, line 2: the score '5.1' is not a number from 1 to 5",
        ),
        (table(ROW.replace("4.5", "0.99")), "line 2: the score '0.99'"),
        (table(ROW.replace("4.5", "nan")), "line 2: the score 'nan'"),
        (table(ROW.replace("4.5", "high")), "line 2: the score 'high'"),
        (table(ROW.replace("A dog is running", " ")), "line 2: a sentence is empty"),
        (table(ROW.replace("dog", "d\0g")), "line 2: a NUL byte"),
        (table(ROW, header="a\tb"), "line 1: the header is"),
        (table(ROW, header="\u2028a" * 9999), "line 1: the header is .{1,300}$"),
        (table(ROW, header="\u6169" * 999), "line 1: the header is .{1,300}$"),
        (table(ROW, header=""), "line 2: the header is '1.tA dog"),
        (table(ROW.replace("4.5", "\x85")), "line 2: the score '.x85'"),
        (table(), "contains no pair"),
        (b"", "contains no pair"),
    ],
)
def test_bad_sick_names_the_line(content, message):
    with pytest.raises(DataError, match=message) as e:
        sentences.parse_sick(content, "f")
    assert str(e.value).isprintable()


def test_sick_is_prepared_and_read_back(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    for i, file in enumerate(sentences.Sick.files):
        (raw / file.name).write_bytes(
            table(
                *[ROW.replace("4.5", f"{1 + i}.25")] * (i + 1),
                end="\r\n" if i == 2 else "\n",
            )
        )
    with pytest.raises(DataError, match="checksum differs"):
        data.prepare("sick", raw, tmp_path)
    unchecked.prepare("sick", raw, tmp_path)
    for i, split in enumerate(("train", "trial", "test")):
        a, b, scores = sentences.related(data.open_columns("sick", split, tmp_path))
        assert (a, b) == (["A dog is running"] * (i + 1), ["The dog runs"] * (i + 1))
        np.testing.assert_array_equal(scores, np.float32([i + 1.25] * (i + 1)))


# -- classification


def test_lines_end_at_newlines_alone():
    content = b"it's \x85 fun \n\n  \nna\xefve\x97so\r\nlast"
    assert sentences.parse_lines(content, "f") == [
        "it's \u2026 fun",
        "na\u00efve\u2014so",
        "last",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\n\x81\x8d\n", "f: mostly not UTF-8, UTF-16 or Windows-1252 text"),
        (b"a\0", "line 1: a NUL byte"),
        (b" \n\n", "no sentence"),
    ],
)
def test_bad_lines_are_named(content, message):
    with pytest.raises(DataError, match=message):
        sentences.parse_lines(content, "f")


def test_labels_follow_the_files(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "custrev.pos").write_bytes(b"good .\n\nfine .\n")
    (raw / "custrev.neg.xz").write_bytes(lzma.compress(b"bad\x97really .\n"))
    unchecked.prepare("cr", raw, tmp_path)
    texts, labels = sentences.labelled(data.open_columns("cr", "sentences", tmp_path))
    assert texts == ["good .", "fine .", "bad\u2014really ."]
    assert labels.tolist() == [1, 1, 0]


def test_own_sentences_may_be_in_utf8(tmp_path):
    (tmp_path / "custrev.pos").write_text("\ufeffcaf\u00e9 \u2014 good\n", "utf-8")
    (tmp_path / "custrev.neg").write_bytes(b"na\xefve\n")
    data.prepare("cr", tmp_path, tmp_path, own_name="mine")
    texts, _ = sentences.labelled(data.open_columns("mine", "sentences", tmp_path))
    assert texts == ["caf\u00e9 \u2014 good", "na\u00efve"]


def test_generated_sets_are_balanced_and_graded(tmp_path):
    for task in ("mr", "cr", "subj", "mpqa"):
        texts, labels = sentences.labelled(
            data.open_columns(f"story_{task}", "sentences", tmp_path)
        )
        assert len(texts) == stories.LABELLED
        assert labels.tolist() == sorted(labels.tolist(), reverse=True)
        assert labels.mean() == 0.5
    scores = np.concatenate(
        [
            sentences.related(data.open_columns("story_sick", split, tmp_path))[2]
            for split in stories.PAIRS
        ]
    )
    assert set(np.round(scores, 1)) <= {
        np.float32(s) for s in (1.0, 1.9, 2.8, 3.7, 4.6, 5.0)
    }
    assert scores.std() > 1


def test_equal_sentences_are_fully_related():
    for a, b, score in stories.pairs("train"):
        assert 1 <= score <= 5
        if a == b:
            assert score >= 4.6


# -- word2vec


def binary(vectors, newline=b""):
    size = len(next(iter(vectors.values())))
    head = f"{len(vectors)} {size}\n".encode()
    return head + b"".join(
        w.encode() + b" " + np.asarray(v, "<f4").tobytes() + newline
        for w, v in vectors.items()
    )


VECTORS = {
    "</s>": [0.5, -1.0, 2.0],
    "naïve": [1.0, 10.0, 32.0],
    "New_York": [3.0, 4.0, 5.0],
}  # 10, 32: newline, space


@pytest.mark.parametrize("newline", [b"", b"\n"])
def test_word2vec_is_read_with_or_without_newlines(tmp_path, newline):
    (tmp_path / "v.bin").write_bytes(binary(VECTORS, newline))
    found = Word2Vec(tmp_path / "v.bin")
    assert (list(found), len(found), found.size) == (list(VECTORS), 3, 3)
    assert "naïve" in found
    assert "naive" not in found
    for word, vector in VECTORS.items():
        np.testing.assert_array_equal(found[word], np.float32(vector))


def as_text(vectors, end=b"\n"):
    lines = [f"{len(vectors)} {len(next(iter(vectors.values())))}"]
    lines += [f"{w} {' '.join(map(str, v))}" for w, v in vectors.items()]
    return end.join(line.encode() for line in lines) + end


@pytest.mark.parametrize("end", [b"\n", b" \n", b"\r\n"])
def test_word2vec_in_text_format(tmp_path, end):
    (tmp_path / "v.txt").write_bytes(as_text(VECTORS, end))
    found = Word2Vec(tmp_path / "v.txt")
    assert (list(found), len(found), found.size) == (list(VECTORS), 3, 3)
    for word, vector in VECTORS.items():
        np.testing.assert_array_equal(found[word], np.float32(vector))
    (tmp_path / "v.txt").write_bytes(as_text(VECTORS, end).removesuffix(end))
    found = Word2Vec(tmp_path / "v.txt")
    np.testing.assert_array_equal(found["New_York"], [3, 4, 5])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"3 2\na 1 2\nb 1\nc 1 2\n", "line 3: not a word and 2 numbers"),
        (b"3 2\na 1 2\nb 1 2\n", "has 2 words, but its first line says 3"),
        (b"1 2\na 1 2\nb 1 2\n", "has 2 words, but its first line says 1"),
        (b"2 2\na 1 2\nb 1 x\n", "the vector of 'b' does not consist of numbers"),
    ],
)
def test_bad_word2vec_in_text_format_is_one_line(tmp_path, content, message):
    (tmp_path / "v.txt").write_bytes(content)
    with pytest.raises(DataError, match=message) as e:
        Word2Vec(tmp_path / "v.txt")["b"]
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (binary(VECTORS)[:-1], "truncated, it ends within word 3 of 3"),
        (binary(VECTORS)[:30], "truncated, it ends within word 2 of 3"),
        (b"3 3\n", "says 3 words of size 3, which are not in its 4 bytes"),
        (b"3 3\n" + b"x" * 10_000, "word 1 of 3 has no end"),
        (binary(VECTORS) + b"more", "goes on after the 3 words"),
        (b"the red\n", "instead of a line of two numbers"),
        (b"\x1f\x8b\x08", "truncated, the packed data ends early"),
        (b"0 300\n", "0 words of size 300"),
        (b"", "cannot be read as word2vec vectors"),
    ],
)
def test_bad_word2vec_is_one_line(tmp_path, content, message):
    path = tmp_path / "v.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as e:
        Word2Vec(path)
    assert "\n" not in str(e.value)
    assert str(path) in str(e.value)


def test_missing_word2vec(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        Word2Vec(tmp_path / "none.bin")


@pytest.mark.parametrize(
    ("pack", "suffix"),
    [(gzip.compress, ".gz"), (lzma.compress, ".xz"), (bz2.compress, "")],
)
def test_packed_word2vec(tmp_path, pack, suffix):
    for content in (binary(VECTORS), as_text(VECTORS)):
        path = tmp_path / f"v.bin{suffix}"
        path.write_bytes(pack(content))
        found = Word2Vec(path)
        for word, vector in VECTORS.items():
            np.testing.assert_array_equal(found[word], np.float32(vector))


GLOVE = {
    ", .": [0.5, -1, 2],
    "at name@domain.com": [1, 2, 3],
    "a\tb": [4, 5, 6],
    "1998": [7, 8, 9],
    "3.5 2": [1, 1, 1],
    "the": [1e-3, 2, 3],
}


@pytest.mark.parametrize("header", [b"", b"6 3\n", b"6 3 \r\n"])
@pytest.mark.parametrize("end", [b"\n", b" \n", b"\t\r\n", b"\n\n"])
def test_words_with_spaces_blank_lines_and_no_header(tmp_path, header, end):
    lines = [f"{word} {' '.join(map(str, v))}".encode() for word, v in GLOVE.items()]
    (tmp_path / "v.txt").write_bytes(header + end.join(lines) + end + b"\n")
    found = Word2Vec(tmp_path / "v.txt")
    assert (list(found), found.size) == (list(GLOVE), 3)
    for word, vector in GLOVE.items():
        np.testing.assert_array_equal(found[word], np.float32(vector))


@pytest.mark.parametrize("value", ["inf", "-Infinity", "nan", "NaN", "1e400", "1e39"])
def test_vectors_that_are_not_finite_are_refused_by_line_and_word(tmp_path, value):
    for header, line in (("2 2\n", 3), ("", 2)):
        (tmp_path / "v.txt").write_text(f"{header}red 1 2\nsky blue 0.5 {value}\n")
        with pytest.raises(
            DataError, match=rf"v.txt, line {line}: .*'sky blue' contai"
        ):
            Word2Vec(tmp_path / "v.txt")
    wrong = VECTORS | {"na\u00efve": [1, float(value), 2]}
    with np.errstate(over="ignore"):
        (tmp_path / "v.bin").write_bytes(binary(wrong))
    with pytest.raises(
        DataError, match=r"v.bin, word 2: the vector of 'na.xefve' cont"
    ):
        Word2Vec(tmp_path / "v.bin")


def test_many_digits_are_not_finite_either(tmp_path):
    (tmp_path / "v.txt").write_text(f"red 1 2\nblue 1 {'9' * 400}\n")
    with pytest.raises(DataError, match="'blue' contains NaN or infinity"):
        Word2Vec(tmp_path / "v.txt")["blue"]


@pytest.mark.parametrize(
    "header", [f"{10**18} 3", f"3 {10**18}", f"{10**18} {10**18}", "9" * 30 + " 3"]
)
def test_sizes_that_the_file_cannot_hold(tmp_path, header):
    for content in (binary(VECTORS), as_text(VECTORS)):
        rest = content.partition(b"\n")[2]
        (tmp_path / "v").write_bytes(header.encode() + b"\n" + rest)
        with pytest.raises(DataError, match="v: "):
            Word2Vec(tmp_path / "v")


def test_few_pairs_without_a_sentence_are_left_out():
    rows = [ROW] * 150
    rows[4] = ROW.replace("A dog is running", " ")
    notes = Counter()
    assert len(sentences.parse_sick(table(*rows), "f", notes)) == 149
    assert notes == {"pairs with an empty sentence left out": 1}
    rows[7] = rows[4]
    with pytest.raises(DataError, match=r"line 6: a sentence is empty \(2 such lines"):
        sentences.parse_sick(table(*rows), "f")


def test_repeated_sentences_and_empty_lines_are_counted(tmp_path):
    (tmp_path / "custrev.pos").write_bytes(b"good .\n\ngood .\n")
    (tmp_path / "custrev.neg").write_bytes(b"bad .\ngood .\n")
    data.prepare("cr", tmp_path, tmp_path, own_name="mine")
    assert read_notes(data.folder_of("mine", tmp_path)) == {
        "empty lines left out": 1,
        "repeated sentences": 2,
    }
