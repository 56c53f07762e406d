"""The LayerNormLSTMCell of PyTorch's fastrnns benchmark.

    (i, f, g, o) = LN_i(W_ih x_t) + LN_h(W_hh h_{t-1})
    c_t = LN_c(sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g))
    h_t = sigmoid(o) * tanh(c_t)

Source: github.com/pytorch/pytorch, benchmarks/fastrnns/custom_lstms.py. The norms of
decompose_layernorm=True have no epsilon, so that the cell needs epsilon=0 then.

Shape letters: D input features, H hidden units.
"""

import numpy as np

from lnrepro.convert.cells import (
    lstm_arrays,
    lstm_norm_arrays,
    lstm_norm_params,
    lstm_params,
)
from lnrepro.convert.layout import Arrays, Params, Weights, refuse_unknown, take

# The order of the gates in weights of this library.
GATES = "ifgo"
# Our name of each norm's gain or bias, and the name in fastrnns.
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
      weights: the state dict of the cell: weight_ih [4H, D], weight_hh [4H, H], and the
        weight and bias of layernorm_i and layernorm_h [4H] and of layernorm_c [H].

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"weight_ih": np.ones((8, 3)), "weight_hh": np.ones((8, 2))}
    >>> for site, size in (("i", 8), ("h", 8), ("c", 2)):
    ...     weights[f"layernorm_{site}.weight"] = np.ones(size)
    ...     weights[f"layernorm_{site}.bias"] = np.zeros(size)
    >>> params = lstm_from_fastrnns(weights)
    >>> params["w_x"].shape, params["gain_c"].shape
    ((3, 8), (2,))
    """
    # PyTorch stores kernels as [outputs, inputs].
    arrays = Arrays(take(weights, "weight_ih").T, take(weights, "weight_hh").T)
    known = ("weight_ih", "weight_hh", *_NORMS.values())
    refuse_unknown(weights, known, "fastrnns' LayerNormLSTMCell")
    params = lstm_params(arrays, GATES)
    return params | lstm_norm_params(weights, _NORMS, GATES, len(arrays.w_h))


def lstm_to_fastrnns(params: Weights) -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, norm="layer", cell_norm="carry", use_bias=False).

    Args:
      params: parameters of LSTMCell.

    Returns:
      The state dict of a fastrnns LayerNormLSTMCell, see `lstm_from_fastrnns`.

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
    # The biases of the norms take its place, and a bias of its own would be lost.
    if arrays.bias is not None:
        raise ValueError(f"convert: {target} has no place for bias (use_bias=False)")
    weights = {
        "weight_ih": np.ascontiguousarray(arrays.w_x.T),
        "weight_hh": np.ascontiguousarray(arrays.w_h.T),
    }
    return weights | lstm_norm_arrays(params, _NORMS, GATES, len(arrays.w_h))
