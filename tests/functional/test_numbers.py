"""Numbers among the options of a cell may be traced, and have derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import (
    DreamerBlockGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    unroll,
    variational_dropout,
    zoneout,
)
from tests.functional.programs import drawn, same, shapes_of

D, H = 4, 4
X = np.random.default_rng(0).standard_normal((2, 3, D))
CELLS = {
    "gru": functools.partial(GRUCell, H, "batch"),
    "blocks": functools.partial(
        DreamerBlockGRUCell, H, hidden_features=3, input_sizes=(D,), blocks=2
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_epsilon(x64, name):
    options = ScanOptions(platform="gpu" if name == "gru" else "cpu")
    params = drawn(shapes_of(CELLS[name](), D, jnp.float64)[0])

    def loss(params, epsilon):
        cell = CELLS[name](epsilon=epsilon)
        return jnp.sum(unroll(cell, params, X, options=options).outputs ** 2)

    @jax.jit
    def of_all(params, epsilon):
        around = jnp.stack([epsilon - 1e-5, epsilon + 1e-5])
        traced = jax.grad(loss, (0, 1))(params, epsilon)
        known = jax.grad(loss)(params, 0.01)
        return traced, known, jax.vmap(loss, (None, 0))(params, around)

    traced, known, (below, above) = jax.device_get(of_all(params, 0.01))
    same(traced[0], known, 1e-10)
    slope = (above - below) / 2e-5
    assert slope != 0
    same(traced[1], slope, 1e-4)


def test_clip_of_gradients_bias_of_forget_gate_and_rates(x64):
    params = drawn(shapes_of(LSTMCell(H), D, jnp.float64)[0])

    def gradient(limit, forget, rate):
        cell = LSTMCell(H, gradient_clip=limit, forget_bias=forget)
        jax.eval_shape(lambda: cell.init(jax.random.key(0), D))
        cell = zoneout(variational_dropout(cell, rate, rate), rate, rate)

        def loss(params):
            return 50 * jnp.sum(unroll(cell, params, X, key=jax.random.key(1)).outputs)

        return jax.grad(loss)(params)

    traced = jax.jit(gradient)
    found, known = traced(0.1, 1.0, 0.2), jax.jit(lambda: gradient(0.1, 1.0, 0.2))()
    same(found, known, 1e-10)
    of_less = traced(0.01, 1.0, 0.2)
    assert np.abs(of_less["w_h"] - known["w_h"]).max() > 1e-3


def test_the_scale_of_a_loss_scales_the_limit(x64):
    params = drawn(shapes_of(LSTMCell(H), D, jnp.float64)[0])

    @jax.jit
    def gradient(scale):
        cell = LSTMCell(H, gradient_clip=0.1 * scale)

        def loss(params):
            return scale * 50 * jnp.sum(unroll(cell, params, X).outputs)

        return jax.tree.map(lambda d: d / scale, jax.grad(loss)(params))

    same(gradient(1024.0), gradient(1.0), 1e-10)
