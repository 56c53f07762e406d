"""Triples of sentences, and batches of sentences of one length."""

import numpy as np
import pytest

from experiments import skip_thoughts
from experiments.skip_thoughts import triples
from lnrepro import data
from tests.data.test_books import SENTENCES, TEXTS, prepare
from tests.experiments.small import config_of


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    root = tmp_path_factory.mktemp("shelf")
    return root / "data", *prepare(root, TEXTS)


def test_all_words_and_two_tokens_are_the_largest_vocabulary(shelf):
    root, _, facts = shelf
    config = config_of("skip_thoughts", **{"data.name": "books", "data.dir": str(root)})
    size = skip_thoughts.sizes(config)["model.vocabulary"]
    everything = triples.vocabulary_of(facts, size.value)
    assert everything.words == tuple(facts["words"])
    assert len(everything) == size.value == size.most


def test_examples_are_neighbours_and_end(shelf):
    root, columns, facts = shelf
    source = triples.Triples(data.open_set("books", root), 12)
    names = triples.vocabulary_of(facts, 12)
    rows = [0, 5, len(source) - 1]
    for row, example in zip(rows, (source[row] for row in rows), strict=True):
        line = int(columns["triples"][row])
        for name, at in (("previous", line - 1), ("current", line), ("next", line + 1)):
            known = [word if word in names else "<unk>" for word in SENTENCES[at]]
            assert names.decode(example[name]) == [*known, "<eos>"]


# -- batches of equal length


COUNTS = (0, 9, 23, 4, 17)


def test_an_epoch_is_every_whole_batch_of_every_length_in_turn():
    plan = triples.EqualLengths(COUNTS, 4, 3, (3, 6))
    assert plan.steps_per_epoch == 2 + 5 + 1 + 4
    ends = np.cumsum(COUNTS)
    seen, turns = [], []
    for k in range(plan.steps_per_epoch):
        rows = plan.rows(k)
        # All rows of a batch are triples of one length.
        (length,) = set((np.searchsorted(ends, rows, side="right") + 1).tolist())
        assert plan.length(k) == (3 if length + 1 <= 3 else 6)
        seen += rows.tolist()
        turns.append(length)
    assert len(set(seen)) == len(seen)
    # The second batch of a length comes after the first one of every length.
    assert sorted(turns[:4]) == [2, 3, 4, 5]
    assert turns[4:7] == [turn for turn in turns[:4] if turn != 4]


def test_the_order_never_changes():
    """Otherwise an old run cannot be resumed."""
    for seed, k, wanted in (
        (3, 0, [0, 2, 1, 6]),
        (3, 12, [32, 35, 33, 34]),
        (4, 0, [34, 32, 35, 33]),
    ):
        plan = triples.EqualLengths(COUNTS, 4, seed, (6,))
        assert plan.rows(k).tolist() == wanted
