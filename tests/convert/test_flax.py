"""Converted weights give the outputs that Flax itself computes, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from lnrepro import convert
from lnrepro.functional import GRUCell, LSTMCell, SimpleCell, unroll
from tests.convert.libraries import D, H, X, draw

# Flax's biases start as zeros, which would hide a wrong order of the gates.
NORMAL = nn.initializers.normal(0.5)
LSTM = LSTMCell(H, "none"), convert.lstm_from_flax, convert.lstm_to_flax
GRU = (
    GRUCell(H, "none", recurrent_bias=True),
    convert.gru_from_flax,
    convert.gru_to_flax,
)
RNN = SimpleCell(H, "none"), convert.rnn_from_flax, convert.rnn_to_flax
LINEN_CELLS = {
    "lstm": (nn.LSTMCell, *LSTM),
    "optimized-lstm": (nn.OptimizedLSTMCell, *LSTM),
    "gru": (nn.GRUCell, *GRU),
    "simple": (nn.SimpleCell, *RNN),
}


def optimized_to_nnx(params):
    """Convert into the layout of nnx.OptimizedLSTMCell."""
    return convert.lstm_to_nnx(params, optimized=True)


NNX_CELLS = {
    "lstm": (
        nnx.LSTMCell,
        LSTMCell(H, "none"),
        convert.lstm_from_nnx,
        convert.lstm_to_nnx,
    ),
    "optimized-lstm": (
        nnx.OptimizedLSTMCell,
        LSTMCell(H, "none"),
        convert.lstm_from_nnx,
        optimized_to_nnx,
    ),
    "gru": (nnx.GRUCell, GRUCell(H, "none"), convert.gru_from_nnx, convert.gru_to_nnx),
    "simple": (
        nnx.SimpleCell,
        SimpleCell(H, "none"),
        convert.rnn_from_nnx,
        convert.rnn_to_nnx,
    ),
}


def random_params(cell):
    """Parameters of a cell of ours whose every entry is a random number."""
    shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0), D))
    return {name: draw(*a.shape) for name, a in shapes.items()}


def same(a, b):
    """Assert that outputs are equal up to rounding."""
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def same_tree(a, b):
    """Assert that two trees have the same names and shapes."""
    assert jax.tree.map(np.shape, dict(a)) == jax.tree.map(np.shape, dict(b))


@pytest.mark.parametrize("case", LINEN_CELLS.values(), ids=LINEN_CELLS)
def test_linen(case):
    cell_type, ours, from_flax, to_flax = case
    with jax.enable_x64(True):
        x = jnp.asarray(X)
        theirs = nn.RNN(cell_type(H, bias_init=NORMAL, param_dtype=jnp.float64))
        run_theirs = jax.jit(theirs.apply)
        run_ours = jax.jit(lambda params: unroll(ours, params, x).outputs)
        variables = theirs.init(jax.random.key(0), x)
        tree = variables["params"]["cell"]

        same(run_ours(from_flax(tree)), run_theirs(variables, x))

        params = random_params(ours)
        back = to_flax(params)
        same_tree(back, tree)
        same(run_theirs({"params": {"cell": back}}, x), run_ours(params))


@pytest.mark.parametrize("case", NNX_CELLS.values(), ids=NNX_CELLS)
def test_nnx(case):
    cell_type, ours, from_nnx, to_nnx = case
    with jax.enable_x64(True):
        x = jnp.asarray(X)
        options = {"dtype": jnp.float64, "param_dtype": jnp.float64}
        cell = cell_type(D, H, bias_init=NORMAL, rngs=nnx.Rngs(0), **options)
        theirs = nnx.RNN(cell)
        run_theirs = nnx.jit(lambda module: module(x))
        run_ours = jax.jit(lambda params: unroll(ours, params, x).outputs)
        tree = nnx.to_pure_dict(nnx.state(cell, nnx.Param))

        outputs = run_theirs(theirs)
        same(run_ours(from_nnx(tree)), outputs)
        # A State of nnx.Param needs no conversion into a dict.
        same(run_ours(from_nnx(nnx.state(cell, nnx.Param))), outputs)

        params = random_params(ours)
        back = to_nnx(params)
        same_tree(back, tree)
        nnx.update(cell, back)
        same(run_theirs(theirs), run_ours(params))


def test_nnx_gru_has_no_recurrent_bias_of_the_candidate():
    params = random_params(GRUCell(H, "none", recurrent_bias=True))
    with pytest.raises(ValueError, match=r"flax\.nnx\.GRUCell has no place"):
        convert.gru_to_nnx(params)
    # The biases of the gates are added to the input's.
    params["bias_recurrent"][2 * H :] = 0
    same_bias = convert.gru_from_nnx(convert.gru_to_nnx(params))["bias"]
    same(same_bias, params["bias"] + params["bias_recurrent"])
