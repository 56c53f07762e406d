"""Weights of other libraries: round trips to the bit, and outputs equal to each library's formulas, written here from
its documentation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import convert, functional

B, T, D, H = 2, 4, 3, 5
RNG = np.random.default_rng(0)
X = RNG.standard_normal((B, T, D)).astype(np.float32)


def draw(*shape):
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def sig(a):
    return 1 / (1 + np.exp(-a))


def ln(a, gain, bias, eps):
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(
        a.var(-1, keepdims=True) + eps
    ) * gain + bias


def run(step):
    h, c, ys = np.zeros((B, H)), np.zeros((B, H)), []
    for t in range(T):
        h, c = step(X[:, t].astype(np.float64), h, c)
        ys.append(h)
    return np.stack(ys, 1)


def torch_names(gates):
    return {
        "weight_ih_l0": draw(gates * H, D),
        "weight_hh_l0": draw(gates * H, H),
        "bias_ih_l0": draw(gates * H),
        "bias_hh_l0": draw(gates * H),
    }


def torch_lstm():
    w = torch_names(4)

    def step(x, h, c):
        i, f, g, o = np.split(
            x @ w["weight_ih_l0"].T
            + w["bias_ih_l0"]
            + h @ w["weight_hh_l0"].T
            + w["bias_hh_l0"],
            4,
            -1,
        )
        c = sig(f) * c + sig(i) * np.tanh(g)
        return sig(o) * np.tanh(c), c

    return w, functional.lstm(H), convert.lstm_from_torch, convert.lstm_to_torch, step


def torch_gru():
    w = torch_names(3)

    def step(x, h, c):
        ir, iz, i_n = np.split(x @ w["weight_ih_l0"].T + w["bias_ih_l0"], 3, -1)
        hr, hz, hn = np.split(h @ w["weight_hh_l0"].T + w["bias_hh_l0"], 3, -1)
        r, z = sig(ir + hr), sig(iz + hz)
        return (1 - z) * np.tanh(i_n + r * hn) + z * h, c

    return (
        w,
        functional.gru(H, recurrent_bias=True),
        convert.gru_from_torch,
        convert.gru_to_torch,
        step,
    )


def fastrnns():
    w = {"weight_ih": draw(4 * H, D), "weight_hh": draw(4 * H, H)}
    w |= {
        f"layernorm_{s}.{k}": draw(H if s == "c" else 4 * H)
        for s in "ihc"
        for k in ("weight", "bias")
    }

    def norm(a, s):
        return ln(a, w[f"layernorm_{s}.weight"], w[f"layernorm_{s}.bias"], 1e-5)

    def step(x, h, c):
        i, f, g, o = np.split(
            norm(x @ w["weight_ih"].T, "i") + norm(h @ w["weight_hh"].T, "h"), 4, -1
        )
        c = norm(sig(f) * c + sig(i) * np.tanh(g), "c")
        return sig(o) * np.tanh(c), c

    cell = functional.lstm(H, norm="layer", cell_norm="carry", use_bias=False)
    return w, cell, convert.lstm_from_fastrnns, convert.lstm_to_fastrnns, step


def flax_lstm():
    w = {f"i{g}": {"kernel": draw(D, H)} for g in "ifgo"} | {
        f"h{g}": {"kernel": draw(H, H), "bias": draw(H)} for g in "ifgo"
    }

    def step(x, h, c):
        i, f, g, o = (
            x @ w[f"i{g}"]["kernel"] + h @ w[f"h{g}"]["kernel"] + w[f"h{g}"]["bias"]
            for g in "ifgo"
        )
        c = sig(f) * c + sig(i) * np.tanh(g)
        return sig(o) * np.tanh(c), c

    return w, functional.lstm(H), convert.lstm_from_flax, convert.lstm_to_flax, step


def flax_gru():
    w = {f"i{g}": {"kernel": draw(D, H), "bias": draw(H)} for g in "rzn"} | {
        f"h{g}": {"kernel": draw(H, H)} for g in "rzn"
    }
    w["hn"]["bias"] = draw(H)

    def step(x, h, c):
        ir, iz, i_n = (x @ w[f"i{g}"]["kernel"] + w[f"i{g}"]["bias"] for g in "rzn")
        r, z = sig(ir + h @ w["hr"]["kernel"]), sig(iz + h @ w["hz"]["kernel"])
        n = np.tanh(i_n + r * (h @ w["hn"]["kernel"] + w["hn"]["bias"]))
        return (1 - z) * n + z * h, c

    return (
        w,
        functional.gru(H, recurrent_bias=True),
        convert.gru_from_flax,
        convert.gru_to_flax,
        step,
    )


def keras_lstm(norms=False):
    w = {
        "kernel": draw(D, 4 * H),
        "recurrent_kernel": draw(H, 4 * H),
        "bias": draw(4 * H),
    }
    names = ("kernel_norm", "recurrent_norm", "state_norm") if norms else ()
    w |= {
        f"{n}/{k}": draw(H if n == "state_norm" else 4 * H)
        for n in names
        for k in ("gamma", "beta")
    }

    def norm(a, n):
        return ln(a, w[f"{n}/gamma"], w[f"{n}/beta"], 1e-3) if norms else a

    def step(x, h, c):
        i, f, g, o = np.split(
            norm(x @ w["kernel"], "kernel_norm")
            + norm(h @ w["recurrent_kernel"], "recurrent_norm")
            + w["bias"],
            4,
            -1,
        )
        c = norm(sig(f) * c + sig(i) * np.tanh(g), "state_norm")
        return sig(o) * np.tanh(c), c

    if norms:
        return (
            w,
            functional.lstm(H, norm="layer", cell_norm="carry", eps=1e-3),
            convert.lstm_from_tfa,
            convert.lstm_to_tfa,
            step,
        )
    return w, functional.lstm(H), convert.lstm_from_keras, convert.lstm_to_keras, step


def keras_gru(reset_after):
    w = {
        "kernel": draw(D, 3 * H),
        "recurrent_kernel": draw(H, 3 * H),
        "bias": draw(2, 3 * H) if reset_after else draw(3 * H),
    }
    u = w["recurrent_kernel"]

    def step(x, h, c):
        b, rb = w["bias"] if reset_after else (w["bias"], np.zeros(3 * H))
        xz, xr, xn = np.split(x @ w["kernel"] + b, 3, -1)
        hz, hr, hn = np.split(h @ u + rb, 3, -1)
        z, r = sig(xz + hz), sig(xr + hr)
        n = np.tanh(xn + (r * hn if reset_after else (r * h) @ u[:, 2 * H :]))
        return z * h + (1 - z) * n, c

    cell = (
        functional.gru(H, recurrent_bias=True)
        if reset_after
        else functional.gru(H, reset="before")
    )
    return w, cell, convert.gru_from_keras, convert.gru_to_keras, step


def haste_lstm(norms):
    w = {
        "kernel": draw(D, 4 * H),
        "recurrent_kernel": draw(H, 4 * H),
        "bias": draw(4 * H),
    }
    w |= (
        {"gamma": draw(2, 4 * H), "gamma_h": draw(H), "beta_h": draw(H)}
        if norms
        else {}
    )

    def step(x, h, c):
        a, b = x @ w["kernel"], h @ w["recurrent_kernel"]
        if norms:
            a, b = ln(a, w["gamma"][0], 0, 1e-5), ln(b, w["gamma"][1], 0, 1e-5)
        i, g, f, o = np.split(a + b + w["bias"], 4, -1)
        c = sig(f) * c + sig(i) * np.tanh(g)
        return sig(o) * np.tanh(
            ln(c, w["gamma_h"], w["beta_h"], 1e-5) if norms else c
        ), c

    return (
        w,
        functional.lstm(H, norm="layer" if norms else "none"),
        convert.lstm_from_haste,
        convert.lstm_to_haste,
        step,
    )


def haste_gru():
    w = {
        "kernel": draw(D, 3 * H),
        "recurrent_kernel": draw(H, 3 * H),
        "bias": draw(3 * H),
        "recurrent_bias": draw(3 * H),
    }

    def step(x, h, c):
        xz, xr, xn = np.split(x @ w["kernel"] + w["bias"], 3, -1)
        hz, hr, hn = np.split(h @ w["recurrent_kernel"] + w["recurrent_bias"], 3, -1)
        z = sig(xz + hz)
        return z * h + (1 - z) * np.tanh(xn + sig(xr + hr) * hn), c

    return (
        w,
        functional.gru(H, recurrent_bias=True),
        convert.gru_from_haste,
        convert.gru_to_haste,
        step,
    )


def theano_lstm(norms):
    w = {
        "lnlstm_W": draw(D, 4 * H),
        "lnlstm_U": draw(H, 4 * H),
        "lnlstm_b": draw(4 * H),
    }
    w |= (
        {
            f"lnlstm_{k}{n}": draw(H if n == 3 else 4 * H)
            for k in "sb"
            for n in (1, 2, 3)
        }
        if norms
        else {}
    )

    def norm(a, n):
        return ln(a, w[f"lnlstm_s{n}"], w[f"lnlstm_b{n}"], 1e-5) if norms else a

    def step(x, h, c):
        b = w["lnlstm_b"]
        i, f, o, g = np.split(
            norm(h @ w["lnlstm_U"], 2) + norm(x @ w["lnlstm_W"] + b, 1) + b, 4, -1
        )
        c = sig(f) * c + sig(i) * np.tanh(g)
        return sig(o) * np.tanh(norm(c, 3)), c

    cell = functional.lstm(H, norm="layer" if norms else "none", inner_bias=True)
    return w, cell, convert.lstm_from_theano, convert.lstm_to_theano, step


def theano_gru(norms):
    w = {
        "lngru_W": draw(D, 2 * H),
        "lngru_U": draw(H, 2 * H),
        "lngru_b": draw(2 * H),
        "lngru_Wx": draw(D, H),
        "lngru_Ux": draw(H, H),
        "lngru_bx": draw(H),
    }
    w |= (
        {
            f"lngru_{k}{n}": draw(2 * H if n % 2 else H)
            for k in "sb"
            for n in (1, 2, 3, 4)
        }
        if norms
        else {}
    )

    def norm(a, n):
        return ln(a, w[f"lngru_s{n}"], w[f"lngru_b{n}"], 1e-5) if norms else a

    def step(x, h, c):
        r, u = np.split(
            sig(norm(h @ w["lngru_U"], 3) + norm(x @ w["lngru_W"] + w["lngru_b"], 1)),
            2,
            -1,
        )
        n = np.tanh(
            norm(h @ w["lngru_Ux"], 4) * r + norm(x @ w["lngru_Wx"] + w["lngru_bx"], 2)
        )
        return u * h + (1 - u) * n, c

    return (
        w,
        functional.gru(H, norm="layer" if norms else "none"),
        convert.gru_from_theano,
        convert.gru_to_theano,
        step,
    )


PEERS = {
    "torch-lstm": torch_lstm,
    "torch-gru": torch_gru,
    "fastrnns": fastrnns,
    "flax-lstm": flax_lstm,
    "flax-gru": flax_gru,
    "keras-lstm": keras_lstm,
    "tfa": lambda: keras_lstm(norms=True),
    "keras-gru-after": lambda: keras_gru(True),
    "keras-gru-before": lambda: keras_gru(False),
    "haste-lstm": lambda: haste_lstm(False),
    "haste-ln-lstm": lambda: haste_lstm(True),
    "haste-gru": haste_gru,
    "theano-lstm": lambda: theano_lstm(False),
    "theano-lnlstm": lambda: theano_lstm(True),
    "theano-gru": lambda: theano_gru(False),
    "theano-lngru": lambda: theano_gru(True),
}


@pytest.mark.parametrize("peer", PEERS)
def test_outputs_equal_the_peer_s_formulas_and_weights_come_back(peer):
    theirs, cell, there, back, step = PEERS[peer]()
    params = there(theirs)
    spec = {name: shape for name, (_, shape) in cell.spec(D).items()}
    assert {name: a.shape for name, a in params.items()} == spec
    y = jax.jit(lambda p, x: functional.unroll(cell, p, x)[1])(params, X)
    np.testing.assert_allclose(y, run(step), atol=2e-6)
    again = there(back(params))
    jax.tree.map(np.testing.assert_array_equal, again, params)
    if peer != "torch-lstm":  # its two biases come back as one
        jax.tree.map(np.testing.assert_array_equal, back(params), theirs)


def test_missing_weights_are_named():
    with pytest.raises(ValueError, match="no 'weight_hh_l0'; found weight_ih_l0"):
        convert.lstm_from_torch({"weight_ih_l0": draw(4 * H, D)})
    with pytest.raises(ValueError, match="jointly"):
        convert.gru_from_haste({"gamma": draw(2, 3 * H)})
    with pytest.raises(ValueError, match="one b in both places"):
        convert.lstm_to_theano(
            {
                "w_x": draw(D, 4 * H),
                "w_h": draw(H, 4 * H),
                "bias": draw(4 * H),
                "inner_bias": draw(4 * H),
            }
        )


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_torch_itself(name):
    torch = pytest.importorskip("torch")
    module = getattr(torch.nn, name)(D, H, batch_first=True, bidirectional=True)
    state = {k: v.detach().numpy() for k, v in module.state_dict().items()}
    there = getattr(convert, f"{name.lower()}_from_torch")
    cell = (
        functional.lstm(H) if name == "LSTM" else functional.gru(H, recurrent_bias=True)
    )
    params = (there(state), there(state, "_l0_reverse"))
    y = functional.unroll(functional.bidirectional(cell, cell), params, jnp.asarray(X))[
        1
    ]
    np.testing.assert_allclose(
        y, module(torch.tensor(X))[0].detach().numpy(), atol=1e-5
    )
