"""flax.nnx.LSTMCell, OptimizedLSTMCell, GRUCell and SimpleCell.

Weights are nested mappings of arrays or of nnx.Param:

    weights = nnx.to_pure_dict(nnx.state(module, nnx.Param))

and they go back by `nnx.update(module, weights)`.
"""

import numpy as np

from lnrepro.convert.cells import (
    fold_recurrent_bias,
    gru_arrays,
    gru_params,
    lstm_arrays,
    lstm_params,
    or_zeros,
    simple_arrays,
    simple_params,
)
from lnrepro.convert.flax import lstm_from_flax, lstm_to_flax
from lnrepro.convert.layout import (
    Arrays,
    Params,
    Weights,
    flatten,
    take,
    take_optional,
)

LSTM_GATES = "ifgo"
GRU_GATES = "rzn"
Tree = dict[str, dict[str, np.ndarray]]


def lstm_from_nnx(weights: Weights) -> Params:
    """Convert a flax.nnx LSTMCell or OptimizedLSTMCell into LSTMCell(H, norm="none").

    Args:
      weights: {"ii": {"kernel"}, "if_": ..., "hi": {"kernel", "bias"}, ...} of an
        LSTMCell, or {"dense_i": {"kernel"}, "dense_h": {"kernel", "bias"}} of an
        OptimizedLSTMCell. Without any bias they give parameters for use_bias=False.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"dense_i": {"kernel": np.ones((3, 8))}}
    >>> weights["dense_h"] = {"kernel": np.ones((2, 8)), "bias": np.ones(8)}
    >>> {name: a.shape for name, a in lstm_from_nnx(weights).items()}
    {'w_x': (3, 8), 'w_h': (2, 8), 'bias': (8,)}
    """
    if "if_" in weights:
        # "if" is a keyword of Python, so that nnx cannot use linen's name.
        renamed = {name.rstrip("_"): value for name, value in weights.items()}
        return lstm_from_flax(renamed)
    return lstm_params(_read(weights, "dense_h/bias"), LSTM_GATES)


def lstm_to_nnx(params: Weights, *, optimized: bool = False) -> Tree:
    """Convert LSTMCell(H, norm="none") into a flax.nnx LSTMCell or OptimizedLSTMCell.

    Args:
      params: parameters of LSTMCell; a missing bias becomes zero.
      optimized: whether to return the tree of OptimizedLSTMCell.

    Returns:
      The weights as a nested dict.

    Raises:
      ValueError: a missing parameter, or one that Flax has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> lstm_to_nnx(params)["if_"]["kernel"].shape
    (3, 2)
    >>> lstm_to_nnx(params, optimized=True)["dense_h"]["bias"].shape
    (8,)
    """
    if not optimized:
        tree = lstm_to_flax(params)
        tree["if_"] = tree.pop("if")
        return tree
    arrays = lstm_arrays(params, LSTM_GATES, "flax.nnx.OptimizedLSTMCell")
    bias = or_zeros(arrays.bias, arrays.w_h)
    return {
        "dense_i": {"kernel": arrays.w_x},
        "dense_h": {"kernel": arrays.w_h, "bias": bias},
    }


def gru_from_nnx(weights: Weights) -> Params:
    """Convert a flax.nnx.GRUCell into GRUCell(H, norm="none").

    Unlike flax.linen.GRUCell it has no bias on the candidate's recurrent product.

    Args:
      weights: {"dense_i": {"kernel", "bias"}, "dense_h": {"kernel"}}. Without a bias
        they give parameters for use_bias=False.

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"dense_i": {"kernel": np.ones((3, 6)), "bias": np.ones(6)}}
    >>> weights["dense_h"] = {"kernel": np.ones((2, 6))}
    >>> {name: a.shape for name, a in gru_from_nnx(weights).items()}
    {'w_x': (3, 6), 'w_h': (2, 6), 'bias': (6,)}
    """
    return gru_params(_read(weights, "dense_i/bias"), GRU_GATES)


def gru_to_nnx(params: Weights) -> Tree:
    """Convert GRUCell(H, norm="none") into a flax.nnx.GRUCell.

    Recurrent biases of the gates are added to the input's, since only the sum counts.
    The parameters do not tell reset="after", which is Flax's, from reset="before".

    Args:
      params: parameters of GRUCell; a missing bias becomes zero.

    Returns:
      The weights as a nested dict.

    Raises:
      ValueError: a missing parameter, one that Flax has no place for, or a recurrent
        bias of the candidate that is not zero.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> gru_to_nnx(params)["dense_i"]["bias"].shape
    (6,)
    """
    arrays = gru_arrays(params, GRU_GATES, "flax.nnx.GRUCell")
    bias, bias_n = fold_recurrent_bias(arrays)
    if bias_n.any():
        raise ValueError(
            "convert: flax.nnx.GRUCell has no place for the candidate's part of "
            "bias_recurrent, which is not zero; flax.linen.GRUCell has"
        )
    return {
        "dense_i": {"kernel": arrays.w_x, "bias": bias},
        "dense_h": {"kernel": arrays.w_h},
    }


def rnn_from_nnx(weights: Weights) -> Params:
    """Convert a flax.nnx.SimpleCell into SimpleCell(H, norm="none").

    The weights do not show residual=True, which has no counterpart here.

    Args:
      weights: {"dense_i": {"kernel", "bias"}, "dense_h": {"kernel"}}. Without a bias
        they give parameters for use_bias=False.

    Returns:
      Parameters of SimpleCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"dense_i": {"kernel": np.ones((3, 2)), "bias": np.ones(2)}}
    >>> weights["dense_h"] = {"kernel": np.ones((2, 2))}
    >>> {name: a.shape for name, a in rnn_from_nnx(weights).items()}
    {'w_x': (3, 2), 'w_h': (2, 2), 'bias': (2,)}
    """
    return simple_params(_read(weights, "dense_i/bias"))


def rnn_to_nnx(params: Weights) -> Tree:
    """Convert SimpleCell(H, norm="none") into a flax.nnx.SimpleCell.

    Args:
      params: parameters of SimpleCell; a missing bias becomes zero.

    Returns:
      The weights as a nested dict.

    Raises:
      ValueError: a missing parameter, or one that Flax has no place for.

    >>> params = {"w_x": np.ones((3, 2)), "w_h": np.ones((2, 2)), "bias": np.ones(2)}
    >>> rnn_to_nnx(params)["dense_i"]["kernel"].shape
    (3, 2)
    """
    arrays = simple_arrays(params, "flax.nnx.SimpleCell")
    bias = or_zeros(arrays.bias, arrays.w_h)
    return {
        "dense_i": {"kernel": arrays.w_x, "bias": bias},
        "dense_h": {"kernel": arrays.w_h},
    }


def _read(weights, bias_name):
    flat = flatten(weights)
    return Arrays(
        w_x=take(flat, "dense_i/kernel"),
        w_h=take(flat, "dense_h/kernel"),
        bias=take_optional(flat, bias_name),
    )
