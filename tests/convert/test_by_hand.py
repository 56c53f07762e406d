"""Cells of libraries without a converter: their equations, and the lines to convert.

`reorder` and the converters of libraries with the same kernels do most of it.
docs/cells.md says which cell belongs to which library.
"""

import functools

import jax
import numpy as np
import pytest

from lnrepro.convert import gru_from_keras, lstm_from_keras, lstm_from_torch, reorder
from lnrepro.functional import GRUCell, LSTMCell, unroll
from tests.convert.libraries import (
    H,
    X,
    draw,
    fastrnns_lstm,
    fastrnns_weights,
    haste_gru,
    haste_lstm,
    haste_lstm_weights,
    keras_weights,
    outputs,
    tfa_lstm,
    tfa_weights,
    torchaudio_lstm,
    torchaudio_weights,
)

gates = functools.partial(reorder, old="ifgo", new="fiog")
haste_gates = functools.partial(reorder, old="igfo", new="fiog")


def without_norms(weights):
    return {name: a for name, a in weights.items() if "norm" not in name}


def from_torchaudio(weights):
    kernels = {"weight_ih": weights["x2g.weight"], "weight_hh": weights["p2g.weight"]}
    params = lstm_from_torch(kernels)
    if "x2g.bias" in weights:
        return params | {"bias": gates(weights["x2g.bias"])}
    return params | {
        "gain_joint": gates(weights["g_norm.weight"]),
        "bias": gates(weights["g_norm.bias"]),
        "gain_c": weights["c_norm.weight"],
        "bias_c": weights["c_norm.bias"],
    }


def from_fastrnns(weights):
    params = lstm_from_torch(without_norms(weights))
    for site, name in (("x", "layernorm_i"), ("h", "layernorm_h")):
        params[f"gain_{site}"] = gates(weights[f"{name}.weight"])
        params[f"bias_{site}"] = gates(weights[f"{name}.bias"])
    params["gain_c"] = weights["layernorm_c.weight"]
    params["bias_c"] = weights["layernorm_c.bias"]
    return params


def from_tfa(weights):
    params = lstm_from_keras(without_norms(weights))
    for site, name in (("x", "kernel_norm"), ("h", "recurrent_norm")):
        params[f"gain_{site}"] = gates(weights[f"{name}/gamma"])
        params[f"bias_{site}"] = gates(weights[f"{name}/beta"])
    params["gain_c"] = weights["state_norm/gamma"]
    params["bias_c"] = weights["state_norm/beta"]
    return params


def from_haste_lstm(weights):
    params = {
        "w_x": haste_gates(weights["kernel"]),
        "w_h": haste_gates(weights["recurrent_kernel"]),
        "bias": haste_gates(weights["bias"]),
    }
    if "gamma" in weights:
        params["gain_x"], params["gain_h"] = haste_gates(weights["gamma"])
        # There is one bias for both products.
        params["bias_x"] = params["bias_h"] = np.zeros(4 * H)
        params["gain_c"], params["bias_c"] = weights["gamma_h"], weights["beta_h"]
    return params


def from_haste_gru(weights):
    # It is Keras' GRU of reset_after=True, whose two biases stand in one array.
    bias = np.stack([weights["bias"], weights["recurrent_bias"]])
    kernels = {name: weights[name] for name in ("kernel", "recurrent_kernel")}
    return gru_from_keras(kernels | {"bias": bias})


carried = {"norm": "layer", "cell_norm": "carry"}
LAYERS = {
    "torchaudio": (
        torchaudio_weights(norms=False),
        torchaudio_lstm,
        LSTMCell(H, "none"),
        from_torchaudio,
    ),
    "torchaudio, layer norm": (
        torchaudio_weights(norms=True),
        torchaudio_lstm,
        LSTMCell(H, norm_site="joint", **carried),
        from_torchaudio,
    ),
    "fastrnns": (
        fastrnns_weights(),
        fastrnns_lstm,
        LSTMCell(H, use_bias=False, **carried),
        from_fastrnns,
    ),
    "TensorFlow Addons": (
        tfa_weights(),
        tfa_lstm,
        LSTMCell(H, epsilon=1e-3, **carried),
        from_tfa,
    ),
    "TensorFlow Addons, no bias": (
        tfa_weights(bias=False),
        tfa_lstm,
        LSTMCell(H, epsilon=1e-3, use_bias=False, **carried),
        from_tfa,
    ),
    "haste, LSTM": (
        haste_lstm_weights(norms=False),
        haste_lstm,
        LSTMCell(H, "none"),
        from_haste_lstm,
    ),
    "haste, layer norm": (
        haste_lstm_weights(norms=True),
        haste_lstm,
        LSTMCell(H, norm="layer"),
        from_haste_lstm,
    ),
    "haste, GRU": (
        keras_weights(3, (3 * H,)) | {"recurrent_bias": draw(3 * H)},
        haste_gru,
        GRUCell(H, "none", recurrent_bias=True),
        from_haste_gru,
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_equations_agree(name):
    weights, step, cell, convert = LAYERS[name]
    with jax.enable_x64(True):
        params = convert(weights)
        y = jax.jit(lambda params, x: unroll(cell, params, x).outputs)(params, X)
    np.testing.assert_allclose(y, outputs(step, weights), rtol=0, atol=1e-12)
