"""Weights in the libraries themselves, where they are installed.

Numbers are compared in float64; Keras computes in float32.

Each function builds the library's cell, gives it weights, and returns its outputs over
X and the cell's own weights, as a user finds them.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from lnrepro import convert
from lnrepro.functional import GRUCell, LSTMCell
from tests.convert.cases import CASES
from tests.convert.libraries import B, D, H
from tests.convert.test_layouts import X, ours, parameters, same

DOUBLE = {"dtype": jnp.float64, "param_dtype": jnp.float64}


def kind(cell, *of_kinds):
    """One of three values, for an LSTM, a GRU and a simple RNN."""
    if isinstance(cell, LSTMCell):
        return of_kinds[0]
    return of_kinds[1] if isinstance(cell, GRUCell) else of_kinds[2]


def in_torch(case, weights):
    torch = pytest.importorskip("torch")
    module = kind(case.cell, torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)
    module = module(D, H, batch_first=True, bias=case.cell.use_bias).double()
    module.load_state_dict({n: torch.as_tensor(a) for n, a in weights.items()})
    return module(torch.as_tensor(X))[0].detach().numpy(), module.state_dict()


def in_torchaudio(case, weights):
    torch = pytest.importorskip("torch")
    rnnt = pytest.importorskip("torchaudio.models.rnnt", exc_type=ImportError)
    module = rnnt._CustomLSTM(D, H, layer_norm=case.cell.norm == "layer").double()
    module.load_state_dict({n: torch.as_tensor(a) for n, a in weights.items()})
    y, _ = module(torch.as_tensor(X).swapaxes(0, 1), None)
    return y.swapaxes(0, 1).detach().numpy(), module.state_dict()


def in_keras(case, weights):
    # TensorFlow is not needed.
    os.environ.setdefault("KERAS_BACKEND", "jax")
    layers = pytest.importorskip("keras").layers
    layer = kind(case.cell, layers.LSTM, layers.GRU, layers.SimpleRNN)
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
        core = kind(case.cell, hk.LSTM, hk.GRU, hk.VanillaRNN)(H)
        return hk.dynamic_unroll(core, x, core.initial_state(B), time_major=False)[0]

    network = hk.without_apply_rng(hk.transform(network))
    names = jax.tree.map(np.shape, network.init(jax.random.key(0), X))
    assert jax.tree.map(np.shape, weights) == names
    return network.apply(weights, X), weights


def in_equinox(case, weights):
    eqx = pytest.importorskip("equinox")
    cell = kind(case.cell, eqx.nn.LSTMCell, eqx.nn.GRUCell, None)
    cell = cell(D, H, use_bias=case.cell.use_bias, key=jax.random.key(0))
    cell = eqx.tree_at(
        lambda cell: [getattr(cell, name) for name in weights],
        cell,
        [jnp.asarray(a) for a in weights.values()],
    )

    def step(state, x):
        state = jax.vmap(cell)(x, state)
        return state, state[0] if isinstance(state, tuple) else state

    zeros = jnp.zeros((B, H))
    state = kind(case.cell, (zeros, zeros), zeros, None)
    return jax.lax.scan(step, state, X.swapaxes(0, 1))[1].swapaxes(0, 1), vars(cell)


def in_linen(cell):
    """Outputs of a cell of flax.linen."""

    def run(case, weights):
        rnn = nn.RNN(cell(H, **DOUBLE))
        names = jax.eval_shape(rnn.init, jax.random.key(0), X)["params"]["cell"]
        assert jax.tree.map(np.shape, weights) == jax.tree.map(np.shape, names)
        return jax.jit(rnn.apply)({"params": {"cell": weights}}, X), weights

    return run


def in_nnx(cell):
    """Outputs of a cell of flax.nnx."""

    def run(case, weights):
        module = cell(D, H, rngs=nnx.Rngs(0), **DOUBLE)
        names = nnx.to_pure_dict(nnx.state(module, nnx.Param))
        assert jax.tree.map(np.shape, weights) == jax.tree.map(np.shape, names)
        nnx.update(module, weights)
        return nnx.RNN(module)(X), nnx.state(module, nnx.Param)

    return run


OF_FLAX = {
    "flax-lstm": in_linen(nn.LSTMCell),
    "flax-lstm, optimized": in_linen(nn.OptimizedLSTMCell),
    "flax-gru": in_linen(nn.GRUCell),
    "flax-rnn": in_linen(nn.SimpleCell),
    "nnx-lstm": in_nnx(nnx.LSTMCell),
    "nnx-lstm-optimized": in_nnx(nnx.OptimizedLSTMCell),
    "nnx-gru": in_nnx(nnx.GRUCell),
    "nnx-rnn": in_nnx(nnx.SimpleCell),
}
OTHERS = {
    "torch": in_torch,
    "torchaudio": in_torchaudio,
    "keras": in_keras,
    "haiku": in_haiku,
    "equinox": in_equinox,
}
RUNS = OF_FLAX | {
    name: OTHERS[name.split("-")[0]] for name in CASES if name.split("-")[0] in OTHERS
}


@pytest.mark.parametrize("name", RUNS)
def test_the_library_computes_what_our_cell_computes(name):
    case_name = name.split(",")[0]
    case = CASES[case_name]
    params = parameters(case_name)
    weights = convert.dump(case.library, case.cell, params)
    tolerance = 1e-5 if case.library == "keras" else 1e-12
    with jax.enable_x64(True):
        y, own = RUNS[name](case, weights)
        same(np.asarray(y), ours(case.cell, params)[0], tolerance)
        loaded = convert.load(case.library, case.cell, own)
        same(ours(case.cell, loaded)[0], np.asarray(y), tolerance)
