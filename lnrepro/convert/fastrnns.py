"""The LayerNormLSTMCell of PyTorch's fastrnns benchmark (custom_lstms.py)."""

import numpy as np

from lnrepro.convert.cells import lstm_arrays, lstm_params
from lnrepro.convert.layout import (
    LSTM_ORDER,
    Arrays,
    Params,
    Weights,
    reorder_site,
    take,
)

GATES = "ifgo"
_NORMS = {
    "gain_x": "layernorm_i.weight",
    "bias_x": "layernorm_i.bias",
    "gain_h": "layernorm_h.weight",
    "bias_h": "layernorm_h.bias",
    "gain_c": "layernorm_c.weight",
    "bias_c": "layernorm_c.bias",
}


def lstm_from_fastrnns(weights: Weights) -> Params:
    """Convert a fastrnns LayerNormLSTMCell.

    It becomes LSTMCell(H, norm="layer", cell_norm="carry", use_bias=False).

    Args:
      weights: the state dict of the cell, with weight_ih, weight_hh and the weight and
        bias of layernorm_i, layernorm_h and layernorm_c.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"weight_ih": np.ones((8, 3)), "weight_hh": np.ones((8, 2))}
    >>> for site, size in (("i", 8), ("h", 8), ("c", 2)):
    ...     weights[f"layernorm_{site}.weight"] = np.ones(size)
    ...     weights[f"layernorm_{site}.bias"] = np.zeros(size)
    >>> params = lstm_from_fastrnns(weights)
    >>> params["w_x"].shape, params["gain_c"].shape
    ((3, 8), (2,))
    """
    arrays = Arrays(take(weights, "weight_ih").T, take(weights, "weight_hh").T)
    params = lstm_params(arrays, GATES)
    for ours, theirs in _NORMS.items():
        params[ours] = reorder_site(take(weights, theirs), ours[-1], GATES, LSTM_ORDER)
    return params


def lstm_to_fastrnns(params: Weights) -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, norm="layer", cell_norm="carry", use_bias=False).

    Args:
      params: parameters of LSTMCell.

    Returns:
      The state dict of a fastrnns LayerNormLSTMCell.

    Raises:
      ValueError: a missing parameter, or one that fastrnns has no place for.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8))}
    >>> for site, size in (("x", 8), ("h", 8), ("c", 2)):
    ...     params[f"gain_{site}"] = np.ones(size)
    ...     params[f"bias_{site}"] = np.zeros(size)
    >>> lstm_to_fastrnns(params)["layernorm_c.weight"].shape
    (2,)
    """
    target = "fastrnns' LayerNormLSTMCell"
    arrays = lstm_arrays(params, GATES, target, tuple(_NORMS))
    if arrays.bias is not None:
        raise ValueError(f"convert: {target} has no place for bias (use_bias=False)")
    weights = {
        "weight_ih": np.ascontiguousarray(arrays.w_x.T),
        "weight_hh": np.ascontiguousarray(arrays.w_h.T),
    }
    for ours, theirs in _NORMS.items():
        weights[theirs] = reorder_site(take(params, ours), ours[-1], LSTM_ORDER, GATES)
    return weights
