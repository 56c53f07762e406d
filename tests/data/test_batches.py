"""Tests of batches: their order, their padding, and that no example is missing."""

import itertools
import threading

import numpy as np
import pytest

from lnrepro.data import batches
from lnrepro.data.batches import eval_batches, train_batches
from lnrepro.data.plan import Plan, draws_of
from lnrepro.data.ragged import Ragged
from tests.refused import refused

N = 103
ALONE = (0, 1)
PAD = {"tokens": None, "title": 6}
WIDE = PAD | {"tokens": 40}
RNG = np.random.default_rng(0)
COLUMNS = {"row": np.arange(N), "image": RNG.integers(0, 256, (N, 3, 4))}
LENGTHS = RNG.integers(1, 41, N)


def ragged(rows):
    return Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


# Each value says which example and which position it belongs to.
TEXTS = {
    "row": np.arange(N),
    "tokens": ragged([1000 * i + np.arange(n) + 1 for i, n in enumerate(LENGTHS)]),
    "title": ragged([np.full(i % 7, i + 1) for i in range(N)]),
}


def train(data, plan, n, **options):
    """The first n training batches."""
    with train_batches(data, plan, **{"process": ALONE} | options) as stream:
        return list(itertools.islice(stream, n))


def evaluation(data, batch_size, **options):
    """All batches of an evaluation."""
    with eval_batches(data, batch_size, **{"process": ALONE} | options) as stream:
        return list(stream)


def add_draws(rows, draws):
    return rows | {"draw": draws}


def same(a, b):
    for x, y in zip(a, b, strict=True):
        assert x.keys() == y.keys()
        for name in x:
            np.testing.assert_array_equal(x[name], y[name], strict=True)


@pytest.mark.parametrize(
    ("start", "block_rows"), [(0, 1), (9, 30), (10, 45), (10**9 + 7, 1024)]
)
def test_a_run_may_start_at_any_step_and_stack_batches(start, block_rows, monkeypatch):
    monkeypatch.setattr(batches, "BLOCK_ROWS", block_rows)
    plan, k = Plan(N, 10, seed=2), start
    options = {"start_step": start, "transform": add_draws, "process": ALONE}
    with train_batches(COLUMNS, plan, **options) as stream:
        for n in (1, 4, 7, 3, 13, 1, 11):
            steps = range(k, k + n)
            rows = np.stack([plan.rows(step) for step in steps])
            wanted = {name: column[rows] for name, column in COLUMNS.items()}
            wanted["draw"] = np.stack([draws_of(plan, step) for step in steps])
            same([stream.take(n)], [wanted])
            k += n


@pytest.mark.parametrize("count", [2, 4])
def test_the_parts_of_the_processes_make_up_the_batch(count):
    plan = Plan(N, 8, 1)
    bucketed = Plan(N, 8, 1, lengths=LENGTHS, buckets=(10, 40))
    for make in (
        lambda process: train(COLUMNS, plan, 9, transform=add_draws, process=process),
        lambda process: train(TEXTS, bucketed, 15, pad=PAD, process=process),
        lambda process: evaluation(TEXTS, 8, pad=WIDE, process=process),
    ):
        parts = zip(*[make((i, count)) for i in range(count)], strict=True)
        joined = [
            {name: np.concatenate([b[name] for b in shares]) for name in shares[0]}
            for shares in parts
        ]
        same(joined, make(ALONE))


def test_batches_of_a_source_are_those_of_its_columns():
    plan = Plan(N, 8, 1, lengths=LENGTHS, buckets=(10, 40))
    source = [{name: v[i] for name, v in TEXTS.items()} for i in range(N)]
    same(train(source, plan, 20, pad=PAD), train(TEXTS, plan, 20, pad=PAD))
    same(evaluation(source, 50, pad=WIDE), evaluation(TEXTS, 50, pad=WIDE))


def test_some_rows_of_all_evenly_spaced():
    for size, count, rows in (
        (101, 6, [0, 20, 40, 60, 80, 100]),
        (3, 5, [0, 1, 2]),
        (4, None, [0, 1, 2, 3]),
    ):
        assert batches.evenly_spaced(size, count).tolist() == rows


def stack_different_lengths():
    plan = Plan(N, 4, 0, LENGTHS, (20, 40))
    with train_batches(TEXTS, plan, pad=PAD, process=ALONE) as stream:
        stream.take(plan.steps_per_epoch)


BAD = [
    (stack_different_lengths, "be stacked; set config.steps_per_call to 1"),
    (lambda: Plan(N, N + 1, 0), "batch size 104 does not fit 103 examples"),
    (lambda: train(COLUMNS, Plan(99, 9, 0), 1), "99 examples and the data has 103"),
    (lambda: train(COLUMNS, Plan(N, 10, 0), 1, process=(0, 4)), "does not divide over"),
    (lambda: Plan(N, 4, 0, LENGTHS, (40, 20)), "that ascend"),
    (lambda: Plan(N, 4, 0, LENGTHS, (39,)), "longest example has 40, and the last"),
    (lambda: evaluation(TEXTS, N, pad=WIDE | {"tokens": 39}), "40 does not f"),
]


@pytest.mark.parametrize(("act", "message"), BAD)
def test_bad_requests_are_one_line(act, message):
    with refused(message):
        act()


def test_closing_stops_the_thread():
    before = set(threading.enumerate())
    stream = train_batches(COLUMNS, Plan(N, 10, 0), process=ALONE)
    next(stream)
    (thread,) = set(threading.enumerate()) - before
    stream.close()
    stream.close()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_the_order_never_changes():
    """No version of NumPy, Python or this package may change these numbers.

    Otherwise an old run cannot be resumed.
    """
    bucketed = Plan(10, 5, 1, np.arange(1, 11), (5, 10))
    for plan, k, wanted in (
        (Plan(10, 5, seed=0), 0, [0, 2, 9, 1, 8]),
        # The second batch of the second epoch, whose tenth row is left out.
        (Plan(10, 3, seed=0), 4, [8, 2, 4]),
        (Plan(10, 5, seed=2**63 + 5), 2**40 + 1, [6, 0, 7, 8, 4]),
        # A negative seed is one of its own.
        (Plan(10, 5, seed=-1), 0, [8, 9, 0, 7, 4]),
        (bucketed, 0, [5, 9, 7, 8, 6]),
        (bucketed, 1, [3, 2, 0, 1, 4]),
    ):
        assert plan.rows(k).tolist() == wanted
    draws = [0.9170205570320864, 0.9351329162030123]
    assert draws_of(Plan(10, 2, seed=7), 3).tolist() == draws


@pytest.mark.parametrize("buckets", [(40,), (10, 20, 40), (3, 5, 9, 17, 33, 64)])
def test_an_epoch_with_buckets(buckets):
    plan = Plan(N, 4, seed=6, lengths=LENGTHS, buckets=buckets)
    steps = plan.steps_per_epoch
    epoch = train(TEXTS, plan, steps, start_step=steps, pad=PAD)
    rows = np.concatenate([batch["row"] for batch in epoch])
    assert len(set(rows.tolist())) == len(rows) == steps * 4
    # The batches are not sorted by length, unless there is only one length.
    order = [plan.length(k) for k in range(steps, 2 * steps)]
    assert order != sorted(order) or len(set(order)) == 1
    for length, batch in zip(order, epoch, strict=True):
        # The length is the shortest bucket that holds the batch.
        lengths = LENGTHS[batch["row"]]
        assert length == min(b for b in buckets if b >= lengths.max())
        np.testing.assert_array_equal(batch["tokens_length"], lengths)
        for name, padded_to in (("tokens", length), ("title", 6)):
            for i, row in zip(batch["row"], batch[name], strict=True):
                example = TEXTS[name][i]
                wanted = np.pad(example, (0, padded_to - len(example)))
                np.testing.assert_array_equal(row, wanted)


@pytest.mark.parametrize("batch_size", [1, 10, 103, 200])
@pytest.mark.parametrize("order", [np.arange(N), RNG.permutation(N)], ids=["", "own"])
def test_evaluation_counts_every_example_once(batch_size, order):
    own = None if order[0] == 0 else order
    seen = evaluation(COLUMNS, batch_size, order=own)
    mask, index, row = (
        np.stack([batch[name] for batch in seen]) for name in ("mask", "index", "row")
    )
    assert mask.shape == (-(-N // batch_size), batch_size)
    missing = mask.size - N
    assert mask.ravel().tolist() == [1] * N + [0] * missing
    assert (mask.dtype, index.dtype) == (np.float32, np.int32)
    # The padding consists of valid rows, too.
    np.testing.assert_array_equal(row.ravel(), [*order, *[order[-1]] * missing])
    np.testing.assert_array_equal(row, index)


def test_a_process_gets_the_rows_of_its_jax_index(monkeypatch):
    monkeypatch.setattr("jax.process_index", lambda: 2)
    monkeypatch.setattr("jax.process_count", lambda: 4)
    plan = Plan(N, 8, 1)
    plans = [train(COLUMNS, plan, 2, process=process) for process in (None, (2, 4))]
    same(*plans)
