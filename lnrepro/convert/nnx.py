"""flax.nnx.LSTMCell, OptimizedLSTMCell, GRUCell and SimpleCell.

The equations are those of flax.linen, see `lnrepro.convert.flax`, with one exception:
the candidate of the GRU is n = tanh(W_in x_t + b_in + r * W_hn h_{t-1}).

Source: flax.readthedocs.io, api_reference/flax.nnx/nn/recurrent, and
github.com/google/flax, flax/nnx/nn/recurrent.py.

Weights are nested mappings of arrays or of nnx.Param:

    weights = nnx.to_pure_dict(nnx.state(module, nnx.Param))

and they go back by `nnx.update(module, weights)`.

Shape letters: D input features, H hidden units.
"""

import numpy as np

from lnrepro.convert.cells import (
    fold_recurrent_bias,
    gru_arrays,
    gru_params,
    lstm_arrays,
    lstm_params,
    or_zeros,
    read,
    simple_arrays,
    simple_params,
)
from lnrepro.convert.flax import lstm_to_flax, read_lstm
from lnrepro.convert.layout import (
    LSTM_ORDER,
    Params,
    Weights,
    flatten,
    has,
)

# The order of the gates in weights of this library: z is the update gate, r the reset
# gate, n the candidate.
LSTM_GATES = "ifgo"
GRU_GATES = "rzn"
Tree = dict[str, dict[str, np.ndarray]]


def lstm_from_nnx(weights: Weights) -> Params:
    """Convert a flax.nnx LSTMCell or OptimizedLSTMCell into LSTMCell(H, norm="none").

    Args:
      weights: those of an LSTMCell, as in `lstm_from_flax` with the names "if_" for
        "if"; or {"dense_i": {"kernel" [D, 4H]}, "dense_h": {"kernel" [H, 4H], "bias"
        [4H]}} of an OptimizedLSTMCell. Without any bias they give parameters for
        use_bias=False.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"dense_i": {"kernel": np.ones((3, 8))}}
    >>> weights["dense_h"] = {"kernel": np.ones((2, 8)), "bias": np.ones(8)}
    >>> {name: a.shape for name, a in lstm_from_nnx(weights).items()}
    {'w_x': (3, 8), 'w_h': (2, 8), 'bias': (8,)}
    """
    if has(weights, "dense_i") or has(weights, "dense_h"):
        arrays = _read(weights, "dense_h/bias", "flax.nnx.OptimizedLSTMCell")
        return lstm_params(arrays, LSTM_GATES)
    # "if" is a keyword of Python, so that nnx cannot use linen's name.
    arrays = read_lstm(weights, "flax.nnx.LSTMCell", forget="if_")
    return lstm_params(arrays, LSTM_ORDER)


def lstm_to_nnx(params: Weights, *, optimized: bool = False) -> Tree:
    """Convert LSTMCell(H, norm="none") into a flax.nnx LSTMCell or OptimizedLSTMCell.

    Args:
      params: parameters of LSTMCell; a missing bias becomes zero.
      optimized: whether to return the tree of OptimizedLSTMCell.

    Returns:
      The weights as a nested dict, see `lstm_from_nnx`.

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
    return _write(arrays, "dense_h")


def gru_from_nnx(weights: Weights) -> Params:
    """Convert a flax.nnx.GRUCell into GRUCell(H, norm="none").

    Unlike flax.linen.GRUCell it has no bias on the candidate's recurrent product.

    Args:
      weights: {"dense_i": {"kernel" [D, 3H], "bias" [3H]}, "dense_h": {"kernel"
        [H, 3H]}}. Without a bias they give parameters for use_bias=False.

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"dense_i": {"kernel": np.ones((3, 6)), "bias": np.ones(6)}}
    >>> weights["dense_h"] = {"kernel": np.ones((2, 6))}
    >>> {name: a.shape for name, a in gru_from_nnx(weights).items()}
    {'w_x': (3, 6), 'w_h': (2, 6), 'bias': (6,)}
    """
    arrays = _read(weights, "dense_i/bias", "flax.nnx.GRUCell")
    return gru_params(arrays, GRU_GATES)


def gru_to_nnx(params: Weights) -> Tree:
    """Convert GRUCell(H, norm="none") into a flax.nnx.GRUCell.

    Recurrent biases of the gates are added to the input's, since only the sum counts.
    The parameters do not tell reset="after", which is Flax's, from reset="before".

    Args:
      params: parameters of GRUCell; a missing bias becomes zero.

    Returns:
      The weights as a nested dict, see `gru_from_nnx`.

    Raises:
      ValueError: a missing parameter, one that Flax has no place for, or a recurrent
        bias of the candidate that is not zero.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> gru_to_nnx(params)["dense_i"]["bias"].shape
    (6,)
    """
    arrays = gru_arrays(params, GRU_GATES, "flax.nnx.GRUCell")
    # The reset gate multiplies the candidate's recurrent bias, so it cannot be folded.
    bias, bias_n = fold_recurrent_bias(arrays)
    if bias_n.any():
        raise ValueError(
            "convert: flax.nnx.GRUCell has no place for the candidate's part of "
            "bias_recurrent, which is not zero; flax.linen.GRUCell has"
        )
    return _write(arrays._replace(bias=bias), "dense_i")


def rnn_from_nnx(weights: Weights) -> Params:
    """Convert a flax.nnx.SimpleCell into SimpleCell(H, norm="none").

    The weights do not show residual=True, which has no counterpart here.

    Args:
      weights: {"dense_i": {"kernel" [D, H], "bias" [H]}, "dense_h": {"kernel" [H, H]}}.
        Without a bias they give parameters for use_bias=False.

    Returns:
      Parameters of SimpleCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"dense_i": {"kernel": np.ones((3, 2)), "bias": np.ones(2)}}
    >>> weights["dense_h"] = {"kernel": np.ones((2, 2))}
    >>> {name: a.shape for name, a in rnn_from_nnx(weights).items()}
    {'w_x': (3, 2), 'w_h': (2, 2), 'bias': (2,)}
    """
    return simple_params(_read(weights, "dense_i/bias", "flax.nnx.SimpleCell"))


def rnn_to_nnx(params: Weights) -> Tree:
    """Convert SimpleCell(H, norm="none") into a flax.nnx.SimpleCell.

    Args:
      params: parameters of SimpleCell; a missing bias becomes zero.

    Returns:
      The weights as a nested dict, see `rnn_from_nnx`.

    Raises:
      ValueError: a missing parameter, or one that Flax has no place for.

    >>> params = {"w_x": np.ones((3, 2)), "w_h": np.ones((2, 2)), "bias": np.ones(2)}
    >>> rnn_to_nnx(params)["dense_i"]["kernel"].shape
    (3, 2)
    """
    return _write(simple_arrays(params, "flax.nnx.SimpleCell"), "dense_i")


def _read(weights, bias_name, cell):
    """Return the arrays of the two layers dense_i and dense_h."""
    return read(flatten(weights), ("dense_i/kernel", "dense_h/kernel", bias_name), cell)


def _write(arrays, biased):
    """Return the two layers; the one named `biased` has the bias, zero for None."""
    tree = {"dense_i": {"kernel": arrays.w_x}, "dense_h": {"kernel": arrays.w_h}}
    tree[biased]["bias"] = or_zeros(arrays.bias, arrays.w_h)
    return tree
