"""The LSTM and the GRU of the authors' Theano code, as their .npz files store them."""

import numpy as np

from lnrepro.convert.cells import (
    gru_arrays,
    gru_params,
    lstm_arrays,
    lstm_params,
    or_zeros,
)
from lnrepro.convert.layout import (
    GRU_ORDER,
    LSTM_ORDER,
    Arrays,
    Params,
    Weights,
    has,
    negate_update_gate,
    reorder,
    reorder_site,
    take,
)

LSTM_GATES = "ifog"
# The gates r and u share kernels, and the candidate has kernels of its own.
GRU_GATES = "rzn"
_LSTM_NORMS = {
    "gain_x": "s1",
    "bias_x": "b1",
    "gain_h": "s2",
    "bias_h": "b2",
    "gain_c": "s3",
    "bias_c": "b3",
}
_GRU_KERNELS = {"w_x": ("W", "Wx"), "w_h": ("U", "Ux"), "bias": ("b", "bx")}
_GRU_NORMS = {
    "gain_x": ("s1", "s2"),
    "bias_x": ("b1", "b2"),
    "gain_h": ("s3", "s4"),
    "bias_h": ("b3", "b4"),
}


def lstm_from_theano(weights: Weights, prefix: str = "lnlstm") -> Params:
    """Convert the authors' LSTM into LSTMCell(H, norm="layer", inner_bias=True).

    Without layer norm it becomes LSTMCell(H, norm="none", inner_bias=True). The authors
    add one b to W x inside its norm and again to the sum, so that b comes back twice.
    With "<prefix>_h0" the cell has learned_carry=True.

    Args:
      weights: <prefix>_W, _U and _b; with layer norm _s1, _b1 to _s3, _b3; _h0, if any.
      prefix: the start of the names.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"lnlstm_W": np.ones((3, 8)), "lnlstm_U": np.ones((2, 8))}
    >>> weights["lnlstm_b"] = np.ones(8)
    >>> list(lstm_from_theano(weights))
    ['w_x', 'w_h', 'bias', 'inner_bias']
    """
    names = [f"{prefix}_{name}" for name in ("W", "U", "b")]
    arrays = Arrays(*[take(weights, name) for name in names])
    params = lstm_params(arrays, LSTM_GATES)
    params["inner_bias"] = params["bias"].copy()
    if has(weights, f"{prefix}_s1"):
        for ours, theirs in _LSTM_NORMS.items():
            a = take(weights, f"{prefix}_{theirs}")
            params[ours] = reorder_site(a, ours[-1], LSTM_GATES, LSTM_ORDER)
    if has(weights, f"{prefix}_h0"):
        params["h0"] = np.array(take(weights, f"{prefix}_h0"))
        params["c0"] = np.zeros_like(params["h0"])
    return params


def lstm_to_theano(params: Weights, prefix: str = "lnlstm") -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, inner_bias=True) with norm="layer" or "none".

    Args:
      params: parameters of LSTMCell, whose bias and inner_bias are equal. A learned h0
        is kept; a learned c0 must be zero.
      prefix: the start of the names.

    Returns:
      The authors' weights.

    Raises:
      ValueError: a missing parameter, one that the authors' code has no place for, or
        two biases that differ.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> params["inner_bias"] = np.ones(8)
    >>> list(lstm_to_theano(params))
    ['lnlstm_W', 'lnlstm_U', 'lnlstm_b']
    """
    also = ("inner_bias", "h0", "c0", *_LSTM_NORMS)
    arrays = lstm_arrays(params, LSTM_GATES, "the authors' LSTM", also)
    if not np.array_equal(take(params, "bias"), take(params, "inner_bias")):
        raise ValueError(
            "convert: the authors' LSTM has one b in both places; bias and inner_bias "
            "differ here"
        )
    if has(params, "c0") and take(params, "c0").any():
        raise ValueError("convert: the authors' LSTM has no place for c0 but zeros")
    weights = {
        f"{prefix}_W": arrays.w_x,
        f"{prefix}_U": arrays.w_h,
        f"{prefix}_b": arrays.bias,
    }
    if has(params, "gain_x"):
        for ours, theirs in _LSTM_NORMS.items():
            a = reorder_site(take(params, ours), ours[-1], LSTM_ORDER, LSTM_GATES)
            weights[f"{prefix}_{theirs}"] = a
    if has(params, "h0"):
        weights[f"{prefix}_h0"] = np.array(take(params, "h0"))
    return weights


def gru_from_theano(weights: Weights, prefix: str = "lngru") -> Params:
    """Convert the authors' GRU into GRUCell(H, norm="layer"), or norm="none".

    Their update gate is u = sigmoid(-z). Without a norm the kernels of z change sign.
    Layer norm spans u and r jointly, and there gain and bias of z change sign: the
    statistics stay as they are.

    Args:
      weights: <prefix>_W, _U and _b of r and u; _Wx, _Ux and _bx of the candidate; with
        layer norm _s1, _b1 to _s4, _b4.
      prefix: the start of the names.

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing weight or a wrong shape.

    >>> weights = {"lngru_W": np.ones((3, 4)), "lngru_Wx": np.ones((3, 2))}
    >>> weights |= {"lngru_U": np.ones((2, 4)), "lngru_Ux": np.ones((2, 2))}
    >>> weights |= {"lngru_b": np.ones(4), "lngru_bx": np.ones(2)}
    >>> {name: a.shape for name, a in gru_from_theano(weights).items()}
    {'w_x': (3, 6), 'w_h': (2, 6), 'bias': (6,)}
    """
    layered = has(weights, f"{prefix}_s1")
    arrays = Arrays(*[_join(weights, prefix, n) for n in _GRU_KERNELS.values()])
    params = gru_params(arrays, GRU_GATES, negate=not layered)
    if layered:
        for ours, names in _GRU_NORMS.items():
            a = reorder(_join(weights, prefix, names), GRU_GATES, GRU_ORDER)
            params[ours] = negate_update_gate(a)
    return params


def gru_to_theano(params: Weights, prefix: str = "lngru") -> dict[str, np.ndarray]:
    """Convert GRUCell(H) with norm="layer" or "none" into the authors' layout.

    The parameters do not tell reset="after", which is the authors', from
    reset="before" with norm="none".

    Args:
      params: parameters of GRUCell.
      prefix: the start of the names.

    Returns:
      The authors' weights.

    Raises:
      ValueError: a missing parameter, or one that the authors' code has no place for.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> list(gru_to_theano(params))[:2]
    ['lngru_W', 'lngru_Wx']
    """
    layered = has(params, "gain_x")
    also = tuple(_GRU_NORMS) if layered else ()
    arrays = gru_arrays(
        params, GRU_GATES, "the authors' GRU", negate=not layered, also=also
    )
    if arrays.bias_recurrent is not None:
        raise ValueError("convert: the authors' GRU has no place for bias_recurrent")
    bias = or_zeros(arrays.bias, arrays.w_h)
    weights = {}
    for a, names in zip(
        (arrays.w_x, arrays.w_h, bias), _GRU_KERNELS.values(), strict=True
    ):
        weights |= _split(a, prefix, names)
    if layered:
        for ours, names in _GRU_NORMS.items():
            a = negate_update_gate(take(params, ours))
            weights |= _split(reorder(a, GRU_ORDER, GRU_GATES), prefix, names)
    return weights


def _join(weights, prefix, names):
    """Join the parts of the gates [..., 2 H] and of the candidate [..., H]."""
    parts = [take(weights, f"{prefix}_{name}") for name in names]
    return np.concatenate(parts, axis=-1)


def _split(a, prefix, names):
    """Split a [..., 3 H] into the parts of the gates and of the candidate."""
    gates = 2 * (a.shape[-1] // 3)
    return {
        f"{prefix}_{names[0]}": np.array(a[..., :gates]),
        f"{prefix}_{names[1]}": np.array(a[..., gates:]),
    }
