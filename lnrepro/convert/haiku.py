"""haiku.LSTM, GRU and VanillaRNN.

    (i, g, f, o) = W [x_t, h_{t-1}] + b                                 (LSTM)
    c_t = sigmoid(f + 1) * c_{t-1} + sigmoid(i) * tanh(g)
    h_t = sigmoid(o) * tanh(c_t)

    z, r = sigmoid(W_i x_t + W_h h_{t-1} + b)                           (GRU)
    a = tanh(W_i x_t + W_h (r * h_{t-1}) + b)
    h_t = (1 - z) * h_{t-1} + z * a

    h_t = relu(W x_t + b + W' h_{t-1} + b')                             (VanillaRNN)

Source: dm-haiku.readthedocs.io, api#recurrent, and github.com/google-deepmind/dm-haiku,
haiku/_src/recurrent.py.

Weights are the parameters that `init` of a transformed function returns, the name of
the module among them: {"lstm/linear": {"w": ..., "b": ...}}.

Shape letters: D input features, H hidden units.
"""

import numpy as np

from lnrepro.convert.cells import (
    add_biases,
    gru_arrays,
    gru_params,
    lstm_arrays,
    lstm_params,
    or_zeros,
    simple_arrays,
    simple_params,
)
from lnrepro.convert.layout import (
    LSTM_ORDER,
    Arrays,
    Params,
    Weights,
    flatten,
    refuse_unknown,
    reorder,
    take,
    take_optional,
)

# The order of the gates in weights of this library: z is the update gate, r the reset
# gate, n the candidate.
LSTM_GATES = "igfo"
GRU_GATES = "zrn"
Tree = dict[str, dict[str, np.ndarray]]


def lstm_from_haiku(weights: Weights, name: str = "lstm") -> Params:
    """Convert a haiku.LSTM into LSTMCell(H, norm="none").

    Haiku adds 1 to the forget gate in every step. Here the bias contains it. The sum
    b + 1 is rounded in the dtype of the weights: a round trip may change b by half a
    unit in the last place of b + 1. All other weights keep their bits, and so does a
    fresh b of zero.

    Args:
      weights: Haiku's parameters, with {"<name>/linear": {"w" [D + H, 4H], "b" [4H]}}.
      name: the module's name.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"lstm/linear": {"w": np.ones((5, 8)), "b": np.zeros(8)}}
    >>> params = lstm_from_haiku(weights)
    >>> params["w_x"].shape, params["bias"]
    ((3, 8), array([1., 1., 0., 0., 0., 0., 0., 0.]))
    """
    flat = flatten(weights)
    w = take(flat, f"{name}/linear/w")
    # The inputs come first, then the H rows of the state.
    inputs = w.shape[0] - w.shape[-1] // 4
    arrays = Arrays(w[:inputs], w[inputs:], take(flat, f"{name}/linear/b"))
    _refuse_unknown(flat, name, ("linear/w", "linear/b"), "haiku.LSTM")
    params = lstm_params(arrays, LSTM_GATES)
    _add_to_forget_gate(params["bias"], 1)
    return params


def lstm_to_haiku(params: Weights, name: str = "lstm") -> Tree:
    """Convert LSTMCell(H, norm="none") into a haiku.LSTM.

    Haiku adds 1 to the forget gate in every step, so that 1 is subtracted from its
    bias. The difference is exact where the bias lies in [0.5, 2], otherwise rounded.

    Args:
      params: parameters of LSTMCell; a missing bias counts as zero.
      name: the module's name.

    Returns:
      Haiku's parameters of this module, see `lstm_from_haiku`.

    Raises:
      ValueError: a missing parameter, or one that Haiku has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> linear = lstm_to_haiku(params)["lstm/linear"]
    >>> linear["w"].shape, linear["b"]
    ((5, 8), array([1., 1., 1., 1., 0., 0., 1., 1.]))
    """
    arrays = lstm_arrays(params, LSTM_ORDER, "haiku.LSTM")
    # Haiku multiplies [x_t, h_{t-1}] by one matrix.
    w = np.concatenate([arrays.w_x, arrays.w_h])
    b = or_zeros(arrays.bias, arrays.w_h)
    # Before the gates are reordered: f comes first in our order.
    _add_to_forget_gate(b, -1)
    linear = {
        "w": reorder(w, LSTM_ORDER, LSTM_GATES),
        "b": reorder(b, LSTM_ORDER, LSTM_GATES),
    }
    return {f"{name}/linear": linear}


def gru_from_haiku(weights: Weights, name: str = "gru") -> Params:
    """Convert a haiku.GRU into GRUCell(H, norm="none", reset="before").

    Args:
      weights: Haiku's parameters, with {"<name>": {"w_i" [D, 3H], "w_h" [H, 3H], "b"
        [3H]}}.
      name: the module's name.

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"w_i": np.ones((3, 6)), "w_h": np.ones((2, 6)), "b": np.ones(6)}
    >>> {name: a.shape for name, a in gru_from_haiku({"gru": weights}).items()}
    {'w_x': (3, 6), 'w_h': (2, 6), 'bias': (6,)}
    """
    flat = flatten(weights)
    leaves = ("w_i", "w_h", "b")
    arrays = Arrays(*[take(flat, f"{name}/{leaf}") for leaf in leaves])
    _refuse_unknown(flat, name, leaves, "haiku.GRU")
    # Haiku's update gate has our sign: h_t = (1 - z) h_{t-1} + z a.
    return gru_params(arrays, GRU_GATES, negate=False)


def gru_to_haiku(params: Weights, name: str = "gru") -> Tree:
    """Convert GRUCell(H, norm="none", reset="before") into a haiku.GRU.

    The parameters do not tell reset="before", which is Haiku's, from reset="after".

    Args:
      params: parameters of GRUCell; a missing bias becomes zero, and a recurrent bias
        is added to it.
      name: the module's name.

    Returns:
      Haiku's parameters of this module, see `gru_from_haiku`.

    Raises:
      ValueError: a missing parameter, or one that Haiku has no place for.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> {name: a.shape for name, a in gru_to_haiku(params)["gru"].items()}
    {'w_i': (3, 6), 'w_h': (2, 6), 'b': (6,)}
    """
    arrays = gru_arrays(params, GRU_GATES, "haiku.GRU", negate=False)
    bias = add_biases(arrays.bias, arrays.bias_recurrent)
    bias = or_zeros(bias, arrays.w_h)
    return {name: {"w_i": arrays.w_x, "w_h": arrays.w_h, "b": bias}}


def rnn_from_haiku(weights: Weights, name: str = "vanilla_rnn") -> Params:
    """Convert a haiku.VanillaRNN.

    It becomes SimpleCell(H, norm="none", activation_fn=jax.nn.relu). Its two biases
    become their sum.

    Args:
      weights: Haiku's parameters, with {"<name>/linear": {"w" [D, H], "b" [H]}} and
        {"<name>/linear_1": {"w" [H, H], "b" [H]}}. The second "b" is missing with
        double_bias=False.
      name: the module's name.

    Returns:
      Parameters of SimpleCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"vanilla_rnn/linear": {"w": np.ones((3, 2)), "b": np.ones(2)}}
    >>> weights["vanilla_rnn/linear_1"] = {"w": np.ones((2, 2)), "b": np.ones(2)}
    >>> rnn_from_haiku(weights)["bias"]
    array([2., 2.])
    """
    flat = flatten(weights)
    bias = take(flat, f"{name}/linear/b")
    arrays = Arrays(
        w_x=take(flat, f"{name}/linear/w"),
        w_h=take(flat, f"{name}/linear_1/w"),
        bias=add_biases(bias, take_optional(flat, f"{name}/linear_1/b")),
    )
    known = ("linear/w", "linear/b", "linear_1/w", "linear_1/b")
    _refuse_unknown(flat, name, known, "haiku.VanillaRNN")
    return simple_params(arrays)


def rnn_to_haiku(
    params: Weights, name: str = "vanilla_rnn", *, double_bias: bool = True
) -> Tree:
    """Convert SimpleCell(H, norm="none", activation_fn=jax.nn.relu).

    Args:
      params: parameters of SimpleCell; a missing bias becomes zero.
      name: the module's name.
      double_bias: as in haiku.VanillaRNN: whether there is a second bias, of zeros.

    Returns:
      Haiku's parameters of a haiku.VanillaRNN, see `rnn_from_haiku`.

    Raises:
      ValueError: a missing parameter, or one that Haiku has no place for.

    >>> params = {"w_x": np.ones((3, 2)), "w_h": np.ones((2, 2)), "bias": np.ones(2)}
    >>> rnn_to_haiku(params)["vanilla_rnn/linear_1"]["b"]
    array([0., 0.])
    """
    arrays = simple_arrays(params, "haiku.VanillaRNN")
    bias = or_zeros(arrays.bias, arrays.w_h)
    linear = {"w": arrays.w_x, "b": bias}
    linear_1 = {"w": arrays.w_h}
    if double_bias:
        linear_1["b"] = np.zeros_like(bias)
    return {f"{name}/linear": linear, f"{name}/linear_1": linear_1}


def _refuse_unknown(flat, name, leaves, cell):
    """Refuse further weights of the module of this name; others are of no interest."""
    of_module = {}
    for path, value in flat.items():
        if path.startswith(f"{name}/"):
            of_module[path] = value
    refuse_unknown(of_module, [f"{name}/{leaf}" for leaf in leaves], cell)


def _add_to_forget_gate(bias, number):
    """Add a number to the forget gate's part of a bias [4 H] in our order, in place."""
    bias[: len(bias) // 4] += np.asarray(number, bias.dtype)
