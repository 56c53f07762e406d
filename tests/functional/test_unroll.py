"""Properties of a cell over time that hold for every cell.

Steps, padding, direction, batch norm, noise and derivatives.
"""

import collections
import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from lnrepro.functional import (
    DreamerBlockGRUCell,
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
from lnrepro.functional.arguments import carry_like
from tests.functional.programs import (
    AUTODIFF,
    CELLS,
    MEMORY,
    D,
    H,
    T,
    X,
    at,
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


# Steps


# With fewer than eight rows, a step equals the scan to rounding.
ROWS = 8
ACTORS = {
    **CELLS,
    "dreamer": DreamerBlockGRUCell(H, hidden_features=5, input_sizes=(3, 1), blocks=2),
}


@pytest.mark.parametrize("name", ACTORS)
def test_steps_have_the_bits_of_the_scan(name):
    """With masks and resets of each row: acting, and the replay of what was acted."""
    cell = ACTORS[name]
    tiles = ROWS // len(X)
    x, mask, resets, memory = (
        np.concatenate([a] * tiles) for a in (X, MASK, RESETS, MEMORY)
    )
    params, carry = problem(cell)
    carry = jax.tree.map(lambda a: np.concatenate([a] * tiles), carry)
    whole = {"initial_carry": carry, "mask": mask, "resets": resets, "memory": memory}
    result = run(cell, params, x, **whole)
    # Without XLA's optimisations, jax 0.12 rounds a masked step of a GRU apart.
    tables, tolerance = None, 1e-6 if jax.__version_info__ >= (0, 12) else 0
    if result.statistics is not None:
        tables, tolerance = result.statistics.values, 1e-5
        given = run(cell, params, x, statistics=tables, **whole)
        same(given.outputs, result.outputs, tolerance)
    for t in range(T):
        carry, y = one_step(
            cell,
            params,
            carry,
            x[:, t],
            mask=mask[:, t],
            reset=resets[:, t],
            memory=memory,
            statistics=at(tables, t),
        )
        same(y, result.outputs[:, t], tolerance)
        assert is_zero(y[~mask[:, t]])
    same(carry, result.carry, tolerance)


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


def test_an_empty_batch_and_no_steps():
    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1), has_aux=True)
    def gradient(params, carry, x):
        lengths = np.zeros(len(x), int)
        result = unroll(CELL, params, x, initial_carry=carry, seq_lengths=lengths)
        return jnp.sum(result.carry[0]), result

    for x in (X[:0], X[:, :0]):
        carry = at(STORED, slice(len(x)))
        d, result = gradient(PARAMS, carry, x)
        same(result.carry, carry)
        assert result.outputs.shape == (*x.shape[:2], H)
        assert is_zero(d[0])
        assert (d[1][0] == 1).all()


# Padding and direction


@pytest.mark.parametrize("reverse", [False, True])
def test_a_carry_and_inputs_that_no_valid_step_reads_may_hold_nan(reverse):
    """A row without a valid step returns its carry. Gradients are as without NaN."""
    cell = LSTMCell(H)
    params, _ = problem(cell)
    mask = np.array([[1] * T, [0] * T, [0, 0, 1, 1, 1, 1]], bool)
    resets = np.arange(T) == np.array([[-1], [-1], [2]])
    first = 0
    if reverse:
        # A reset stands behind the last step of the sequence before it.
        first = T - 1
        mask, resets = mask[:, ::-1], np.roll(resets[:, ::-1], 1, 1)
    x = np.where(mask[..., None], np.ones(D, np.float32), np.nan)
    carry = np.where([[False], [True], [True]], np.nan, np.zeros(H, np.float32))

    @jax.jit
    def gradients(params, x, carry):
        def of_sequence(params, x):
            flags = {"mask": mask, "resets": resets, "reverse": reverse}
            result = unroll(cell, params, x, initial_carry=(carry, carry), **flags)
            return result.outputs.sum(), result.carry

        def of_step(params, x):
            flags = {"mask": mask[:, first]}
            new, y = step(cell, params, (carry, carry), x[:, first], **flags)
            return y.sum(), new

        functions = of_sequence, of_step
        return [jax.grad(f, (0, 1), has_aux=True)(params, x) for f in functions]

    found = gradients(params, x, carry)
    expected = gradients(params, np.nan_to_num(x), np.nan_to_num(carry))
    same([d for d, _ in found], [d for d, _ in expected])
    kept = [np.isnan(new[0]).any(1).tolist() for _, new in found]
    assert kept == [[False, True, False], [False, True, True]]


# The order of Haiku's LSTM.
Hidden = collections.namedtuple("Hidden", "hidden cell")


def test_a_carry_may_lose_its_tuples():
    """As one that a checkpoint restores without a target."""
    cell = stack(LSTMCell(H, "none"), GRUCell(H, "none"))
    params, (lstm, gru) = problem(cell)
    carries = (
        (lstm, gru),
        [list(lstm), gru],
        {"0": {"0": lstm[0], "1": lstm[1]}, "1": gru},
    )

    @jax.jit
    def outputs():
        return [step(cell, params, carry, X[:, 0])[1] for carry in carries]

    expected, *others = outputs()
    for found in others:
        same(found, expected, 0)
    for other in ((Hidden(*lstm), gru), {"0": lstm, "2": gru}, [gru, lstm]):
        with refused("the carry is", error=ValueError):
            unroll(cell, params, X, initial_carry=other)
    # Names are sorted as text.
    many = tuple(map(jnp.float32, range(11)))
    by_name = {str(number): a for number, a in enumerate(many)}
    assert carry_like("step", many, by_name) == many


@pytest.mark.parametrize(
    ("name", "keep_order", "lengths"),
    [
        ("lstm", False, None),
        ("lstm", False, (4, 6)),
        ("lstm", True, (4, 6)),
        ("lstm_batch", True, None),
        ("lstm_batch", True, (4, 6)),
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


def test_statistics_of_batch_norm_and_how_they_are_tracked():
    cell = CELLS["lstm_batch"]
    params, _ = problem(cell)
    batch = run(cell, params, X, seq_lengths=np.array([2, 1])).statistics
    assert batch.values.keys() == cell.sites.keys() == {"x", "h", "c"}
    assert batch.seen.tolist() == [True] * 2 + [False] * 4
    same(batch.values["x"][0][0], (X[:, 0] @ params["w_x"]).mean(0))

    # Only steps that were seen move.
    running = jax.tree.map(lambda s: jnp.full((3, s.shape[-1]), 7.0), batch.values)
    track = jax.jit(functional.track)
    tracked = jax.device_get(track(running, batch, 0.75))
    moved = jax.tree.map(lambda s: 0.75 * 7 + 0.25 * s[:2], batch.values)
    same(at(tracked, slice(2)), moved)
    same(at(tracked, 2), at(running, 2), 0)
    # A table may have more steps than the batch.
    longer = jax.tree.map(lambda s: jnp.concatenate([s] * 3), running)
    same(at(track(longer, batch, 0.75), slice(3)), tracked)

    # T = 6 is more than the three steps of the table: its last row serves those beyond.
    beyond = run(cell, params, X, statistics=tracked)
    longer = jax.tree.map(lambda s: np.concatenate([s, s[2:], s[2:], s[2:]]), tracked)
    same(beyond, run(cell, params, X, statistics=longer))
    assert beyond.statistics is None

    @jax.jit
    @jax.grad
    def gradient(params):
        batch = unroll(cell, params, X).statistics
        tracked = functional.track(running, batch, 0.5)
        return sum(leaf.sum() for leaf in jax.tree.leaves(tracked))

    assert is_zero(gradient(params))


# Noise


def test_the_key_draws_the_noise_of_a_sequence_once():
    plain, key = CELLS["gru"], jax.random.key(3)
    cell = variational_dropout(plain, 0.3, 0.3)
    params, start = problem(cell)

    @jax.jit
    def act():
        noise = cell.sample(jax.random.split(key)[1], X[:, 0])
        ways = {"key": key}, {"noise": noise}, {}
        sequences = [unroll(cell, params, X, **way).outputs for way in ways]
        steps = [step(cell, params, start, X[:, 0], **way)[1] for way in ways]
        return sequences, steps, unroll(plain, params, X).outputs

    sequences, steps, expected = act()
    for of_key, of_noise, without in (sequences, steps):
        same(of_key, of_noise)
        assert np.abs(of_key - without).max() > 1e-3
    same(sequences[2], expected)


# Derivatives

GRU_AND_SIMPLE = stack(GRUCell(H, "none"), SimpleCell(H, "rms"), skip="graves")
DERIVED = {
    **ACTORS,
    "noisy_stack": zoneout(variational_dropout(GRU_AND_SIMPLE, 0.3, 0.3), 0.3, 0.3),
    "user_stack": stack(CELLS["projected"], CELLS["attention"], SimpleCell(3)),
}
IN_CHUNKS = ScanOptions(save="carries", chunk=2, platform="gpu")
# test_cells.py holds the cells of the paper to other derivatives.
QUICK = [("attention", None), ("dreamer", None), ("noisy_stack", IN_CHUNKS)]
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
