"""The LayerNormLSTMCell of TensorFlow Addons.

    (i, f, g, o) = LN_kernel(W x_t) + LN_recurrent(U h_{t-1}) + b
    c_t = LN_state(sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g))
    h_t = sigmoid(o) * tanh(c_t)

Source: github.com/tensorflow/addons, tensorflow_addons/rnn/layer_norm_lstm_cell.py.

Shape letters: D input features, H hidden units.
"""

import numpy as np

from lnrepro.convert.cells import (
    lstm_arrays,
    lstm_norm_arrays,
    lstm_norm_params,
    lstm_params,
)
from lnrepro.convert.keras import LSTM_GATES, read, write
from lnrepro.convert.layout import Params, Weights

# Our name of each norm's gain or bias, and the name in TensorFlow Addons.
_NORMS = {
    "gain_x": "kernel_norm/gamma",
    "bias_x": "kernel_norm/beta",
    "gain_h": "recurrent_norm/gamma",
    "bias_h": "recurrent_norm/beta",
    "gain_c": "state_norm/gamma",
    "bias_c": "state_norm/beta",
}
_CELL = "tfa.rnn.LayerNormLSTMCell"


def lstm_from_tfa(weights: Weights) -> Params:
    """Convert a tfa.rnn.LayerNormLSTMCell.

    It becomes LSTMCell(H, norm="layer", cell_norm="carry", epsilon=1e-3), where 1e-3 is
    the default of norm_epsilon.

    Args:
      weights: kernel [D, 4H], recurrent_kernel [H, 4H], bias [4H]; kernel_norm/gamma,
        kernel_norm/beta, recurrent_norm/gamma and recurrent_norm/beta [4H];
        state_norm/gamma and state_norm/beta [H]. Without a bias they give parameters
        for use_bias=False.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"kernel": np.ones((3, 8)), "recurrent_kernel": np.ones((2, 8))}
    >>> for norm, size in (("kernel", 8), ("recurrent", 8), ("state", 2)):
    ...     weights[f"{norm}_norm/gamma"] = np.ones(size)
    ...     weights[f"{norm}_norm/beta"] = np.zeros(size)
    >>> params = lstm_from_tfa(weights)
    >>> params["w_x"].shape, params["gain_c"].shape
    ((3, 8), (2,))
    """
    # The kernels are those of a Keras LSTM. The norms are added.
    arrays = read(weights, _CELL, also=tuple(_NORMS.values()))
    params = lstm_params(arrays, LSTM_GATES)
    return params | lstm_norm_params(weights, _NORMS, LSTM_GATES, len(arrays.w_h))


def lstm_to_tfa(params: Weights) -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, norm="layer", cell_norm="carry").

    Args:
      params: parameters of LSTMCell; without a bias they give use_bias=False.

    Returns:
      The weights of a tfa.rnn.LayerNormLSTMCell, see `lstm_from_tfa`.

    Raises:
      ValueError: a missing parameter, or one that TensorFlow Addons has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> for site, size in (("x", 8), ("h", 8), ("c", 2)):
    ...     params[f"gain_{site}"] = np.ones(size)
    ...     params[f"bias_{site}"] = np.zeros(size)
    >>> lstm_to_tfa(params)["state_norm/gamma"].shape
    (2,)
    """
    arrays = lstm_arrays(params, LSTM_GATES, _CELL, tuple(_NORMS))
    norms = lstm_norm_arrays(params, _NORMS, LSTM_GATES, len(arrays.w_h))
    return write(arrays) | norms
