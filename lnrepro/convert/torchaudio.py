"""The LSTM of torchaudio's speech transducers (RNN-T).

    (i, f, g, o) = LN_g(W_x x_t + W_p h_{t-1})
    c_t = LN_c(sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g))
    h_t = sigmoid(o) * tanh(c_t)

With layer_norm=False there are no norms, and W_x x_t has a bias.

Source: github.com/pytorch/audio, torchaudio/models/rnnt.py, class _CustomLSTM.

Shape letters: D input features, H hidden units.
"""

import numpy as np

from lnrepro.convert.cells import (
    lstm_arrays,
    lstm_norm_arrays,
    lstm_norm_params,
    lstm_params,
    or_zeros,
)
from lnrepro.convert.layout import Arrays, Params, Weights, has, take, take_optional

GATES = "ifgo"


def lstm_from_torchaudio(weights: Weights, *, prefix: str = "") -> Params:
    """Convert one LSTM layer of torchaudio's RNN-T predictor.

    With layer_norm=True, it becomes LSTMCell(H, norm="layer", norm_site="joint",
    cell_norm="carry"), and else LSTMCell(H, norm="none"). Give the cell the epsilon of
    the model: `emformer_rnnt_base` has 1e-3, and the default of LSTMCell is 1e-5.

    Args:
      weights: the state dict: x2g.weight [4H, D], p2g.weight [4H, H]; with layer norm
        the weight and bias of g_norm [4H] and of c_norm [H], else x2g.bias [4H].
      prefix: what stands before the names in the state dict, such as
        "predictor.lstm_layers.0.".

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"x2g.weight": np.ones((8, 3)), "p2g.weight": np.ones((8, 2))}
    >>> for name, size in (("g_norm", 8), ("c_norm", 2)):
    ...     weights |= {f"{name}.weight": np.ones(size), f"{name}.bias": np.ones(size)}
    >>> sorted(lstm_from_torchaudio(weights))
    ['bias', 'bias_c', 'gain_c', 'gain_joint', 'w_h', 'w_x']
    """
    norms = _norms(prefix)
    joint_bias = f"{prefix}g_norm.bias"
    has_norms = any(has(weights, name) for name in (joint_bias, *norms.values()))
    w_x = take(weights, f"{prefix}x2g.weight").T
    w_h = take(weights, f"{prefix}p2g.weight").T
    if not has_norms:
        bias = take_optional(weights, f"{prefix}x2g.bias")
        return lstm_params(Arrays(w_x, w_h, bias), GATES)
    # The joint norm's bias is added where our bias is.
    params = lstm_params(Arrays(w_x, w_h, take(weights, joint_bias)), GATES)
    return params | lstm_norm_params(weights, norms, GATES, len(w_h))


def lstm_to_torchaudio(params: Weights, *, prefix: str = "") -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, norm="layer", norm_site="joint", cell_norm="carry").

    LSTMCell(H, norm="none") becomes a layer with layer_norm=False.

    Args:
      params: parameters of LSTMCell; a missing bias becomes zero.
      prefix: the start of the names.

    Returns:
      The state dict of the layer, see `lstm_from_torchaudio`.

    Raises:
      ValueError: a missing parameter, or one that torchaudio has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> list(lstm_to_torchaudio(params))
    ['x2g.weight', 'p2g.weight', 'x2g.bias']
    """
    norms = _norms(prefix)
    arrays = lstm_arrays(params, GATES, "torchaudio's RNN-T LSTM", tuple(norms))
    weights = {
        f"{prefix}x2g.weight": np.ascontiguousarray(arrays.w_x.T),
        f"{prefix}p2g.weight": np.ascontiguousarray(arrays.w_h.T),
    }
    bias = or_zeros(arrays.bias, arrays.w_h)
    if not any(has(params, name) for name in norms):
        return weights | {f"{prefix}x2g.bias": bias}
    weights |= lstm_norm_arrays(params, norms, GATES, len(arrays.w_h))
    return weights | {f"{prefix}g_norm.bias": bias}


def _norms(prefix):
    """The names of the norms' parameters."""
    return {
        "gain_joint": f"{prefix}g_norm.weight",
        "gain_c": f"{prefix}c_norm.weight",
        "bias_c": f"{prefix}c_norm.bias",
    }
