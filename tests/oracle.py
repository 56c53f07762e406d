"""The recurrent equations of the paper in NumPy, as the reference of the tests.

They are written from the paper alone: a plain loop over time, one gate after the other.

All functions accept complex numbers. Im f(p + i e d) / e is then the exact derivative
of f at p along d, for a tiny e.

Shape letters: B batch, T time, D input features, H hidden units.
"""

import numpy as np


def sigmoid(a):
    """The logistic function."""
    return 1 / (1 + np.exp(-a))


def layer_norm(a, gain=1.0, bias=0.0, epsilon=1e-5):
    """Layer norm over the last axis (eq. 15-16)."""
    mean = a.sum(-1, keepdims=True) / a.shape[-1]
    var = ((a - mean) ** 2).sum(-1, keepdims=True) / a.shape[-1]
    return (a - mean) / np.sqrt(var + epsilon) * gain + bias


def rms_norm(a, gain=1.0, epsilon=1e-5):
    """RMS norm over the last axis (Zhang and Sennrich 2019)."""
    mean_square = (a**2).sum(-1, keepdims=True) / a.shape[-1]
    return a / np.sqrt(mean_square + epsilon) * gain


def batch_norm(a, rows, gain=1.0, bias=0.0, epsilon=1e-5):
    """Batch norm (eq. 2). The marked rows give the statistics; all are normalised."""
    if not rows.any():
        return a / np.sqrt(epsilon) * gain + bias
    mean = a[rows].sum(0) / rows.sum()
    var = ((a[rows] - mean) ** 2).sum(0) / rows.sum()
    return (a - mean) / np.sqrt(var + epsilon) * gain + bias


def normalise(p, norm, site, a, rows, part=slice(None)):
    """The norm of one site, where it has a gain, for those units that `part` names."""
    if f"gain_{site}" not in p:
        return a
    gain = p[f"gain_{site}"][part]
    bias = p[f"bias_{site}"][part] if f"bias_{site}" in p else 0.0
    if norm == "rms":
        return rms_norm(a, gain)
    if norm == "batch":
        return batch_norm(a, rows, gain, bias)
    return layer_norm(a, gain, bias)


def kernel(p, norm, which):
    """The kernel w_x or w_h, under weight norm with columns of a learned length."""
    w = p[f"w_{which}"]
    if norm != "weight":
        return w
    return w / np.sqrt((w**2).sum(0)) * p[f"length_{which}"]


def lstm_step(
    p,
    norm,
    c,
    h,
    x,
    rows=None,
    cell_norm="output",
    gate_fn=sigmoid,
    activation_fn=np.tanh,
):
    """One step of the LSTM (eq. 20-22); c, h and x may lack the batch axis."""
    a_x = x @ kernel(p, norm, "x") + p.get("inner_bias", 0)
    a_h = h @ kernel(p, norm, "h")
    a_x = normalise(p, norm, "x", a_x, rows)
    a_h = normalise(p, norm, "h", a_h, rows)
    a = normalise(p, norm, "joint", a_x + a_h, rows) + p.get("bias", 0)
    f, i, o, g = np.split(a, 4, axis=-1)
    if "peephole" in p:
        f = f + p["peephole"][0] * c
        i = i + p["peephole"][1] * c
    new_c = gate_fn(f) * c + gate_fn(i) * activation_fn(g)
    if "peephole" in p:
        o = o + p["peephole"][2] * new_c
    shown_c = normalise(p, norm, "c", new_c, rows)
    new_h = gate_fn(o) * activation_fn(shown_c)
    carried_c = shown_c if cell_norm == "carry" else new_c
    return carried_c, new_h


def gru_step(
    p,
    norm,
    c,
    h,
    x,
    rows=None,
    reset="after",
    gate_fn=sigmoid,
    activation_fn=np.tanh,
):
    """One step of the GRU (eq. 26-28); h and x may lack the batch axis.

    reset="before" is the GRU of Cho et al. (2014).
    """
    H = h.shape[-1]
    gates, last = slice(0, 2 * H), slice(2 * H, 3 * H)
    w_x, w_h = kernel(p, norm, "x"), kernel(p, norm, "h")
    bias = p.get("bias", np.zeros(3 * H))
    bias_recurrent = p.get("bias_recurrent", np.zeros(3 * H))

    def input_part(part):
        a = x @ w_x[:, part] + bias[part]
        return normalise(p, norm, "x", a, rows, part)

    a_gates = normalise(p, norm, "h", h @ w_h[:, gates], rows, gates)
    zr = input_part(gates) + a_gates + bias_recurrent[gates]
    z, r = gate_fn(zr[..., :H]), gate_fn(zr[..., H:])
    if reset == "after":
        u = normalise(p, norm, "h", h @ w_h[:, last], rows, last)
        u = r * (u + bias_recurrent[last])
    else:
        u = normalise(p, norm, "u", (r * h) @ w_h[:, last], rows)
        u = u + bias_recurrent[last]
    n = activation_fn(input_part(last) + u)
    return None, (1 - z) * h + z * n


def simple_step(p, norm, c, h, x, rows, activation_fn=np.tanh):
    """One step of the simple recurrent network (eq. 4)."""
    a_x, a_h = x @ kernel(p, norm, "x"), h @ kernel(p, norm, "h")
    a_x = normalise(p, norm, "x", a_x, rows)
    a_h = normalise(p, norm, "h", a_h, rows)
    a = normalise(p, norm, "joint", a_x + a_h, rows)
    return None, activation_fn(a + p.get("bias", 0))


def dreamer_step(p, norm, c, h, x, rows, activation_fn=np.tanh):
    """One step of the recurrent cell of DreamerV2 (Hafner et al. 2021)."""
    a = x @ p["w_x"] + h @ p["w_h"] + p.get("bias", 0)
    r, n, u = np.split(normalise(p, norm, "joint", a, rows), 3, -1)
    u = sigmoid(u - 1)
    return None, u * activation_fn(sigmoid(r) * n) + (1 - u) * h


STEPS = {
    "lstm": lstm_step,
    "gru": gru_step,
    "simple": simple_step,
    "dreamer": dreamer_step,
}


def run(name, norm, p, x, mask, resets=None, reverse=False, **options):
    """A cell over a sequence.

    Padded steps pass the carry on, and their output is 0.

    Args:
      name: of the step function, a key of STEPS.
      norm: name of the norm.
      p: parameters.
      x: [B, T, D].
      mask: [B, T], False where a step is padding.
      resets: [B, T], True at the first step of a sequence; the carry starts anew
        between this step and the one before it.
      reverse: from the last step to the first.
      options: of the step function.

    Returns:
      (c [B, H] or None, h [B, H], outputs [B, T, H]).
    """
    batch, steps, _ = x.shape
    H = p["w_h"].shape[0]
    dtype = np.result_type(x, *p.values())
    h0 = np.zeros((batch, H), dtype) + p.get("h0", 0)
    c0 = np.zeros((batch, H), dtype) + p.get("c0", 0)
    c, h, y = c0, h0, np.zeros((batch, steps, H), dtype)
    if reverse and resets is not None:
        resets = np.append(resets[:, 1:], np.zeros((batch, 1), bool), 1)
    for t in range(steps)[::-1] if reverse else range(steps):
        if resets is not None:
            anew = resets[:, t, None]
            c, h = np.where(anew, c0, c), np.where(anew, h0, h)
        rows = mask[:, t]
        new_c, new_h = STEPS[name](p, norm, c, h, x[:, t], rows, **options)
        if new_c is not None:
            c = np.where(rows[:, None], new_c, c)
        h = np.where(rows[:, None], new_h, h)
        y[:, t] = np.where(rows[:, None], new_h, 0)
    return c if name == "lstm" else None, h, y
