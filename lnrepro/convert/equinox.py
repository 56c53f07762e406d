"""equinox.nn.LSTMCell and GRUCell.

    (i, f, g, o) = W_ih x_t + W_hh h_{t-1} + b                          (LSTM)
    c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
    h_t = sigmoid(o) * tanh(c_t)

    r, z = sigmoid(W_ih x_t + b + W_hh h_{t-1})                         (GRU)
    n = tanh(W_ih x_t + b + r * (W_hh h_{t-1} + b_n))
    h_t = n + z * (h_{t-1} - n)

Source: docs.kidger.site/equinox/api/nn/rnn and github.com/patrick-kidger/equinox,
equinox/nn/_rnn.py.

Weights are the fields of the module, `weights = vars(cell)`, and they go back by

    names = tuple(weights)
    equinox.tree_at(
        lambda cell: [getattr(cell, name) for name in names],
        cell,
        [jnp.asarray(weights[name]) for name in names],
    )

Shape letters: D input features, H hidden units.
"""

import numpy as np

from lnrepro.convert.cells import (
    fold_recurrent_bias,
    gru_arrays,
    gru_params,
    lstm_arrays,
    lstm_params,
    pad_recurrent_bias,
)
from lnrepro.convert.layout import (
    Arrays,
    Params,
    Weights,
    has,
    refuse_unknown,
    take,
    take_optional,
)

# The order of the gates in weights of this library: z is the update gate, r the reset
# gate, n the candidate.
LSTM_GATES = "ifgo"
GRU_GATES = "rzn"
# The fields of both modules, besides the biases. The last three are no weights.
_FIELDS = ("weight_ih", "weight_hh", "input_size", "hidden_size", "use_bias")


def lstm_from_equinox(weights: Weights) -> Params:
    """Convert an equinox.nn.LSTMCell into LSTMCell(H, norm="none").

    Args:
      weights: weight_ih [4H, D], weight_hh [4H, H] and bias [4H]. Without a bias, or
        with None for it (use_bias=False), they give parameters for use_bias=False.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"weight_ih": np.ones((8, 3)), "weight_hh": np.ones((8, 2))}
    >>> {name: a.shape for name, a in lstm_from_equinox(weights).items()}
    {'w_x': (3, 8), 'w_h': (2, 8)}
    """
    arrays = _read(weights)
    refuse_unknown(weights, {*_FIELDS, "bias"}, "equinox.nn.LSTMCell")
    return lstm_params(arrays, LSTM_GATES)


def lstm_to_equinox(params: Weights) -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, norm="none") into an equinox.nn.LSTMCell.

    Args:
      params: parameters of LSTMCell; without a bias they give use_bias=False.

    Returns:
      weight_ih [4H, D], weight_hh [4H, H] and bias [4H].

    Raises:
      ValueError: a missing parameter, or one that Equinox has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> {name: a.shape for name, a in lstm_to_equinox(params).items()}
    {'weight_ih': (8, 3), 'weight_hh': (8, 2), 'bias': (8,)}
    """
    arrays = lstm_arrays(params, LSTM_GATES, "equinox.nn.LSTMCell")
    weights = _write(arrays)
    if arrays.bias is not None:
        weights["bias"] = arrays.bias
    return weights


def gru_from_equinox(weights: Weights) -> Params:
    """Convert an equinox.nn.GRUCell into GRUCell(H, norm="none", recurrent_bias=True).

    Args:
      weights: weight_ih [3H, D], weight_hh [3H, H], bias [3H] and bias_n [H]. Without
        biases, or with None for them (use_bias=False), they give parameters for
        GRUCell(H, norm="none", use_bias=False).

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"weight_ih": np.ones((6, 3)), "weight_hh": np.ones((6, 2))}
    >>> weights |= {"bias": np.ones(6), "bias_n": np.ones(2)}
    >>> list(gru_from_equinox(weights))
    ['w_x', 'w_h', 'bias', 'bias_recurrent']
    """
    arrays = _read(weights)
    if has(weights, "bias") or has(weights, "bias_n"):
        arrays = arrays._replace(
            # bias_n is the recurrent bias of the candidate. The gates have none.
            bias=take(weights, "bias"),
            bias_recurrent=pad_recurrent_bias(take(weights, "bias_n")),
        )
    refuse_unknown(weights, {*_FIELDS, "bias", "bias_n"}, "equinox.nn.GRUCell")
    return gru_params(arrays, GRU_GATES)


def gru_to_equinox(params: Weights) -> dict[str, np.ndarray]:
    """Convert GRUCell(H, norm="none") into an equinox.nn.GRUCell.

    Recurrent biases of the gates are added to the input's, since only the sum counts.
    The parameters do not tell reset="after", which is Equinox's, from reset="before".

    Args:
      params: parameters of GRUCell; without any bias they give use_bias=False.

    Returns:
      weight_ih [3H, D], weight_hh [3H, H], bias [3H] and bias_n [H].

    Raises:
      ValueError: a missing parameter, or one that Equinox has no place for.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> list(gru_to_equinox(params))
    ['weight_ih', 'weight_hh', 'bias', 'bias_n']
    """
    arrays = gru_arrays(params, GRU_GATES, "equinox.nn.GRUCell")
    weights = _write(arrays)
    if arrays.bias is not None or arrays.bias_recurrent is not None:
        weights["bias"], weights["bias_n"] = fold_recurrent_bias(arrays)
    return weights


def _read(weights):
    return Arrays(
        w_x=take(weights, "weight_ih").T,
        w_h=take(weights, "weight_hh").T,
        bias=take_optional(weights, "bias"),
    )


def _write(arrays):
    return {
        "weight_ih": np.ascontiguousarray(arrays.w_x.T),
        "weight_hh": np.ascontiguousarray(arrays.w_h.T),
    }
