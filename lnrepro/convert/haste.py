"""haste's LSTM, LayerNormLSTM and GRU.

    (i, g, f, o) = W x_t + U h_{t-1} + b                                (LSTM)
    c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
    h_t = sigmoid(o) * tanh(c_t)

    (i, g, f, o) = LN_1(W x_t) + LN_2(U h_{t-1}) + b                    (LayerNormLSTM)
    h_t = sigmoid(o) * tanh(LN_h(c_t))

    z, r = sigmoid(W x_t + b + U h_{t-1} + b')                          (GRU)
    n = tanh(W x_t + b + r * (U h_{t-1} + b'))
    h_t = z * h_{t-1} + (1 - z) * n

Source: github.com/lmnt-com/haste, frameworks/pytorch and docs/pytorch.

Weights are named kernel, recurrent_kernel, bias, and so on:

    weights = dict(layer.named_parameters())                      # haste_pytorch

Shape letters: D input features, H hidden units.
"""

import numpy as np

from lnrepro.convert.cells import (
    gru_arrays,
    gru_params,
    lstm_arrays,
    lstm_norm_arrays,
    lstm_norm_params,
    lstm_params,
    or_zeros,
)
from lnrepro.convert.layout import (
    Arrays,
    Params,
    Weights,
    has,
    refuse_unknown,
    take,
)

# The order of the gates in weights of this library: z is the update gate, r the reset
# gate, n the candidate.
LSTM_GATES = "igfo"
GRU_GATES = "zrn"
_CELL_NORM = ("gamma_h", "beta_h")
# gamma holds two gains, so the norms' parameters are renamed by hand.
_NORM_PARAMS = ("gain_x", "bias_x", "gain_h", "bias_h", "gain_c", "bias_c")
_NORMS: dict[str, str] = dict(zip(_NORM_PARAMS, _NORM_PARAMS, strict=True))


def lstm_from_haste(weights: Weights) -> Params:
    """Convert haste's LSTM or LayerNormLSTM.

    An LSTM becomes LSTMCell(H, norm="none"), a LayerNormLSTM LSTMCell(H, norm="layer").
    haste's norms of the products have no bias: bias_x and bias_h are zero.

    Args:
      weights: kernel [D, 4H], recurrent_kernel [H, 4H] and bias [4H]; with layer norm
        gamma [2, 4H], gamma_h [H] and beta_h [H] besides.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"kernel": np.ones((3, 8)), "recurrent_kernel": np.ones((2, 8))}
    >>> weights["bias"] = np.ones(8)
    >>> {name: a.shape for name, a in lstm_from_haste(weights).items()}
    {'w_x': (3, 8), 'w_h': (2, 8), 'bias': (8,)}
    """
    arrays = Arrays(
        w_x=take(weights, "kernel"),
        w_h=take(weights, "recurrent_kernel"),
        bias=take(weights, "bias"),
    )
    known = ("kernel", "recurrent_kernel", "bias")
    params = lstm_params(arrays, LSTM_GATES)
    if not has(weights, "gamma"):
        refuse_unknown(weights, known, "haste's LSTM")
        return params
    refuse_unknown(weights, (*known, "gamma", *_CELL_NORM), "haste's LayerNormLSTM")
    gamma = take(weights, "gamma")
    if gamma.shape != (2, 4 * len(arrays.w_h)):
        raise ValueError(
            f"convert: gamma has shape {gamma.shape}; beside the kernels it must be "
            f"(2, {4 * len(arrays.w_h)})"
        )
    # Row 0 of gamma is the gain of W x, row 1 that of U h.
    zeros = np.zeros_like(gamma[0])
    norms = {
        "gain_x": gamma[0],
        "bias_x": zeros,
        "gain_h": gamma[1],
        "bias_h": zeros,
        "gain_c": take(weights, "gamma_h"),
        "bias_c": take(weights, "beta_h"),
    }
    return params | lstm_norm_params(norms, _NORMS, LSTM_GATES, len(arrays.w_h))


def lstm_to_haste(params: Weights) -> dict[str, np.ndarray]:
    """Convert LSTMCell(H) with norm="none" or "layer" into haste's layout.

    Args:
      params: parameters of LSTMCell; a missing bias becomes zero.

    Returns:
      The weights of haste's LSTM or LayerNormLSTM, see `lstm_from_haste`.
      The biases of the norms of the products are added to haste's one bias.

    Raises:
      ValueError: a missing parameter, or one that haste has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> list(lstm_to_haste(params))
    ['kernel', 'recurrent_kernel', 'bias']
    """
    arrays = lstm_arrays(params, LSTM_GATES, "haste's LSTM", tuple(_NORMS))
    weights = {
        "kernel": arrays.w_x,
        "recurrent_kernel": arrays.w_h,
        "bias": or_zeros(arrays.bias, arrays.w_h),
    }
    if not any(has(params, name) for name in _NORMS):
        return weights
    norms = lstm_norm_arrays(params, _NORMS, LSTM_GATES, len(arrays.w_h))
    weights["bias"] += norms["bias_x"] + norms["bias_h"]
    weights["gamma"] = np.stack([norms["gain_x"], norms["gain_h"]])
    weights["gamma_h"] = norms["gain_c"]
    weights["beta_h"] = norms["bias_c"]
    return weights


def gru_from_haste(weights: Weights) -> Params:
    """Convert haste's GRU into GRUCell(H, norm="none", recurrent_bias=True).

    haste's LayerNormGRU is not converted. It normalises z, r and the candidate jointly,
    as GRUCell(norm_groups="all") does.

    Args:
      weights: kernel [D, 3H], recurrent_kernel [H, 3H], bias [3H] and recurrent_bias
        [3H].

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing or unknown weight, a wrong shape, or a LayerNormGRU.

    >>> weights = {"kernel": np.ones((3, 6)), "recurrent_kernel": np.ones((2, 6))}
    >>> weights |= {"bias": np.ones(6), "recurrent_bias": np.ones(6)}
    >>> list(gru_from_haste(weights))
    ['w_x', 'w_h', 'bias', 'bias_recurrent']
    """
    if has(weights, "gamma"):
        raise ValueError(
            "convert: weights have 'gamma'; haste's LayerNormGRU, which normalises z, "
            "r and the candidate jointly, is not converted"
        )
    names = ("kernel", "recurrent_kernel", "bias", "recurrent_bias")
    arrays = Arrays(*[take(weights, name) for name in names])
    refuse_unknown(weights, names, "haste's GRU")
    return gru_params(arrays, GRU_GATES)


def gru_to_haste(params: Weights) -> dict[str, np.ndarray]:
    """Convert GRUCell(H, norm="none") into haste's GRU.

    The parameters do not tell reset="after", which is haste's, from reset="before".

    Args:
      params: parameters of GRUCell; missing biases become zero.

    Returns:
      kernel [D, 3H], recurrent_kernel [H, 3H], bias [3H] and recurrent_bias [3H].

    Raises:
      ValueError: a missing parameter, or one that haste has no place for.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> list(gru_to_haste(params))
    ['kernel', 'recurrent_kernel', 'bias', 'recurrent_bias']
    """
    arrays = gru_arrays(params, GRU_GATES, "haste's GRU")
    return {
        "kernel": arrays.w_x,
        "recurrent_kernel": arrays.w_h,
        "bias": or_zeros(arrays.bias, arrays.w_h),
        "recurrent_bias": or_zeros(arrays.bias_recurrent, arrays.w_h),
    }
