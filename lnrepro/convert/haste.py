"""haste's LSTM, LayerNormLSTM and GRU.

Weights are named kernel, recurrent_kernel, bias, and so on:

    weights = dict(layer.named_parameters())                      # haste_pytorch
"""

import numpy as np

from lnrepro.convert.cells import (
    gru_arrays,
    gru_params,
    lstm_arrays,
    lstm_params,
    or_zeros,
)
from lnrepro.convert.layout import (
    LSTM_ORDER,
    Arrays,
    Params,
    Weights,
    has,
    reorder,
    take,
)

LSTM_GATES = "igfo"
GRU_GATES = "zrn"
_NORM_PARAMS = ("gain_x", "bias_x", "gain_h", "bias_h", "gain_c", "bias_c")


def lstm_from_haste(weights: Weights) -> Params:
    """Convert haste's LSTM or LayerNormLSTM.

    An LSTM becomes LSTMCell(H, norm="none"), a LayerNormLSTM LSTMCell(H, norm="layer").
    haste's norms of the products have no bias: bias_x and bias_h are zero.

    Args:
      weights: kernel, recurrent_kernel and bias; with layer norm gamma [2, 4 H],
        gamma_h [H] and beta_h [H] besides.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

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
    params = lstm_params(arrays, LSTM_GATES)
    if not has(weights, "gamma"):
        return params
    gain_x, gain_h = reorder(take(weights, "gamma"), LSTM_GATES, LSTM_ORDER)
    return params | {
        "gain_x": gain_x,
        "bias_x": np.zeros_like(gain_x),
        "gain_h": gain_h,
        "bias_h": np.zeros_like(gain_h),
        "gain_c": np.array(take(weights, "gamma_h")),
        "bias_c": np.array(take(weights, "beta_h")),
    }


def lstm_to_haste(params: Weights) -> dict[str, np.ndarray]:
    """Convert LSTMCell(H) with norm="none" or "layer" into haste's layout.

    Args:
      params: parameters of LSTMCell; a missing bias becomes zero.

    Returns:
      The weights of haste's LSTM or LayerNormLSTM. The biases of the norms of the
      products are added to the one bias that haste has.

    Raises:
      ValueError: a missing parameter, or one that haste has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> list(lstm_to_haste(params))
    ['kernel', 'recurrent_kernel', 'bias']
    """
    arrays = lstm_arrays(params, LSTM_GATES, "haste's LSTM", _NORM_PARAMS)
    weights = {
        "kernel": arrays.w_x,
        "recurrent_kernel": arrays.w_h,
        "bias": or_zeros(arrays.bias, arrays.w_h),
    }
    if not has(params, "gain_x"):
        return weights
    gains = np.stack([take(params, "gain_x"), take(params, "gain_h")])
    norm_bias = take(params, "bias_x") + take(params, "bias_h")
    weights["bias"] += reorder(norm_bias, LSTM_ORDER, LSTM_GATES)
    weights["gamma"] = reorder(gains, LSTM_ORDER, LSTM_GATES)
    weights["gamma_h"] = np.array(take(params, "gain_c"))
    weights["beta_h"] = np.array(take(params, "bias_c"))
    return weights


def gru_from_haste(weights: Weights) -> Params:
    """Convert haste's GRU into GRUCell(H, norm="none", recurrent_bias=True).

    haste's LayerNormGRU normalises z, r and the candidate jointly. Eq. 26-28 do not, so
    that it has no counterpart here.

    Args:
      weights: kernel, recurrent_kernel, bias and recurrent_bias.

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing weight, a wrong shape, or weights of a LayerNormGRU.

    >>> weights = {"kernel": np.ones((3, 6)), "recurrent_kernel": np.ones((2, 6))}
    >>> weights |= {"bias": np.ones(6), "recurrent_bias": np.ones(6)}
    >>> list(gru_from_haste(weights))
    ['w_x', 'w_h', 'bias', 'bias_recurrent']
    """
    if has(weights, "gamma"):
        raise ValueError(
            "convert: weights have 'gamma'; haste's LayerNormGRU normalises z, r and "
            "the candidate jointly, and no cell here does"
        )
    names = ("kernel", "recurrent_kernel", "bias", "recurrent_bias")
    return gru_params(Arrays(*[take(weights, name) for name in names]), GRU_GATES)


def gru_to_haste(params: Weights) -> dict[str, np.ndarray]:
    """Convert GRUCell(H, norm="none") into haste's GRU.

    The parameters do not tell reset="after", which is haste's, from reset="before".

    Args:
      params: parameters of GRUCell; missing biases become zero.

    Returns:
      kernel, recurrent_kernel, bias and recurrent_bias.

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
