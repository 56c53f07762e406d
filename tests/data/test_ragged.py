"""Tests of columns whose examples differ in length, and of facts of a whole set."""

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.batches import Plan, eval_batches, train_batches
from lnrepro.data.builder import Builder, array
from lnrepro.data.ragged import Ragged
from lnrepro.errors import UserError

LENGTHS = {"train": (3, 0, 5, 1, 4, 2, 7), "test": (0, 0)}


class Lines(Builder):
    """Pen offsets and a number, for these tests."""

    source = licence = size = "made up"
    embedded = True
    words = ("ä", "b")

    def features(self):
        """Return the features: any number of points, and a word."""
        return {"points": array((None, 2), np.float32), "word": array((), np.int32)}

    def examples(self, raw):
        """Return numbers that say which example and which point they belong to."""
        self.facts["words"] = self.words
        return {
            split: [
                {
                    "points": 10.0 * i
                    + np.arange(2 * n, dtype=np.float32).reshape(n, 2),
                    "word": np.int32(i),
                }
                for i, n in enumerate(lengths)
            ]
            for split, lengths in LENGTHS.items()
        }


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """A data dir with the set above in the table of sets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(data.TABLE, "lines", f"{__name__}:Lines")
        root = tmp_path_factory.mktemp("ragged")
        data.prepare("lines", data_dir=root, records=True)
        yield root


@pytest.mark.parametrize("split", LENGTHS)
def test_columns_equal_the_source(lines, split):
    source = data.open_source("lines", split, lines)
    columns = data.open_columns("lines", split, lines)
    assert columns["points"].lengths.tolist() == list(LENGTHS[split])
    assert len(columns["points"]) == len(columns["word"]) == len(source)
    for i, example in enumerate(source):
        np.testing.assert_array_equal(
            columns["points"][i], example["points"], strict=True
        )
        assert columns["word"][i] == example["word"]
    np.testing.assert_array_equal(
        columns["points"][-1], columns["points"][len(source) - 1]
    )
    with pytest.raises(IndexError):
        columns["points"][len(source)]


def test_facts_are_kept_and_part_of_the_fingerprint(lines, monkeypatch, tmp_path):
    assert data.facts("lines", lines) == {"words": ["ä", "b"]}
    assert data.facts("digits") == {}
    monkeypatch.setattr(Lines, "words", ("c",))
    assert data.fingerprint("lines", tmp_path) != data.fingerprint("lines", lines)


def halve_columns(columns, draws):
    return columns | {"points": [points / 2 for points in columns["points"]]}


def halve_examples(examples, draws):
    return [example | {"points": example["points"] / 2} for example in examples]


def assert_equal(ours, theirs):
    with ours, theirs:
        for _, a, b in zip(range(3), ours, theirs, strict=False):
            assert a.keys() == b.keys() >= {"points", "points_length", "word"}
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])


def test_batches_of_columns_equal_batches_of_the_source(lines):
    source = data.open_source("lines", "train", lines)
    columns = data.open_columns("lines", "train", lines)
    plan = Plan(7, 2, 0, lengths=columns["points"].lengths, buckets=(3, 7))
    options = {"pad": {"points": None}, "process": (0, 1)}
    assert_equal(
        train_batches(columns, plan, transform=halve_columns, **options),
        train_batches(source, plan, transform=halve_examples, **options),
    )
    options = {"pad": {"points": 8}, "process": (0, 1)}
    assert_equal(
        eval_batches(columns, 3, **options), eval_batches(source, 3, **options)
    )


def test_without_a_length_to_pad_to_it_says_so(lines):
    columns = data.open_columns("lines", "train", lines)
    with (
        pytest.raises(
            UserError,
            match="points: its examples differ in shape; give it a length in `pad`",
        ),
        eval_batches(columns, 7, process=(0, 1)) as stream,
    ):
        next(stream)


def test_offsets_that_do_not_fit():
    with pytest.raises(
        ValueError, match=r"offsets from \(0, 2\) do not span the 3 values"
    ):
        Ragged(np.zeros(3), np.array([0, 2]))


def test_rows_are_read_one_by_one():
    ragged = Ragged(np.arange(5), np.array([0, 2, 5]))
    assert ragged[-1].tolist() == [2, 3, 4]
    with pytest.raises(TypeError, match="one by one"):
        ragged[:1]
