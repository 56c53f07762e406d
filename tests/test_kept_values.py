"""Cells and modules keep their parameters' names, starting values and numbers.

Checkpoints and seeds of earlier versions depend on them. The numbers were computed by
version 0.2.0: a weighted sum, the sum of the sizes, and the count, of all parameters
and of the outputs.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lnrepro import functional, linen
from lnrepro import nnx as lnnx

X = jnp.sin(jnp.arange(2 * 5 * 3, dtype=jnp.float32)).reshape(2, 5, 3)
PEEPHOLES = functional.LSTMCell(4, peephole=True, forget_bias=1.0)
LAYERS = functional.stack(functional.LSTMCell(4), functional.DreamerGRUCell(4, "rms"))

# Cell: its parameters for key 0, its outputs.
CELLS = {
    functional.LSTMCell(4): ((-2.36543, 85.6593, 200), (-0.76926, 11.6711, 40)),
    PEEPHOLES: ((0.07706, 89.6593, 212), (-0.76345, 11.52474, 40)),
    functional.LSTMCell(4, "weight", learned_carry=True): (
        (1.27434, 79.55398, 168),
        (0.07826, 3.06143, 40),
    ),
    functional.LSTMCell(4, norm_site="joint", cell_norm="carry"): (
        (-2.13199, 69.6593, 152),
        (-0.64552, 12.13553, 40),
    ),
    functional.GRUCell(4): ((0.29612, 61.80683, 144), (0.9891, 12.9195, 40)),
    functional.GRUCell(4, "rms", reset="before"): (
        (1.91251, 61.80683, 120),
        (-0.66209, 17.20079, 40),
    ),
    functional.SimpleCell(4): ((2.21654, 16.54493, 36), (-1.09245, 22.28929, 40)),
    functional.DreamerGRUCell(4): ((2.0404, 49.80683, 120), (0.0285, 4.65516, 40)),
    functional.DreamerBlockGRUCell(
        4, hidden_features=3, input_sizes=(2, 1), blocks=2
    ): ((0.31054, 47.69992, 127), (-0.00851, 1.59049, 40)),
    functional.stack(
        functional.LSTMCell(4), functional.GRUCell(4, "none"), skip="graves"
    ): ((7.29543, 132.64919, 344), (1.37707, 19.75967, 80)),
}

# Module: its parameters. Their outputs are those of the functions.
LINEN = {
    linen.LSTM(4): (-8.27028, 87.13292, 200),
    linen.GRU(4, norm="none"): (0.73146, 38.81627, 96),
    linen.SimpleRNN(4): (-0.93854, 17.49317, 36),
    linen.RNN(linen.GRUCell(4)): (-0.21157, 60.76121, 144),
    linen.RNN(PEEPHOLES): (-3.054, 91.13902, 212),
    linen.RNN(LAYERS): (-0.83486, 138.2351, 320),
}
NNX = [
    (functools.partial(lnnx.LSTM, 3, 4), (7.45828, 85.04661, 200)),
    (functools.partial(lnnx.GRU, 3, 4, norm="weight"), (-3.78364, 59.42922, 120)),
    (functools.partial(lnnx.SimpleRNN, 3, 4), (-1.41134, 14.75962, 36)),
    (functools.partial(lnnx.RNN, LAYERS, in_features=3), (-5.3349, 137.25258, 320)),
]


def summary(tree):
    """A weighted sum of all numbers in a tree, the sum of their sizes, their count."""
    leaves = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)]
    values = np.concatenate(leaves)
    weights = np.cos(np.arange(values.size))
    return float(values @ weights), float(np.abs(values).sum()), values.size


@pytest.mark.parametrize("cell", CELLS)
def test_functional(cell):
    parameters, outputs = CELLS[cell]
    params = cell.init(jax.random.key(0), features_in=3)
    assert summary(params) == pytest.approx(parameters, abs=2e-5)
    found = functional.unroll(cell, params, X).outputs
    assert summary(found) == pytest.approx(outputs, abs=2e-4)


@pytest.mark.parametrize("module", LINEN)
def test_linen(module):
    variables = jax.jit(module.init)(jax.random.key(0), X)
    assert summary(variables["params"]) == pytest.approx(LINEN[module], abs=2e-4)


@pytest.mark.parametrize(("make", "parameters"), NNX)
def test_nnx(make, parameters):
    params = nnx.to_pure_dict(nnx.state(make(rngs=nnx.Rngs(0)), nnx.Param))
    assert summary(params) == pytest.approx(parameters, abs=2e-4)


def test_names_of_parameters():
    names = ["bias", "bias_c", "bias_h", "bias_x", "gain_c", "gain_h", "gain_x"]
    names += ["w_h", "w_x"]
    key = jax.random.key(0)
    assert sorted(linen.LSTM(4).init(key, X)["params"]) == names
    stacked = linen.RNN(LAYERS).init(key, X)["params"]["cell"]
    assert sorted(stacked["0"]) == names
    assert sorted(stacked["1"]) == ["bias", "gain_joint", "w_h", "w_x"]
    stacked = lnnx.RNN(LAYERS, in_features=3, rngs=nnx.Rngs(0))
    params = nnx.to_pure_dict(nnx.state(stacked, nnx.Param))
    assert sorted(params["cell"]["cells"][0]) == names
