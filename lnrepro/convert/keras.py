"""keras.layers.LSTM, GRU and SimpleRNN.

Weights are named kernel, recurrent_kernel and bias:

    weights = {w.name: w for w in layer.weights}

and they go back by `layer.set_weights(list(weights.values()))`.
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
from lnrepro.convert.layout import Arrays, Params, Weights, take, take_optional

LSTM_GATES = "ifgo"
GRU_GATES = "zrn"


def lstm_from_keras(weights: Weights) -> Params:
    """Convert a Keras LSTM into LSTMCell(H, norm="none").

    Args:
      weights: kernel, recurrent_kernel and bias. Without a bias (use_bias=False) they
        give parameters for LSTMCell(H, norm="none", use_bias=False).

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"kernel": np.ones((3, 8)), "recurrent_kernel": np.ones((2, 8))}
    >>> {name: a.shape for name, a in lstm_from_keras(weights).items()}
    {'w_x': (3, 8), 'w_h': (2, 8)}
    """
    return lstm_params(_read(weights), LSTM_GATES)


def lstm_to_keras(params: Weights) -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, norm="none") into a Keras LSTM.

    Args:
      params: parameters of LSTMCell; without a bias they give use_bias=False.

    Returns:
      kernel, recurrent_kernel and bias.

    Raises:
      ValueError: a missing parameter, or one that Keras has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> list(lstm_to_keras(params))
    ['kernel', 'recurrent_kernel', 'bias']
    """
    return _write(lstm_arrays(params, LSTM_GATES, "keras.layers.LSTM"))


def gru_from_keras(weights: Weights) -> Params:
    """Convert a Keras GRU into a GRUCell.

    A bias [2, 3 H], of reset_after=True, is GRUCell(H, norm="none",
    recurrent_bias=True). A bias [3 H], of reset_after=False, is GRUCell(H, norm="none",
    reset="before"). use_bias=False is use_bias=False here; then the weights do not show
    reset_after, which decides between reset="after" and reset="before".

    Args:
      weights: kernel, recurrent_kernel and bias.

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"kernel": np.ones((3, 6)), "recurrent_kernel": np.ones((2, 6))}
    >>> weights["bias"] = np.ones((2, 6))
    >>> params = gru_from_keras(weights)
    >>> params["bias"].shape, params["bias_recurrent"].shape
    ((6,), (6,))
    """
    arrays = _read(weights)
    if arrays.bias is not None and arrays.bias.ndim == 2:
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
      kernel, recurrent_kernel and bias, which is [2, 3 H] for reset_after=True and
      [3 H], the sum of the biases, for reset_after=False.

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
    bias = add_biases(arrays.bias, arrays.bias_recurrent)
    if bias is not None and reset_after:
        both = (arrays.bias, arrays.bias_recurrent)
        bias = np.stack([or_zeros(b, arrays.w_h) for b in both])
    return _write(arrays._replace(bias=bias))


def rnn_from_keras(weights: Weights) -> Params:
    """Convert a Keras SimpleRNN into SimpleCell(H, norm="none").

    activation="relu" is SimpleCell(H, norm="none", activation_fn=jax.nn.relu).

    Args:
      weights: kernel, recurrent_kernel and bias. Without a bias (use_bias=False) they
        give parameters for use_bias=False.

    Returns:
      Parameters of SimpleCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"kernel": np.ones((3, 2)), "recurrent_kernel": np.ones((2, 2))}
    >>> {name: a.shape for name, a in rnn_from_keras(weights).items()}
    {'w_x': (3, 2), 'w_h': (2, 2)}
    """
    return simple_params(_read(weights))


def rnn_to_keras(params: Weights) -> dict[str, np.ndarray]:
    """Convert SimpleCell(H, norm="none") into a Keras SimpleRNN.

    Args:
      params: parameters of SimpleCell; without a bias they give use_bias=False.

    Returns:
      kernel, recurrent_kernel and bias.

    Raises:
      ValueError: a missing parameter, or one that Keras has no place for.

    >>> params = {"w_x": np.ones((3, 2)), "w_h": np.ones((2, 2)), "bias": np.ones(2)}
    >>> list(rnn_to_keras(params))
    ['kernel', 'recurrent_kernel', 'bias']
    """
    return _write(simple_arrays(params, "keras.layers.SimpleRNN"))


def _read(weights):
    return Arrays(
        w_x=take(weights, "kernel"),
        w_h=take(weights, "recurrent_kernel"),
        bias=take_optional(weights, "bias"),
    )


def _write(arrays):
    weights = {"kernel": arrays.w_x, "recurrent_kernel": arrays.w_h}
    if arrays.bias is not None:
        weights["bias"] = arrays.bias
    return weights
