"""Cells with norms at other sites.

Each is compared with equations in NumPy float64: outputs, carries, and the derivative
with respect to every parameter and x.

Shape letters: B batch, T time, D input features, H hidden units.
"""

import dataclasses

import jax
import numpy as np
import pytest

from lnrepro.functional import (
    DreamerBlockGRUCell,
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
)
from tests.functional.test_cells import values_and_gradients, weigh
from tests.oracle import layer_norm, rms_norm, sigmoid

B, T, D, H = 3, 6, 4, 6
NORMS = ("layer", "rms")


def lstm(**options):
    return LSTMCell(H, **{"norm": "none"} | options)


def gru(**options):
    return GRUCell(H, **{"norm": "none"} | options)


def dreamer(**options):
    return DreamerGRUCell(H, **{"norm": "none"} | options)


CELLS = [
    *[lstm(norm=norm, norm_site="joint") for norm in NORMS],
    # The LSTM of speech transducers.
    lstm(norm="layer", norm_site="joint", cell_norm="carry", inner_bias=True),
    lstm(norm="layer", norm_site="joint", use_bias=False, peephole=True),
    lstm(norm="layer_cell", peephole=True),
    *[dreamer(norm=norm) for norm in NORMS],
    dreamer(norm="layer", learned_carry=True, update_bias=0.5),
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


def normalise(p, cell, site, a):
    """The norm of a site, where there is one."""
    if f"gain_{site}" not in p:
        return a
    norm = rms_norm if cell.norm == "rms" else layer_norm
    return norm(a) * p[f"gain_{site}"] + p.get(f"bias_{site}", 0)


def lstm_step(p, cell, c, h, x):
    a_x = x @ p["w_x"] + p.get("inner_bias", 0)
    a_x, a_h = normalise(p, cell, "x", a_x), normalise(p, cell, "h", h @ p["w_h"])
    a = normalise(p, cell, "joint", a_x + a_h) + p.get("bias", 0)
    f, i, o, g = np.split(a, 4, -1)
    if cell.peephole:
        f, i = f + p["peephole"][0] * c, i + p["peephole"][1] * c
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    if cell.peephole:
        o = o + p["peephole"][2] * c
    shown = normalise(p, cell, "c", c)
    return shown if cell.cell_norm == "carry" else c, sigmoid(o) * np.tanh(shown)


def dreamer_step(p, cell, c, h, x):
    a = x @ p["w_x"] + h @ p["w_h"] + p.get("bias", 0)
    r, n, u = np.split(normalise(p, cell, "joint", a), 3, -1)
    n = np.tanh(sigmoid(r) * n)
    u = sigmoid(u + cell.update_bias)
    return None, u * n + (1 - u) * h


STEPS = {LSTMCell: lstm_step, DreamerGRUCell: dreamer_step}


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


def check(cell, way):
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
        cell, params, x, {"mask": mask}, resets, weights, reverse, None
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
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_variant_equals_the_equations_every_way(double, cell, way):
    check(cell, way)


# Properties


@pytest.mark.parametrize(
    ("cell", "count"),
    [
        (lstm(norm="layer", norm_site="joint"), 4 * H * (D + H + 1) + 4 * H + 2 * H),
        (dreamer(norm="layer"), 3 * H * (D + H + 1) + 6 * H),
        (dreamer(norm="rms"), 3 * H * (D + H + 1) + 3 * H),
    ],
    ids=name_of,
)
def test_parameter_counts(cell, count):
    shapes = jax.eval_shape(lambda: cell.init(jax.random.key(0), D))
    assert sum(a.size for a in shapes.values()) == count


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: lstm(norm_site="sum"), "norm_site='sum'; choose one of 'products'"),
        (
            lambda: lstm(norm="layer_cell", norm_site="joint"),
            "norm_site='joint' is for norm=.*, not 'layer_cell'",
        ),
        (lambda: dreamer(norm="batch"), "DreamerGRUCell: norm='batch'"),
        (lambda: gru(epsilon=-1.0), "GRUCell: epsilon=-1.0 must be 0 or more"),
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


def test_options_of_another_form_are_no_fields():
    for options in ({"reset": "before"}, {"recurrent_bias": True}):
        with pytest.raises(TypeError, match="unexpected keyword"):
            dreamer(**options)
    with pytest.raises(TypeError, match=r"unexpected keyword.*update_bias"):
        gru(update_bias=1.0)
