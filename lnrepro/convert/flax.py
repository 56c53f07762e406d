"""flax.linen.LSTMCell, OptimizedLSTMCell, GRUCell and SimpleCell.

    i, f, g, o: W_i<gate> x_t + W_h<gate> h_{t-1} + b_h<gate>           (LSTM)
    c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
    h_t = sigmoid(o) * tanh(c_t)

    r, z = sigmoid(W_i<gate> x_t + b_i<gate> + W_h<gate> h_{t-1})       (GRU)
    n = tanh(W_in x_t + b_in + r * (W_hn h_{t-1} + b_hn))
    h_t = (1 - z) * n + z * h_{t-1}

    h_t = tanh(W_i x_t + b_i + W_h h_{t-1})                             (SimpleCell)

Source: flax.readthedocs.io, api_reference/flax.linen/layers, and
github.com/google/flax, flax/linen/recurrent.py.

Weights are the tree `variables["params"]` of the cell. The cells of flax.nnx have
other trees: see `lnrepro.convert.nnx`.

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
    pad_recurrent_bias,
    read,
    simple_arrays,
    simple_params,
)
from lnrepro.convert.layout import (
    GRU_ORDER,
    LSTM_ORDER,
    Arrays,
    Params,
    Weights,
    flatten,
    has,
    refuse_unknown,
    take,
)

Tree = dict[str, dict[str, np.ndarray]]


def lstm_from_flax(weights: Weights) -> Params:
    """Convert a flax.linen.LSTMCell or OptimizedLSTMCell into LSTMCell(H, norm="none").

    Args:
      weights: {"ii": {"kernel" [D, H]}, ..., "hi": {"kernel" [H, H], "bias" [H]}, ...}
        for the gates i, f, g and o; the same tree for both cells. A tree without any
        bias gives parameters for use_bias=False.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {f"i{gate}": {"kernel": np.ones((3, 2))} for gate in "ifgo"}
    >>> for gate in "ifgo":
    ...     weights[f"h{gate}"] = {"kernel": np.ones((2, 2)), "bias": np.ones(2)}
    >>> {name: a.shape for name, a in lstm_from_flax(weights).items()}
    {'w_x': (3, 8), 'w_h': (2, 8), 'bias': (8,)}
    """
    return lstm_params(read_lstm(weights, "flax.linen.LSTMCell"), LSTM_ORDER)


def lstm_to_flax(params: Weights) -> Tree:
    """Convert LSTMCell(H, norm="none") into a flax.linen.LSTMCell.

    Args:
      params: parameters of LSTMCell; a missing bias becomes zero.

    Returns:
      The parameters of flax.linen.LSTMCell and OptimizedLSTMCell, see
      `lstm_from_flax`.

    Raises:
      ValueError: a missing parameter, or one that Flax has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> tree = lstm_to_flax(params)
    >>> tree["ii"]["kernel"].shape, tree["hi"]["bias"].shape
    ((3, 2), (2,))
    """
    arrays = lstm_arrays(params, LSTM_ORDER, "flax.linen.LSTMCell")
    bias = or_zeros(arrays.bias, arrays.w_h)
    tree = {}
    # Flax has a layer for each gate and product, named such as "if" and "hf".
    for k, gate in enumerate(LSTM_ORDER):
        tree[f"i{gate}"] = {"kernel": _gate(arrays.w_x, k, 4)}
        tree[f"h{gate}"] = {
            "kernel": _gate(arrays.w_h, k, 4),
            "bias": _gate(bias, k, 4),
        }
    return tree


def gru_from_flax(weights: Weights) -> Params:
    """Convert a flax.linen.GRUCell into GRUCell(H, norm="none", recurrent_bias=True).

    Args:
      weights: {"ir": {"kernel" [D, H], "bias" [H]}, ..., "hr": {"kernel" [H, H]}, ...}
        for r, z and n; "hn" has a bias [H] too. A tree without any bias gives
        parameters for GRUCell(H, norm="none", use_bias=False).

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {f"h{gate}": {"kernel": np.ones((2, 2))} for gate in "rzn"}
    >>> for gate in "rzn":
    ...     weights[f"i{gate}"] = {"kernel": np.ones((3, 2)), "bias": np.ones(2)}
    >>> weights["hn"]["bias"] = np.ones(2)
    >>> params = gru_from_flax(weights)
    >>> params["bias"].shape, params["bias_recurrent"].shape
    ((6,), (6,))
    """
    flat = flatten(weights)
    names = {
        "w_x": [f"i{gate}/kernel" for gate in GRU_ORDER],
        "w_h": [f"h{gate}/kernel" for gate in GRU_ORDER],
        "bias": [f"i{gate}/bias" for gate in GRU_ORDER],
    }
    known = [*names["w_x"], *names["w_h"], *names["bias"], "hn/bias"]
    # With one bias, all are needed: a missing one is then reported by name.
    biased = any(name.endswith("/bias") for name in flat)
    if not biased:
        del names["bias"]
    arrays = _join(flat, names)
    if biased:
        recurrent = pad_recurrent_bias(take(flat, "hn/bias"))
        arrays = arrays._replace(bias_recurrent=recurrent)
    refuse_unknown(flat, known, "flax.linen.GRUCell")
    return gru_params(arrays, GRU_ORDER)


def gru_to_flax(params: Weights) -> Tree:
    """Convert GRUCell(H, norm="none") into a flax.linen.GRUCell.

    Recurrent biases of the gates are added to the input's, since only the sum counts.
    The parameters do not tell reset="after", which is Flax's, from reset="before".

    Args:
      params: parameters of GRUCell; missing biases become zero.

    Returns:
      The parameters of flax.linen.GRUCell, see `gru_from_flax`.

    Raises:
      ValueError: a missing parameter, or one that Flax has no place for.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> tree = gru_to_flax(params)
    >>> tree["in"]["kernel"].shape, tree["hn"]["bias"].shape
    ((3, 2), (2,))
    """
    arrays = gru_arrays(params, GRU_ORDER, "flax.linen.GRUCell")
    bias, bias_n = fold_recurrent_bias(arrays)
    tree = {}
    for k, gate in enumerate(GRU_ORDER):
        tree[f"i{gate}"] = {
            "kernel": _gate(arrays.w_x, k, 3),
            "bias": _gate(bias, k, 3),
        }
        tree[f"h{gate}"] = {"kernel": _gate(arrays.w_h, k, 3)}
    # Of the recurrent layers, only that of the candidate has a bias.
    tree["hn"]["bias"] = bias_n
    return tree


def rnn_from_flax(weights: Weights) -> Params:
    """Convert a flax.linen.SimpleCell into SimpleCell(H, norm="none").

    The weights do not show residual=True, which has no counterpart here.

    Args:
      weights: {"i": {"kernel" [D, H], "bias" [H]}, "h": {"kernel" [H, H]}}. Without a
        bias they give parameters for use_bias=False.

    Returns:
      Parameters of SimpleCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"i": {"kernel": np.ones((3, 2)), "bias": np.ones(2)}}
    >>> weights["h"] = {"kernel": np.ones((2, 2))}
    >>> {name: a.shape for name, a in rnn_from_flax(weights).items()}
    {'w_x': (3, 2), 'w_h': (2, 2), 'bias': (2,)}
    """
    names = ("i/kernel", "h/kernel", "i/bias")
    arrays = read(flatten(weights), names, "flax.linen.SimpleCell")
    return simple_params(arrays)


def rnn_to_flax(params: Weights) -> Tree:
    """Convert SimpleCell(H, norm="none") into a flax.linen.SimpleCell.

    Args:
      params: parameters of SimpleCell; a missing bias becomes zero.

    Returns:
      The parameters of flax.linen.SimpleCell, see `rnn_from_flax`.

    Raises:
      ValueError: a missing parameter, or one that Flax has no place for.

    >>> params = {"w_x": np.ones((3, 2)), "w_h": np.ones((2, 2)), "bias": np.ones(2)}
    >>> rnn_to_flax(params)["i"]["kernel"].shape
    (3, 2)
    """
    arrays = simple_arrays(params, "flax.linen.SimpleCell")
    bias = or_zeros(arrays.bias, arrays.w_h)
    return {"i": {"kernel": arrays.w_x, "bias": bias}, "h": {"kernel": arrays.w_h}}


def read_lstm(weights: Weights, cell: str, forget: str = "if") -> Arrays:
    """Return the arrays of an LSTM with one kernel per gate, in the order f, i, o, g.

    Args:
      weights: the tree of flax.linen.LSTMCell or flax.nnx.LSTMCell.
      cell: the Flax class, for the message.
      forget: the name of the forget gate's input layer.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.
    """
    flat = flatten(weights)
    # The input layers have no bias in Flax's LSTM, and the recurrent ones have it.
    inputs = {gate: f"i{gate}" for gate in LSTM_ORDER} | {"f": forget}
    names = {
        "w_x": [f"{inputs[gate]}/kernel" for gate in LSTM_ORDER],
        "w_h": [f"h{gate}/kernel" for gate in LSTM_ORDER],
        "bias": [f"h{gate}/bias" for gate in LSTM_ORDER],
    }
    known = [*names["w_x"], *names["w_h"], *names["bias"]]
    if not any(has(flat, name) for name in names["bias"]):
        del names["bias"]
    arrays = _join(flat, names)
    refuse_unknown(flat, known, cell)
    return arrays


def _join(flat, names):
    """Join the weights of all gates; names maps fields of Arrays to their weights."""
    arrays = {}
    for field, of_gates in names.items():
        parts = [take(flat, name) for name in of_gates]
        for name, part in zip(of_gates, parts, strict=True):
            if part.shape != parts[0].shape:
                raise ValueError(
                    f"convert: {name} has shape {part.shape}, but {of_gates[0]} has "
                    f"{parts[0].shape}"
                )
        arrays[field] = np.concatenate(parts, axis=-1)
    return Arrays(**arrays)


def _gate(a, k, gates):
    """Return a copy of the k-th of the gates' blocks."""
    return np.array(np.split(a, gates, axis=-1)[k])
