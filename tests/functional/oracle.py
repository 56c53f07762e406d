"""The recurrent equations of the paper in NumPy, written from the paper alone: one example at a time, one gate at a
time, no batching, no tricks.

Everything works on complex numbers too, so that Im f(p + i e d) / e is the exact derivative of f at p along d.
"""

import numpy as np


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def layer_norm(a, gain=1.0, bias=0.0, eps=1e-5):
    """Eq. 15-16 over the last axis."""
    mu = a.sum(-1, keepdims=True) / a.shape[-1]
    var = ((a - mu) ** 2).sum(-1, keepdims=True) / a.shape[-1]
    return (a - mu) / np.sqrt(var + eps) * gain + bias


def batch_norm(a, rows, gain=1.0, bias=0.0, eps=1e-5):
    """Eq. 2 over those first-axis rows that are marked; all rows are normalised."""
    if not rows.any():
        return a / np.sqrt(eps) * gain + bias
    mu = a[rows].sum(0) / rows.sum()
    var = ((a[rows] - mu) ** 2).sum(0) / rows.sum()
    return (a - mu) / np.sqrt(var + eps) * gain + bias


def kernel(p, norm, which):
    w = p["w_" + which]
    return w / np.sqrt((w**2).sum(0)) * p["length_" + which] if norm == "weight" else w


def lstm_step(p, norm, c, h, x, rows, eps=1e-5, cell_norm="output"):
    H = h.shape[-1]
    ax, ah = x @ kernel(p, norm, "x") + p.get("inner_bias", 0), h @ kernel(p, norm, "h")
    if norm == "layer":
        ax, ah = layer_norm(ax, p["gain_x"], p["bias_x"], eps), layer_norm(ah, p["gain_h"], p["bias_h"], eps)
    if norm == "batch":
        ax, ah = batch_norm(ax, rows, p["gain_x"], eps=eps), batch_norm(ah, rows, p["gain_h"], eps=eps)
    a = ax + ah + p.get("bias", 0)
    f, i, o, g = a[:, :H], a[:, H : 2 * H], a[:, 2 * H : 3 * H], a[:, 3 * H :]
    if "peephole" in p:
        f, i = f + p["peephole"][0] * c, i + p["peephole"][1] * c
    new = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    if "peephole" in p:
        o = o + p["peephole"][2] * new
    shown = new
    if norm in ("layer", "layer_cell"):
        shown = layer_norm(new, p["gain_c"], p["bias_c"], eps)
    if norm == "batch":
        shown = batch_norm(new, rows, p["gain_c"], p["bias_c"], eps)
    return shown if cell_norm == "carry" else new, sigmoid(o) * np.tanh(shown)


def gru_step(p, norm, _, h, x, rows, eps=1e-5, reset="after"):
    H = h.shape[-1]
    w_x, w_h = kernel(p, norm, "x"), kernel(p, norm, "h")
    bias = p.get("bias", np.zeros(3 * H))
    more = p.get("bias_recurrent", np.zeros(3 * H))

    def normed(a, which, part):
        if norm == "layer":
            return layer_norm(a, p["gain_" + which][part], p["bias_" + which][part], eps)
        return batch_norm(a, rows, p["gain_" + which][part], eps=eps) if norm == "batch" else a

    gates, last = slice(0, 2 * H), slice(2 * H, 3 * H)
    zr = normed(x @ w_x[:, gates] + bias[gates], "x", gates) + normed(h @ w_h[:, gates], "h", gates) + more[gates]
    z, r = sigmoid(zr[:, :H]), sigmoid(zr[:, H:])
    if reset == "after":
        u = r * (normed(h @ w_h[:, last], "h", last) + more[last])
    else:
        u = normed((r * h) @ w_h[:, last], "h", last) + more[last]
    n = np.tanh(normed(x @ w_x[:, last] + bias[last], "x", last) + u)
    return None, (1 - z) * h + z * n


def rnn_step(p, norm, _, h, x, rows, eps=1e-5):
    ax, ah = x @ kernel(p, norm, "x"), h @ kernel(p, norm, "h")
    if norm == "layer":
        return None, np.tanh(layer_norm(ax + ah, p["gain_x"], 0.0, eps) + p["bias"])
    if norm == "batch":
        ax, ah = batch_norm(ax, rows, p["gain_x"], eps=eps), batch_norm(ah, rows, p["gain_h"], eps=eps)
    return None, np.tanh(ax + ah + p["bias"])


STEPS = {"lstm": lstm_step, "gru": gru_step, "rnn": rnn_step}


def run(name, norm, p, x, mask, resets=None, reverse=False, **options):
    """x (B, T, D), mask (B, T) -> (c (B, H) or None, h (B, H), y (B, T, H)); padded steps pass the carry on and give y
    = 0."""
    batch, steps, _ = x.shape
    H = p["w_h"].shape[0]
    dtype = np.result_type(x, *p.values())
    h0 = np.zeros((batch, H), dtype) + p.get("h0", 0)
    c0 = np.zeros((batch, H), dtype) + p.get("c0", 0)
    c, h, y = c0, h0, np.zeros((batch, steps, H), dtype)
    for t in range(steps)[::-1] if reverse else range(steps):
        if resets is not None:
            c, h = np.where(resets[:, t, None], c0, c), np.where(resets[:, t, None], h0, h)
        rows = mask[:, t]
        new_c, new_h = STEPS[name](p, norm, c, h, x[:, t], rows, **options)
        c = c if new_c is None else np.where(rows[:, None], new_c, c)
        h = np.where(rows[:, None], new_h, h)
        y[:, t] = np.where(rows[:, None], new_h, 0)
    return (None if name != "lstm" else c), h, y
