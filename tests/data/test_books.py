"""Columns of books, and wrong files."""

import lzma

import numpy as np
import pytest

from experiments.skip_thoughts import triples
from lnrepro import data
from lnrepro.data import files
from lnrepro.data.readers import book_files
from tests.data.reading import refused, write

LONG = " ".join(["word"] * 10_000)


def prepare(root, texts):
    """Prepare books, by their names. Return the columns and the facts."""
    write(root / "raw", {f"{name}.txt": text for name, text in texts.items()})
    data.prepare("bookcorpus", root / "raw", root / "data", own_name="books")
    columns = data.open_columns("books", "train", root / "data")
    return columns, data.open_set("books", root / "data").facts


def random_book(rng):
    """60 random sentences, some of which are too long for a triple."""
    lengths = rng.randint(1, 12, 60)
    lengths[rng.rand(60) < 0.1] = rng.randint(25, 35)
    return [[f"w{int(40 * rng.rand() ** 2)}" for _ in range(n)] for n in lengths]


RNG = np.random.RandomState(0)
LIBRARY = {f"b{i}": random_book(RNG) for i in range(4)}
SENTENCES = [sentence for book in LIBRARY.values() for sentence in book]
TEXTS = {
    name: "".join(" ".join(words) + "\n" for words in book)
    for name, book in LIBRARY.items()
}


@pytest.mark.parametrize(("block", "chunk"), [(files.BLOCK, book_files.CHUNK), (64, 8)])
def test_sentences_words_and_triples_are_those_of_the_books(
    tmp_path, monkeypatch, block, chunk
):
    monkeypatch.setattr(files, "BLOCK", block)
    monkeypatch.setattr(book_files, "CHUNK", chunk)
    columns, facts = prepare(tmp_path, TEXTS)
    # By frequency, ties by first appearance.
    flat = [word for sentence in SENTENCES for word in sentence]
    wanted = sorted(dict.fromkeys(flat), key=lambda w: (-flat.count(w), flat.index(w)))
    assert facts["words"] == wanted
    vocabulary = triples.vocabulary_of(facts, len(wanted) + 2)
    assert [vocabulary.decode(line) for line in columns["tokens"]] == SENTENCES
    assert (facts["lines"], facts["books"]) == (len(SENTENCES), len(LIBRARY))
    assert facts["tokens"] == len(flat)
    middle, line = [], 0
    for book in LIBRARY.values():
        lengths = [len(sentence) for sentence in book]
        for i in range(1, len(book) - 1):
            if max(lengths[i - 1 : i + 2]) <= book_files.LONGEST:
                middle.append((lengths[i], line + i))
        line += len(book)
    assert columns["triples"].tolist() == [i for _, i in sorted(middle)]
    counts = np.bincount([n for n, _ in middle], minlength=book_files.LONGEST + 1)
    assert facts["triples_by_length"] == counts[1:].tolist()


def test_odd_lines(tmp_path):
    text = "\ufeff\u201c it\u2019s \u2014\r\n\r\n\n a  b\tc \r\n<unk> b \x85x\n"
    text += f"{LONG}\nb\nlast a b"
    columns, facts = prepare(tmp_path, {"one": text, "two": "too short\nb\n"})
    assert facts["words"][:3] == ["word", "b", "a"]
    assert "<unk>" not in facts["words"]
    vocabulary = triples.vocabulary_of(facts, len(facts["words"]) + 2)
    # Typographic punctuation becomes that of tokenised books.
    assert vocabulary.decode(columns["tokens"][0]) == ["``", "it's", "--"]
    # Only ASCII space parts words.
    assert vocabulary.decode(columns["tokens"][2]) == ["<unk>", "b", "\x85x"]
    assert columns["tokens"].lengths.tolist() == [3, 3, 3, 10_000, 1, 3, 2, 1]
    assert facts["empty_lines_left_out"] == 2
    assert facts["books_without_triple_for_shortness"] == 1
    # Neither the long line nor the short book is in a triple.
    assert columns["triples"].tolist() == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a\nb\n", r"2 sentences in 1 books, .* the last file was .*raw/one\.txt"),
        (b"", "0 sentences in 0 books"),
        (
            b"It was late. The boat\ncame back.\nNobody spoke.\nIt rained .\n",
            r"one\.txt: 2 lines end with a full stop that is attached to a word, and 1 "
            r".* scripts/convert_books.py",
        ),
        (lzma.compress(b"a\n" * 9999)[:-20], r"one\.txt: damaged or truncated"),
    ],
)
def test_wrong_books_are_named_and_leave_nothing(tmp_path, text, message):
    with refused(message):
        prepare(tmp_path, {"one": text})
    assert not list(tmp_path.glob("data/*"))


def test_a_folder_without_books_is_named(tmp_path):
    write(tmp_path / "raw", {"notes.md": ""})
    with refused(r"raw: no \.txt file there"):
        prepare(tmp_path, {})
