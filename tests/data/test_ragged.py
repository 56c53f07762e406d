"""Examples of different lengths and facts of a whole set: written once, read back the same, batched like any source."""

import numpy as np
import pytest

from lnrepro import data
from lnrepro.data.batches import Plan, eval_batches, train_batches
from lnrepro.data.builder import Builder, array
from lnrepro.data.ragged import Ragged
from lnrepro.engine.errors import UserError

LENGTHS = {"train": (3, 0, 5, 1, 4, 2, 7), "test": (0, 0)}


class Lines(Builder):
    """Pen offsets and a number, for these tests."""

    source = licence = size = "made up"
    name, embedded = "lines", True
    VERSION = "1.0.0"

    def features(self):
        """Any number of points, and one word."""
        return {"points": array((None, 2), np.float32), "word": array((), np.int32)}

    def examples(self, raw):
        """Numbers that say which example and which point they belong to."""
        self.facts["words"] = ["ä", "b"]
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
        patch.setitem(data.TABLE, "lines", data.Entry(__name__, "Lines", "1.0.0"))
        yield tmp_path_factory.mktemp("ragged")


@pytest.mark.parametrize("split", LENGTHS)
def test_columns_equal_the_source(lines, split):
    source, columns = (
        data.open_source("lines", split, lines),
        data.open_columns("lines", split, lines),
    )
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
    monkeypatch.setattr(
        Lines,
        "facts",
        property(lambda self: {"words": ["c"]}, lambda self, value: None),
        raising=False,
    )
    assert data.fingerprint("lines", tmp_path) != data.fingerprint("lines", lines)


def test_batches_of_columns_equal_batches_of_the_source(lines):
    source, columns = (
        data.open_source("lines", "train", lines),
        data.open_columns("lines", "train", lines),
    )
    plan = Plan(7, 2, 0, lengths=columns["points"].lengths, buckets=(3, 7))
    halved = {
        "columns": lambda c, draws: c | {"points": [p / 2 for p in c["points"]]},
        "source": lambda rows, draws: [r | {"points": r["points"] / 2} for r in rows],
    }
    of = {"columns": columns, "source": source}
    for make in (
        lambda which: train_batches(
            of[which],
            plan,
            pad={"points": None},
            transform=halved[which],
            process=(0, 1),
        ),
        lambda which: eval_batches(of[which], 3, pad={"points": 8}, process=(0, 1)),
    ):
        with make("columns") as ours, make("source") as theirs:
            for _, a, b in zip(range(3), ours, theirs, strict=False):
                assert a.keys() == b.keys() >= {"points", "points_length", "word"}
                for name in a:
                    np.testing.assert_array_equal(a[name], b[name])


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
