"""Columns of books, batches of sentences of one length, and wrong files."""

import gzip
import hashlib
import lzma
import random

import numpy as np
import pytest

from experiments.skip_thoughts import triples
from lnrepro import data
from lnrepro.data import encodings
from lnrepro.data import old_files as data_files
from lnrepro.data.batches import train_batches
from lnrepro.data.builder import read_notes
from lnrepro.data.official import book_files
from lnrepro.data.shuffle import permuted
from lnrepro.errors import DataError, UserError

LONG = " ".join(["word"] * 10_000)


def write(folder, **texts):
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_bytes(
            text if isinstance(text, bytes) else text.encode()
        )
    return folder


def prepare(tmp_path, **texts):
    data.prepare("gutenberg", write(tmp_path / "raw", **texts), tmp_path / "data")
    return data.open_columns("gutenberg", "train", tmp_path / "data"), data.facts(
        "gutenberg", tmp_path / "data"
    )


def library(seed=0, count=4, lines=60, words=40):
    """Random books, some of whose sentences are too long for a triple."""
    rng = np.random.RandomState(seed)
    made = {}
    for i in range(count):
        lengths = np.where(
            rng.rand(lines) < 0.9, rng.randint(1, 12, lines), rng.randint(25, 35, lines)
        )
        made[f"b{i}"] = [
            [f"w{int(words * rng.rand() ** 2)}" for _ in range(n)] for n in lengths
        ]
    return made


def as_text(sentences):
    return "".join(" ".join(s) + "\n" for s in sentences)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    root, made = tmp_path_factory.mktemp("shelf"), library()
    columns, facts = prepare(
        root, **{name: as_text(book) for name, book in made.items()}
    )
    return root / "data", made, columns, facts


def test_every_sentence_is_there_and_decodes(shelf):
    _root, made, columns, facts = shelf
    vocabulary = triples.vocabulary_of(facts, len(facts["words"]) + 2)
    found = [
        vocabulary.decode(columns["tokens"][i]) for i in range(len(columns["tokens"]))
    ]
    assert found == [sentence for name in sorted(made) for sentence in made[name]]
    assert (facts["lines"], facts["books"]) == (len(found), len(made))
    assert facts["tokens"] == sum(map(len, found))


def test_words_are_numbered_by_frequency_ties_by_first_appearance(shelf):
    _, made, _, facts = shelf
    flat = [
        word for name in sorted(made) for sentence in made[name] for word in sentence
    ]
    wanted = sorted(dict.fromkeys(flat), key=lambda w: (-flat.count(w), flat.index(w)))
    assert facts["words"] == wanted


def test_triples_are_the_brute_force(shelf):
    _, made, columns, facts = shelf
    wanted, line = [], 0
    for name in sorted(made):
        book = made[name]
        for i in range(1, len(book) - 1):
            if all(len(book[i + d]) <= book_files.LONGEST for d in (-1, 0, 1)):
                wanted.append((len(book[i]), line + i))
        line += len(book)
    wanted.sort()
    assert columns["triples"].tolist() == [i for _, i in wanted]
    lengths = [n for n, _ in wanted]
    assert facts["triples_by_length"] == [
        lengths.count(n) for n in range(1, book_files.LONGEST + 1)
    ]


@pytest.mark.parametrize(("block", "chunk"), [(64, 7), (1000, 50)])
def test_blocks_and_chunks_do_not_show(shelf, tmp_path, monkeypatch, block, chunk):
    monkeypatch.setattr(encodings, "BLOCK", block)
    monkeypatch.setattr(book_files, "CHUNK", chunk)
    root, made, _, _ = shelf
    prepare(tmp_path, **{name: as_text(book) for name, book in made.items()})
    assert data.fingerprint("gutenberg", tmp_path / "data") == data.fingerprint(
        "gutenberg", root
    )


def test_odd_lines(tmp_path):
    text = (
        b"a b\r\n\r\n\n a  b\tc \r\n<unk> b \xc2\x85x\n"
        + LONG.encode()
        + b"\nb\nlast a b"
    )
    columns, facts = prepare(tmp_path, one=text, two="too short\nb\n")
    words = facts["words"]
    assert words[:3] == ["word", "b", "a"]
    assert "<unk>" not in words
    assert "\x85x" in words, "only ASCII space parts words"
    assert [len(columns["tokens"][i]) for i in range(len(columns["tokens"]))] == [
        2,
        3,
        3,
        10_000,
        1,
        3,
        2,
        1,
    ]
    assert columns["tokens"][2].tolist()[0] == 1
    assert facts["empty_lines_left_out"] == 2
    assert facts["books_without_triple_for_shortness"] == 1
    assert columns["triples"].tolist() == [1], (
        "the 10,000-word line is in no triple, nor is any of the short book"
    )


def test_typographic_punctuation_becomes_that_of_tokenised_books(tmp_path):
    typographic = "\ufeff\u201c it\u2019s \u2014 late \u201d .\na\nb\n"
    columns, facts = prepare(tmp_path, one=typographic)
    vocabulary = triples.vocabulary_of(facts, len(facts["words"]) + 2)
    wanted = ["``", "it's", "--", "late", "''", "."]
    assert vocabulary.decode(columns["tokens"][0]) == wanted


def test_few_attached_full_stops_are_counted(tmp_path):
    with pytest.warns(UserWarning, match="1 of 4 sentences end with a full stop that"):
        prepare(tmp_path, one="he met mr.\nshe left .\n` why ? '\nnobody\n")


def test_packed_books_are_the_same_books(tmp_path):
    text = as_text(library()["b0"]).encode()
    prepare(tmp_path, b0=text)
    other = tmp_path / "other"
    other.mkdir()
    (other / "b0.txt.gz").write_bytes(gzip.compress(text))
    data.prepare("gutenberg", other, tmp_path / "data2")
    assert data.fingerprint("gutenberg", tmp_path / "data") == data.fingerprint(
        "gutenberg", tmp_path / "data2"
    )
    (other / "b0.txt").write_bytes(text)
    with pytest.raises(DataError, match=r"b0\.txt is there more than once"):
        data.prepare("gutenberg", other, tmp_path / "data3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a\nb\nc\x00d\n", r"one\.txt, line 3: a NUL byte"),
        (b"a\nb\x81\x8d\nc\n", r"one\.txt: mostly not UTF-8"),
        (b"a\nb\n", "2 sentences in 1 books, but nowhere three in a row"),
        (b"", "0 sentences in 0 books"),
        (b"x" * (3 << 20), r"one\.txt, line 1: longer than 1,048,576 bytes"),
        (
            b"The Project Gutenberg EBook\n\n*** START OF THIS PROJECT GUTENBERG EBOOK",
            r"one\.txt, line 3: a raw file of Project Gutenberg .*convert_books.py",
        ),
        (
            b"It was late. The boat\ncame back.\nNobody spoke.\nIt rained .\n",
            r"one\.txt: 2 lines end with a full stop that is attached to a word, and 1 "
            r".* scripts/convert_books.py",
        ),
    ],
)
def test_bad_books_are_one_line_and_leave_nothing(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as e:
        prepare(tmp_path, one=text)
    assert "\n" not in str(e.value)
    assert not list((tmp_path / "data").rglob("*.npy"))


@pytest.mark.parametrize(
    ("packing", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_damaged_and_growing_packed_books_are_one_line(
    tmp_path, monkeypatch, packing, pack
):
    whole = pack(random.Random(0).randbytes(9000).hex().encode())
    book = tmp_path / f"b0.txt{packing}"
    for damaged in (
        whole[:-20],
        *(whole[:i] + b"\xff" * 9 + whole[i + 9 :] for i in (30, 600, 2000)),
    ):
        book.write_bytes(damaged)
        with pytest.raises(
            DataError, match=rf"b0\.txt{packing}: (damaged, cannot be unp|truncated)"
        ) as e:
            data.prepare("gutenberg", tmp_path, tmp_path / "data")
        assert str(e.value).isprintable()
    book.write_bytes(pack(b"a\n" * 10**6))
    monkeypatch.setattr(data_files, "ALWAYS", 1 << 19)
    with pytest.raises(
        DataError,
        match=rf"b0\.txt{packing}: holds more than the [0-9,]+ bytes it may",
    ):
        data.prepare("gutenberg", tmp_path, tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_books_of_one_name_in_several_folders_are_all_read(tmp_path):
    for i, folder in enumerate(("alice", "bob", "bob/old")):
        (tmp_path / "raw" / folder).mkdir(parents=True)
        text = f"w{i} a\nb\nc\n"
        (tmp_path / "raw" / folder / "b.txt").write_text(text)
        (tmp_path / "raw" / folder / "._b.txt").write_bytes(b"\0\5")
    (tmp_path / "raw/copy.txt").write_text("w0 a\nb\nc\n")
    data.prepare("gutenberg", tmp_path / "raw", tmp_path / "data", own_name="mine")
    facts = data.facts("mine", tmp_path / "data")
    assert facts["books"] == 4
    assert {"w0", "w1", "w2"} <= set(facts["words"])
    assert read_notes(data.set_folder("mine", tmp_path / "data")) == {
        "files of the operating system left out": 3,
        "repeated books": 1,
    }


def test_no_books_and_no_records(tmp_path, shelf):
    with pytest.raises(DataError, match=r"no \.txt file there"):
        prepare(tmp_path)
    with pytest.raises(DataError, match="it has columns only"):
        data.open_source("gutenberg", "train", shelf[0])


def test_a_vocabulary_larger_than_the_books(shelf):
    root, _, _, facts = shelf
    most = len(facts["words"]) + 2
    assert len(triples.Triples.open("gutenberg", most, root)) == sum(
        facts["triples_by_length"]
    )
    for size in (most + 1, 2):
        with pytest.raises(
            DataError, match=f"config.model.vocabulary = {size}, but .* 3 to {most} is"
        ):
            triples.Triples.open("gutenberg", size, root)


def test_examples_are_neighbours_and_end(shelf):
    root, made, columns, facts = shelf
    vocabulary = 12
    source = triples.Triples.open("gutenberg", vocabulary, root)
    names = triples.vocabulary_of(data.facts("gutenberg", root), vocabulary)
    flat = [sentence for name in sorted(made) for sentence in made[name]]
    rows = [0, 5, len(source) - 1]
    for row, example in zip(rows, source.__getitems__(rows), strict=True):
        line = int(columns["triples"][row])
        for name, at in (("previous", line - 1), ("current", line), ("next", line + 1)):
            known = [word if word in names else "<unk>" for word in flat[at]]
            assert names.decode(example[name]) == [*known, "<eos>"]
    assert facts["words"][: vocabulary - 2] == list(names.words)


# -- batches of equal length


COUNTS = (0, 9, 23, 4, 17)


def test_an_epoch_is_every_whole_batch_of_every_length_in_turn():
    plan = triples.EqualLengths(COUNTS, 4, 3, (3, 6))
    assert plan.steps_per_epoch == 2 + 5 + 1 + 4
    first = np.cumsum(COUNTS) - COUNTS
    seen, turns = [], []
    for k in range(plan.steps_per_epoch):
        rows = plan.rows(k)
        length = int(np.searchsorted(np.cumsum(COUNTS), rows[0], side="right")) + 1
        assert (
            (first[length - 1] <= rows)
            & (rows < first[length - 1] + COUNTS[length - 1])
        ).all()
        assert plan.length(k) == (3 if length + 1 <= 3 else 6)
        seen += rows.tolist()
        turns.append(length)
    assert len(set(seen)) == len(seen)
    # Round-robin: nobody's second batch comes before everybody's first.
    assert sorted(turns[:4]) == [2, 3, 4, 5]
    assert turns[4:7] == [t for t in turns[:4] if t != 4]


def test_a_batch_is_a_function_of_seed_and_number():
    plan, again, other = (
        triples.EqualLengths(COUNTS, 4, seed, (6,)) for seed in (3, 3, 4)
    )
    order = [35, 0, 20, 1]
    found = {k: plan.rows(k) for k in order}
    for k in sorted(order):
        np.testing.assert_array_equal(again.rows(k), found[k])
    everything = lambda p: np.concatenate([p.rows(k) for k in range(24)])  # noqa: E731
    assert (everything(other) != everything(plan)).any()
    assert (everything(plan)[:48] != everything(plan)[48:]).any(), (
        "the second epoch has an order of its own"
    )


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 1000, 4097])
def test_permuted_is_a_permutation(n):
    there = permuted(np.arange(n), n, 1, 2 << 8 | 3)
    assert sorted(there.tolist()) == list(range(n))
    if (
        n >= 1000
    ):  # it looks shuffled: neighbours land far apart, on average a third of n
        assert abs(np.abs(np.diff(there)).mean() / n - 1 / 3) < 0.03
        assert (there != permuted(np.arange(n), n, 1, 3 << 8 | 3)).mean() > 0.9


def test_large_ranges_need_no_array():
    there = permuted(np.array([0, 10**9]), 2 * 10**9 + 7, 0, 1)
    assert ((there >= 0) & (there < 2 * 10**9 + 7)).all()


@pytest.mark.parametrize(
    ("counts", "batch", "buckets", "message"),
    [
        (
            COUNTS,
            24,
            (6,),
            "no sentence length has so many triples, the most frequent one has 23",
        ),
        (COUNTS, 0, (6,), "config.batch_size = 0"),
        (COUNTS, 4, (5,), r"buckets = \(5,\): they must end with at least 6"),
        (COUNTS, 4, (6, 3), "that ascend"),
    ],
)
def test_sizes_that_cannot_be_batched(counts, batch, buckets, message):
    with pytest.raises(UserError, match=message):
        triples.EqualLengths(counts, batch, 0, buckets)


def test_the_stream_starts_anywhere(shelf):
    source = triples.Triples.open("gutenberg", 20, shelf[0])
    plan = triples.EqualLengths(source.by_length, 8, 0, (6, 12, 30))
    with train_batches(source, plan, pad=source.pad, process=(0, 1)) as stream:
        batches = [next(stream) for _ in range(6)]
    with train_batches(
        source, plan, start_step=5, pad=source.pad, process=(0, 1)
    ) as stream:
        last = next(stream)
    for name, values in last.items():
        np.testing.assert_array_equal(values, batches[5][name])
    for batch in batches:
        assert len(set(batch["current_length"].tolist())) == 1, (
            "the encoder's sentences are of one length"
        )
        assert batch["previous"].shape == batch["next"].shape == (8, 30)
        assert batch["current"].shape[1] in (6, 12, 30)


def test_stories_are_the_same_everywhere(tmp_path):
    """If the generator or Python changes the text, raise the version of the set."""
    from lnrepro.data.generated import stories

    first = [file.__enter__().read() for _, _, file in stories.texts(50)]
    assert hashlib.sha256(b"".join(first)).hexdigest()[:16] == STORIES


STORIES = "2a521f854e0c54f2"
