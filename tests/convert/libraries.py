"""The recurrent layers of other libraries in NumPy, from their documentation.

Every layer is a function `step(weights, x, h, c) -> (h, c)` of the library's own
weights. Layers without a cell return c as it is.

Shape letters: B batch, T time, D input features, H hidden units.
"""

import functools

import numpy as np

B, T, D, H = 2, 4, 3, 5
RNG = np.random.default_rng(0)
X = RNG.standard_normal((B, T, D))


def draw(*shape):
    """Draw random numbers."""
    return 0.5 * RNG.standard_normal(shape)


def sigmoid(a):
    """The logistic function."""
    return 1 / (1 + np.exp(-a))


def layer_norm(a, gain, bias, epsilon=1e-5):
    """Layer norm over the last axis."""
    centred = a - a.mean(-1, keepdims=True)
    var = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(var + epsilon) * gain + bias


def lstm_update(i, f, g, o, c):
    """The LSTM's new h and c from its gates."""
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def outputs(step, weights, x=X):
    """Run a layer's equations over x [B, T, D] and return h of all steps [B, T, H]."""
    h, c, hs = np.zeros((B, H)), np.zeros((B, H)), []
    if "lnlstm_h0" in weights:
        h = h + weights["lnlstm_h0"]
    for t in range(x.shape[1]):
        h, c = step(weights, x[:, t], h, c)
        hs.append(h)
    return np.stack(hs, 1)


# torchaudio


def torchaudio_weights(norms):
    """Draw the state dict of a _CustomLSTM."""
    weights = {"x2g.weight": draw(4 * H, D), "p2g.weight": draw(4 * H, H)}
    if not norms:
        return weights | {"x2g.bias": draw(4 * H)}
    for name, size in (("g_norm", 4 * H), ("c_norm", H)):
        weights[f"{name}.weight"], weights[f"{name}.bias"] = draw(size), draw(size)
    return weights


def torchaudio_lstm(weights, x, h, c):
    """torchaudio's _CustomLSTM: gates i, f, g, o, one norm of the sum, c carried."""

    def norm(name, a):
        if f"{name}.weight" not in weights:
            return a
        return layer_norm(a, weights[f"{name}.weight"], weights[f"{name}.bias"])

    a = x @ weights["x2g.weight"].T + weights.get("x2g.bias", 0)
    i, f, g, o = np.split(norm("g_norm", a + h @ weights["p2g.weight"].T), 4, -1)
    c = norm("c_norm", sigmoid(f) * c + sigmoid(i) * np.tanh(g))
    return sigmoid(o) * np.tanh(c), c


# Dreamer


def dreamer_weights(norm, bias):
    """Draw the weights of Dreamer's GRU."""
    weights = {"kernel": draw(D + H, 3 * H)}
    if bias:
        weights["bias"] = draw(3 * H)
    if norm:
        weights |= {"norm/scale": draw(3 * H), "norm/bias": draw(3 * H)}
    return weights


def dreamer_gru(weights, x, h, c, state_first=False):
    """Dreamer's GRU: reset, candidate, update."""
    together = np.concatenate([h, x] if state_first else [x, h], -1)
    a = together @ weights["kernel"] + weights.get("bias", 0)
    if "norm/scale" in weights:
        a = layer_norm(a, weights["norm/scale"], weights["norm/bias"], 1e-3)
    r, n, u = np.split(a, 3, -1)
    u = sigmoid(u - 1)
    return u * np.tanh(sigmoid(r) * n) + (1 - u) * h, c


# torch.nn


def torch_weights(gates, bias, inputs=D, suffix="_l0"):
    """Draw the state dict of one layer and direction."""
    weights = {
        f"weight_ih{suffix}": draw(gates * H, inputs),
        f"weight_hh{suffix}": draw(gates * H, H),
    }
    if bias:
        weights[f"bias_ih{suffix}"] = draw(gates * H)
        weights[f"bias_hh{suffix}"] = draw(gates * H)
    return weights


def torch_products(weights, x, h, suffix):
    """W_ih x + b_ih and W_hh h + b_hh."""
    x_part = x @ weights[f"weight_ih{suffix}"].T + weights.get(f"bias_ih{suffix}", 0)
    h_part = h @ weights[f"weight_hh{suffix}"].T + weights.get(f"bias_hh{suffix}", 0)
    return x_part, h_part


def torch_lstm(weights, x, h, c, suffix="_l0"):
    """torch.nn.LSTM: gates i, f, g, o."""
    i, f, g, o = np.split(sum(torch_products(weights, x, h, suffix)), 4, -1)
    return lstm_update(i, f, g, o, c)


def torch_gru(weights, x, h, c, suffix="_l0"):
    """torch.nn.GRU: gates r, z, n."""
    x_part, h_part = torch_products(weights, x, h, suffix)
    x_r, x_z, x_n = np.split(x_part, 3, -1)
    h_r, h_z, h_n = np.split(h_part, 3, -1)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = np.tanh(x_n + r * h_n)
    return (1 - z) * n + z * h, c


def torch_rnn(weights, x, h, c, suffix="_l0"):
    """torch.nn.RNN."""
    return np.tanh(sum(torch_products(weights, x, h, suffix))), c


# fastrnns and TensorFlow Addons


def fastrnns_weights():
    """Draw the state dict of a LayerNormLSTMCell."""
    weights = {"weight_ih": draw(4 * H, D), "weight_hh": draw(4 * H, H)}
    for site, size in (("i", 4 * H), ("h", 4 * H), ("c", H)):
        weights[f"layernorm_{site}.weight"] = draw(size)
        weights[f"layernorm_{site}.bias"] = draw(size)
    return weights


def fastrnns_lstm(weights, x, h, c):
    """LayerNormLSTMCell: the normalised cell is carried."""

    def norm(a, site):
        gain = weights[f"layernorm_{site}.weight"]
        return layer_norm(a, gain, weights[f"layernorm_{site}.bias"])

    a = norm(x @ weights["weight_ih"].T, "i") + norm(h @ weights["weight_hh"].T, "h")
    i, f, g, o = np.split(a, 4, -1)
    c = norm(sigmoid(f) * c + sigmoid(i) * np.tanh(g), "c")
    return sigmoid(o) * np.tanh(c), c


def tfa_weights(bias=True):
    """Draw the weights of a LayerNormLSTMCell."""
    weights = keras_weights(4, (4 * H,) if bias else None)
    for site, size in (("kernel", 4 * H), ("recurrent", 4 * H), ("state", H)):
        weights[f"{site}_norm/gamma"] = draw(size)
        weights[f"{site}_norm/beta"] = draw(size)
    return weights


def tfa_lstm(weights, x, h, c):
    """LayerNormLSTMCell: the normalised cell is carried; norm_epsilon is 1e-3."""

    def norm(a, site):
        gain, bias = weights[f"{site}_norm/gamma"], weights[f"{site}_norm/beta"]
        return layer_norm(a, gain, bias, epsilon=1e-3)

    a = norm(x @ weights["kernel"], "kernel")
    a = a + norm(h @ weights["recurrent_kernel"], "recurrent") + weights.get("bias", 0)
    i, f, g, o = np.split(a, 4, -1)
    c = norm(sigmoid(f) * c + sigmoid(i) * np.tanh(g), "state")
    return sigmoid(o) * np.tanh(c), c


# keras.layers


def keras_weights(gates, bias_shape):
    """Draw kernel, recurrent_kernel and bias, which is left out for None."""
    weights = {"kernel": draw(D, gates * H), "recurrent_kernel": draw(H, gates * H)}
    if bias_shape is not None:
        weights["bias"] = draw(*bias_shape)
    return weights


def keras_lstm(weights, x, h, c):
    """keras.layers.LSTM: gates i, f, g, o."""
    a = x @ weights["kernel"] + h @ weights["recurrent_kernel"] + weights.get("bias", 0)
    i, f, g, o = np.split(a, 4, -1)
    return lstm_update(i, f, g, o, c)


def keras_gru(weights, x, h, c, reset_after):
    """keras.layers.GRU: gates z, r, n."""
    bias = weights.get("bias", np.zeros((2, 3 * H)))
    recurrent_bias = np.zeros(3 * H)
    if bias.ndim == 2:
        bias, recurrent_bias = bias
    x_z, x_r, x_n = np.split(x @ weights["kernel"] + bias, 3, -1)
    kernels = np.split(weights["recurrent_kernel"], 3, -1)
    bias_z, bias_r, bias_n = np.split(recurrent_bias, 3)
    z = sigmoid(x_z + h @ kernels[0] + bias_z)
    r = sigmoid(x_r + h @ kernels[1] + bias_r)
    if reset_after:
        n = np.tanh(x_n + r * (h @ kernels[2] + bias_n))
    else:
        n = np.tanh(x_n + (r * h) @ kernels[2])
    return z * h + (1 - z) * n, c


def keras_rnn(weights, x, h, c):
    """keras.layers.SimpleRNN."""
    a = x @ weights["kernel"] + h @ weights["recurrent_kernel"] + weights.get("bias", 0)
    return np.tanh(a), c


# flax.linen and flax.nnx


def dense(layer, v):
    """A dense layer of a Flax tree."""
    return v @ layer["kernel"] + layer.get("bias", 0)


def dense_weights(inputs, columns, bias):
    """Draw the weights of a dense layer."""
    layer = {"kernel": draw(inputs, columns)}
    if bias:
        layer["bias"] = draw(columns)
    return layer


def flax_lstm_weights(bias, forget="f"):
    """Draw the tree of an LSTMCell; nnx writes "if_" and "hf"."""
    weights = {}
    for gate in "ifgo":
        weights[f"i{forget if gate == 'f' else gate}"] = dense_weights(D, H, False)
        weights[f"h{gate}"] = dense_weights(H, H, bias)
    return weights


def flax_lstm(weights, x, h, c):
    """flax.linen.LSTMCell and flax.nnx.LSTMCell."""
    layers = {name.rstrip("_"): layer for name, layer in weights.items()}
    a = {k: dense(layers[f"i{k}"], x) + dense(layers[f"h{k}"], h) for k in "ifgo"}
    return lstm_update(a["i"], a["f"], a["g"], a["o"], c)


def flax_gru_weights(bias):
    """Draw the tree of a flax.linen.GRUCell."""
    weights = {}
    for gate in "rzn":
        weights[f"i{gate}"] = dense_weights(D, H, bias)
        weights[f"h{gate}"] = dense_weights(H, H, bias and gate == "n")
    return weights


def flax_gru(weights, x, h, c):
    """flax.linen.GRUCell."""
    r = sigmoid(dense(weights["ir"], x) + dense(weights["hr"], h))
    z = sigmoid(dense(weights["iz"], x) + dense(weights["hz"], h))
    n = np.tanh(dense(weights["in"], x) + r * dense(weights["hn"], h))
    return (1 - z) * n + z * h, c


def flax_rnn_weights(bias):
    """Draw the tree of a flax.linen.SimpleCell."""
    return {"i": dense_weights(D, H, bias), "h": dense_weights(H, H, False)}


def flax_rnn(weights, x, h, c):
    """flax.linen.SimpleCell."""
    return np.tanh(dense(weights["i"], x) + dense(weights["h"], h)), c


def nnx_weights(gates, biased):
    """Draw the tree of two dense layers; `biased` names the one with a bias."""
    return {
        "dense_i": dense_weights(D, gates * H, biased == "dense_i"),
        "dense_h": dense_weights(H, gates * H, biased == "dense_h"),
    }


def nnx_optimized_lstm(weights, x, h, c):
    """flax.nnx.OptimizedLSTMCell: gates i, f, g, o."""
    a = dense(weights["dense_i"], x) + dense(weights["dense_h"], h)
    i, f, g, o = np.split(a, 4, -1)
    return lstm_update(i, f, g, o, c)


def nnx_gru(weights, x, h, c):
    """flax.nnx.GRUCell: gates r, z, n."""
    x_r, x_z, x_n = np.split(dense(weights["dense_i"], x), 3, -1)
    h_r, h_z, h_n = np.split(dense(weights["dense_h"], h), 3, -1)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    return (1 - z) * np.tanh(x_n + r * h_n) + z * h, c


def nnx_rnn(weights, x, h, c):
    """flax.nnx.SimpleCell."""
    return np.tanh(dense(weights["dense_i"], x) + dense(weights["dense_h"], h)), c


# haiku


def haiku_lstm(weights, x, h, c):
    """haiku.LSTM: gates i, g, f, o, and 1 is added to f."""
    linear = weights["lstm/linear"]
    i, g, f, o = np.split(np.concatenate([x, h], -1) @ linear["w"] + linear["b"], 4, -1)
    return lstm_update(i, f + 1, g, o, c)


def haiku_gru(weights, x, h, c):
    """haiku.GRU: gates z, r, a; z is the part of the candidate."""
    gru = weights["gru"]
    x_z, x_r, x_a = np.split(x @ gru["w_i"] + gru["b"], 3, -1)
    w_z, w_r, w_a = np.split(gru["w_h"], 3, -1)
    z, r = sigmoid(x_z + h @ w_z), sigmoid(x_r + h @ w_r)
    return (1 - z) * h + z * np.tanh(x_a + (r * h) @ w_a), c


def haiku_rnn_weights(double_bias):
    """Draw the parameters of a haiku.VanillaRNN."""
    second = {"w": draw(H, H)}
    if double_bias:
        second["b"] = draw(H)
    first = {"w": draw(D, H), "b": draw(H)}
    return {"vanilla_rnn/linear": first, "vanilla_rnn/linear_1": second}


def haiku_rnn(weights, x, h, c):
    """haiku.VanillaRNN."""
    first, second = weights["vanilla_rnn/linear"], weights["vanilla_rnn/linear_1"]
    a = x @ first["w"] + first["b"] + h @ second["w"] + second.get("b", 0)
    return np.maximum(a, 0), c


# equinox.nn


def equinox_weights(gates, names, bias):
    """Draw the fields of a cell; use_bias=False has None for the biases."""
    weights = {"weight_ih": draw(gates * H, D), "weight_hh": draw(gates * H, H)}
    for name in names:
        size = H if name == "bias_n" else gates * H
        weights[name] = draw(size) if bias else None
    return weights


def equinox_bias(weights, name):
    """Return a bias, or 0 without one."""
    return 0 if weights.get(name) is None else weights[name]


def equinox_lstm(weights, x, h, c):
    """equinox.nn.LSTMCell: gates i, f, g, o."""
    a = x @ weights["weight_ih"].T + h @ weights["weight_hh"].T
    i, f, g, o = np.split(a + equinox_bias(weights, "bias"), 4, -1)
    return lstm_update(i, f, g, o, c)


def equinox_gru(weights, x, h, c):
    """equinox.nn.GRUCell: gates r, z, n."""
    x_part = x @ weights["weight_ih"].T + equinox_bias(weights, "bias")
    x_r, x_z, x_n = np.split(x_part, 3, -1)
    h_r, h_z, h_n = np.split(h @ weights["weight_hh"].T, 3, -1)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = np.tanh(x_n + r * (h_n + equinox_bias(weights, "bias_n")))
    return n + z * (h - n), c


# haste


def haste_lstm_weights(norms):
    """Draw the weights of haste's LSTM or LayerNormLSTM."""
    weights = keras_weights(4, (4 * H,))
    if norms:
        weights |= {"gamma": draw(2, 4 * H), "gamma_h": draw(H), "beta_h": draw(H)}
    return weights


def haste_lstm(weights, x, h, c):
    """Haste's LSTM: gates i, g, f, o; its LayerNormLSTM carries c as it is."""
    x_part, h_part = x @ weights["kernel"], h @ weights["recurrent_kernel"]
    if "gamma" in weights:
        x_part = layer_norm(x_part, weights["gamma"][0], 0)
        h_part = layer_norm(h_part, weights["gamma"][1], 0)
    i, g, f, o = np.split(x_part + h_part + weights["bias"], 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    shown = c
    if "gamma" in weights:
        shown = layer_norm(c, weights["gamma_h"], weights["beta_h"])
    return sigmoid(o) * np.tanh(shown), c


def haste_gru(weights, x, h, c):
    """Haste's GRU: gates z, r, n."""
    x_part = x @ weights["kernel"] + weights["bias"]
    h_part = h @ weights["recurrent_kernel"] + weights["recurrent_bias"]
    x_z, x_r, x_n = np.split(x_part, 3, -1)
    h_z, h_r, h_n = np.split(h_part, 3, -1)
    z, r = sigmoid(x_z + h_z), sigmoid(x_r + h_r)
    return z * h + (1 - z) * np.tanh(x_n + r * h_n), c


# The authors' Theano code


def theano_norm(weights, a, prefix, k):
    """The k-th layer norm of a layer, or a where the layer has none."""
    if f"{prefix}_s{k}" not in weights:
        return a
    return layer_norm(a, weights[f"{prefix}_s{k}"], weights[f"{prefix}_b{k}"])


def theano_lstm_weights(norms, learned=False):
    """Draw the weights of lstm_layer or lnlstm_layer."""
    weights = {"lnlstm_W": draw(D, 4 * H), "lnlstm_U": draw(H, 4 * H)}
    weights["lnlstm_b"] = draw(4 * H)
    for k, size in ((1, 4 * H), (2, 4 * H), (3, H)):
        if norms:
            weights |= {f"lnlstm_s{k}": draw(size), f"lnlstm_b{k}": draw(size)}
    if learned:
        weights["lnlstm_h0"] = draw(H)
    return weights


def theano_lstm(weights, x, h, c):
    """lnlstm_layer: gates i, f, o, g, and b both inside the norm and outside."""
    norm = functools.partial(theano_norm, weights, prefix="lnlstm")
    bias = weights["lnlstm_b"]
    x_part = norm(x @ weights["lnlstm_W"] + bias, k=1)
    a = norm(h @ weights["lnlstm_U"], k=2) + x_part + bias
    i, f, o, g = np.split(a, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(norm(c, k=3)), c


def theano_gru_weights(norms):
    """Draw the weights of gru_layer or lngru_layer."""
    weights = {}
    for suffix, size in (("", 2 * H), ("x", H)):
        weights[f"lngru_W{suffix}"] = draw(D, size)
        weights[f"lngru_U{suffix}"] = draw(H, size)
        weights[f"lngru_b{suffix}"] = draw(size)
    for k, size in ((1, 2 * H), (2, H), (3, 2 * H), (4, H)):
        if norms:
            weights |= {f"lngru_s{k}": draw(size), f"lngru_b{k}": draw(size)}
    return weights


def theano_gru(weights, x, h, c):
    """lngru_layer: gates r, u, and the candidate with kernels of its own."""
    norm = functools.partial(theano_norm, weights, prefix="lngru")
    x_gates = norm(x @ weights["lngru_W"] + weights["lngru_b"], k=1)
    x_candidate = norm(x @ weights["lngru_Wx"] + weights["lngru_bx"], k=2)
    gates = sigmoid(norm(h @ weights["lngru_U"], k=3) + x_gates)
    r, u = np.split(gates, 2, -1)
    n = np.tanh(norm(h @ weights["lngru_Ux"], k=4) * r + x_candidate)
    return u * h + (1 - u) * n, c
