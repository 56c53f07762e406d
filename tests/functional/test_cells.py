"""Every cell with every norm against the float64 oracle, and the cells' options.

Outputs, carries, and the derivative with respect to every parameter and the input.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from lnrepro.functional import GRUCell, LSTMCell, ScanOptions, SimpleCell, unroll
from tests import oracle

B, T, D, H = 4, 7, 3, 5
LENGTHS = np.array([7, 0, 3, 5])
CELLS = {"lstm": LSTMCell, "gru": GRUCell, "simple": SimpleCell}


def bump(a):
    """A gate function that works for jax and for complex NumPy."""
    return 1 / (1 + a * a)


def wave(a):
    """An activation function that works for jax and for complex NumPy."""
    return a / (1 + a * a)


OTHER_FUNCTIONS = {"gate_fn": bump, "activation_fn": wave}
CASES = [
    *[("lstm", norm, {}) for norm in LSTMCell.norm_names],
    ("lstm", "layer", {"cell_norm": "carry"}),
    ("lstm", "rms", {"cell_norm": "carry", "inner_bias": True}),
    ("lstm", "layer", {"peephole": True, "learned_carry": True}),
    ("lstm", "layer", {"inner_bias": True}),
    ("lstm", "layer", {"use_bias": False, **OTHER_FUNCTIONS}),
    ("lstm", "none", {"peephole": True, **OTHER_FUNCTIONS}),
    *[("gru", norm, {}) for norm in GRUCell.norm_names],
    *[("gru", norm, {"reset": "before"}) for norm in GRUCell.norm_names],
    ("gru", "none", {"recurrent_bias": True}),
    ("gru", "weight", {"recurrent_bias": True, "reset": "before"}),
    ("gru", "layer", {"use_bias": False, "learned_carry": True, **OTHER_FUNCTIONS}),
    *[("simple", norm, {}) for norm in SimpleCell.norm_names],
    ("simple", "layer", {"use_bias": False, "learned_carry": True}),
    ("simple", "none", {"activation_fn": wave}),
]
# Cells of different structure, which are run with all masks and options.
STRUCTURES = [
    ("lstm", "layer", {"peephole": True, "learned_carry": True}),
    ("lstm", "batch", {}),
    ("gru", "layer", {}),
    ("gru", "rms", {"reset": "before"}),
    ("simple", "weight", {}),
]
WAYS = ["plain", "lengths", "reverse", "resets", "left", "holes"]


def name_of(case):
    name, norm, options = case
    return "-".join([name, norm, *options])


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def problem(name, norm, options, seed=0):
    """A cell, parameters that are all away from their starting values, and inputs."""
    rng = np.random.default_rng(seed)
    cell = CELLS[name](H, norm=norm, **options)
    params = cell.init(jax.random.key(seed), D, jnp.float64)
    params = {
        n: np.asarray(a) + 0.2 * rng.standard_normal(a.shape) for n, a in params.items()
    }
    return cell, params, rng.standard_normal((B, T, D)), rng


def padding(way, rng):
    if way in ("lengths", "reverse"):
        return np.arange(T) < LENGTHS[:, None]
    if way == "left":
        return np.arange(T) >= LENGTHS[:, None]
    if way == "holes":
        return rng.random((B, T)) < 0.7
    return np.ones((B, T), bool)


def weigh(weights, c, h, y):
    weight_c, weight_h, weight_y = weights
    total = (weight_h * h).sum() + (weight_y * y).sum()
    return total if c is None else total + (weight_c * c).sum()


# One compiled program serves all masks and resets of a cell.
@functools.partial(jax.jit, static_argnames=("cell", "reverse", "options"))
def values_and_gradients(cell, params, x, padding, resets, weights, reverse, options):
    def run(params, x):
        result = unroll(
            cell,
            params,
            x,
            resets=resets,
            reverse=reverse,
            keep_order=True,
            options=options,
            **padding,
        )
        c, h = result.carry if isinstance(cell, LSTMCell) else (None, result.carry)
        return weigh(weights, c, h, result.outputs), (c, h, result.outputs)

    value_and_grad = jax.value_and_grad(run, (0, 1), has_aux=True)
    (_, values), gradients = value_and_grad(params, x)
    return values, gradients


def check(name, norm, options, way, scan_options=None):
    """Compare outputs, carries and all gradients of a cell with the oracle's."""
    cell, params, x, rng = problem(name, norm, options)
    mask = padding(way, rng)
    padding_argument = {"mask": mask}
    resets = rng.random((B, T)) < (0.3 if way == "resets" else -1)
    reverse = way == "reverse"
    if way == "lengths":
        padding_argument = {"seq_lengths": LENGTHS}
    # Without resets, the unroll has other code.
    if way in ("lengths", "reverse"):
        resets = None
    of_step = ("cell_norm", "reset", "gate_fn", "activation_fn")
    oracle_options = {k: v for k, v in options.items() if k in of_step}
    weight_h, weight_c = rng.standard_normal((2, B, H))
    weights = weight_c, weight_h, rng.standard_normal((B, T, H))

    def run_oracle(params, x):
        return oracle.run(
            name, norm, params, x, mask, resets, reverse, **oracle_options
        )

    ours, (d_params, d_x) = values_and_gradients(
        cell, params, x, padding_argument, resets, weights, reverse, scan_options
    )
    for mine, expected in zip(ours, run_oracle(params, x), strict=True):
        if expected is not None:
            np.testing.assert_allclose(mine, expected, atol=1e-12)

    def compare_slope(grad, value, oracle_of, name):
        direction = rng.standard_normal(value.shape)
        moved = oracle_of(value + 1e-30j * direction)
        slope = weigh(weights, *moved).imag / 1e-30
        mine = (np.asarray(grad) * direction).sum()
        np.testing.assert_allclose(mine, slope, rtol=1e-9, atol=1e-9, err_msg=name)

    for param in params:
        compare_slope(
            d_params[param],
            params[param],
            lambda moved, param=param: run_oracle({**params, param: moved}, x),
            param,
        )
    compare_slope(d_x, x, lambda moved: run_oracle(params, moved), "x")


@pytest.mark.parametrize("number", range(len(CASES)), ids=[name_of(c) for c in CASES])
def test_cell_equals_the_oracle(double, number):
    check(*CASES[number], WAYS[number % len(WAYS)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "scan_options",
    [
        ScanOptions(),
        ScanOptions(save="carries", chunk=1),
        ScanOptions(backward="autodiff", chunk=7),
    ],
    ids=["lean", "carries", "autodiff"],
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", STRUCTURES, ids=name_of)
def test_cell_equals_the_oracle_every_way(double, case, way, scan_options):
    check(*case, way, scan_options)


def lstm_count(features_in, features):
    return 4 * features * (features_in + features + 1)


def gru_count(features_in, features):
    return 3 * features * (features_in + features + 1)


# The sizes of order-embeddings, the reader, DRAW and skip-thoughts.
COUNTS = {
    "gru": (GRUCell(1024, "none"), 300, 4_070_400),
    "gru-layer": (GRUCell(1024, "layer"), 300, 4_070_400 + 12 * 1024),
    "gru-rms": (GRUCell(1024, "rms"), 300, 4_070_400 + 6 * 1024),
    "gru-layer-before": (
        GRUCell(1024, "layer", reset="before"),
        300,
        4_070_400 + 12 * 1024,
    ),
    "gru-2400-layer": (GRUCell(2400, "layer"), 620, gru_count(620, 2400) + 12 * 2400),
    "lstm": (LSTMCell(240, "none"), 240, lstm_count(240, 240)),
    "lstm-layer": (LSTMCell(240, "layer"), 240, lstm_count(240, 240) + 18 * 240),
    "lstm-rms": (LSTMCell(240, "rms"), 240, lstm_count(240, 240) + 9 * 240),
    "lstm-batch": (LSTMCell(240, "batch"), 240, lstm_count(240, 240) + 10 * 240),
    "lstm-layer_cell": (
        LSTMCell(256, "layer_cell"),
        356,
        lstm_count(356, 256) + 2 * 256,
    ),
    "simple-layer": (SimpleCell(64, "layer"), 32, 64 * (32 + 64 + 1) + 64),
}


@pytest.mark.parametrize("which", COUNTS)
def test_parameter_counts(which):
    cell, features_in, count = COUNTS[which]
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda key: cell.init(key, features_in), key)
    assert sum(a.size for a in shapes.values()) == count


def test_the_gru_with_the_reset_before_has_a_site_for_its_candidate():
    params = GRUCell(H, "layer", reset="before").init(jax.random.key(0), D)
    shapes = {name: value.shape for name, value in params.items()}
    assert shapes["gain_x"] == shapes["bias_x"] == (3 * H,)
    assert shapes["gain_h"] == shapes["bias_h"] == (2 * H,)
    assert shapes["gain_u"] == shapes["bias_u"] == (H,)


def test_starting_values():
    key = jax.random.key(0)
    params = LSTMCell(8, "layer", forget_bias=1.0).init(key, 3)
    assert (params["bias"][:8] == 1).all()
    assert (params["bias"][8:] == 0).all()
    assert (params["gain_x"] == 1).all()
    assert (params["bias_x"] == 0).all()
    for gate in range(4):
        block = params["w_h"][:, 8 * gate : 8 * gate + 8]
        np.testing.assert_allclose(block @ block.T, np.eye(8), atol=1e-5)

    batch = LSTMCell(8, "batch").init(key, 3)
    assert (batch["gain_h"] == np.float32(0.1)).all()
    assert (LSTMCell(8, "rms").init(key, 3)["gain_c"] == 1).all()

    # Weight norm starts as the function without it.
    weight = LSTMCell(8, "weight")
    params = weight.init(key, 3)
    prepared = weight.prepare(params)
    np.testing.assert_allclose(prepared.weights["w_x"], params["w_x"], rtol=1e-6)
    narrow = GRUCell(8, "none").init(key, 3, jnp.bfloat16)
    assert narrow["w_h"].dtype == jnp.bfloat16


def test_initialisers_are_used_for_what_they_are_named_after():
    constant = jax.nn.initializers.constant
    for make in (LSTMCell, GRUCell, SimpleCell):
        cell = make(
            H,
            "layer",
            learned_carry=True,
            kernel_init=constant(2.0),
            recurrent_kernel_init=constant(3.0),
            bias_init=constant(4.0),
            scale_init=constant(5.0),
        )
        params = cell.init(jax.random.key(0), D)
        assert (params["w_x"] == 2).all()
        assert (params["w_h"] == 3).all()
        assert (params["bias"] == 4).all()
        gains = [value for name, value in params.items() if name.startswith("gain_")]
        assert gains
        assert all((gain == 5).all() for gain in gains)
        assert (params["h0"] == 0).all()
    batch = LSTMCell(H, "batch", scale_init=constant(1.0)).init(jax.random.key(0), D)
    assert (batch["gain_x"] == 1).all()


def test_input_scale_does_not_matter_under_layer_norm(double):
    """LN(W x) of 3 x is LN(W x) of x, up to epsilon (section 5.1)."""
    cell = LSTMCell(H, "layer", epsilon=0.0)
    params = cell.init(jax.random.key(0), D, jnp.float64)
    carry = (jnp.ones((2, H)), jnp.array([[1.0, -1, 2, 0, 1]] * 2))
    x = jax.random.normal(jax.random.key(1), (2, D), jnp.float64)
    _, y = functional.step(cell, params, carry, x)
    _, y_of_scaled = functional.step(cell, params, carry, 3 * x)
    np.testing.assert_allclose(y, y_of_scaled, atol=1e-12)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_gradients_of_the_preactivations_are_clipped(double, norm):
    """In one step, the bias's gradient is that of the pre-activations.

    It is clipped entry by entry, and the outputs stay as they are.
    """
    plain = LSTMCell(4, norm)
    clipped = LSTMCell(4, norm, gradient_clip=0.01)
    params = plain.init(jax.random.key(0), 3, jnp.float64)
    x = np.random.RandomState(0).randn(1, 1, 3)

    def run(cell, bias):
        return unroll(cell, params | {"bias": bias}, x).outputs.sum()

    def value_and_gradient(cell):
        return jax.value_and_grad(functools.partial(run, cell))(params["bias"])

    value, free = value_and_gradient(plain)
    same_value, limited = value_and_gradient(clipped)
    assert value == same_value
    np.testing.assert_allclose(limited, np.clip(free, -0.01, 0.01), rtol=1e-12)
    assert (np.abs(free) > 0.01).any()


def test_recurrent_dropout_drops_the_candidate_only():
    cell = GRUCell(64, "none", recurrent_dropout=0.5)
    params = cell.init(jax.random.key(0), D)
    x = jax.random.normal(jax.random.key(1), (2, D))
    h = jnp.full((2, 64), 0.5)
    dropped, _ = functional.step(cell, params, h, x, key=jax.random.key(1))
    a = x @ params["w_x"] + params["bias"]
    z = jax.nn.sigmoid((a + h @ params["w_h"])[:, :64])
    # Where the candidate is dropped, only the old h is left.
    share = (jnp.abs(dropped - (1 - z) * h) < 1e-6).mean()
    assert 0.35 < share < 0.65


@pytest.mark.parametrize("make", [LSTMCell, GRUCell, SimpleCell])
def test_recurrent_dropout_keeps_the_expectation_and_is_off_without_a_key(make):
    plain, noisy = make(H), make(H, recurrent_dropout=0.25)
    params = plain.init(jax.random.key(0), D)
    x = jax.random.normal(jax.random.key(1), (2, D))
    carry = plain.initial_carry(params, x)

    def state(cell, key=None):
        return functional.step(cell, params, carry, x, key=key)[0]

    def first(cell, key=None):
        return jax.tree.leaves(state(cell, key))[0]

    np.testing.assert_array_equal(first(noisy), first(plain))
    many = jax.vmap(functools.partial(first, noisy))(
        jax.random.split(jax.random.key(2), 4000)
    )
    np.testing.assert_allclose(many.mean(0), first(plain), atol=0.05)
    assert noisy.is_noisy
    assert not plain.is_noisy


def test_equal_cells_are_equal_and_hashable():
    for make in (LSTMCell, GRUCell, SimpleCell):
        assert make(4, "layer") == make(4, norm="layer")
        assert hash(make(4, "layer")) == hash(make(4, norm="layer"))
        assert make(4).norm == "layer"
        assert make(4, "layer") != make(4, "none")
        assert make(4, epsilon=1e-6) != make(4)
        with pytest.raises(dataclasses.FrozenInstanceError):
            make(4).features = 5
    assert LSTMCell(4, "none") != GRUCell(4, "none")
    wrapped = functional.zoneout(
        functional.stack(LSTMCell(4, "none"), GRUCell(4, "none")), 0.1
    )
    again = functional.zoneout(
        functional.stack(LSTMCell(4, "none"), GRUCell(4, "none")), 0.1
    )
    assert wrapped == again
    assert hash(wrapped) == hash(again)


def test_a_cell_is_a_static_argument_of_jit():
    run = jax.jit(unroll, static_argnums=0)
    x = jnp.ones((2, 3, D))
    for _ in range(2):
        cell = LSTMCell(H, "layer", forget_bias=1.0)
        result = run(cell, cell.init(jax.random.key(0), D), x)
    assert result.outputs.shape == (2, 3, H)
    assert run._cache_size() == 1


def test_numpy_integers_are_sizes():
    for make in (LSTMCell, GRUCell, SimpleCell):
        cell = make(np.int64(6))
        assert cell == make(6)
        assert hash(cell) == hash(make(6))
        assert cell.init(jax.random.key(0), np.int32(3))["w_h"].shape[0] == 6


@pytest.mark.parametrize(
    ("error", "build", "message"),
    [
        (ValueError, lambda: LSTMCell(4, "group"), "norm='group'.*'layer_cell', 'rms'"),
        (ValueError, lambda: GRUCell(4, "layer_cell"), "GRUCell: norm='layer_cell'"),
        (ValueError, lambda: SimpleCell(4, "layer_cell"), "SimpleCell: norm"),
        (ValueError, lambda: LSTMCell(0, "none"), "positive integer"),
        (ValueError, lambda: LSTMCell(2.5, "none"), "features=2.5"),
        (ValueError, lambda: LSTMCell(True, "none"), "positive integer"),
        (ValueError, lambda: LSTMCell(4, "none", cell_norm="both"), "cell_norm='both'"),
        (ValueError, lambda: GRUCell(4, "none", reset="never"), "reset='never'"),
        (
            ValueError,
            lambda: GRUCell(4, "rms", recurrent_bias=True),
            "recurrent_bias",
        ),
        (ValueError, lambda: LSTMCell(4, "none", recurrent_dropout=1.0), "rate 1.0"),
        (ValueError, lambda: GRUCell(4, "none", recurrent_dropout=-0.1), "rate -0.1"),
        (
            ValueError,
            lambda: LSTMCell(4, "none").init(jax.random.key(0), 0),
            "features_in=0",
        ),
        (
            TypeError,
            lambda: LSTMCell(4, "none", colour=1),
            "unexpected keyword.*'colour'",
        ),
        (
            TypeError,
            lambda: GRUCell(4, "none", peephole=True),
            "unexpected keyword.*peephole",
        ),
        (TypeError, lambda: LSTMCell(4, "layer", "output"), "positional arguments"),
        (TypeError, lambda: LSTMCell(), "features"),
        (TypeError, lambda: LSTMCell(4, blocks=2), "no 'blocks'; use a cell of your"),
    ],
)
def test_bad_options_are_refused(error, build, message):
    with pytest.raises(error, match=message):
        build()
