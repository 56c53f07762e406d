"""Properties of a cell over time that hold for every cell.

Steps, batch axes, padding, direction, batch norm, noise, memory and derivatives.
"""

import functools
import itertools
import os
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from lnrepro.functional import (
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)
from tests.functional.programs import (
    AUTODIFF,
    CELLS,
    MEMORY,
    B,
    D,
    H,
    T,
    X,
    at,
    drawn,
    gradients_and_result,
    is_zero,
    one_step,
    problem,
    run,
    same,
)
from tests.refused import refused

MASK = np.array([[1, 1, 0, 1, 1, 0], [0, 1, 1, 1, 1, 1]], bool)
RESETS = np.array([[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1]], bool)
CELL = CELLS["lstm"]
PARAMS, STORED = problem(CELL)
each_cell = pytest.mark.parametrize("name", CELLS)
# A step does not see what is padding, but for batch norm. So few cells run by default,
# which differ in their carries and in what the steps read.
ORDERS = [(False, False), (True, True), (True, False)]
QUICK_ORDERS = {
    ("lstm", False, False),
    ("lstm_batch", True, True),
    ("stack", True, False),
    ("attention", True, True),
}
each_order = pytest.mark.parametrize(
    ("name", "reverse", "keep_order"),
    [
        pytest.param(*case, marks=() if case in QUICK_ORDERS else pytest.mark.slow)
        for case in ((name, *order) for name in CELLS for order in ORDERS)
    ],
)


# Steps and batch axes


@each_cell
def test_steps_equal_the_scan(name):
    """With masks and resets of each row, in `step` as in `unroll`."""
    cell = CELLS[name]
    params, carry = problem(cell)
    whole = {"initial_carry": carry, "mask": MASK, "resets": RESETS, "memory": MEMORY}
    result = run(cell, params, X, **whole)
    tables = None
    if result.statistics is not None:
        tables = result.statistics.values
        given = run(cell, params, X, statistics=tables, **whole)
        same(given.outputs, result.outputs, 1e-5)
    for t in range(T):
        carry, y = one_step(
            cell,
            params,
            carry,
            X[:, t],
            mask=MASK[:, t],
            reset=RESETS[:, t],
            memory=MEMORY,
            statistics=at(tables, t),
        )
        same(y, result.outputs[:, t], 1e-5)
        assert is_zero(y[~MASK[:, t]])
    same(carry, result.carry, 1e-5)


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_step_of_few_rows_has_the_bits_of_unroll(rows):
    params, carry = problem(CELL)
    x = np.resize(X, (rows, T, D))
    carry = jax.tree.map(lambda a: np.resize(a, (rows, H)), carry)
    whole = run(CELL, params, x, initial_carry=carry)
    # Without XLA's optimisations, jax 0.12 rounds the products of a single row apart.
    rounded = rows == 1 and jax.__version_info__ >= (0, 12)
    equal = same if rounded else np.testing.assert_array_equal
    for t in range(T):
        carry, y = one_step(CELL, params, carry, x[:, t])
        equal(y, whole.outputs[:, t])
    jax.tree.map(equal, carry, whole.carry)


@pytest.mark.slow
def test_a_step_has_the_bits_of_unroll_as_users_compile():
    code = """if True:
        import jax, numpy as np
        from lnrepro.functional import LSTMCell, step, unroll

        cell = LSTMCell(8, "layer")
        params = cell.init(jax.random.key(0), 3)
        run = jax.jit(unroll, static_argnums=0)
        one_step = jax.jit(step, static_argnums=0)
        for rows in (1, 2, 4):
            x = jax.random.normal(jax.random.key(1), (rows, 6, 3))
            outputs = run(cell, params, x).outputs
            carry = cell.initial_carry(params, x[:, 0])
            for t in range(6):
                carry, y = one_step(cell, params, carry, x[:, t])
                np.testing.assert_array_equal(y, outputs[:, t])
    """
    environment = os.environ | {"XLA_FLAGS": ""}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_any_number_of_batch_axes():
    x = np.stack([X, X + 1, X - 1], 1)
    lengths = np.array([[6, 0, 2], [1, 4, 6]])
    two = run(CELL, PARAMS, x, seq_lengths=lengths)
    flat = run(CELL, PARAMS, x.reshape(6, T, D), seq_lengths=lengths.reshape(6))
    same(two.outputs, flat.outputs.reshape(2, 3, T, H))
    same(two.carry, jax.tree.map(lambda c: c.reshape(2, 3, H), flat.carry))
    none = run(CELL, PARAMS, x[0, 0])
    same(none.outputs, flat.outputs[0])
    assert none.carry[0].shape == (H,)

    def loss(params, x):
        return jnp.sum(jnp.sin(unroll(CELL, params, x).outputs))

    gradient = jax.jit(jax.grad(loss))
    same(gradient(PARAMS, X[0]), gradient(PARAMS, X[:1, None, None]), 1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows", [0, B])
def test_an_empty_batch_and_no_steps(rows, reverse):
    steps = T if rows == 0 else 0
    carry = at(STORED, slice(rows))

    def state(params, carry):
        result = unroll(
            CELL,
            params,
            X[:rows, :steps],
            initial_carry=carry,
            seq_lengths=np.zeros(rows, int),
            reverse=reverse,
        )
        return jnp.sum(result.carry[0]), result

    gradient, result = jax.jit(jax.grad(state, (0, 1), has_aux=True))(PARAMS, carry)
    same(result.carry, carry)
    assert result.outputs.shape == (rows, steps, H)
    assert is_zero(gradient[0])
    assert (gradient[1][0] == 1).all()


def test_time_major_is_a_transposition():

    batch_major = run(CELL, PARAMS, X, mask=MASK, resets=RESETS)
    x, flags = X.swapaxes(0, 1), {"mask": MASK.T, "resets": RESETS.T}
    result = run(CELL, PARAMS, x, time_major=True, **flags)
    same(batch_major.carry, result.carry)
    same(batch_major.outputs, result.outputs.swapaxes(0, 1))


# Padding and direction


@each_order
def test_padded_steps_are_as_if_absent(name, reverse, keep_order):
    """All rows have the same holes, so that batch norm sees whole steps."""
    cell = CELLS[name]
    params, carry = problem(cell)
    mask, length, valid = np.array([[1, 0, 1, 1, 1, 1]] * B), 4, np.array([0, 2, 3])
    how = {"initial_carry": carry, "memory": MEMORY, "reverse": reverse}
    alone = run(cell, params, X[:, valid], keep_order=keep_order, **how)
    how |= {"mask": mask, "seq_lengths": np.full(B, length)}
    result = run(cell, params, X, keep_order=keep_order, **how)
    # Under jax 0.12 the two programs are 1.4e-6 apart with attention.
    tolerance = 1e-5 if jax.__version_info__ >= (0, 12) else 1e-6
    same(result.carry, alone.carry, tolerance)
    # Without keep_order, step t stands at length - 1 - t.
    rows = valid
    if reverse and not keep_order:
        rows = length - 1 - valid[::-1]
    same(result.outputs[:, rows], alone.outputs, tolerance)
    assert is_zero(np.delete(result.outputs, rows, 1))


def test_a_carry_that_no_valid_step_reads_may_hold_nan():
    """A row without a valid step returns it. Gradients are as without NaN."""
    cell = LSTMCell(H)
    (params, _), x = problem(cell), np.ones((3, T, D), np.float32)
    zeros = (np.zeros((3, H), np.float32),) * 2
    nans = jax.tree.map(np.copy, zeros)
    for part in nans:
        part[1:] = np.nan
    mask, resets = np.ones((3, T), bool), np.zeros((3, T), bool)
    mask[1] = mask[2, :2] = False
    resets[2, 2] = True

    @functools.partial(jax.jit, static_argnames="reverse")
    @functools.partial(jax.grad, has_aux=True)
    def gradient(params, carry, reverse):
        flags = {"mask": mask, "resets": resets}
        if reverse:
            flags = {name: a[:, ::-1] for name, a in flags.items()}
            flags["resets"] = np.roll(flags["resets"], 1, 1)
        result = unroll(cell, params, x, initial_carry=carry, reverse=reverse, **flags)
        return result.outputs.sum(), result.carry

    for reverse in (False, True):
        found, last = gradient(params, nans, reverse)
        same(found, gradient(params, zeros, reverse)[0])
        assert np.isnan(last[0]).any(1).tolist() == [False, True, False]

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def of_step(params, carry):
        carry, y = step(cell, params, carry, x[:, 0], mask=mask[:, 0])
        return y.sum(), carry

    found, last = of_step(params, nans)
    same(found, of_step(params, zeros)[0])
    assert np.isnan(last[1]).any(1).tolist() == [False, True, True]


class State(NamedTuple):
    """A carry of an LSTM with names."""

    c: jax.Array
    h: jax.Array


class Hidden(NamedTuple):
    """The order of Haiku's LSTM."""

    hidden: jax.Array
    cell: jax.Array


def test_a_carry_may_lose_its_tuples():
    """As one that a checkpoint restores without a target."""
    cell = stack(LSTMCell(H, "none"), GRUCell(H, "none"))
    params, _ = problem(cell)
    lstm, gru = run(cell, params, X).carry
    expected = run(cell, params, X, initial_carry=(lstm, gru)).outputs
    for restored in (
        [list(lstm), gru],
        {"0": {"0": lstm[0], "1": lstm[1]}, "1": gru},
        [State(*lstm), gru],
    ):
        same(run(cell, params, X, initial_carry=restored).outputs, expected, 0)
    for other in ((Hidden(*lstm), gru), {"0": lstm, "2": gru}, [gru, lstm]):
        with refused("the carry is", error=ValueError):
            unroll(cell, params, X, initial_carry=other)


def test_a_masked_step_may_hold_nan():
    bad = X[:, 0].copy()
    bad[1] = np.nan

    def loss(params, x):
        mask = np.array([True, False])
        return jnp.sum(step(CELL, params, STORED, x, mask=mask)[1])

    gradient = jax.jit(jax.grad(loss, (0, 1)))
    same(gradient(PARAMS, bad), gradient(PARAMS, X[:, 0]))


@pytest.mark.parametrize(
    ("name", "keep_order", "lengths"),
    [
        *itertools.product(("lstm", "lstm_batch"), (False, True), (None, (4, 6))),
        ("stack", True, (4, 6)),
    ],
)
def test_reverse_equals_running_the_reversed_sequence(name, keep_order, lengths):
    """Also the statistics of batch norm, which count from each sequence's end."""
    cell = CELLS[name]
    params, carry = problem(cell)
    of_rows = lengths or (T, T)

    def flip(sequences):
        rows = zip(sequences, of_rows, strict=True)
        return np.stack([np.concatenate([a[:n][::-1], a[n:]]) for a, n in rows])

    how = {
        "initial_carry": carry,
        "seq_lengths": None if lengths is None else np.array(lengths),
    }
    forward = run(cell, params, flip(X), **how)
    # The order of processing is the default.
    order = {"keep_order": True} if keep_order else {}
    result = run(cell, params, X, reverse=True, **order, **how)
    outputs = flip(forward.outputs) if keep_order else forward.outputs
    same(result.outputs, outputs)
    same((result.carry, result.statistics), (forward.carry, forward.statistics))


# Batch norm


def test_batch_norm_statistics_per_step():
    cell = CELLS["lstm_batch"]
    params, _ = problem(cell)
    result = run(cell, params, X, seq_lengths=np.array([4, 2]))
    statistics = result.statistics
    assert set(statistics.values) == set(cell.sites) == {"x", "h", "c"}
    assert statistics.seen.tolist() == [True] * 4 + [False] * 2
    mean_of_x = (X[:, 0] @ params["w_x"]).mean(0)
    same(statistics.values["x"][0][0], mean_of_x)
    assert run(cell, params, X, statistics=statistics.values).statistics is None


def test_track_moves_the_steps_that_were_seen():
    cell = CELLS["lstm_batch"]
    params, _ = problem(cell)
    batch = run(cell, params, X, seq_lengths=np.array([2, 1])).statistics
    running = jax.tree.map(
        lambda s: np.full((3, s.shape[-1]), 7.0, np.float32), batch.values
    )
    tracked = jax.device_get(jax.jit(functional.track)(running, batch, 0.75))
    moved = jax.tree.map(lambda s: 0.75 * 7 + 0.25 * s[:2], batch.values)
    same(at(tracked, slice(2)), moved)
    same(at(tracked, 2), at(running, 2), 0)

    # T = 6 is more than the three steps of the table: its last row serves those beyond.
    beyond = run(cell, params, X, statistics=tracked)
    longer = jax.tree.map(lambda s: np.concatenate([s, s[2:], s[2:], s[2:]]), tracked)
    same(beyond, run(cell, params, X, statistics=longer))

    def sum_of_tracked(params):
        statistics = unroll(cell, params, X).statistics
        before = jax.tree.map(jnp.asarray, running)
        tracked = functional.track(before, statistics, 0.5)
        return sum(leaf.sum() for leaf in jax.tree.leaves(tracked))

    assert is_zero(jax.jit(jax.grad(sum_of_tracked))(params))


# Noise


def test_one_draw_of_variational_dropout_serves_all_steps():
    plain = CELLS["gru"]
    cell = variational_dropout(plain, 0.5, 0.5)
    params, start = problem(cell)
    key = jax.random.key(3)
    noise = jax.device_get(jax.jit(cell.sample)(key, X[:, 0]))
    _, noisy = one_step(cell, params, start, X[:, 0], key=key)
    _, quiet = one_step(cell, params, start, X[:, 0])
    assert np.abs(noisy - quiet).max() > 1e-3
    same(quiet, one_step(plain, params, start, X[:, 0])[1])

    carry, whole = start, run(cell, params, X, noise=noise, initial_carry=start)
    for t in range(T):
        carry, y = one_step(cell, params, carry, X[:, t], noise=noise)
        same(y, whole.outputs[:, t])


def test_the_key_draws_the_noise():
    cell = zoneout(variational_dropout(LSTMCell(H, "none"), 0.3, 0.3), 0.3, 0.3)
    params, _ = problem(cell)
    first, again, other = (
        run(cell, params, X, key=jax.random.key(seed)).outputs for seed in (0, 0, 1)
    )
    same(first, again, 0)
    assert np.abs(first - other).max() > 1e-3


# Memory


def test_memory_reaches_every_step_and_gets_gradients():
    """A cell that adds its memory to W_x x, against one that sees it in x."""

    class Reader(LSTMCell):
        def step(self, dot, params, carry, x, context):
            def dot_and_memory(name, v):
                product = dot(name, v)
                return product + context.memory if name == "w_x" else product

            return super().step(dot_and_memory, params, carry, x, context)

    cell, plain = Reader(H, "none"), LSTMCell(H, "none")
    params, carry = problem(plain)
    memory = drawn(jax.ShapeDtypeStruct((B, 4 * H), jnp.float32))

    def of_input(memory):
        # One more input feature per sequence selects its row of the kernel.
        ones = jnp.broadcast_to(jnp.eye(B)[:, None], (B, T, B))
        wider = params | {"w_x": jnp.concatenate([params["w_x"], memory])}
        x = jnp.concatenate([X, ones], -1)
        return unroll(plain, wider, x, initial_carry=carry).outputs

    def of_memory(memory, options=None):
        how = {"memory": memory, "initial_carry": carry, "options": options}
        return unroll(cell, params, X, **how).outputs

    def gradient_and_outputs(function):
        def loss(memory):
            outputs = function(memory)
            return jnp.sum(jnp.sin(outputs)), outputs

        return jax.jit(jax.grad(loss, has_aux=True))(memory)

    expected = gradient_and_outputs(of_input)
    for options in (None, AUTODIFF):
        found = gradient_and_outputs(functools.partial(of_memory, options=options))
        same(found, expected, 1e-5)


# Derivatives

GRU_AND_SIMPLE = stack(GRUCell(H, "none"), SimpleCell(H, "rms"), skip="graves")
LSTM_AND_GRU = stack(GRUCell(H, "none"), LSTMCell(H, "rms"), skip="graves")
DERIVED = {
    **CELLS,
    "zoneout": zoneout(CELLS["lstm"], 0.3, 0.3),
    "variational": variational_dropout(CELLS["projected"], 0.3, 0.3),
    "small_stack": zoneout(variational_dropout(GRU_AND_SIMPLE, 0.3, 0.3), 0.3, 0.3),
    "noisy_stack": zoneout(variational_dropout(LSTM_AND_GRU, 0.3, 0.3), 0.3, 0.3),
    "user_stack": stack(CELLS["projected"], CELLS["attention"], SimpleCell(3)),
}
IN_CHUNKS = ScanOptions(save="carries", chunk=2, platform="gpu")
# One cell is run in both ways, one of each other kind in one. All are so slowly.
QUICK = [("lstm", None), ("lstm", IN_CHUNKS), ("attention", None)]
QUICK += [("small_stack", IN_CHUNKS)]
OTHERS = [
    pytest.param(name, options, marks=pytest.mark.slow)
    for name in DERIVED
    for options in (None, IN_CHUNKS)
    if (name, options) not in QUICK
]


@pytest.mark.parametrize(("name", "options"), [*QUICK, *OTHERS])
def test_lean_gradients_equal_those_of_autodiff(x64, name, options):
    """With padding, resets, carries and noise: of params, x, carry and memory."""
    cell = DERIVED[name]
    params, carry = problem(cell, jnp.float64)
    arguments = params, X.astype(float), carry, MEMORY.astype(float)
    how = {
        "seq_lengths": np.array([6, 4]),
        "resets": np.arange(T) == np.array([[3], [5]]),
        "reverse": name in ("gru", "attention"),
        "key": jax.random.key(2) if cell.is_noisy else None,
    }
    plain = gradients_and_result(cell, *arguments, options=AUTODIFF, **how)
    assert is_zero(plain[0][3]) == (name not in ("attention", "user_stack"))
    found = gradients_and_result(cell, *arguments, options=options, **how)
    same(found, plain, 1e-10)
