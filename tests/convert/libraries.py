"""The recurrent layers of other libraries in NumPy, from their documentation.

Every layer is a function `step(weights, x, h, c) -> (h, c)` of the library's own
weights. Layers without a cell return c as it is. Flax is installed wherever the tests
run, so its own cells stand in for its equations.

Shape letters: B batch, T time, D input features, H hidden units.
"""

import functools

import numpy as np

from tests.oracle import layer_norm, rms_norm, sigmoid

B, T, D, H = 2, 4, 3, 6


def split(a, order):
    """{gate: its part of the last axis}."""
    return dict(zip(order, np.split(a, len(order), -1), strict=True))


def lstm(a, order, c, norm=np.asarray):
    """The LSTM's new h and c from its pre-activations."""
    gate = split(a, order)
    c = sigmoid(gate["f"]) * c + sigmoid(gate["i"]) * np.tanh(gate["g"])
    return sigmoid(gate["o"]) * np.tanh(norm(c)), c


def gru(x_part, h_part, order, h):
    """The new h of a GRU whose z is the part of the old h."""
    of_x, of_h = split(x_part, order), split(h_part, order)
    r, z = (sigmoid(of_x[gate] + of_h[gate]) for gate in "rz")
    return (1 - z) * np.tanh(of_x["n"] + r * of_h["n"]) + z * h


def gru_reset_before(x_part, kernel, order, h):
    """As `gru`, but the reset gate multiplies h."""
    of_x, kernels = split(x_part, order), split(kernel, order)
    r, z = (sigmoid(of_x[gate] + h @ kernels[gate]) for gate in "rz")
    return (1 - z) * np.tanh(of_x["n"] + (r * h) @ kernels["n"]) + z * h


def norm_of(weights, gain, bias, a, epsilon=1e-5):
    """The layer norm of these names, or a where the layer has none."""
    if gain not in weights:
        return a
    return layer_norm(a, weights[gain], weights[bias], epsilon)


# torch.nn


def torch_products(weights, x, h):
    """W_ih x + b_ih and W_hh h + b_hh."""
    x_part = x @ weights["weight_ih_l0"].T + weights.get("bias_ih_l0", 0)
    h_part = h @ weights["weight_hh_l0"].T + weights.get("bias_hh_l0", 0)
    return x_part, h_part


def torch_lstm(weights, x, h, c):
    """torch.nn.LSTM."""
    return lstm(sum(torch_products(weights, x, h)), "ifgo", c)


def torch_gru(weights, x, h, c):
    """torch.nn.GRU."""
    return gru(*torch_products(weights, x, h), "rzn", h), c


def torch_rnn(weights, x, h, c):
    """torch.nn.RNN."""
    return np.tanh(sum(torch_products(weights, x, h))), c


# keras.layers


def keras_sum(weights, x, h):
    """W x + U h + b."""
    products = x @ weights["kernel"] + h @ weights["recurrent_kernel"]
    return products + weights.get("bias", 0)


def keras_lstm(weights, x, h, c):
    """keras.layers.LSTM."""
    return lstm(keras_sum(weights, x, h), "ifgo", c)


def keras_gru_after(weights, x, h, c):
    """keras.layers.GRU of reset_after=True."""
    bias = weights.get("bias", (0, 0))
    h_part = h @ weights["recurrent_kernel"] + bias[1]
    return gru(x @ weights["kernel"] + bias[0], h_part, "zrn", h), c


def keras_gru_before(weights, x, h, c):
    """keras.layers.GRU of reset_after=False."""
    x_part = x @ weights["kernel"] + weights.get("bias", 0)
    return gru_reset_before(x_part, weights["recurrent_kernel"], "zrn", h), c


def keras_rnn(weights, x, h, c):
    """keras.layers.SimpleRNN."""
    return np.tanh(keras_sum(weights, x, h)), c


# haiku


def haiku_lstm(weights, x, h, c):
    """haiku.LSTM: 1 is added to f."""
    layer = weights["lstm/linear"]
    a = np.concatenate([x, h], -1) @ layer["w"] + layer["b"]
    return lstm(a + np.repeat([0, 0, 1, 0], H), "igfo", c)


def haiku_gru(weights, x, h, c):
    """haiku.GRU: z is the part of the candidate, so that 1 - z is ours."""
    layer, sign = weights["gru"], np.repeat([-1, 1, 1], H)
    x_part = sign * (x @ layer["w_i"] + layer["b"])
    return gru_reset_before(x_part, sign * layer["w_h"], "zrn", h), c


def haiku_rnn(weights, x, h, c):
    """haiku.VanillaRNN."""
    first, second = weights["vanilla_rnn/linear"], weights["vanilla_rnn/linear_1"]
    a = x @ first["w"] + first["b"] + h @ second["w"] + second.get("b", 0)
    return np.maximum(a, 0), c


# equinox.nn


def equinox_lstm(weights, x, h, c):
    """equinox.nn.LSTMCell."""
    a = x @ weights["weight_ih"].T + h @ weights["weight_hh"].T
    return lstm(a + weights.get("bias", 0), "ifgo", c)


def equinox_gru(weights, x, h, c):
    """equinox.nn.GRUCell: its bias_n is the candidate's recurrent bias."""
    h_part = h @ weights["weight_hh"].T
    h_part[:, 2 * H :] += weights.get("bias_n", 0)
    x_part = x @ weights["weight_ih"].T + weights.get("bias", 0)
    return gru(x_part, h_part, "rzn", h), c


# The authors' Theano code


def theano_norm(weights, layer, k, a):
    """The k-th layer norm of a layer."""
    return norm_of(weights, f"{layer}_s{k}", f"{layer}_b{k}", a)


def theano_lstm(weights, x, h, c):
    """lnlstm_layer: gates i, f, o, g, and b both inside the norm and outside."""
    norm = functools.partial(theano_norm, weights, "lnlstm")
    bias = weights["lnlstm_b"]
    x_part = norm(1, x @ weights["lnlstm_W"] + bias)
    a = norm(2, h @ weights["lnlstm_U"]) + x_part + bias
    return lstm(a, "ifog", c, functools.partial(norm, 3))


def theano_gru(weights, x, h, c):
    """lngru_layer: gates r, u, and the candidate with kernels of its own."""
    x_gates = x @ weights["lngru_W"] + weights["lngru_b"]
    x_candidate = x @ weights["lngru_Wx"] + weights["lngru_bx"]
    products = (x_gates, x_candidate, h @ weights["lngru_U"], h @ weights["lngru_Ux"])
    parts = [
        theano_norm(weights, "lngru", k, a) for k, a in enumerate(products, start=1)
    ]
    x_part, h_part = np.concatenate(parts[:2], -1), np.concatenate(parts[2:], -1)
    return gru(x_part, h_part, "rzn", h), c


# Dreamer: Hafner et al. 2021 (DreamerV2), the recurrent cell of the world model; Hafner
# et al. 2023 (DreamerV3), the sequence model with block-diagonal weights


def silu(a):
    return a * sigmoid(a)


def mix(reset, candidate, update, h):
    """The gates of all Dreamer cells, from their pre-activations."""
    candidate = np.tanh(sigmoid(reset) * candidate)
    u = sigmoid(update - 1.0)
    return u * candidate + (1 - u) * h


def dreamer_gru(weights, x, h, c):
    """DreamerV2: one dense layer of [x; h], one layer norm over 3H, then the gates."""
    a = np.concatenate([x, h], -1) @ weights["kernel"] + weights.get("bias", 0)
    a = norm_of(weights, "norm/scale", "norm/bias", a, epsilon=1e-3)
    return mix(*np.split(a, 3, -1), h), c


def dreamer_gru_state_first(weights, x, h, c):
    """The GRU of DreamerV3's first version, whose kernel multiplies [h; x]."""
    kernel = np.roll(weights["kernel"], D, axis=0)
    return dreamer_gru({**weights, "kernel": kernel}, x, h, c)


def dreamer_blocks(weights, name, parts):
    """A block-diagonal linear layer; its kernel is [G, inputs / G, outputs / G]."""
    pairs = zip(parts, weights[f"{name}/kernel"], strict=True)
    outputs = [part @ block for part, block in pairs]
    return np.concatenate(outputs, -1) + weights[f"{name}/bias"]


def dreamer_hidden(weights, name, a):
    """What stands behind a product: an RMS norm with a gain, and silu."""
    return silu(rms_norm(a, weights[f"{name}norm/scale"], 1e-4))


def dreamer_block_gru(weights, x, h, c):
    """DreamerV3: an input layer of each part, a hidden block layer, then the gates.

    The parts of x have 2 and 1 features.
    """
    layers = []
    for i, part in enumerate((h, x[:, :2], x[:, 2:])):
        name = f"dynin{i}"
        a = part @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]
        layers.append(dreamer_hidden(weights, name, a))
    # Every block sees its part of h, and all of the input layers.
    blocks = np.split(h, len(weights["dyngru/kernel"]), -1)
    together = [np.concatenate([block, *layers], -1) for block in blocks]
    a = dreamer_blocks(weights, "dynhid0", together)
    hidden = dreamer_hidden(weights, "dynhid0", a)
    a = dreamer_blocks(weights, "dyngru", np.split(hidden, len(blocks), -1))
    # The split into gates is within each block.
    gates = np.split(a.reshape(len(h), len(blocks), -1), 3, -1)
    return mix(*[gate.reshape(h.shape) for gate in gates], h), c


# Libraries without an entry in the table


def torchaudio_lstm(weights, x, h, c):
    """torchaudio's _CustomLSTM: one norm of the sum; the normalised c is carried."""
    a = x @ weights["x2g.weight"].T + h @ weights["p2g.weight"].T
    a = norm_of(weights, "g_norm.weight", "g_norm.bias", a)
    norm_c = functools.partial(norm_of, weights, "c_norm.weight", "c_norm.bias")
    h, c = lstm(a, "ifgo", c, norm_c)
    return h, norm_c(c)


def tfa_lstm(weights, x, h, c):
    """LayerNormLSTMCell of TensorFlow Addons: the normalised c is carried."""

    def norm(site, a):
        names = f"{site}_norm/gamma", f"{site}_norm/beta"
        return norm_of(weights, *names, a, epsilon=1e-3)

    a = norm("kernel", x @ weights["kernel"]) + weights.get("bias", 0)
    a = a + norm("recurrent", h @ weights["recurrent_kernel"])
    norm_c = functools.partial(norm, "state")
    h, c = lstm(a, "ifgo", c, norm_c)
    return h, norm_c(c)


def haste_lstm(weights, x, h, c):
    """Haste's LayerNormLSTM: c is carried as it is."""
    x_part = layer_norm(x @ weights["kernel"], weights["gamma"][0])
    h_part = layer_norm(h @ weights["recurrent_kernel"], weights["gamma"][1])
    norm_c = functools.partial(norm_of, weights, "gamma_h", "beta_h")
    return lstm(x_part + h_part + weights["bias"], "igfo", c, norm_c)
