"""Recurrent cells as tuples of plain functions: simple RNN (eq. 4), LSTM (eq. 17-22 and 29-31), GRU (eq. 23-28), each
with every normaliser.

A `Cell` is two linear maps (of the input x_t and of the previous output h_{t-1}) and a `pointwise` step that holds all
gates and norms:

    cell = lstm(256, norm="layer")
    params = init(cell, key, features_in)
    carry, y = step(cell, params, initial_carry(cell, params, x[..., 0, :]), x[..., 0, :])   # one tick
    carry, ys = unroll(cell, params, x)                                                      # a whole sequence

Shape letters: B batch, T time, D input features, H hidden units, N = 4H (LSTM), 3H (GRU) or H (RNN) pre-activations.
Gate order in every array of N: f, i, o, g (LSTM); z, r, candidate (GRU). Parameters: kernels "w_x" (D, N) and "w_h"
(H, N), "bias" (N,), gains and biases of the norms "gain_x", "bias_x", "gain_h", "bias_h" (N,), "gain_c", "bias_c"
(H,), and "peephole" (3, H), "h0", "c0" (H,), "length_x", "length_h" (N,) where asked for.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional import norms

Carry = Any
Params = dict[str, jax.Array]
NORMS = ("none", "layer", "layer_cell", "batch", "weight")


class Kernels(NamedTuple):
    """The two linear maps of a step: px = x @ x_kernel and ph = h @ h_kernel, ready to multiply (centred,
    weight-normalised)."""

    x: jax.Array
    h: jax.Array


class Tick(NamedTuple):
    """What a step knows besides carry and input; every field may be None.

    index: () number of the step; mask: (...) False where the carry passes through; reset: (...) True where it starts
    anew; key: for per-step noise; constants: noise drawn once per sequence (see Cell.sample); update: multiplies the
    candidate g; statistics: {site: (mean, var)} for batch norm at test time.
    """

    index: jax.Array | None = None
    mask: jax.Array | None = None
    reset: jax.Array | None = None
    key: jax.Array | None = None
    constants: Any = None
    update: jax.Array | None = None
    statistics: Any = None


class LengthOf(NamedTuple):
    """Initialiser of a weight-norm length: the column norms of another parameter, so that the start is the
    un-normalised layer's."""

    kernel: str


class Cell(NamedTuple):
    """A recurrent cell as functions; wrappers replace some of them.

    features: H, the size of the output.
    spec: (D) -> {name: (initializer | LengthOf, shape)}.
    carry: (params, like (..., D)) -> the carry before the first step, with like's batch axes, sharding and dtype.
    kernels: (params) -> Kernels, once per sequence.
    pointwise: (local(params), carry, px (..., N), ph (..., N), tick) -> (carry, aside); aside is None, or batch norm's
    statistics {site: (mean, var)}. output: (carry) -> h (..., H), the step's output.
    reads: (carry, tick) -> (..., H), what the recurrent kernel multiplies; output unless a wrapper drops some of it.
    enters: (x, constants) -> x, done to the whole input before its projection; None is identity.
    sample: (key, like (..., D)) -> constants, noise drawn once per sequence; None draws nothing.
    local: (params) -> what pointwise reads of them, prepared once per sequence.
    sites: {site: size} of batch-norm sites, empty without batch norm.
    rowwise: whether pointwise also takes local's arrays of one axis with x's batch axes before it, so that the lean
        backward pass may add up their gradients row by row.
    """

    features: int
    spec: Callable
    carry: Callable
    kernels: Callable
    pointwise: Callable
    output: Callable
    reads: Callable
    local: Callable
    enters: Callable | None = None
    sample: Callable | None = None
    sites: dict[str, int] = {}  # noqa: RUF012
    rowwise: bool = False


def init(cell: Cell, key: jax.Array, features_in: int, dtype: jax.typing.DTypeLike = jnp.float32) -> Params:
    """Fresh parameters of a cell for inputs (..., D = features_in). Drawn in float32 and then cast, so that orthogonal
    kernels exist in bfloat16 too."""
    if not isinstance(features_in, int) or features_in < 1:
        raise ValueError(f"features_in={features_in}: a cell needs at least one input feature")
    if hasattr(cell, "layers"):
        return cell.init(key, features_in, dtype)
    spec = cell.spec(features_in)
    wide = jnp.promote_types(dtype, jnp.float32)
    made: Params = {}
    for name, sub in zip(spec, jax.random.split(key, len(spec)), strict=True):
        start, shape = spec[name]
        made[name] = (
            norms.weight_norm_preserving(made[start.kernel])[1]
            if isinstance(start, LengthOf)
            else start(sub, shape, wide)
        )
    return {name: value.astype(dtype) for name, value in made.items()}


def rnn(features: int, **options) -> Cell:
    """Simple RNN: h_t = tanh(LN(W_h h_{t-1} + W_x x_t) + b) with norm="layer" (eq. 4, one norm over the sum); options
    as for lstm.

    norm="batch" normalises the two projections apart (Cooijmans et al. 2016); norm="layer_cell" does not exist here.
    `activation` replaces tanh.

    >>> carry, y = unroll(rnn(8, norm="layer"), params, x)
    """
    activation = options.pop("activation", jnp.tanh)
    o = _options("rnn", features, 1, **options)

    def pointwise(params, h, px, ph, tick=_NO_TICK):
        if o.norm == "layer":
            a, aside = (
                norms.layer_norm_centred(_wide(px) + _wide(ph), params["gain_x"], None, eps=o.eps),
                None,
            )
        else:
            px, ph, aside = _sites(o, params, px, ph, tick)
            a = px + ph
        a = a + params["bias"].astype(a.dtype) if "bias" in params else a
        new = activation(a)
        return (new if tick.update is None else new * tick.update).astype(h.dtype), aside

    return _cell(o, pointwise, lambda h: h, carries=1)


def lstm(features: int, **options) -> Cell:
    """LSTM with H = features; carry (c, h), gate order f, i, o, g.

        (f, i, o, g) = N_h(W_h h_{t-1}) + N_x(W_x x_t) + b;   c_t = s(f) c_{t-1} + s(i) tanh(g);   h_t = s(o)
        tanh(N_c(c_t))

    norm="none": every N is the identity. "layer": three LNs, those of the projections over all 4H gates jointly (eq.
    20-22). "layer_cell": N_c alone (DRAW, eq. 29-31). "batch": three BNs with statistics per time step (Cooijmans et
    al. 2016), gain 0.1, shift at N_c only. "weight": the two kernels. The paper carries c un-normalised;
    cell_norm="carry" carries N_c(c), as TFA and fastrnns do.

    Options:
      norm: one of NORMS.                      cell_norm: "output" (the paper's) or "carry".
      use_bias: True.                          forget_bias: 0.0, start of b's forget part.
      peephole: False; Graves' diagonal weights from c to f, i (old c) and o (new c), un-normalised.
      clip_gradient: 0.0, none; L > 0 clips the loss's derivative with respect to the pre-activations (f, i, o, g) to
        [-L, L] on its way back (Graves 2013, section 2.1).
      inner_bias: False; True adds a bias "inner_bias" to W_x x_t inside its norm, as the authors' code has.
      learned_carry: False; True makes h_0 and c_0 parameters (start 0) in place of zeros.
      kernel_init, recurrent_init, bias_init: initialisers (Glorot uniform, orthogonal, zeros), each gate's block drawn
        by itself.
      gain_init: start of the gains; default 1 (0.1 for batch norm).   eps: 1e-5 under the root.

    Raises ValueError for an unknown norm or option and for features < 1.
    """
    cell_norm, peephole = options.pop("cell_norm", "output"), options.pop("peephole", False)
    inner_bias, clip = options.pop("inner_bias", False), options.pop("clip_gradient", 0.0)
    if cell_norm not in ("output", "carry"):
        raise ValueError(f"lstm: cell_norm={cell_norm!r}; choose 'output' (the paper's) or 'carry'")
    o = _options("lstm", features, 4, **options)

    def pointwise(params, carry, px, ph, tick=_NO_TICK):
        c, _ = carry
        dtype = c.dtype
        px, ph, aside = _sites(o, params, px, ph, tick)
        a = px + ph
        a = a + params["bias"].astype(a.dtype) if "bias" in params else a
        a = clip_gradient(a, clip) if clip else a
        c = c.astype(a.dtype)
        if peephole:
            w = params["peephole"].astype(a.dtype)
            f, i, out, g = jnp.split(a, 4, -1)
            f, i, g = jax.nn.sigmoid(f + w[0] * c), jax.nn.sigmoid(i + w[1] * c), jnp.tanh(g)
        else:
            f, i, out, g = jnp.split(_gates(a, 3 * features), 4, -1)
        g = g if tick.update is None else g * tick.update.astype(a.dtype)
        c = f * c + i * g
        if peephole:
            out = jax.nn.sigmoid(out + w[2] * c)
        shown, aside = _cell_site(o, params, c, tick, aside)
        h = out * jnp.tanh(shown)
        return ((shown if cell_norm == "carry" else c).astype(dtype), h.astype(dtype)), aside

    extra = ({"peephole": (3, features)} if peephole else {}) | ({"inner_bias": (4 * features,)} if inner_bias else {})
    return _cell(o, pointwise, lambda carry: carry[1], carries=2, cell_site=True, extra=extra)


def gru(features: int, **options) -> Cell:
    """GRU with H = features; carry h, order z, r, candidate.

        (z, r) = N(W_h h_{t-1}) + N(W_x x_t + b);   n = tanh(N(W x_t + b) + s(r) * N(U h_{t-1}));   h_t = (1 - s(z))
        h_{t-1} + s(z) n

    eq. 23-28, with the reset gate after the product, LN over both gates jointly (2H) and over the candidate (H). The
    linear bias stands on the input projections, inside their LN, as in the authors' code (the paper prints none).
    reset="before" is Cho's n = tanh(N(W x) + N(U (s(r) * h))). use_update="mirror" is not offered: s(-z) = 1 - s(z),
    see lnrepro.convert. Options as for lstm, without peephole and cell_norm; also recurrent_bias=False: a bias on the
    recurrent projections (torch and Keras have one; without a norm only).
    """
    reset, recurrent_bias = options.pop("reset", "after"), options.pop("recurrent_bias", False)
    if reset not in ("after", "before"):
        raise ValueError(f"gru: reset={reset!r}; choose 'after' (the paper's) or 'before' (Cho et al.)")
    o = _options("gru", features, 3, blocks=(2, 1), offset="bias", **options)
    H = features
    if recurrent_bias and o.norm not in ("none", "weight"):
        raise ValueError(f"gru: recurrent_bias is for norm='none' or 'weight', not {o.norm!r}")

    def pointwise(params, h, px, ph, tick=_NO_TICK):
        if reset == "before":
            zr = {**params, **{k: params[k][: 2 * H] for k in _SITE_PARAMS if k in params}}
            px, ph2, aside = _sites(o, params, px, ph, tick, h_params=zr, width_h=2 * H)
            if recurrent_bias:
                ph2 = ph2 + params["bias_recurrent"][: 2 * H].astype(ph2.dtype)
        else:
            px, ph2, aside = _sites(o, params, px, ph, tick)
            if recurrent_bias:
                ph2 = ph2 + params["bias_recurrent"].astype(ph2.dtype)
        if reset == "before":
            x_gates, x_last = jnp.split(px, [2 * H], -1)
            z, r = jnp.split(_gates(x_gates + ph2, 2 * H), 2, -1)
            a = (r * h.astype(r.dtype)).astype(h.dtype) @ _recurrent_kernel(o, params)[:, 2 * H :].astype(h.dtype)
            u, aside = _candidate_site(o, params, a, tick, aside)
            if recurrent_bias:
                u = u + params["bias_recurrent"][2 * H :].astype(u.dtype)
            n = jnp.tanh(x_last + u)
        else:
            z, n = _update_and_candidate(px, ph2)
        n = n if tick.update is None else n * tick.update.astype(n.dtype)
        wide = h.astype(n.dtype)
        return (wide + z * (n - wide)).astype(h.dtype), aside

    extra = {"bias_recurrent": (3 * H,)} if recurrent_bias else {}
    return _cell(o, pointwise, lambda h: h, carries=1, extra=extra, width_h=2 * H if reset == "before" else None)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def clip_gradient(x: jax.Array, limit: float) -> jax.Array:
    """x (...), unchanged; its cotangent is clipped to [-limit, limit], entry by entry."""
    return x


clip_gradient.defvjp(lambda x, limit: (x, None), lambda limit, _, g: (jnp.clip(g, -limit, limit),))

_NO_TICK = Tick()
_SITE_PARAMS = ("gain_h", "bias_h")


class _Options(NamedTuple):
    name: str
    features: int
    gates: int
    norm: str
    eps: float
    use_bias: bool
    forget_bias: float
    learned_carry: bool
    kernel_init: Callable
    recurrent_init: Callable
    bias_init: Callable
    gain_init: Callable
    blocks: tuple[int, ...]  # gates that share one norm, in units of H
    offset: str  # the parameter that is the input projection's bias, inside its norm


def _options(
    name,
    features,
    gates,
    *,
    norm="none",
    eps=1e-5,
    use_bias=True,
    forget_bias=0.0,
    learned_carry=False,
    kernel_init=None,
    recurrent_init=None,
    bias_init=None,
    gain_init=None,
    blocks=(1,),
    offset="inner_bias",
    **unknown,
):
    if unknown:
        raise ValueError(f"{name}: unknown option {next(iter(unknown))!r}")
    if isinstance(features, bool) or not isinstance(features, int) or features < 1:
        raise ValueError(f"{name}: features={features!r}; it must be a positive integer")
    if norm not in NORMS:
        raise ValueError(f"{name}: unknown norm {norm!r}; choose one of {', '.join(NORMS)}")
    if norm == "layer_cell" and name != "lstm":
        raise ValueError(f"{name}: norm='layer_cell' normalises an LSTM's cell, and this cell has none; use 'layer'")
    if forget_bias and name != "lstm":
        raise ValueError(f"{name}: forget_bias belongs to the LSTM")
    return _Options(
        name,
        features,
        gates,
        norm,
        eps,
        use_bias,
        forget_bias,
        learned_carry,
        kernel_init or jax.nn.initializers.glorot_uniform(),
        recurrent_init or jax.nn.initializers.orthogonal(),
        bias_init or jax.nn.initializers.zeros,
        gain_init or jax.nn.initializers.constant(0.1 if norm == "batch" else 1.0),
        blocks,
        offset,
    )


def _cell(o, pointwise, output, *, carries, cell_site=False, extra=None, width_h=None):
    H, N = o.features, o.gates * o.features

    def spec(features_in):
        ones, zeros = o.gain_init, jax.nn.initializers.zeros
        made = {
            "w_x": (_by_gate(o.kernel_init, o.gates), (features_in, N)),
            "w_h": (_by_gate(o.recurrent_init, o.gates), (H, N)),
        }
        if o.norm == "weight":
            made |= {"length_x": (LengthOf("w_x"), (N,)), "length_h": (LengthOf("w_h"), (N,))}
        if o.use_bias:
            made["bias"] = (functools.partial(_forget_bias, o), (N,))
        joint = o.name == "rnn" and o.norm == "layer"
        if o.norm in ("layer", "batch"):
            for site in ("x",) if joint else ("x", "h"):
                made[f"gain_{site}"] = (ones, (N,))
                if o.norm == "layer" and not joint:
                    made[f"bias_{site}"] = (zeros, (N,))
        if cell_site and o.norm in ("layer", "layer_cell", "batch"):
            made |= {"gain_c": (ones, (H,)), "bias_c": (zeros, (H,))}
        made |= {name: (zeros, shape) for name, shape in (extra or {}).items()}
        if o.learned_carry:
            made |= dict.fromkeys(("c0", "h0")[2 - carries :], (zeros, (H,)))
        return made

    def carry(params, like):
        like = like[..., :1]
        zero = jnp.where(
            jnp.zeros((), bool), like, jnp.zeros((), like.dtype)
        )  # like's axes and sharding, not its values
        parts = [
            params[n].astype(like.dtype) if o.learned_carry else jnp.zeros((H,), like.dtype)
            for n in ("c0", "h0")[2 - carries :]
        ]
        parts = [zero + part for part in parts]
        return parts[0] if carries == 1 else tuple(parts)

    def kernels(params):
        w_x, w_h = params["w_x"], _recurrent_kernel(o, params)
        if o.norm == "weight":
            w_x = norms.weight_norm(w_x, params["length_x"])
        if o.norm == "layer":
            w_x = _centre(o, w_x)
        return Kernels(w_x, w_h if width_h is None else w_h[:, :width_h])

    batch = {"x": N, "h": width_h or N} | ({"c": H} if cell_site else {}) | ({"u": N - width_h} if width_h else {})
    sites = batch if o.norm == "batch" else {}

    def local(params):
        elsewhere = {"w_x", "length_x", "c0", "h0"}
        if width_h is None:
            elsewhere |= {"w_h", "length_h"}
        kept = {name: value for name, value in params.items() if name not in elsewhere}
        if (
            o.name == "lstm" and o.norm == "layer"
        ):  # three biases that only occur as a sum: added up once, not at every step
            shifts = [kept.pop(name) for name in ("bias", "bias_x", "bias_h") if name in kept]
            kept["bias"] = sum(shifts[1:], shifts[0])
        if o.norm == "layer" and o.offset in kept:
            kept[o.offset] = _centre(o, kept[o.offset])
        return kept

    return Cell(
        H,
        spec,
        carry,
        kernels,
        pointwise,
        output,
        lambda carry, tick: output(carry),
        local,
        sites=sites,
        rowwise=o.norm != "batch" and width_h is None,
    )


def _gates(a, sigmoids):
    """sigmoid of the first `sigmoids` entries of the last axis, tanh of the others, by one tanh: s(x) = (1 + tanh(x /
    2)) / 2.

    One pass over all gates is several times faster on CPU than one per gate: XLA does not vectorise transcendentals of
    slices.
    """
    first = jnp.arange(a.shape[-1]) < sigmoids
    t = jnp.tanh(jnp.where(first, a / 2, a))
    return jnp.where(first, (1 + t) / 2, t)


@jax.custom_jvp
def _update_and_candidate(px, ph):
    """The GRU's z = s(a_z) and n = tanh(px_n + s(a_r) * ph_n), both (..., H), of its projections (..., 3H); a = px + ph
    (eq. 23-24 and 26-27, reset after the product)."""
    z, _, n, _ = _reset_after(px, ph)
    return z, n


def _reset_after(px, ph):
    z, r, _ = jnp.split(_gates(px + ph, 2 * (px.shape[-1] // 3)), 3, -1)
    (_, _, x), (_, _, u) = jnp.split(px, 3, -1), jnp.split(ph, 3, -1)
    return z, r, jnp.tanh(x + r * u), u


@_update_and_candidate.defjvp
def _(primals, tangents):
    # Every part of a tangent stands in one place, so that reverse mode makes each projection's gradient by one
    # concatenation; JAX's own derivative pads and adds up a whole row for each slice.
    z, r, n, u = _reset_after(*primals)
    (z_x, r_x, n_x), (z_h, r_h, n_h) = (jnp.split(t, 3, -1) for t in tangents)
    slope = 1 - jnp.square(n)
    return (z, n), (z * (1 - z) * (z_x + z_h), slope * (n_x + r * n_h) + slope * u * r * (1 - r) * (r_x + r_h))


def _by_gate(initializer, gates):
    def start(key, shape, dtype):
        each = (*shape[:-1], shape[-1] // gates)
        return jnp.concatenate([initializer(k, each, dtype) for k in jax.random.split(key, gates)], -1)

    return start


def _forget_bias(o, key, shape, dtype):
    bias = o.bias_init(key, shape, dtype)
    return bias.at[: o.features].add(o.forget_bias) if o.forget_bias else bias


def _recurrent_kernel(o, params):
    w = params["w_h"]
    if o.norm == "weight":
        return norms.weight_norm(w, params["length_h"])
    return _centre(o, w) if o.norm == "layer" else w


def _centre(o, w):
    return norms.centre(w, blocks=_blocks(o, w))


def _blocks(o, a):
    """The groups of a's units that are normed by themselves: those of the options where a holds all of them, else one."""
    return o.blocks if a.shape[-1] == sum(o.blocks) * o.features else (1,)


def _wide(a):
    return a.astype(jnp.promote_types(a.dtype, jnp.float32))


def _sites(o, params, px, ph, tick, h_params=None, width_h=None):
    """The norms at the input and recurrent sites; returns them in at least float32, and batch norm's statistics."""
    h_params = h_params or params
    if o.offset in params:
        px = _wide(px) + _wide(params[o.offset])
    if o.norm == "layer":
        return _layer(o, px, params, "x"), _layer(o, ph, h_params, "h"), None
    if o.norm == "batch":
        aside = {}
        px = _batch(o, "x", px, params["gain_x"], None, tick, aside)
        return px, _batch(o, "h", ph, h_params["gain_h"], None, tick, aside), aside
    return _wide(px), _wide(ph), None


def _layer(o, a, params, site):
    """Layer norm of centred blocks side by side, each block with its own variance, in one pass over the whole array."""
    gain, bias = params[f"gain_{site}"][..., : a.shape[-1]], params.get(f"bias_{site}")
    bias = None if bias is None else bias[..., : a.shape[-1]]
    return norms.layer_norm_centred(a, gain, bias, eps=o.eps, blocks=_blocks(o, a))


def _batch(o, site, a, gain, bias, tick, aside):
    mean, var = (None, None) if tick.statistics is None else tick.statistics[site]
    y, aside[site] = norms.batch_norm(_wide(a), gain, bias, mask=tick.mask, eps=o.eps, mean=mean, var=var)
    return y


def _cell_site(o, params, c, tick, aside):
    if o.norm in ("layer", "layer_cell"):
        return norms.layer_norm_centred(norms.centre(c), params["gain_c"], params["bias_c"], eps=o.eps), aside
    if o.norm == "batch":
        return _batch(o, "c", c, params["gain_c"], params["bias_c"], tick, aside), aside
    return c, aside


def _candidate_site(o, params, a, tick, aside):
    H = o.features
    if o.norm == "layer":
        return norms.layer_norm_centred(a, params["gain_h"][2 * H :], params["bias_h"][2 * H :], eps=o.eps), aside
    if o.norm == "batch":
        return _batch(o, "u", a, params["gain_h"][2 * H :], None, tick, aside), aside
    return _wide(a), aside
