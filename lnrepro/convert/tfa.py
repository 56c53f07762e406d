"""The LayerNormLSTMCell of TensorFlow Addons."""

import numpy as np

from lnrepro.convert.cells import lstm_arrays
from lnrepro.convert.keras import LSTM_GATES, lstm_from_keras
from lnrepro.convert.layout import (
    LSTM_ORDER,
    Params,
    Weights,
    reorder_site,
    take,
)

_NORMS = {
    "gain_x": "kernel_norm/gamma",
    "bias_x": "kernel_norm/beta",
    "gain_h": "recurrent_norm/gamma",
    "bias_h": "recurrent_norm/beta",
    "gain_c": "state_norm/gamma",
    "bias_c": "state_norm/beta",
}


def lstm_from_tfa(weights: Weights) -> Params:
    """Convert a tfa.rnn.LayerNormLSTMCell.

    It becomes LSTMCell(H, norm="layer", cell_norm="carry", epsilon=1e-3), where 1e-3 is
    the default of norm_epsilon.

    Args:
      weights: kernel, recurrent_kernel, bias, and gamma and beta of the norms under
        names such as "kernel_norm/gamma". Without a bias they give parameters for
        use_bias=False.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"kernel": np.ones((3, 8)), "recurrent_kernel": np.ones((2, 8))}
    >>> for norm, size in (("kernel", 8), ("recurrent", 8), ("state", 2)):
    ...     weights[f"{norm}_norm/gamma"] = np.ones(size)
    ...     weights[f"{norm}_norm/beta"] = np.zeros(size)
    >>> params = lstm_from_tfa(weights)
    >>> params["w_x"].shape, params["gain_c"].shape
    ((3, 8), (2,))
    """
    params = lstm_from_keras(weights)
    for ours, theirs in _NORMS.items():
        a = take(weights, theirs)
        params[ours] = reorder_site(a, ours[-1], LSTM_GATES, LSTM_ORDER)
    return params


def lstm_to_tfa(params: Weights) -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, norm="layer", cell_norm="carry").

    Args:
      params: parameters of LSTMCell; without a bias they give use_bias=False.

    Returns:
      The weights of a tfa.rnn.LayerNormLSTMCell, named as in `lstm_from_tfa`.

    Raises:
      ValueError: a missing parameter, or one that TensorFlow Addons has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> for site, size in (("x", 8), ("h", 8), ("c", 2)):
    ...     params[f"gain_{site}"] = np.ones(size)
    ...     params[f"bias_{site}"] = np.zeros(size)
    >>> lstm_to_tfa(params)["state_norm/gamma"].shape
    (2,)
    """
    target = "TensorFlow Addons' LayerNormLSTMCell"
    arrays = lstm_arrays(params, LSTM_GATES, target, tuple(_NORMS))
    weights = {"kernel": arrays.w_x, "recurrent_kernel": arrays.w_h}
    if arrays.bias is not None:
        weights["bias"] = arrays.bias
    for ours, theirs in _NORMS.items():
        a = take(params, ours)
        weights[theirs] = reorder_site(a, ours[-1], LSTM_ORDER, LSTM_GATES)
    return weights
