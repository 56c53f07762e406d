"""The LSTM and the GRU of the authors' Theano code, as their .npz files store them.

    (i, f, o, g) = LN_2(U h_{t-1}) + LN_1(W x_t + b) + b                (lnlstm)
    c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
    h_t = sigmoid(o) * tanh(LN_3(c_t))

    r, u = sigmoid(LN_3(U h_{t-1}) + LN_1(W x_t + b))                   (lngru)
    n = tanh(r * LN_4(Ux h_{t-1}) + LN_2(Wx x_t + bx))
    h_t = u * h_{t-1} + (1 - u) * n

LN_k has the gain s<k> and the bias b<k>. The layers "lstm" and "gru" have no LN.

Source: github.com/ryankiros/layer-norm, layers.py.

Shape letters: D input features, H hidden units.
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
    GRU_ORDER,
    LSTM_ORDER,
    Arrays,
    Params,
    Weights,
    check_vector,
    has,
    negate_update_gate,
    refuse_unknown,
    reorder,
    take,
)

# The order of the gates in the authors' files.
LSTM_GATES = "ifog"
# The gates r and u share kernels, and the candidate has kernels of its own.
GRU_GATES = "rzn"
# Our name of each norm's gain or bias, and the authors' name.
_LSTM_NORMS = {"gain_x": "s1", "bias_x": "b1", "gain_h": "s2", "bias_h": "b2"}
_CELL_NORM = {"gain_c": "s3", "bias_c": "b3"}
# Of each pair, the first is for both gates and the second for the candidate.
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
      weights: <prefix>_W [D, 4H], _U [H, 4H] and _b [4H]; with layer norm _s1, _b1,
        _s2, _b2 [4H] and _s3, _b3 [H]; _h0 [H], if any.
      prefix: the start of the names.

    Returns:
      Parameters of LSTMCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"lnlstm_W": np.ones((3, 8)), "lnlstm_U": np.ones((2, 8))}
    >>> weights["lnlstm_b"] = np.ones(8)
    >>> list(lstm_from_theano(weights))
    ['w_x', 'w_h', 'bias', 'inner_bias']
    """
    names = [f"{prefix}_{name}" for name in ("W", "U", "b")]
    arrays = Arrays(*[take(weights, name) for name in names])
    params = lstm_params(arrays, LSTM_GATES)
    # LN(W x + b) + ... + b: the same b inside the norm and outside of it.
    params["inner_bias"] = params["bias"].copy()
    units = len(arrays.w_h)
    norms = _lstm_norms(prefix)
    if any(has(weights, name) for name in norms.values()):
        for ours, theirs in norms.items():
            params[ours] = _norm(weights, theirs, ours, units, LSTM_GATES, LSTM_ORDER)
    initial_h = f"{prefix}_h0"
    if has(weights, initial_h):
        params["h0"] = np.array(take(weights, initial_h))
        check_vector(initial_h, params["h0"], units)
        # The authors learn h_0 only, and c_0 is zero.
        params["c0"] = np.zeros_like(params["h0"])
    _refuse_unknown(weights, prefix, {*names, *norms.values(), initial_h}, "LSTM")
    return params


def lstm_to_theano(params: Weights, prefix: str = "lnlstm") -> dict[str, np.ndarray]:
    """Convert LSTMCell(H, inner_bias=True) with norm="layer" or "none".

    Args:
      params: parameters of LSTMCell, whose bias and inner_bias are equal. A learned h0
        is kept; a learned c0 must be zero.
      prefix: the start of the names.

    Returns:
      The authors' weights, see `lstm_from_theano`.

    Raises:
      ValueError: a missing parameter, one that the authors' code has no place for, or
        two biases that differ.

    >>> params = {"w_x": np.ones((3, 8)), "w_h": np.ones((2, 8)), "bias": np.ones(8)}
    >>> params["inner_bias"] = np.ones(8)
    >>> list(lstm_to_theano(params))
    ['lnlstm_W', 'lnlstm_U', 'lnlstm_b']
    """
    norms = _lstm_norms(prefix)
    also = ("inner_bias", "h0", "c0", *norms)
    arrays = lstm_arrays(params, LSTM_GATES, "the authors' LSTM", also)
    if not np.array_equal(take(params, "bias"), take(params, "inner_bias")):
        raise ValueError(
            "convert: the authors' LSTM has one b in both places; bias and inner_bias "
            "differ here"
        )
    for name in ("h0", "c0"):
        if has(params, name):
            check_vector(name, take(params, name), len(arrays.w_h))
    if has(params, "c0") and take(params, "c0").any():
        raise ValueError("convert: the authors' LSTM has no place for c0 but zeros")
    weights = {
        f"{prefix}_W": arrays.w_x,
        f"{prefix}_U": arrays.w_h,
        f"{prefix}_b": arrays.bias,
    }
    units = len(arrays.w_h)
    if any(has(params, name) for name in norms):
        for ours, theirs in norms.items():
            weights[theirs] = _norm(params, ours, ours, units, LSTM_ORDER, LSTM_GATES)
    if has(params, "h0"):
        weights[f"{prefix}_h0"] = np.array(take(params, "h0"))
    return weights


def gru_from_theano(weights: Weights, prefix: str = "lngru") -> Params:
    """Convert the authors' GRU into GRUCell(H, norm="layer"), or norm="none".

    Their update gate is u = sigmoid(-z). Without a norm the kernels of z change sign.
    Layer norm spans u and r jointly, and there gain and bias of z change sign: the
    statistics stay as they are.

    Args:
      weights: <prefix>_W [D, 2H], _U [H, 2H] and _b [2H] of r and u; _Wx [D, H],
        _Ux [H, H] and _bx [H] of the candidate; with layer norm _s1, _b1, _s3, _b3
        [2H] and _s2, _b2, _s4, _b4 [H].
      prefix: the start of the names.

    Returns:
      Parameters of GRUCell.

    Raises:
      ValueError: a missing or unknown weight or a wrong shape.

    >>> weights = {"lngru_W": np.ones((3, 4)), "lngru_Wx": np.ones((3, 2))}
    >>> weights |= {"lngru_U": np.ones((2, 4)), "lngru_Ux": np.ones((2, 2))}
    >>> weights |= {"lngru_b": np.ones(4), "lngru_bx": np.ones(2)}
    >>> {name: a.shape for name, a in gru_from_theano(weights).items()}
    {'w_x': (3, 6), 'w_h': (2, 6), 'bias': (6,)}
    """
    # All names that a layer can have, to refuse others.
    groups = [*_GRU_KERNELS.values(), *_GRU_NORMS.values()]
    known = {f"{prefix}_{name}" for names in groups for name in names}
    # Layer norm takes its statistics over r and u together. A kernel of u with the
    # other sign would change them, so gain and bias of u change sign instead.
    layered = any(has(weights, f"{prefix}_s{k}") for k in (1, 2, 3, 4))
    arrays = Arrays(*[_join(weights, prefix, n) for n in _GRU_KERNELS.values()])
    params = gru_params(arrays, GRU_GATES, negate=not layered)
    if layered:
        for ours, names in _GRU_NORMS.items():
            a = _join(weights, prefix, names)
            check_vector(f"{prefix}_{names[0]}, {names[1]}", a, 3 * len(arrays.w_h))
            params[ours] = negate_update_gate(reorder(a, GRU_GATES, GRU_ORDER))
    _refuse_unknown(weights, prefix, known, "GRU")
    return params


def gru_to_theano(params: Weights, prefix: str = "lngru") -> dict[str, np.ndarray]:
    """Convert GRUCell(H) with norm="layer" or "none" into the authors' layout.

    The parameters do not tell reset="after", which is the authors', from
    reset="before" with norm="none".

    Args:
      params: parameters of GRUCell.
      prefix: the start of the names.

    Returns:
      The authors' weights, see `gru_from_theano`.

    Raises:
      ValueError: a missing parameter, or one that the authors' code has no place for.

    >>> params = {"w_x": np.ones((3, 6)), "w_h": np.ones((2, 6)), "bias": np.ones(6)}
    >>> list(gru_to_theano(params))[:2]
    ['lngru_W', 'lngru_Wx']
    """
    layered = any(has(params, name) for name in _GRU_NORMS)
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
            a = take(params, ours)
            check_vector(ours, a, 3 * len(arrays.w_h))
            a = negate_update_gate(a)
            weights |= _split(reorder(a, GRU_ORDER, GRU_GATES), prefix, names)
    return weights


def _lstm_norms(prefix):
    """{our name: the authors'} of all gains and biases of the LSTM's norms."""
    names = _LSTM_NORMS | _CELL_NORM
    return {ours: f"{prefix}_{theirs}" for ours, theirs in names.items()}


def _norm(arrays, name, ours, units, old, new):
    """Take a gain or bias of the LSTM, with its gates in the order `new`."""
    a = take(arrays, name)
    if ours in _CELL_NORM:
        check_vector(name, a, units)
        return np.array(a)
    check_vector(name, a, 4 * units)
    return reorder(a, old, new)


def _refuse_unknown(weights, prefix, known, layer):
    """Refuse further weights of this layer, such as <prefix>_Wc.

    Other layers of the file have other prefixes, which may begin with this one: the
    weights of "encoder_r" are not those of "encoder".
    """
    of_layer = {}
    for name, value in weights.items():
        start, _, _ = name.rpartition("_")
        if start == prefix:
            of_layer[name] = value
    refuse_unknown(of_layer, known, f"the authors' {layer}")


def _join(weights, prefix, names):
    """Join the parts of the gates [..., 2H] and of the candidate [..., H]."""
    parts = [take(weights, f"{prefix}_{name}") for name in names]
    *rows, units = parts[1].shape
    if parts[0].shape != (*rows, 2 * units):
        raise ValueError(
            f"convert: {prefix}_{names[0]} has shape {parts[0].shape}; beside "
            f"{prefix}_{names[1]} {parts[1].shape} it must be {(*rows, 2 * units)}"
        )
    return np.concatenate(parts, axis=-1)


def _split(a, prefix, names):
    """Split a [..., 3H] into the parts of the gates and of the candidate."""
    gates = 2 * (a.shape[-1] // 3)
    return {
        f"{prefix}_{names[0]}": np.array(a[..., :gates]),
        f"{prefix}_{names[1]}": np.array(a[..., gates:]),
    }
