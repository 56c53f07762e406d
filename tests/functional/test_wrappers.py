"""Zoneout, dropout, stacks, wrappers inside of each other, and bidirectional pairs."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import (
    Cell,
    DreamerBlockGRUCell,
    GRUCell,
    LSTMCell,
    Prepared,
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
    shapes_of,
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
    kept = [got == before for got, before in zip(noisy, old, strict=True)]
    for here, after, got, rate in zip(kept, new, noisy, (0.5, 0.25), strict=True):
        assert (here | (np.abs(got - after) < 1e-6)).all()
        assert abs(here.mean() - rate) < 0.12
    # c and h draw apart.
    assert (kept[1] & ~kept[0]).any()
    mean, _ = one_step(cell, params, old, X[:, 0])
    same(mean, (0.5 * old[0] + 0.5 * new[0], 0.25 * old[1] + 0.75 * new[1]))


def test_draws_are_those_of_earlier_versions():
    """Of a sequence, each step and each wrapper of another."""
    cell = zoneout(SimpleCell(D, "none"), rate_h=0.3)
    cell = zoneout(variational_dropout(cell, rate_x=0.5), rate_h=0.3)
    params = {"w_x": np.eye(D), "w_h": np.zeros((D, D)), "bias": np.zeros(D)}
    first, x = np.full((2, D), 3.0), np.ones((2, 4, D))
    params, x, first = jax.tree.map(np.float32, (params, x, first))
    found = run(cell, params, x, initial_carry=first, key=jax.random.key(5)).outputs
    # A unit was kept at 3, moved to its input, or lost it.
    assert found[0].round().astype(int).tolist() == [
        [3, 3, 3, 3],
        [0, 0, 3, 3],
        [0, 0, 0, 3],
        [0, 0, 0, 3],
    ]
    assert found[1, -1].round().astype(int).tolist() == [1, 1, 0, 1]


def test_variational_dropout_uses_one_mask_for_the_whole_sequence():
    cell = variational_dropout(SimpleCell(H, "none"), 0.5, 0.5)
    params, noise = init(cell), sample(cell)
    assert set(np.unique([noise["x"], noise["h"]])) == {0.0, 2.0}
    assert (noise["x"] != noise["h"]).any()
    h, outputs = np.zeros((2, H)), []
    for x in np.moveaxis(X, 1, 0):
        a = (x * noise["x"]) @ params["w_x"] + (h * noise["h"]) @ params["w_h"]
        h = np.tanh(a + params["bias"])
        outputs.append(h)
    same(run(cell, params, X, noise=noise).outputs, np.stack(outputs, 1))


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


def test_rates_of_zero_are_no_noise():
    for cell, is_noisy in (
        (zoneout(GRUCell(H)), False),
        (zoneout(GRUCell(H), 0.1), True),
        (variational_dropout(GRUCell(H), 0, 0.0), False),
        (zoneout(variational_dropout(GRUCell(H), 0.1)), True),
        (stack(GRUCell(H), zoneout(GRUCell(H))), False),
    ):
        assert cell.is_noisy == is_noisy


# Stacks


@pytest.mark.parametrize("skip", ["none", "graves", "residual"])
def test_a_stack_is_its_cells_one_after_the_other(skip):
    """The first cell has other numbers of inputs and outputs.

    What a cell drops, the skip carries whole.
    """
    cells = SimpleCell(6, "none"), LSTMCell(5, "layer"), GRUCell(5, "none")
    cells = [variational_dropout(cell, 0.5, 0.5) for cell in cells]
    cell = stack(*cells, skip=skip)
    params, noise = init(cell), sample(cell)
    below, outputs = X, []
    for one, one_params, one_noise in zip(cells, params, noise, strict=True):
        y = run(one, one_params, below, noise=one_noise).outputs
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
    same(run(cell, params, X, noise=noise).outputs, below)


def test_wrappers_reach_into_stacks():
    cells = LSTMCell(H, "none"), stack(GRUCell(H, "none"), SimpleCell(H))
    of_stack = zoneout(stack(*cells, skip="residual"), 0.3, 0.4)
    assert of_stack == stack(*[zoneout(c, 0.3, 0.4) for c in cells], skip="residual")
    of_stack = variational_dropout(stack(*cells), 0.5, 0.25)
    assert of_stack == stack(*[variational_dropout(c, 0.5, 0.25) for c in cells])


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


@dataclasses.dataclass(frozen=True)
class Delay(Cell):
    """The sum of x and the x before it; the carry has the size of x."""

    features: int = H

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters."""
        return {"w_x": jax.random.normal(key, (features_in, self.features), dtype)}

    def initial_carry(self, params, x):
        """Return the x before the first one, and no output."""
        return jnp.zeros_like(x), jnp.zeros((*x.shape[:-1], self.features), x.dtype)

    def prepare(self, params):
        """Return the weight."""
        return Prepared(dict(params), {})

    def step(self, dot, params, carry, x, context):
        """Take one step."""
        return (x, dot("w_x", x + carry[0])), None

    def output(self, carry):
        """Return the output."""
        return carry[1]


def test_a_cell_of_a_stack_gets_its_carry_from_its_own_input():
    cells = GRUCell(6), Delay()
    cell = stack(*cells, skip="graves")
    params = init(cell)

    @jax.jit
    def both(params, x):
        below = unroll(cells[0], params[0], x).outputs
        given = jnp.concatenate([x, below], -1)
        top = unroll(cells[1], params[1], given).outputs
        return unroll(cell, params, x).outputs[..., -H:], top

    same(*both(params, X), 1e-5)


# Wrappers inside of each other


def test_each_wrapper_and_each_cell_draws_by_itself():
    """A unit moves where no zoneout around it keeps it."""
    plain, keep = SimpleCell(1000, "none"), functools.partial(zoneout, rate_h=0.3)
    first = variational_dropout(keep(plain), 0.1)
    cell = keep(stack(first, stack(keep(plain))))
    params = jax.tree.map(lambda a: np.zeros(a.shape), shapes_of(cell)[0])
    carry = jax.tree.map(lambda a: np.full(a.shape, 7.0), shapes_of(cell, rows=1)[1])
    new, _ = one_step(cell, params, carry, np.ones((1, D)), key=jax.random.key(5))
    moved = np.array(jax.tree.leaves(new)) != 7
    assert np.abs(moved.mean((1, 2)) - 0.49).max() < 0.06
    assert abs(moved.all(0).mean() - 0.49**2) < 0.06


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
    flags |= {"mask": flags["mask"].T, "resets": flags["resets"].T}
    how = {"static_argnums": (0, 1), "static_argnames": "time_major"}
    both = {"initial_carry": carries, "key": key, "time_major": True, **flags}
    run_both = on_host(jax.jit(bidirectional, **how))
    result = run_both(*cells, params, X.swapaxes(0, 1), **both)
    same(result.carry, (left.carry, right.carry))
    outputs = np.concatenate([left.outputs, right.outputs], -1)
    same(result.outputs.swapaxes(0, 1), outputs)
