"""Weights in the libraries themselves, where they are installed.

Numbers are compared in float64; Keras computes in float32.

Each function builds the library's cell, gives it weights, and returns its outputs over
X and the cell's own weights, as a user finds them. Flax is always installed.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from lnrepro.functional import GRUCell, LSTMCell
from tests.convert.cases import CASES, weights_of
from tests.convert.libraries import B, D, H, T
from tests.convert.test_layouts import X, ours, same

DOUBLE = {"dtype": jnp.float64, "param_dtype": jnp.float64}


def kind_of(cell, *of_kinds):
    """One of three values, for an LSTM, a GRU and a simple RNN."""
    if isinstance(cell, LSTMCell):
        return of_kinds[0]
    return of_kinds[1] if isinstance(cell, GRUCell) else of_kinds[2]


def assert_named(weights, theirs):
    """Check that weights have a library's names and shapes."""
    assert jax.tree.map(np.shape, weights) == jax.tree.map(np.shape, theirs)


def in_torch(case, weights):
    torch = pytest.importorskip("torch")
    module = kind_of(case.cell, torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)
    module = module(D, H, batch_first=True, bias=case.cell.use_bias).double()
    module.load_state_dict({n: torch.as_tensor(a) for n, a in weights.items()})
    return module(torch.as_tensor(X))[0].detach().numpy(), module.state_dict()


def in_keras(case, weights):
    # TensorFlow is not needed.
    os.environ.setdefault("KERAS_BACKEND", "jax")
    layers = pytest.importorskip("keras").layers
    layer = kind_of(case.cell, layers.LSTM, layers.GRU, layers.SimpleRNN)
    options = {"use_bias": case.cell.use_bias}
    if isinstance(case.cell, GRUCell):
        options["reset_after"] = case.cell.reset == "after"
    with jax.enable_x64(False):
        layer = layer(H, return_sequences=True, **options)
        layer.build(X.shape)
        layer.set_weights([weights[w.name] for w in layer.weights])
        return np.asarray(layer(np.float32(X))), {w.name: w for w in layer.weights}


def in_haiku(case, weights):
    hk = pytest.importorskip("haiku")

    def network(x):
        core = kind_of(case.cell, hk.LSTM, hk.GRU, hk.VanillaRNN)(H)
        return hk.dynamic_unroll(core, x, core.initial_state(B), time_major=False)[0]

    network = hk.without_apply_rng(hk.transform(network))
    assert_named(weights, network.init(jax.random.key(0), X))
    return network.apply(weights, X), weights


def in_equinox(case, weights):
    eqx = pytest.importorskip("equinox")
    cell = kind_of(case.cell, eqx.nn.LSTMCell, eqx.nn.GRUCell, None)
    cell = cell(D, H, use_bias=case.cell.use_bias, key=jax.random.key(0))
    cell = eqx.tree_at(
        lambda cell: [getattr(cell, name) for name in weights],
        cell,
        [jnp.asarray(a) for a in weights.values()],
    )

    zeros = jnp.zeros((B, H))
    state, found = kind_of(case.cell, (zeros, zeros), zeros, None), []
    for t in range(T):
        state = jax.vmap(cell)(X[:, t], state)
        found.append(state[0] if isinstance(state, tuple) else state)
    return np.stack(found, 1), vars(cell)


def in_linen(case, weights):
    cell = kind_of(case.cell, nn.LSTMCell, nn.GRUCell, nn.SimpleCell)
    rnn = nn.RNN(cell(H, **DOUBLE))
    names = jax.eval_shape(rnn.init, jax.random.key(0), X)["params"]["cell"]
    assert_named(weights, names)
    return jax.jit(rnn.apply)({"params": {"cell": weights}}, X), weights


def in_nnx(case, weights):
    optimized = case.library == "nnx_optimized"
    lstm = nnx.OptimizedLSTMCell if optimized else nnx.LSTMCell
    cell = kind_of(case.cell, lstm, nnx.GRUCell, nnx.SimpleCell)
    module = cell(D, H, rngs=nnx.Rngs(0), **DOUBLE)
    assert_named(weights, nnx.to_pure_dict(nnx.state(module, nnx.Param)))
    nnx.update(module, weights)
    outputs = nnx.jit(lambda module: nnx.RNN(module)(X))(module)
    return outputs, nnx.state(module, nnx.Param)


RUNS = {
    "flax": in_linen,
    "nnx": in_nnx,
    "torch": in_torch,
    "keras": in_keras,
    "haiku": in_haiku,
    "equinox": in_equinox,
}


@pytest.mark.parametrize("name", [n for n in CASES if n.split("-")[0] in RUNS])
def test_our_cell_computes_what_the_library_does(name):
    case = CASES[name]
    tolerance = 1e-5 if case.library == "keras" else 1e-12
    with jax.enable_x64(True):
        y, own = RUNS[name.split("-")[0]](case, weights_of(name))
        same(ours(case.cell, case.load(own)), np.asarray(y), tolerance)
