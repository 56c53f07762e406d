"""Cells with norms at other sites, over other groups, and with blocks.

Each is compared with equations in NumPy float64 that take one group of units after the
other: outputs, carries, and the derivative with respect to every parameter and x.

Shape letters: B batch, T time, D input features, H hidden units, K gates.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import (
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    ScanOptions,
    SimpleCell,
    unroll,
)
from tests.functional.test_cells import values_and_gradients, weigh
from tests.oracle import layer_norm, rms_norm, sigmoid

B, T, D, H = 3, 6, 4, 6
GROUPS = ("all", "per_gate", "heads")
NORMS = ("layer", "rms")


def lstm(**options):
    return LSTMCell(H, **{"norm": "none"} | options)


def gru(**options):
    return GRUCell(H, **{"norm": "none"} | options)


def dreamer(**options):
    return DreamerGRUCell(H, **{"norm": "none"} | options)


def blocks_for(norm_groups):
    """Blocks of the kernel, which heads need."""
    return 3 if norm_groups == "heads" else 1


CELLS = [
    *[
        lstm(norm=norm, norm_site=site, norm_groups=groups, blocks=blocks_for(groups))
        for norm in NORMS
        for site in ("products", "joint")
        for groups in GROUPS
    ],
    # The LSTM of speech transducers, and that of TensorFlow 1.
    lstm(norm="layer", norm_site="joint", cell_norm="carry", inner_bias=True),
    lstm(norm="layer", norm_site="joint", norm_groups="per_gate", cell_norm="carry"),
    lstm(norm="layer", norm_site="joint", use_bias=False, blocks=2, inner_bias=True),
    lstm(norm="layer_cell", blocks=2, peephole=True),
    *[lstm(norm=norm, blocks=2) for norm in ("none", *NORMS)],
    *[
        gru(norm=norm, norm_groups=groups, blocks=blocks_for(groups), reset=reset)
        for norm in NORMS
        for groups in GROUPS
        for reset in ("after", "before")
    ],
    *[
        gru(norm=norm, blocks=2, reset=reset)
        for norm in ("none", *NORMS)
        for reset in ("after", "before")
    ],
    *[
        dreamer(norm=norm, norm_groups=groups, blocks=blocks_for(groups))
        for norm in NORMS
        for groups in GROUPS
    ],
    dreamer(norm="layer", blocks=2, learned_carry=True, update_bias=0.5),
    dreamer(norm="none", use_bias=False),
]
WAYS = ["plain", "holes", "resets", "reverse"]


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def name_of(cell):
    """The fields of a cell that are not the default ones; numbers are no cells."""
    if isinstance(cell, int):
        return ""
    default = type(cell)(H)
    changed = [
        str(getattr(cell, field.name))
        for field in dataclasses.fields(cell)
        if getattr(cell, field.name) != getattr(default, field.name)
    ]
    return "-".join([type(cell).__name__, *changed])


# The equations


def groups_of_units(norm_groups, gates, blocks):
    """Lists of the units that are normalised jointly, of K gates of H units."""
    units = np.arange(gates * H).reshape(gates, H)
    if norm_groups == "paper" and gates == 3:
        return [units[:2].ravel(), units[2]]
    if norm_groups == "per_gate":
        return list(units)
    if norm_groups == "heads":
        return [part.ravel() for part in np.split(units, blocks, axis=1)]
    return [units.ravel()]


def normalise(p, cell, site, a, gates):
    """The norm of a site over each of its groups, where there is one."""
    if f"gain_{site}" not in p:
        return a
    gain = p[f"gain_{site}"]
    bias = p.get(f"bias_{site}", 0 * gain)
    y = 0 * (a + gain + bias)
    for units in groups_of_units(cell.norm_groups, gates, cell.blocks):
        if cell.norm == "rms":
            y[..., units] = rms_norm(a[..., units], gain[units])
        else:
            y[..., units] = layer_norm(a[..., units], gain[units], bias[units])
    return y


def recurrent_product(p, cell, h, gates):
    """W_h h, block after block, for the gates named by a slice."""
    if cell.blocks == 1:
        w = p["w_h"].reshape(H, cell.gates, H)[:, gates]
        return h @ w.reshape(H, -1)
    rows = H // cell.blocks
    parts = []
    for g, block in enumerate(p["w_h"]):
        of_gates = block.reshape(rows, cell.gates, rows)[:, gates]
        part = h[:, g * rows : (g + 1) * rows]
        parts.append(np.einsum("bd,dku->bku", part, of_gates))
    return np.concatenate(parts, -1).reshape(len(h), -1)


def lstm_step(p, cell, c, h, x):
    a_x = x @ p["w_x"] + p.get("inner_bias", 0)
    a_x = normalise(p, cell, "x", a_x, 4)
    a_h = normalise(p, cell, "h", recurrent_product(p, cell, h, slice(None)), 4)
    a = normalise(p, cell, "joint", a_x + a_h, 4) + p.get("bias", 0)
    f, i, o, g = np.split(a, 4, -1)
    if cell.peephole:
        f, i = f + p["peephole"][0] * c, i + p["peephole"][1] * c
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    if cell.peephole:
        o = o + p["peephole"][2] * c
    shown = normalise(p, cell, "c", c, 1)
    return shown if cell.cell_norm == "carry" else c, sigmoid(o) * np.tanh(shown)


def gru_step(p, cell, c, h, x):
    a_x = normalise(p, cell, "x", x @ p["w_x"] + p.get("bias", 0), 3)
    x_gates, x_candidate = np.split(a_x, [2 * H], -1)
    if cell.reset == "after":
        a_h = recurrent_product(p, cell, h, slice(None))
        a_h = normalise(p, cell, "h", a_h, 3)
        h_gates, h_candidate = np.split(a_h, [2 * H], -1)
        z, r = np.split(sigmoid(x_gates + h_gates), 2, -1)
        recurrent = r * h_candidate
    else:
        h_gates = recurrent_product(p, cell, h, slice(0, 2))
        h_gates = normalise(p, cell, "h", h_gates, 2)
        z, r = np.split(sigmoid(x_gates + h_gates), 2, -1)
        recurrent = recurrent_product(p, cell, r * h, slice(2, 3))
        recurrent = normalise(p, cell, "u", recurrent, 1)
    n = np.tanh(x_candidate + recurrent)
    return None, (1 - z) * h + z * n


def dreamer_step(p, cell, c, h, x):
    a = x @ p["w_x"] + recurrent_product(p, cell, h, slice(None)) + p.get("bias", 0)
    r, n, u = np.split(normalise(p, cell, "joint", a, 3), 3, -1)
    n = np.tanh(sigmoid(r) * n)
    u = sigmoid(u + cell.update_bias)
    return None, u * n + (1 - u) * h


STEPS = {LSTMCell: lstm_step, GRUCell: gru_step, DreamerGRUCell: dreamer_step}


def run(cell, p, x, mask, resets, reverse):
    """A cell over x [B, T, D]; returns (c or None, h, outputs [B, T, H])."""
    dtype = np.result_type(x, *p.values())
    start = np.zeros((B, H), dtype) + p.get("h0", 0)
    c, h = np.zeros((B, H), dtype), start
    outputs = np.zeros((B, T, H), dtype)
    # The carry starts anew between a marked step and the one before it.
    if reverse:
        resets = np.append(resets[:, 1:], np.zeros((B, 1), bool), 1)
    for t in range(T)[::-1] if reverse else range(T):
        anew, rows = resets[:, t, None], mask[:, t, None]
        c, h = np.where(anew, 0, c), np.where(anew, start, h)
        new_c, new_h = STEPS[type(cell)](p, cell, c, h, x[:, t])
        if new_c is not None:
            c = np.where(rows, new_c, c)
        h = np.where(rows, new_h, h)
        outputs[:, t] = np.where(rows, new_h, 0)
    return c if isinstance(cell, LSTMCell) else None, h, outputs


# The comparison


def check(cell, way, options=None):
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0), D))
    params = {n: 0.7 * rng.standard_normal(a.shape) for n, a in shapes.items()}
    x = rng.standard_normal((B, T, D))
    mask = rng.random((B, T)) < (0.7 if way == "holes" else 2)
    resets = rng.random((B, T)) < (0.3 if way in ("resets", "reverse") else -1)
    reverse = way == "reverse"
    weight_c, weight_h = rng.standard_normal((2, B, H))
    weights = weight_c, weight_h, rng.standard_normal((B, T, H))
    mine, (d_params, d_x) = values_and_gradients(
        cell, params, x, {"mask": mask}, resets, weights, reverse, options
    )
    theirs = run(cell, params, x, mask, resets, reverse)
    for a, b in zip(mine, theirs, strict=True):
        if b is not None:
            np.testing.assert_allclose(a, b, atol=1e-12)

    # The imaginary part along a tiny step is the exact slope.
    for name, grad in {**d_params, "x": d_x}.items():
        direction = rng.standard_normal(grad.shape)
        value = x if name == "x" else params[name]
        moved = value + 1e-30j * direction
        p, moved_x = (params, moved) if name == "x" else ({**params, name: moved}, x)
        moved_run = run(cell, p, moved_x, mask, resets, reverse)
        slope = weigh(weights, *moved_run).imag / 1e-30
        mine = (np.asarray(grad) * direction).sum()
        np.testing.assert_allclose(mine, slope, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("number", range(len(CELLS)), ids=[name_of(c) for c in CELLS])
def test_variant_equals_the_equations(double, number):
    check(CELLS[number], WAYS[number % len(WAYS)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ScanOptions(),
        ScanOptions(save="carries", chunk=2, hoist=True),
        ScanOptions(backward="autodiff"),
    ],
    ids=["lean", "carries", "autodiff"],
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_variant_equals_the_equations_every_way(double, cell, way, options):
    check(cell, way, options)


# Properties


@pytest.mark.parametrize(
    ("cell", "count"),
    [
        (lstm(norm="layer", norm_site="joint"), 4 * H * (D + H + 1) + 4 * H + 2 * H),
        (lstm(norm="rms", blocks=3), 4 * H * (D + H // 3 + 1) + 2 * 4 * H + H),
        (gru(norm="layer", norm_groups="all"), 3 * H * (D + H + 1) + 12 * H),
        (dreamer(norm="layer"), 3 * H * (D + H + 1) + 6 * H),
        (dreamer(norm="rms", blocks=2), 3 * H * (D + H // 2 + 1) + 3 * H),
    ],
    ids=name_of,
)
def test_parameter_counts(cell, count):
    shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0), D))
    assert sum(a.size for a in shapes.values()) == count


def test_one_block_is_the_dense_cell():
    for make in (lstm, gru, dreamer):
        cell = make(norm="layer", blocks=1)
        assert cell == make(norm="layer")
        assert cell.init(jax.random.key(0), D)["w_h"].ndim == 2


def test_each_gate_of_each_block_is_drawn_orthogonal():
    for make in (lstm, gru, dreamer):
        w_h = make(blocks=2).init(jax.random.key(0), D)["w_h"]
        rows = H // 2
        for block in w_h:
            for gate in np.split(block, block.shape[1] // rows, 1):
                np.testing.assert_allclose(gate @ gate.T, np.eye(rows), atol=1e-5)
    # No two of them are alike.
    assert not np.allclose(w_h[0], w_h[1])


def test_heads_do_not_see_each_other():
    """With heads, a block's h depends on its own part of h alone."""
    cell = dreamer(norm="layer", norm_groups="heads", blocks=2)
    params = cell.init(jax.random.key(0), D)
    x = jax.random.normal(jax.random.key(1), (T, D))

    def last(h):
        return unroll(cell, params, x, initial_carry=h).carry

    slopes = jax.jit(jax.jacobian(last))(jnp.ones(H))
    half = H // 2
    assert (slopes[:half, half:] == 0).all()
    assert (slopes[half:, :half] == 0).all()
    assert (slopes[:half, :half] != 0).any()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: lstm(blocks=4), "LSTMCell: blocks=4 must divide features=6"),
        (lambda: gru(blocks=0), "blocks=0; it must be a positive integer"),
        (lambda: dreamer(blocks=2.5), "blocks=2.5"),
        (lambda: lstm(norm="weight", blocks=2), "blocks=2 is for norm='none' or"),
        (lambda: lstm(norm="layer", norm_groups="heads"), "give their number, blocks"),
        (lambda: lstm(norm_groups="paper"), "norm_groups='paper'; choose one of 'all'"),
        (
            lambda: lstm(norm="batch", norm_groups="per_gate"),
            "norm_groups='per_gate' is for norm=.*'rms', not 'batch'",
        ),
        (lambda: lstm(norm_site="sum"), "norm_site='sum'; choose one of 'products'"),
        (
            lambda: lstm(norm="layer_cell", norm_site="joint"),
            "norm_site='joint' is for norm=.*, not 'layer_cell'",
        ),
        (lambda: gru(norm="weight", norm_groups="all"), "norm_groups='all' is for"),
        (lambda: dreamer(norm="batch"), "DreamerGRUCell: norm='batch'"),
        (lambda: dreamer(norm_groups="paper"), "norm_groups='paper'; choose one"),
        (
            lambda: DreamerBlockGRUCell(6, hidden_features=2, input_sizes=(3,)),
            "blocks=8",
        ),
        (
            lambda: DreamerBlockGRUCell(8, hidden_features=2, input_sizes=(3, 0)),
            "input_sizes=0",
        ),
        (
            lambda: DreamerBlockGRUCell(8, hidden_features=2, input_sizes=(3, 1)).init(
                jax.random.key(0), 5
            ),
            "inputs have 5 features, but input_sizes=\\(3, 1\\) add up to 4",
        ),
    ],
)
def test_bad_options_are_refused(build, message):
    with pytest.raises(ValueError, match=message) as error:
        build()
    assert "\n" not in str(error.value)


def test_a_reset_before_the_product_takes_any_number_of_units():
    cell = GRUCell(7, "layer", norm_groups="per_gate", reset="before")
    params = cell.init(jax.random.key(0), 3)
    weights, _ = cell.prepare(params)
    assert weights["w_h"].shape == (7, 14)
    # Layer norm takes the mean of each gate's product out of its kernel.
    gates = [*jnp.split(weights["w_h"], 2, -1), weights["w_u"]]
    for gate, kernel in zip(gates, jnp.split(params["w_h"], 3, -1), strict=True):
        centred = kernel - kernel.mean(-1, keepdims=True)
        np.testing.assert_allclose(gate, centred, atol=1e-6)


def test_options_of_another_form_are_no_fields():
    for options in ({"reset": "before"}, {"recurrent_bias": True}):
        with pytest.raises(TypeError, match="unexpected keyword"):
            dreamer(**options)
    with pytest.raises(TypeError, match=r"unexpected keyword.*update_bias"):
        gru(update_bias=1.0)


@pytest.mark.parametrize("norm", ["none", "layer", "rms", "batch"])
def test_blocks_of_the_simple_cell(norm):
    """They are a block-diagonal kernel; with heads each block is normalised alone."""
    x = jax.random.normal(jax.random.key(1), (B, T, D))
    cell = SimpleCell(H, norm, blocks=2)
    params = cell.init(jax.random.key(0), D)
    dense = params | {"w_h": jax.scipy.linalg.block_diag(*params["w_h"])}
    expected = unroll(SimpleCell(H, norm), dense, x).outputs
    np.testing.assert_allclose(unroll(cell, params, x).outputs, expected, atol=1e-5)
    if norm not in ("layer", "rms"):
        return
    heads = SimpleCell(H, norm, blocks=2, norm_groups="heads")
    h = jnp.zeros((B, H))
    for t in range(T):
        a = x[:, t] @ params["w_x"] + h @ dense["w_h"]
        a = a.reshape(-1, 2, H // 2)
        centred = a - a.mean(-1, keepdims=True) if norm == "layer" else a
        scale = jnp.sqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
        h = jnp.tanh((centred / scale).reshape(-1, H) + params["bias"])
    last = unroll(heads, params, x).carry
    np.testing.assert_allclose(last, h, atol=1e-5)
