"""Weights from and to other libraries' layouts: dicts of NumPy arrays in, dicts of NumPy arrays out; none of those
libraries is imported.

`X_from_Y(weights)` gives parameters for `lnrepro.functional` (and the faces, which use the same names);
`X_to_Y(params)` goes back. Going there and back gives the same bits. Each docstring names the cell the weights belong
to. Three differences recur:

- gate order: ours is f, i, o, g (LSTM) and z, r, candidate (GRU);
- the update gate: every library here except the paper computes h = u h' + (1 - u) n, so that u = 1 - s(z) = s(-z): the
update gate's weights change sign
  (where a norm spans both gates its gain and bias do, which leaves the statistics alone);
- two biases that only ever occur as a sum come back as one.
"""

from collections.abc import Mapping

import numpy as np

Weights = Mapping[str, np.ndarray]
_LSTM, _GRU = "fiog", "zrn"


def _order(a, old: str, new: str):
    """Blocks of the last axis, which stand in the order `old`, in the order `new`."""
    blocks = dict(zip(old, np.split(np.asarray(a), len(old), -1), strict=True))
    return np.concatenate([blocks[g] for g in new], -1)


def _mirror(a):
    """The update gate's block, the first of z, r, n (or of z, r), with its sign changed."""
    a = np.array(a)
    width = a.shape[-1] // 3
    a[..., :width] = -a[..., :width]
    return a


def _take(weights: Weights, *names: str):
    missing = [n for n in names if n not in weights]
    if missing:
        raise ValueError(f"convert: weights have no {missing[0]!r}; found {', '.join(sorted(weights))}")
    return [np.asarray(weights[n]) for n in names]


def lstm_from_torch(weights: Weights, suffix: str = "_l0") -> dict[str, np.ndarray]:
    """torch.nn.LSTM's state dict, one layer and direction -> lstm(H, norm="none"). torch's order is i, f, g, o; its
    two biases become their sum."""
    w_x, w_h, b_x, b_h = _take(weights, *(f"{n}{suffix}" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
    return {
        "w_x": _order(w_x.T, "ifgo", _LSTM),
        "w_h": _order(w_h.T, "ifgo", _LSTM),
        "bias": _order(b_x + b_h, "ifgo", _LSTM),
    }


def lstm_to_torch(params: Weights, suffix: str = "_l0") -> dict[str, np.ndarray]:
    """lstm(H, norm="none") -> torch.nn.LSTM's state dict for one layer and direction; bias_hh is zero."""
    w_x, w_h, bias = (_order(a, _LSTM, "ifgo") for a in _take(params, "w_x", "w_h", "bias"))
    named = {"weight_ih": w_x.T, "weight_hh": w_h.T, "bias_ih": bias, "bias_hh": np.zeros_like(bias)}
    return {f"{n}{suffix}": a for n, a in named.items()}


def gru_from_torch(weights: Weights, suffix: str = "_l0") -> dict[str, np.ndarray]:
    """torch.nn.GRU's state dict, one layer and direction -> gru(H, norm="none", recurrent_bias=True). torch's order is
    r, z, n, its update gate mirrored."""
    w_x, w_h, b_x, b_h = _take(weights, *(f"{n}{suffix}" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
    named = {"w_x": w_x.T, "w_h": w_h.T, "bias": b_x, "bias_recurrent": b_h}
    return {n: _mirror(_order(a, "rzn", _GRU)) for n, a in named.items()}


def gru_to_torch(params: Weights, suffix: str = "_l0") -> dict[str, np.ndarray]:
    """gru(H, norm="none", recurrent_bias=True) -> torch.nn.GRU's state dict for one layer and direction."""
    w_x, w_h, b_x, b_h = (
        _order(_mirror(a), _GRU, "rzn") for a in _take(params, "w_x", "w_h", "bias", "bias_recurrent")
    )
    named = {"weight_ih": w_x.T, "weight_hh": w_h.T, "bias_ih": b_x, "bias_hh": b_h}
    return {f"{n}{suffix}": a for n, a in named.items()}


_FASTRNNS = {
    "gain_x": "layernorm_i.weight",
    "bias_x": "layernorm_i.bias",
    "gain_h": "layernorm_h.weight",
    "bias_h": "layernorm_h.bias",
    "gain_c": "layernorm_c.weight",
    "bias_c": "layernorm_c.bias",
}


def lstm_from_fastrnns(weights: Weights) -> dict[str, np.ndarray]:
    """The LayerNormLSTMCell of torch's fastrnns benchmark -> lstm(H, norm="layer", cell_norm="carry", use_bias=False).
    Its order is i, f, g, o."""
    w_x, w_h = _take(weights, "weight_ih", "weight_hh")
    params = {"w_x": _order(w_x.T, "ifgo", _LSTM), "w_h": _order(w_h.T, "ifgo", _LSTM)}
    for ours, theirs in _FASTRNNS.items():
        (a,) = _take(weights, theirs)
        params[ours] = np.array(a) if ours.endswith("_c") else _order(a, "ifgo", _LSTM)
    return params


def lstm_to_fastrnns(params: Weights) -> dict[str, np.ndarray]:
    """lstm(H, norm="layer", cell_norm="carry", use_bias=False) -> fastrnns' LayerNormLSTMCell."""
    w_x, w_h = (_order(a, _LSTM, "ifgo") for a in _take(params, "w_x", "w_h"))
    weights = {"weight_ih": w_x.T, "weight_hh": w_h.T}
    for ours, theirs in _FASTRNNS.items():
        (a,) = _take(params, ours)
        weights[theirs] = np.array(a) if ours.endswith("_c") else _order(a, _LSTM, "ifgo")
    return weights


def lstm_from_flax(weights: Mapping[str, Weights]) -> dict[str, np.ndarray]:
    """flax.linen.LSTMCell or OptimizedLSTMCell (the same tree: ii, if, ig, io, hi, hf, hg, ho) -> lstm(H,
    norm="none")."""
    return {
        "w_x": np.concatenate([np.asarray(weights[f"i{g}"]["kernel"]) for g in _LSTM], -1),
        "w_h": np.concatenate([np.asarray(weights[f"h{g}"]["kernel"]) for g in _LSTM], -1),
        "bias": np.concatenate([np.asarray(weights[f"h{g}"]["bias"]) for g in _LSTM], -1),
    }


def lstm_to_flax(params: Weights) -> dict[str, dict[str, np.ndarray]]:
    """lstm(H, norm="none") -> the parameters of flax.linen.LSTMCell and OptimizedLSTMCell."""
    w_x, w_h, bias = (np.split(a, 4, -1) for a in _take(params, "w_x", "w_h", "bias"))
    tree = {f"i{g}": {"kernel": w_x[k]} for k, g in enumerate(_LSTM)}
    return tree | {f"h{g}": {"kernel": w_h[k], "bias": bias[k]} for k, g in enumerate(_LSTM)}


def gru_from_flax(weights: Mapping[str, Weights]) -> dict[str, np.ndarray]:
    """flax.linen.GRUCell (ir, iz, in, hr, hz, hn) -> gru(H, norm="none", recurrent_bias=True). Its update gate is
    mirrored; only hn has a bias."""
    w_x, w_h, bias = (
        _mirror(np.concatenate([np.asarray(weights[f"{side}{g}"][leaf]) for g in _GRU], -1))
        for side, leaf in (("i", "kernel"), ("h", "kernel"), ("i", "bias"))
    )
    hn = np.asarray(weights["hn"]["bias"])
    return {
        "w_x": w_x,
        "w_h": w_h,
        "bias": bias,
        "bias_recurrent": np.concatenate([np.zeros_like(hn), np.zeros_like(hn), hn]),
    }


def gru_to_flax(params: Weights) -> dict[str, dict[str, np.ndarray]]:
    """gru(H, norm="none", recurrent_bias=True) -> flax.linen.GRUCell. Recurrent biases of the gates go into the
    input's: the sum is what counts."""
    w_x, w_h, bias, more = (_mirror(a) for a in _take(params, "w_x", "w_h", "bias", "bias_recurrent"))
    width = bias.shape[-1] // 3
    bias[: 2 * width] += more[: 2 * width]
    w_x, w_h, bias = (np.split(a, 3, -1) for a in (w_x, w_h, bias))
    tree = {f"i{g}": {"kernel": w_x[k], "bias": bias[k]} for k, g in enumerate(_GRU)}
    tree |= {f"h{g}": {"kernel": w_h[k]} for k, g in enumerate(_GRU)}
    tree["hn"]["bias"] = more[2 * width :]
    return tree


def lstm_from_keras(weights: Weights) -> dict[str, np.ndarray]:
    """Keras LSTM (kernel, recurrent_kernel, bias; order i, f, g, o) -> lstm(H, norm="none")."""
    w_x, w_h, bias = (_order(a, "ifgo", _LSTM) for a in _take(weights, "kernel", "recurrent_kernel", "bias"))
    return {"w_x": w_x, "w_h": w_h, "bias": bias}


def lstm_to_keras(params: Weights) -> dict[str, np.ndarray]:
    """lstm(H, norm="none") -> Keras LSTM."""
    kernel, recurrent, bias = (_order(a, _LSTM, "ifgo") for a in _take(params, "w_x", "w_h", "bias"))
    return {"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias}


def gru_from_keras(weights: Weights) -> dict[str, np.ndarray]:
    """Keras GRU (order z, r, n; update gate mirrored). bias (2, 3H), reset_after=True -> gru(H, norm="none",
    recurrent_bias=True); bias (3H,), reset_after=False -> gru(H, norm="none", reset="before").
    """
    w_x, w_h, bias = (_mirror(a) for a in _take(weights, "kernel", "recurrent_kernel", "bias"))
    if bias.ndim == 1:
        return {"w_x": w_x, "w_h": w_h, "bias": bias}
    return {"w_x": w_x, "w_h": w_h, "bias": bias[0], "bias_recurrent": bias[1]}


def gru_to_keras(params: Weights) -> dict[str, np.ndarray]:
    """gru(H, norm="none") with recurrent_bias=True -> Keras GRU with reset_after=True; with reset="before" and one
    bias -> reset_after=False."""
    kernel, recurrent, bias = (_mirror(a) for a in _take(params, "w_x", "w_h", "bias"))
    if "bias_recurrent" in params:
        bias = np.stack([bias, _mirror(params["bias_recurrent"])])
    return {"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias}


_TFA = {"x": "kernel_norm", "h": "recurrent_norm", "c": "state_norm"}


def lstm_from_tfa(weights: Weights) -> dict[str, np.ndarray]:
    """TensorFlow Addons' LayerNormLSTMCell -> lstm(H, norm="layer", cell_norm="carry", eps=1e-3 as its default
    norm_epsilon). Keras' layout and order, and the norms as "kernel_norm/gamma", "kernel_norm/beta", and likewise
    recurrent_norm and state_norm.
    """
    params = lstm_from_keras(weights)
    for site, norm in _TFA.items():
        gain, shift = _take(weights, f"{norm}/gamma", f"{norm}/beta")
        order = np.array if site == "c" else (lambda a: _order(a, "ifgo", _LSTM))
        params |= {f"gain_{site}": order(gain), f"bias_{site}": order(shift)}
    return params


def lstm_to_tfa(params: Weights) -> dict[str, np.ndarray]:
    """lstm(H, norm="layer", cell_norm="carry") -> TensorFlow Addons' LayerNormLSTMCell."""
    weights = lstm_to_keras(params)
    for site, norm in _TFA.items():
        gain, shift = _take(params, f"gain_{site}", f"bias_{site}")
        order = np.array if site == "c" else (lambda a: _order(a, _LSTM, "ifgo"))
        weights |= {f"{norm}/gamma": order(gain), f"{norm}/beta": order(shift)}
    return weights


def lstm_from_haste(weights: Weights) -> dict[str, np.ndarray]:
    """haste's LSTM or LayerNormLSTM (kernel, recurrent_kernel, bias; order i, g, f, o; gamma (2, 4H), gamma_h, beta_h
    (H,)) -> lstm(H, norm="none"), or lstm(H, norm="layer"), whose biases of the first two norms are zero in haste.
    """
    w_x, w_h, bias = (_order(a, "igfo", _LSTM) for a in _take(weights, "kernel", "recurrent_kernel", "bias"))
    params = {"w_x": w_x, "w_h": w_h, "bias": bias}
    if "gamma" in weights:
        gamma, gain_c, bias_c = _take(weights, "gamma", "gamma_h", "beta_h")
        gain_x, gain_h = _order(gamma, "igfo", _LSTM)
        params |= {"gain_x": gain_x, "bias_x": np.zeros_like(gain_x), "gain_h": gain_h, "bias_h": np.zeros_like(gain_h)}
        params |= {"gain_c": np.array(gain_c), "bias_c": np.array(bias_c)}
    return params


def lstm_to_haste(params: Weights) -> dict[str, np.ndarray]:
    """lstm(H) with norm "none" or "layer" -> haste's LSTM or LayerNormLSTM; the biases of the first two norms go into
    the one bias haste has."""
    w_x, w_h, bias = _take(params, "w_x", "w_h", "bias")
    weights = {}
    if "gain_x" in params:
        bias = bias + params["bias_x"] + params["bias_h"]
        weights["gamma"] = _order(np.stack([params["gain_x"], params["gain_h"]]), _LSTM, "igfo")
        weights |= {"gamma_h": np.array(params["gain_c"]), "beta_h": np.array(params["bias_c"])}
    named = {"kernel": w_x, "recurrent_kernel": w_h, "bias": bias}
    return {n: _order(a, _LSTM, "igfo") for n, a in named.items()} | weights


def gru_from_haste(weights: Weights) -> dict[str, np.ndarray]:
    """haste's GRU (kernel, recurrent_kernel, bias, recurrent_bias; order z, r, n; update gate mirrored) -> gru(H,
    norm="none", recurrent_bias=True).

    haste's LayerNormGRU normalises all three parts jointly, which is another model than eq. 26-28: it has no
    counterpart here.
    """
    if "gamma" in weights:
        raise ValueError(
            "convert: haste's LayerNormGRU normalises z, r and the candidate jointly; no cell of the paper does"
        )
    return {
        ours: _mirror(a)
        for ours, a in zip(
            ("w_x", "w_h", "bias", "bias_recurrent"),
            _take(weights, "kernel", "recurrent_kernel", "bias", "recurrent_bias"),
            strict=True,
        )
    }


def gru_to_haste(params: Weights) -> dict[str, np.ndarray]:
    """gru(H, norm="none", recurrent_bias=True) -> haste's GRU."""
    arrays = [_mirror(a) for a in _take(params, "w_x", "w_h", "bias", "bias_recurrent")]
    return dict(zip(("kernel", "recurrent_kernel", "bias", "recurrent_bias"), arrays, strict=True))


def lstm_from_theano(weights: Weights, prefix: str = "lnlstm") -> dict[str, np.ndarray]:
    """The authors' .npz (prefix_W, _U, _b, and with layer norm _b1.._b3, _s1.._s3; order i, f, o, g) -> lstm(H,
    norm="layer", inner_bias=True), or lstm(H, norm="none", inner_bias=True). Their one b is added to W x inside its
    norm and again after the sum, so it comes twice. _h0, if any, is h0.
    """
    w_x, w_h, b = (_order(a, "ifog", _LSTM) for a in _take(weights, f"{prefix}_W", f"{prefix}_U", f"{prefix}_b"))
    params = {"w_x": w_x, "w_h": w_h, "bias": b, "inner_bias": b.copy()}
    if f"{prefix}_s1" in weights:
        for k, site in enumerate("xhc", 1):
            gain, shift = _take(weights, f"{prefix}_s{k}", f"{prefix}_b{k}")
            order = np.array if site == "c" else (lambda a: _order(a, "ifog", _LSTM))
            params |= {f"gain_{site}": order(gain), f"bias_{site}": order(shift)}
    if f"{prefix}_h0" in weights:
        h0 = np.array(weights[f"{prefix}_h0"])
        params |= {"h0": h0, "c0": np.zeros_like(h0)}
    return params


def lstm_to_theano(params: Weights, prefix: str = "lnlstm") -> dict[str, np.ndarray]:
    """lstm(H, norm="layer" or "none", inner_bias=True) with both biases alike -> the authors' .npz."""
    w_x, w_h, b, inner = _take(params, "w_x", "w_h", "bias", "inner_bias")
    if not np.array_equal(b, inner):
        raise ValueError("convert: the authors' LSTM has one b in both places; 'bias' and 'inner_bias' differ here")
    weights = {f"{prefix}_{n}": _order(a, _LSTM, "ifog") for n, a in (("W", w_x), ("U", w_h), ("b", b))}
    if "gain_x" in params:
        for k, site in enumerate("xhc", 1):
            order = np.array if site == "c" else (lambda a: _order(a, _LSTM, "ifog"))
            weights |= {
                f"{prefix}_s{k}": order(params[f"gain_{site}"]),
                f"{prefix}_b{k}": order(params[f"bias_{site}"]),
            }
    if "h0" in params:
        weights[f"{prefix}_h0"] = np.array(params["h0"])
    return weights


def gru_from_theano(weights: Weights, prefix: str = "lngru") -> dict[str, np.ndarray]:
    """The authors' .npz (prefix_W, _U, _b for r, u; _Wx, _Ux, _bx; and with layer norm _b1.._b4, _s1.._s4) -> gru(H,
    norm="layer"), or "none".

    Their u is 1 - s(z): z's sign changes in gain and bias where a norm spans u and r, in the kernels where there is
    none.
    """

    def join(gates, candidate):
        return np.concatenate([_order(gates, "rz", "zr"), candidate], -1)

    names = (("W", "Wx"), ("U", "Ux"), ("b", "bx"))
    w_x, w_h, bias = (join(*_take(weights, f"{prefix}_{a}", f"{prefix}_{b}")) for a, b in names)
    if f"{prefix}_s1" not in weights:
        return {"w_x": _mirror(w_x), "w_h": _mirror(w_h), "bias": _mirror(bias)}
    params = {"w_x": w_x, "w_h": w_h, "bias": bias}
    for site, (gates, candidate) in {"x": (1, 2), "h": (3, 4)}.items():
        for ours, theirs in (("gain", "s"), ("bias", "b")):
            params[f"{ours}_{site}"] = _mirror(
                join(*_take(weights, f"{prefix}_{theirs}{gates}", f"{prefix}_{theirs}{candidate}"))
            )
    return params


def gru_to_theano(params: Weights, prefix: str = "lngru") -> dict[str, np.ndarray]:
    """gru(H, norm="layer" or "none") -> the authors' .npz."""
    width = np.shape(params["w_h"])[0]
    layered = "gain_x" in params

    def part(a, names):
        return {
            f"{prefix}_{names[0]}": _order(a[..., : 2 * width], "zr", "rz"),
            f"{prefix}_{names[1]}": np.array(a[..., 2 * width :]),
        }

    weights = {}
    for ours, names in (("w_x", ("W", "Wx")), ("w_h", ("U", "Ux")), ("bias", ("b", "bx"))):
        (a,) = _take(params, ours)
        weights |= part(a if layered else _mirror(a), names)
    if layered:
        for site, (gates, candidate) in {"x": (1, 2), "h": (3, 4)}.items():
            for ours, theirs in (("gain", "s"), ("bias", "b")):
                weights |= part(_mirror(params[f"{ours}_{site}"]), (f"{theirs}{gates}", f"{theirs}{candidate}"))
    return weights
