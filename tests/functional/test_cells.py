"""Every cell with every norm against the float64 oracle, and the cells' options.

Outputs, carries, and the derivative with respect to every parameter and the input.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import (
    DreamerGRUCell,
    GRUCell,
    LSTMCell,
    SimpleCell,
    clip_gradient,
    unroll,
)
from tests import oracle
from tests.functional.programs import (
    drawn,
    gradients_and_result,
    norms_of,
    same,
    shapes_of,
)

B, T, D, H = 4, 7, 3, 5
LENGTHS = np.array([7, 0, 3, 5])
CELLS = {
    "lstm": LSTMCell,
    "gru": GRUCell,
    "simple": SimpleCell,
    "dreamer": DreamerGRUCell,
}


def bump(a):
    """A gate function that works for jax and for complex NumPy."""
    return 1 / (1 + a * a)


def wave(a):
    """An activation function that works for jax and for complex NumPy."""
    return a / (1 + a * a)


OTHER_FUNCTIONS = {"gate_fn": bump, "activation_fn": wave}
CASES = [
    *[("lstm", norm, {}) for norm in norms_of(LSTMCell)],
    ("lstm", "layer", {"cell_norm": "carry"}),
    ("lstm", "rms", {"cell_norm": "carry", "inner_bias": True}),
    ("lstm", "layer", {"peephole": True, "learned_carry": True}),
    ("lstm", "layer", {"inner_bias": True}),
    ("lstm", "layer", {"use_bias": False, **OTHER_FUNCTIONS}),
    ("lstm", "none", {"peephole": True, **OTHER_FUNCTIONS}),
    *[("gru", norm, {}) for norm in norms_of(GRUCell)],
    *[("gru", norm, {"reset": "before"}) for norm in norms_of(GRUCell)],
    ("gru", "none", {"recurrent_bias": True}),
    ("gru", "weight", {"recurrent_bias": True}),
    ("gru", "layer", {"use_bias": False, "learned_carry": True, **OTHER_FUNCTIONS}),
    *[("simple", norm, {}) for norm in norms_of(SimpleCell)],
    ("simple", "layer", {"use_bias": False, "learned_carry": True}),
    ("simple", "none", {"activation_fn": wave}),
    # Norms at other sites; the third is the LSTM of speech transducers.
    ("lstm", "layer", {"norm_site": "joint"}),
    ("lstm", "rms", {"norm_site": "joint"}),
    (
        "lstm",
        "layer",
        {"norm_site": "joint", "cell_norm": "carry", "inner_bias": True},
    ),
    ("lstm", "layer", {"norm_site": "joint", "use_bias": False, "peephole": True}),
    ("lstm", "layer_cell", {"peephole": True}),
    *[("dreamer", norm, {}) for norm in norms_of(DreamerGRUCell)],
    ("dreamer", "layer", {"learned_carry": True}),
    ("dreamer", "none", {"use_bias": False, "activation_fn": wave}),
]
WAYS = ["plain", "lengths", "reverse", "resets", "left", "holes"]


def name_of(case):
    name, norm, options = case
    return "-".join([name, norm, *options])


def problem(name, norm, options, seed=0):
    """A cell, parameters that are all away from their starting values, and inputs."""
    rng = np.random.default_rng(seed)
    cell = CELLS[name](H, norm=norm, **options)
    params = drawn(shapes_of(cell, D, jnp.float64)[0], seed)
    if norm == "batch":
        # As they start. Rows that are padding may be far from the mean of the others.
        params = {n: 0.1 * a if "gain" in n else a for n, a in params.items()}
    return cell, params, rng.standard_normal((B, T, D)), rng


def padding(way, rng):
    """Arguments of `unroll`. A mask of numbers is one of booleans."""
    within = np.arange(T) < LENGTHS[:, None]
    arguments = {
        "lengths": {"seq_lengths": LENGTHS},
        "reverse": {"mask": within},
        "left": {"mask": (~within).astype(float)},
        "holes": {"mask": rng.random((B, T)) < 0.7, "seq_lengths": LENGTHS},
    }
    return arguments.get(way, {})


def check(name, norm, options, way):
    """Compare outputs, carries and all gradients of a cell with the oracle's."""
    cell, params, x, rng = problem(name, norm, options)
    given = padding(way, rng)
    mask = np.array(given.get("mask", np.ones((B, T))), bool)
    if "seq_lengths" in given:
        mask &= np.arange(T) < LENGTHS[:, None]
    resets = rng.random((B, T)) < (0.3 if way == "resets" else -1)
    reverse = way == "reverse"
    # Without resets, the unroll has other code.
    if way in ("lengths", "reverse"):
        resets = None
    of_step = ("cell_norm", "reset", "gate_fn", "activation_fn")
    oracle_options = {k: v for k, v in options.items() if k in of_step}

    def expected(params, x):
        c, h, y = oracle.run(
            name, norm, params, x, mask, resets, reverse, **oracle_options
        )
        return (h, y) if c is None else ((c, h), y)

    how = {"resets": resets, "reverse": reverse, "keep_order": True, **given}
    # Padding may hold NaN.
    padded = np.where(mask[..., None], x, np.nan)
    gradients, result = gradients_and_result(cell, params, padded, None, **how)
    same((result.carry, result.outputs), expected(params, x), 1e-12)
    # The imaginary part along a tiny step is the exact slope along a direction.
    directions = jax.tree.map(lambda a: rng.standard_normal(a.shape), (params, x))
    moved = jax.tree.map(lambda a, d: a + 1e-30j * d, (params, x), directions)
    leaves = enumerate(jax.tree.leaves(expected(*moved)))
    # What `total` returns.
    slope = sum(np.sin(leaf + n).sum() for n, leaf in leaves).imag / 1e-30
    pairs = zip(*map(jax.tree.leaves, (gradients[:2], directions)), strict=True)
    mine = sum((gradient * d).sum() for gradient, d in pairs)
    np.testing.assert_allclose(mine, slope, rtol=1e-9, atol=1e-9)


# Each case in one way by default, and in all ways in the nightly job.
OF_CASES = [
    pytest.param(
        case,
        way,
        id=f"{name_of(case)}-{way}",
        marks=() if number % len(WAYS) == WAYS.index(way) else pytest.mark.nightly,
    )
    for number, case in enumerate(CASES)
    for way in WAYS
]


@pytest.mark.parametrize(("case", "way"), OF_CASES)
def test_cell_equals_the_oracle(x64, case, way):
    check(*case, way)


def fresh(cells, features_in, dtype=jnp.float32):
    """Fresh parameters of some cells, by one program."""

    def init(key):
        return [cell.init(key, features_in, dtype) for cell in cells]

    return jax.device_get(jax.jit(init)(jax.random.key(0)))


def test_starting_values():
    # Weight norm starts as the function without it.
    weight = SimpleCell(8, "weight")
    cells = LSTMCell(8, forget_bias=1.0), SimpleCell(8, "batch"), weight
    params, batch, of_weight = fresh(cells, 3)
    assert (params["bias"] == np.repeat([1, 0, 0, 0], 8)).all()
    assert (params["gain_x"] == 1).all()
    assert (params["bias_x"] == 0).all()
    blocks = np.split(params["w_h"], 4, 1)
    assert np.abs(blocks[0] - blocks[1]).max() > 0.1
    for block in blocks:
        np.testing.assert_allclose(block @ block.T, np.eye(8), atol=1e-5)
    assert (batch["gain_h"] == np.float32(0.1)).all()
    prepared = jax.jit(weight.prepare)(of_weight).weights["w_x"]
    np.testing.assert_allclose(prepared, of_weight["w_x"], rtol=1e-6)
    (narrow,) = fresh([SimpleCell(8, "none")], 3, jnp.bfloat16)
    assert narrow["w_h"].dtype == jnp.bfloat16


def test_initialisers_are_used_for_what_they_are_named_after():
    constant = jax.nn.initializers.constant
    cell = LSTMCell(
        H,
        learned_carry=True,
        kernel_init=constant(2.0),
        recurrent_kernel_init=constant(3.0),
        bias_init=constant(4.0),
        scale_init=constant(5.0),
    )
    expected = {"w_x": 2, "w_h": 3, "bias": 4, "gain_x": 5, "gain_c": 5, "h0": 0}
    params, batch = fresh([cell, LSTMCell(H, "batch", scale_init=constant(1.0))], D)
    assert all((params[name] == value).all() for name, value in expected.items())
    assert (batch["gain_x"] == 1).all()


def test_gradients_of_the_preactivations_are_clipped(x64):
    """In one step, the bias's gradient is that of the pre-activations.

    It is clipped entry by entry, and the outputs stay as they are.
    """
    plain, clipped = LSTMCell(4), LSTMCell(4, gradient_clip=0.01)
    params = drawn(shapes_of(plain, D, jnp.float64)[0])
    x = np.random.RandomState(0).randn(1, 1, D)

    @jax.jit
    def of_both(bias):
        def outputs(bias, cell):
            return unroll(cell, params | {"bias": bias}, x).outputs.sum()

        return [jax.value_and_grad(outputs)(bias, cell) for cell in (plain, clipped)]

    (value, free), (same_value, limited) = jax.device_get(of_both(params["bias"]))
    assert value == same_value
    np.testing.assert_allclose(limited, np.clip(free, -0.01, 0.01), rtol=1e-12)
    assert (np.abs(free) > 0.01).any()
    # A limit of NumPy does not widen what is narrower.
    narrow = jax.grad(lambda a: 3 * clip_gradient(a, np.float64(1)))(np.float32(2))
    assert narrow == 1
    assert narrow.dtype == jnp.float32
