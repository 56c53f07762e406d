"""Tests of batches: their order, their padding, and that no example is missing."""

import itertools
import subprocess
import sys
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


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(0)
    return {
        "row": np.arange(N),
        "image": rng.integers(0, 256, (N, 3, 4), dtype=np.uint8),
    }


@pytest.fixture(scope="module")
def sequences():
    """Examples of length 1 to 40, and their lengths.

    Each value says which example and which position it belongs to.
    """
    lengths = np.random.default_rng(1).integers(1, 41, N)
    titles = np.arange(N) % 7
    columns = {
        "row": np.arange(N),
        "tokens": ragged([1000 * i + np.arange(n) + 1 for i, n in enumerate(lengths)]),
        "title": ragged([np.full(n, i + 1) for i, n in enumerate(titles)]),
    }
    return columns, lengths


def ragged(rows):
    return Ragged(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))


def take(stream, n):
    with stream:
        return list(itertools.islice(stream, n))


def add_draws(rows, draws):
    return rows | {"draw": draws}


def same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.keys() == y.keys()
        for name in x:
            np.testing.assert_array_equal(x[name], y[name], strict=True)


@pytest.mark.parametrize("batch_size", [1, 7, 50, 103])
def test_each_epoch_is_shuffled_and_without_replacement(batch_size):
    plan = Plan(N, batch_size, seed=3)
    steps = plan.steps_per_epoch
    assert steps == N // batch_size
    epochs = [
        np.concatenate([plan.rows(k) for k in range(e * steps, (e + 1) * steps)])
        for e in range(3)
    ]
    for epoch in epochs:
        assert len(set(epoch.tolist())) == len(epoch) == steps * batch_size
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(epochs[1], epochs[2])
    assert not np.array_equal(epochs[0], np.sort(epochs[0]))


def test_rows_are_uniform_over_the_batches_of_an_epoch():
    """Over many epochs, each example is equally often in each batch (chi-squared)."""
    epochs, steps = 4000, 4
    counts = np.zeros((8, steps))
    plan = Plan(8, 2, seed=11)
    for k in range(epochs * steps):
        counts[plan.rows(k), k % steps] += 1
    expected = epochs / steps
    # There are 21 degrees of freedom, so that P(> 60) is about 1e-5.
    assert ((counts - expected) ** 2 / expected).sum() < 60


def test_the_order_never_changes():
    """No version of NumPy, Python or this package may change these numbers.

    Otherwise an old run cannot be resumed.
    """
    assert Plan(10, 5, seed=0).rows(0).tolist() == GOLDEN[0]
    assert Plan(10, 5, seed=2**63 + 5).rows(2**40 + 1).tolist() == GOLDEN[1]
    lengths = np.arange(1, 11)
    assert [
        Plan(10, 5, 1, lengths, (5, 10)).rows(k).tolist() for k in (0, 1)
    ] == GOLDEN[2]
    np.testing.assert_array_equal(draws_of(Plan(10, 2, seed=7), 3), GOLDEN[3])


GOLDEN = [
    [0, 2, 9, 1, 8],
    [6, 0, 7, 8, 4],
    [[5, 9, 7, 8, 6], [3, 2, 0, 1, 4]],
    [0.9170205570320864, 0.9351329162030123],
]


def test_seeds_differ_and_may_be_negative():
    orders = {
        tuple(Plan(N, N, seed).rows(0).tolist())
        for seed in (0, 1, -1, 2**32, 2**64 - 2)
    }
    assert len(orders) == 5


@pytest.mark.parametrize("start", [0, 1, 9, 10, 11, 57, 1000, 10**9 + 7])
def test_a_run_may_start_at_any_step(columns, start):
    plan = Plan(N, 10, seed=2)
    resumed = train_batches(
        columns, plan, start_step=start, transform=add_draws, process=ALONE
    )
    for k, batch in enumerate(take(resumed, 30), start):
        np.testing.assert_array_equal(batch["draw"], draws_of(plan, k))
        np.testing.assert_array_equal(batch["row"], plan.rows(k))
        np.testing.assert_array_equal(batch["image"], columns["image"][plan.rows(k)])


@pytest.mark.parametrize("block_rows", [1, 30, 45, 1024])
def test_stacked_batches_are_the_same(columns, block_rows, monkeypatch):
    monkeypatch.setattr(batches, "BLOCK_ROWS", block_rows)
    plan, k = Plan(N, 10, seed=2), 5
    with train_batches(columns, plan, start_step=k, process=ALONE) as stream:
        for n in (1, 4, 7, 3, 13, 1, 11):
            stacked = stream.take(n)
            rows = np.stack([plan.rows(step) for step in range(k, k + n)])
            np.testing.assert_array_equal(stacked["row"], rows)
            np.testing.assert_array_equal(stacked["image"], columns["image"][rows])
            k += n


@pytest.mark.parametrize("count", [2, 4])
def test_the_parts_of_the_processes_make_up_the_batch(columns, sequences, count):
    examples, lengths = sequences
    plan = Plan(N, 8, 1)
    bucketed = Plan(N, 8, 1, lengths=lengths, buckets=(10, 40))
    lengths_of_both = {"tokens": 40, "title": 6}
    makers = [
        lambda p: take(train_batches(columns, plan, transform=add_draws, process=p), 9),
        lambda p: take(train_batches(examples, bucketed, pad=PAD, process=p), 15),
        lambda p: take(eval_batches(examples, 8, pad=lengths_of_both, process=p), 99),
    ]
    for make in makers:
        parts = [make((i, count)) for i in range(count)]
        joined = [
            {name: np.concatenate([b[name] for b in shares]) for name in shares[0]}
            for shares in zip(*parts, strict=True)
        ]
        same(joined, make(ALONE))


def test_batches_of_a_source_are_those_of_its_columns(sequences):
    columns, lengths = sequences
    plan = Plan(N, 8, 1, lengths=lengths, buckets=(10, 40))
    source = [{name: v[i] for name, v in columns.items()} for i in range(N)]
    data = (columns, source)
    same(*(take(train_batches(d, plan, pad=PAD, process=ALONE), 20) for d in data))
    pad = PAD | {"tokens": 40}
    same(*(take(eval_batches(d, 50, pad=pad, process=ALONE), 9) for d in data))


def test_draws_are_uniform():
    plan = Plan(N, 50, seed=4)
    draws = np.concatenate([draws_of(plan, k) for k in range(200)])
    assert len(np.unique(draws)) == len(draws)
    # The standard deviation of a count is 30.
    counts, _ = np.histogram(draws, 10, (0.0, 1.0))
    np.testing.assert_allclose(counts, 1000, atol=150)


@pytest.mark.parametrize("batch_size", [4, 10])
@pytest.mark.parametrize("buckets", [(40,), (10, 20, 40), (3, 5, 9, 17, 33, 64)])
def test_an_epoch_with_buckets(sequences, batch_size, buckets):
    columns, lengths = sequences
    plan = Plan(N, batch_size, seed=6, lengths=lengths, buckets=buckets)
    steps = plan.steps_per_epoch
    stream = train_batches(columns, plan, start_step=steps, pad=PAD, process=ALONE)
    epoch = take(stream, steps)
    rows = np.concatenate([batch["row"] for batch in epoch])
    assert len(set(rows.tolist())) == len(rows) == steps * batch_size
    # The batches are not sorted by length, unless there is only one length.
    order = [batch["tokens"].shape[1] for batch in epoch]
    assert order != sorted(order) or len(set(order)) == 1
    for k, batch in enumerate(epoch, steps):
        # The length is the shortest bucket that holds the batch.
        longest = lengths[batch["row"]].max()
        assert plan.length(k) == min(b for b in buckets if b >= longest)
        assert batch["tokens"].shape == (batch_size, plan.length(k))
        assert batch["title"].shape == (batch_size, 6)
        np.testing.assert_array_equal(batch["tokens_length"], lengths[batch["row"]])
        for name in ("tokens", "title"):
            for i, row in zip(batch["row"], batch[name], strict=True):
                wanted = columns[name][i]
                np.testing.assert_array_equal(row[: len(wanted)], wanted)
                assert not row[len(wanted) :].any()


def test_batches_of_several_shapes_do_not_stack(sequences):
    columns, lengths = sequences
    plan = Plan(N, 4, 0, lengths, (20, 40))
    stream = train_batches(columns, plan, pad=PAD, process=ALONE)
    with stream, refused("cannot be stacked; set config.steps_per_call to 1"):
        stream.take(plan.steps_per_epoch)


@pytest.mark.parametrize("batch_size", [1, 10, 103, 200])
@pytest.mark.parametrize("ordered", [False, True])
def test_evaluation_counts_every_example_once(columns, batch_size, ordered):
    order = np.random.default_rng(2).permutation(N) if ordered else None
    seen = take(eval_batches(columns, batch_size, order=order, process=ALONE), 999)
    assert len(seen) == -(-N // batch_size)
    assert {len(b["mask"]) for b in seen} == {batch_size}
    mask, index, row = (
        np.concatenate([b[name] for b in seen]) for name in ("mask", "index", "row")
    )
    assert mask.dtype == np.float32
    assert set(mask.tolist()) <= {0.0, 1.0}
    expected = np.arange(N) if order is None else order
    np.testing.assert_array_equal(row[mask == 1], expected)
    # The padding consists of valid rows, too.
    np.testing.assert_array_equal(row, index)


def test_a_process_gets_the_rows_of_its_jax_index(columns, monkeypatch):
    plan = Plan(N, 8, 1)
    monkeypatch.setattr("jax.process_index", lambda: 2)
    monkeypatch.setattr("jax.process_count", lambda: 4)
    for make, size in ((train_batches, plan), (eval_batches, 8)):
        wanted = make(columns, size, process=(2, 4))
        same(take(make(columns, size), 2), take(wanted, 2))


@pytest.mark.parametrize(
    ("size", "count", "rows"),
    [
        (10, 4, [0, 3, 6, 9]),
        (11, 3, [0, 5, 10]),
        (101, 6, [0, 20, 40, 60, 80, 100]),
        (3, 5, [0, 1, 2]),
        (4, None, [0, 1, 2, 3]),
        (9, 1, [0]),
    ],
)
def test_some_rows_of_all_evenly_spaced(size, count, rows):
    assert batches.evenly_spaced(size, count).tolist() == rows


def first(*args, **kwargs):
    return next(train_batches(*args, process=ALONE, **kwargs))


# Functions of (columns, sequences, their lengths), and the error of each.
BAD = [
    (lambda c, e, n: Plan(N, N + 1, 0), "batch size 104 does not fit 103 examples"),
    (lambda c, e, n: eval_batches({"x": np.zeros(0)}, 4), "cannot evaluate 0 examples"),
    (lambda c, e, n: first(c, Plan(99, 9, 0)), "99 examples and the data has 103"),
    (
        lambda c, e, n: train_batches(c, Plan(N, 10, 0), process=(0, 4)),
        "10 does not divide over 4 proc",
    ),
    (lambda c, e, n: Plan(N, 4, 0, n, (40, 20)), "that ascend"),
    (lambda c, e, n: Plan(N, 4, 0, n, (39,)), "longest example has 40, and the last"),
    (
        lambda c, e, n: first(e, Plan(N, N, 0), pad=PAD | {"tokens": 39}),
        "40 does not f",
    ),
]


@pytest.mark.parametrize(("act", "message"), BAD)
def test_bad_requests_are_one_line(columns, sequences, act, message):
    with refused(message):
        act(columns, *sequences)


def test_closing_stops_the_thread(columns):
    before = set(threading.enumerate())
    stream = train_batches(columns, Plan(N, 10, 0), process=ALONE)
    next(stream)
    (thread,) = set(threading.enumerate()) - before
    stream.close()
    stream.close()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_an_open_stream_keeps_no_process_alive():
    code = """
import numpy as np
from lnrepro.data.batches import train_batches
from lnrepro.data.plan import Plan
columns = {"x": np.zeros((100000, 100))}
stream = train_batches(columns, Plan(100000, 128, 0), process=(0, 1))
next(stream)
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
