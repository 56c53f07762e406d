"""Wrappers inside of wrappers and stacks: their noise, and what each cell gets."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import (
    Cell,
    GRUCell,
    Prepared,
    SimpleCell,
    stack,
    step,
    unroll,
    variational_dropout,
    zoneout,
)
from tests.functional.programs import drawn, same, shapes_of

D, H = 3, 4
PLAIN = SimpleCell(1000, "none")


def zoned(cell, rate):
    return zoneout(cell, rate_h=rate)


NESTS = {
    "twice": (zoned(zoned(PLAIN, 0.3), 0.3), 0.49),
    "three times": (zoned(zoned(zoned(PLAIN, 0.2), 0.3), 0.4), 0.8 * 0.7 * 0.6),
    "around a dropout": (
        zoned(variational_dropout(zoned(PLAIN, 0.3), 0.1), 0.3),
        0.49,
    ),
    "around a stack": (zoned(stack(stack(zoned(PLAIN, 0.2))), 0.5), 0.4),
}


@pytest.mark.parametrize("name", NESTS)
def test_each_wrapper_draws_by_itself(name):
    cell, moved = NESTS[name]

    @jax.jit
    def act():
        shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0), D))
        params = jax.tree.map(lambda a: jnp.zeros(a.shape), shapes)
        x = jnp.ones((1, D))
        carry = jax.tree.map(lambda a: a + 7, cell.initial_carry(params, x))
        return step(cell, params, carry, x, key=jax.random.key(5))[1]

    assert abs(jnp.mean(act() != 7) - moved) < 0.06


def test_the_draws_of_one_wrapper_are_those_of_earlier_versions():
    cell = zoned(SimpleCell(8, "none"), 0.5)
    shapes, _ = shapes_of(cell, D)
    params = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), shapes)
    one_step = jax.jit(step, static_argnums=0)
    ones = np.ones((1, 8), np.float32)
    h, _ = one_step(cell, params, ones, ones[:, :D], key=jax.random.key(5))
    assert np.asarray(h).astype(int).tolist() == [[1, 0, 0, 1, 1, 1, 1, 1]]


def test_rates_of_zero_are_no_noise():
    for cell, is_noisy in (
        (zoneout(GRUCell(H)), False),
        (zoneout(GRUCell(H), 0.1), True),
        (variational_dropout(GRUCell(H), 0, 0.0), False),
        (zoneout(variational_dropout(GRUCell(H), 0.1)), True),
        (stack(GRUCell(H), zoned(GRUCell(H), 0)), False),
    ):
        assert cell.is_noisy == is_noisy
    # A traced rate may be anything.
    jax.eval_shape(lambda rate: [0][not zoned(GRUCell(H), rate).is_noisy], 0.0)


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


@pytest.mark.parametrize("skip", ["none", "graves"])
def test_a_cell_of_a_stack_gets_its_carry_from_its_own_input(skip):
    cells = GRUCell(6), Delay()
    cell = stack(*cells, skip=skip)
    params = drawn(shapes_of(cell, D)[0])
    x = np.random.default_rng(1).standard_normal((2, 5, D)).astype(np.float32)

    @jax.jit
    def both(params, x):
        below = unroll(cells[0], params[0], x).outputs
        given = jnp.concatenate([x, below], -1) if skip == "graves" else below
        top = unroll(cells[1], params[1], given).outputs
        return unroll(cell, params, x).outputs[..., -H:], top

    same(*both(params, x), 1e-5)
