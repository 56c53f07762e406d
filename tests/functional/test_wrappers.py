"""Zoneout, dropout, stacks, and bidirectional pairs."""

import jax
import numpy as np
import pytest

from lnrepro.functional import (
    DreamerBlockGRUCell,
    GRUCell,
    LSTMCell,
    SimpleCell,
    bidirectional,
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)
from tests.functional.programs import (
    CELLS,
    MEMORY,
    D,
    H,
    T,
    X,
    on_host,
    one_step,
    problem,
    run,
    same,
)


def init(cell):
    return problem(cell)[0]


def sample(cell):
    """Noise of a sequence, as arrays of NumPy."""
    draw = jax.jit(cell.sample)
    return jax.device_get(draw(jax.random.key(5), X[:, 0]))


# Noise


def test_zoneout_keeps_or_moves_each_unit_and_takes_the_expectation_at_test_time():
    plain = LSTMCell(64, "layer")
    cell = zoneout(plain, 0.5, 0.25)
    params = init(cell)
    old = tuple(np.full((2, 64), value, np.float32) for value in (0.3, -0.2))
    new, _ = one_step(plain, params, old, X[:, 0])
    noisy, _ = one_step(cell, params, old, X[:, 0], key=jax.random.key(3))
    for before, after, got, rate in zip(old, new, noisy, (0.5, 0.25), strict=True):
        kept, moved = got == before, np.abs(got - after) < 1e-6
        assert (kept | moved).all()
        assert abs(kept.mean() - rate) < 0.12
    mean, _ = one_step(cell, params, old, X[:, 0])
    same(mean, (0.5 * old[0] + 0.5 * new[0], 0.25 * old[1] + 0.75 * new[1]))


def test_zoneout_of_a_cell_whose_carry_is_h_uses_the_rate_of_h():
    plain = GRUCell(H, "none")
    params, h = init(plain), np.ones((2, H), np.float32)
    new, _ = one_step(plain, params, h, X[:, 0])
    mixed, _ = one_step(zoneout(plain, 0.9, 0.25), params, h, X[:, 0])
    same(mixed, 0.25 * h + 0.75 * new)


def test_variational_dropout_uses_one_mask_for_the_whole_sequence():
    cell = variational_dropout(SimpleCell(H, "none"), 0.5, 0.5)
    params = init(cell)
    noise = sample(cell)
    assert set(np.unique(noise["h"])) <= {0.0, 2.0}
    assert set(np.unique(noise["x"])) <= {0.0, 2.0}
    h, outputs = np.zeros((2, H)), []
    for t in range(T):
        a = (X[:, t] * noise["x"]) @ params["w_x"]
        a = a + (h * noise["h"]) @ params["w_h"] + params["bias"]
        h = np.tanh(a)
        outputs.append(h)
    same(run(cell, params, X, noise=noise).outputs, np.stack(outputs, 1))
    # It does nothing at test time.
    same(run(cell, params, X), run(SimpleCell(H, "none"), params, X))


@pytest.mark.parametrize(
    "cell",
    [
        GRUCell(H, "none", reset="before"),
        DreamerBlockGRUCell(H, hidden_features=5, input_sizes=(D,), blocks=2),
    ],
    ids=["gru", "dreamer"],
)
def test_variational_dropout_reaches_every_product_with_h(cell):
    params = init(cell)
    wrapped = variational_dropout(cell, 0.0, 0.5)
    noise = sample(wrapped)
    dropped = dict(noise, h=np.zeros_like(noise["h"]))

    # A unit of h that all products drop reaches the new h by the update gate alone.
    @jax.jit
    @jax.jacobian
    def slopes_of(h):
        return step(wrapped, params, h, X[:, 0], noise=dropped)[1][0]

    slopes = np.asarray(slopes_of(problem(cell)[1]))[:, 0]
    assert np.diag(slopes).all()
    same(slopes, np.diag(np.diag(slopes)), 0)


# Stacks


@pytest.mark.parametrize("skip", ["none", "graves", "residual"])
def test_a_stack_is_its_cells_one_after_the_other(skip):
    """The first cell has another number of inputs, and the last one of outputs."""
    cells = LSTMCell(5, "layer"), GRUCell(5, "none"), SimpleCell(6, "none")
    cell = stack(*cells, skip=skip)
    params = init(cell)
    below, outputs = X, []
    for one, one_params in zip(cells, params, strict=True):
        y = run(one, one_params, below).outputs
        outputs.append(y)
        if skip == "graves":
            below = np.concatenate([X, y], -1)
        elif skip == "residual" and y.shape == below.shape:
            below = below + y
        else:
            below = y
    if skip == "graves":
        below = np.concatenate(outputs, -1)
    assert cell.features == below.shape[-1]
    same(run(cell, params, X).outputs, below)
    if skip == "none":
        nested = stack(stack(*cells[:2]), cells[2])
        same(run(nested, (params[:2], params[2]), X).outputs, below)


@pytest.mark.parametrize("skip", ["none", "graves", "residual"])
@pytest.mark.parametrize("dropped", [(0,), (1,), (0, 1)])
def test_dropout_in_a_stack_masks_what_a_cell_multiplies(skip, dropped):
    """The skip carries x and the outputs whole."""
    cells = [SimpleCell(H, "none")] * 2
    for index in dropped:
        cells[index] = variational_dropout(cells[index], 0.5, 0.5)
    cell = stack(*cells, skip=skip)
    params = init(cell)
    noise = sample(cell)
    h, outputs = [np.zeros((2, H))] * 2, []
    for x in np.moveaxis(X, 1, 0):
        below = x
        for index in range(2):
            of_x, of_h = 1.0, 1.0
            if index in dropped:
                of_x, of_h = noise[index]["x"], noise[index]["h"]
            a = (below * of_x) @ params[index]["w_x"]
            a += (h[index] * of_h) @ params[index]["w_h"]
            h[index] = np.tanh(a + params[index]["bias"])
            if skip == "graves":
                below = np.concatenate([x, h[index]], -1)
            elif skip == "residual":
                below = below + h[index]
            else:
                below = h[index]
        outputs.append(np.concatenate(h, -1) if skip == "graves" else below)
    same(run(cell, params, X, noise=noise).outputs, np.stack(outputs, 1))


@pytest.mark.parametrize("wrap", [zoneout, variational_dropout])
def test_rates_may_be_traced(wrap):
    params = init(SimpleCell(H, "none"))

    def outputs(rate):
        cell = wrap(SimpleCell(H, "none"), rate, rate)
        return unroll(cell, params, X, key=jax.random.key(0)).outputs

    traced, known = jax.jit(lambda rate: (outputs(rate), outputs(0.5)))(0.5)
    same(traced, known)


def test_wrappers_reach_into_stacks():
    cells = LSTMCell(H, "none"), GRUCell(H, "none")
    of_stack = zoneout(stack(*cells, skip="residual"), 0.3, 0.4)
    assert of_stack == stack(*[zoneout(c, 0.3, 0.4) for c in cells], skip="residual")
    of_stack = variational_dropout(stack(*cells), 0.5, 0.25)
    assert of_stack == stack(*[variational_dropout(c, 0.5, 0.25) for c in cells])
    nested = zoneout(stack(stack(*cells), GRUCell(H, "none")), 0.1)
    inner = [zoneout(c, 0.1) for c in cells]
    assert nested == stack(stack(*inner), zoneout(GRUCell(H, "none"), 0.1))


def test_batch_norm_in_a_stack():
    bottom = CELLS["lstm_batch"]
    cell = stack(bottom, GRUCell(5, "none"), SimpleCell(3, "batch"))
    params = init(cell)
    assert cell.sites == {"0": {"x": 16, "h": 16, "c": 4}, "2": {"x": 3, "h": 3}}
    how = {"seq_lengths": np.array([T, 2])}
    result = run(cell, params, X, **how)
    tables = result.statistics.values
    assert set(tables) == set(cell.sites)
    of_bottom = run(bottom, params[0], X, **how).statistics.values
    same(tables["0"], of_bottom)
    given = run(cell, params, X, statistics=tables, **how)
    same(given.outputs, result.outputs, 1e-5)


# Bidirectional pairs


def test_bidirectional_is_two_runs_side_by_side():
    """Each with its part of all arguments; the second one in reverse."""
    cells = zoneout(LSTMCell(H, "batch"), 0.2, 0.2), CELLS["attention"]
    params, carries = zip(*map(problem, cells), strict=True)
    flags = {
        "seq_lengths": np.array([T, 4]),
        "mask": np.array([[1, 0, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1]], bool),
        "resets": np.array([[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 1]], bool),
        "memory": MEMORY,
    }
    key = jax.random.key(3)
    both = {"initial_carry": carries, "key": key}
    how = {"static_argnums": (0, 1), "static_argnames": "time_major"}
    run_both = on_host(jax.jit(bidirectional, **how))
    result = run_both(*cells, params, X, **flags, **both)
    keys = jax.random.split(key)
    left, right = (
        run(
            cells[number],
            params[number],
            X,
            initial_carry=carries[number],
            key=keys[number],
            reverse=number == 1,
            keep_order=True,
            **flags,
        )
        for number in range(2)
    )
    same(result.carry, (left.carry, right.carry))
    same(result.outputs, np.concatenate([left.outputs, right.outputs], -1))
    flags |= {"mask": flags["mask"].T, "resets": flags["resets"].T}
    time_major = run_both(
        *cells, params, X.swapaxes(0, 1), time_major=True, **flags, **both
    )
    same(time_major.outputs.swapaxes(0, 1), result.outputs)
