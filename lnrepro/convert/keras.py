"""keras.layers.LSTM, GRU and SimpleRNN.

    (i, f, g, o) = W x_t + U h_{t-1} + b                                (LSTM)
    c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
    h_t = sigmoid(o) * tanh(c_t)

    z, r = sigmoid(W x_t + b + U h_{t-1} + b')                          (GRU)
    n = tanh(W x_t + b + r * (U h_{t-1} + b'))           reset_after=True
    n = tanh(W x_t + b + U (r * h_{t-1}))                reset_after=False
    h_t = z * h_{t-1} + (1 - z) * n

    h_t = tanh(W x_t + U h_{t-1} + b)                                   (SimpleRNN)

Source: keras.io/api/layers/recurrent_layers and github.com/keras-team/keras,
keras/src/layers/rnn.

Weights are named kernel, recurrent_kernel and bias:

    weights = {w.name: w for w in layer.weights}

and they go back by `layer.set_weights(list(weights.values()))`.

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
    read,
    simple_arrays,
    simple_params,
)
from lnrepro.convert.layout import (
    Arrays,
    Params,
    Weights,
)

# The order of the gates in weights of this library: z is the update gate, r the reset
# gate, n the candidate.
LSTM_GATES = "ifgo"
GRU_GATES = "zrn"
NAMES = ("kernel", "recurrent_kernel", "bias")


def lstm_from_keras(weights: Weights) -> Params:
    """Convert a Keras LSTM into LSTMCell(H, norm="none").

    Args:
      weights: kernel [D, 4H], recurrent_kernel [H, 4H] and bias [4H]. Without a bias
        they give parameters for LSTMCell(H, norm="none", use_bias=False).

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"kernel": np.ones((3, 8)), "recurrent_kernel": np.ones((2, 8))}
    >>> {name: a.shape for name, a in lstm_from_keras(weights).items()}
    {'w_x': (3, 8), 'w_h': (2, 8)}
    """
    return lstm_params(read(weights, NAMES, "keras.layers.LSTM"), LSTM_GATES)


def lstm_to_keras(params: Weights) -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, norm="none") into a Keras LSTM.

    Args:
      params: parameters of LSTMCell; without a bias they give use_bias=False.

    Returns:
      kernel [D, 4H], recurrent_kernel [H, 4H] and bias [4H].

    Raises:
      ValueError: a missing parameter, or one that Keras has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> list(lstm_to_keras(params))
    ['kernel', 'recurrent_kernel', 'bias']
    """
    return _write(lstm_arrays(params, LSTM_GATES, "keras.layers.LSTM"))


def gru_from_keras(weights: Weights) -> Params:
    """Convert a Keras GRU into a GRUCell.

    A bias [2, 3H], of reset_after=True, is GRUCell(H, norm="none",
    recurrent_bias=True). A bias [3H], of reset_after=False, is GRUCell(H, norm="none",
    reset="before"). use_bias=False is use_bias=False here; then the weights do not show
    reset_after, which decides between reset="after" and reset="before".

    Args:
      weights: kernel [D, 3H], recurrent_kernel [H, 3H] and bias.

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"kernel": np.ones((3, 6)), "recurrent_kernel": np.ones((2, 6))}
    >>> weights["bias"] = np.ones((2, 6))
    >>> params = gru_from_keras(weights)
    >>> params["bias"].shape, params["bias_recurrent"].shape
    ((6,), (6,))
    """
    arrays = read(weights, NAMES, "keras.layers.GRU")
    # reset_after=True: row 0 is the bias of W x, row 1 that of U h.
    if arrays.bias is not None and arrays.bias.ndim == 2 and len(arrays.bias) == 2:
        bias, bias_recurrent = arrays.bias
        arrays = arrays._replace(bias=bias, bias_recurrent=bias_recurrent)
    return gru_params(arrays, GRU_GATES)


def gru_to_keras(
    params: Weights, *, reset_after: bool | None = None
) -> dict[str, np.ndarray]:
    """Convert GRUCell(H, norm="none") into a Keras GRU.

    Args:
      params: parameters of GRUCell; without a bias they give use_bias=False.
      reset_after: True for a cell of reset="after", False for reset="before". None
        means True where the cell has a recurrent bias.

    Returns:
      kernel [D, 3H], recurrent_kernel [H, 3H] and bias, which is [2, 3H] for
      reset_after=True and [3H], the sum of the biases, for reset_after=False.

    Raises:
      ValueError: a missing parameter, or one that Keras has no place for.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> gru_to_keras(params)["bias"].shape
    (6,)
    >>> gru_to_keras(params, reset_after=True)["bias"].shape
    (2, 6)
    """
    arrays = gru_arrays(params, GRU_GATES, "keras.layers.GRU")
    if reset_after is None:
        reset_after = arrays.bias_recurrent is not None
    # reset_after=False has one bias for both products.
    bias = add_biases(arrays.bias, arrays.bias_recurrent)
    if bias is not None and reset_after:
        both = (arrays.bias, arrays.bias_recurrent)
        bias = np.stack([or_zeros(b, arrays.w_h) for b in both])
    return _write(arrays._replace(bias=bias))


def rnn_from_keras(weights: Weights) -> Params:
    """Convert a Keras SimpleRNN into SimpleCell(H, norm="none").

    activation="relu" is SimpleCell(H, norm="none", activation_fn=jax.nn.relu).

    Args:
      weights: kernel [D, H], recurrent_kernel [H, H] and bias [H]. Without a bias
        (use_bias=False) they give parameters for use_bias=False.

    Returns:
      Parameters of SimpleCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"kernel": np.ones((3, 2)), "recurrent_kernel": np.ones((2, 2))}
    >>> {name: a.shape for name, a in rnn_from_keras(weights).items()}
    {'w_x': (3, 2), 'w_h': (2, 2)}
    """
    return simple_params(read(weights, NAMES, "keras.layers.SimpleRNN"))


def rnn_to_keras(params: Weights) -> dict[str, np.ndarray]:
    """Convert SimpleCell(H, norm="none") into a Keras SimpleRNN.

    Args:
      params: parameters of SimpleCell; without a bias they give use_bias=False.

    Returns:
      kernel [D, H], recurrent_kernel [H, H] and bias [H].

    Raises:
      ValueError: a missing parameter, or one that Keras has no place for.

    >>> params = {"w_x": np.ones((3, 2)), "w_h": np.ones((2, 2)), "bias": np.ones(2)}
    >>> list(rnn_to_keras(params))
    ['kernel', 'recurrent_kernel', 'bias']
    """
    return _write(simple_arrays(params, "keras.layers.SimpleRNN"))


def _write(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return arrays under Keras' names; a bias of None is left out."""
    weights = {"kernel": arrays.w_x, "recurrent_kernel": arrays.w_h}
    if arrays.bias is not None:
        weights["bias"] = arrays.bias
    return weights
