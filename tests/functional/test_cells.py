"""Every cell with every norm against the float64 oracle: outputs, carries, and the derivative with respect to every
parameter, input and initial carry."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro import functional
from tests.functional import oracle

B, T, D, H = 4, 7, 3, 5
LENGTHS = np.array([7, 0, 3, 5])
CASES = [
    *[("lstm", norm, {}) for norm in ("none", "layer", "layer_cell", "batch", "weight")],
    ("lstm", "layer", {"cell_norm": "carry"}),
    ("lstm", "layer", {"peephole": True, "learned_carry": True}),
    ("lstm", "layer", {"inner_bias": True}),
    *[("gru", norm, {}) for norm in ("none", "layer", "batch", "weight")],
    ("gru", "layer", {"reset": "before"}),
    ("gru", "batch", {"reset": "before"}),
    ("gru", "none", {"recurrent_bias": True}),
    *[("rnn", norm, {}) for norm in ("none", "layer", "batch", "weight")],
]
WAYS = ["plain", "lengths", "reverse", "resets", "left", "holes"]


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def problem(name, norm, options, seed=0):
    rng = np.random.default_rng(seed)
    cell = getattr(functional, name)(H, norm=norm, **options)
    params = functional.init(cell, jax.random.key(seed), D, jnp.float64)
    params = {n: np.asarray(a) + 0.2 * rng.standard_normal(a.shape) for n, a in params.items()}
    return cell, params, rng.standard_normal((B, T, D)), rng


def padding(way, rng):
    mask = np.ones((B, T), bool)
    if way in ("lengths", "reverse"):
        mask = np.arange(T) < LENGTHS[:, None]
    if way == "left":
        mask = np.arange(T) >= LENGTHS[:, None]
    if way == "holes":
        mask = rng.random((B, T)) < 0.7
    return mask


def check(name, norm, options, way, **how):
    cell, params, x, rng = problem(name, norm, options)
    mask = padding(way, rng)
    resets = rng.random((B, T)) < 0.3 if way == "resets" else None
    reverse = way == "reverse"
    asked = {"lengths": LENGTHS} if way == "lengths" else {"mask": mask}
    told = {k: v for k, v in options.items() if k in ("cell_norm", "reset")}
    w_h, w_y, w_c = rng.standard_normal((B, H)), rng.standard_normal((B, T, H)), rng.standard_normal((B, H))

    def theirs(params, x):
        c, h, y = oracle.run(name, norm, params, x, mask, resets, reverse, **told)
        return (w_h * h).sum() + (w_y * y).sum() + (0 if c is None else (w_c * c).sum())

    def ours(params, x):
        carry, y = functional.unroll(cell, params, x, resets=resets, reverse=reverse, **asked, **how)
        h = carry[1] if name == "lstm" else carry
        return (w_h * h).sum() + (w_y * y).sum() + ((w_c * carry[0]).sum() if name == "lstm" else 0), (carry, y)

    if norm == "batch" and reverse:
        pytest.skip("a mask without lengths does not say which step is a sequence's first")
    (_, (carry, y)), grads = jax.jit(jax.value_and_grad(ours, (0, 1), has_aux=True))(params, x)
    c, h, expected = oracle.run(name, norm, params, x, mask, resets, reverse, **told)
    np.testing.assert_allclose(y, expected, atol=1e-12)
    np.testing.assert_allclose(carry[1] if name == "lstm" else carry, h, atol=1e-12)
    if name == "lstm":
        np.testing.assert_allclose(carry[0], c, atol=1e-12)
    for which in [*params, None]:
        value = x if which is None else params[which]
        direction = rng.standard_normal(value.shape)
        moved = value + 1e-30j * direction
        there = theirs(params, moved) if which is None else theirs({**params, which: moved}, x)
        grad = grads[1] if which is None else grads[0][which]
        np.testing.assert_allclose(
            (np.asarray(grad) * direction).sum(), there.imag / 1e-30, rtol=1e-9, atol=1e-9, err_msg=str(which)
        )


@pytest.mark.parametrize(
    ("number", "case"), list(enumerate(CASES)), ids=lambda c: str(c) if isinstance(c, int) else f"{c[0]}-{c[1]}"
)
def test_cell_equals_the_oracle(double, number, case):
    ways = WAYS if case[1] != "batch" else [w for w in WAYS if w != "reverse"]
    check(*case, ways[number % len(ways)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [{}, {"save": "carries", "chunk": 1}, {"backward": "autodiff", "remat": True, "chunk": 7}], ids=str
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1]}")
def test_cell_equals_the_oracle_every_way(double, case, way, how):
    check(*case, way, **how)


COUNTS = {  # as order-embeddings, the reader, DRAW and skip-thoughts use them
    "gru": (functional.gru(1024), 300, 4_070_400),
    "gru-layer": (functional.gru(1024, norm="layer"), 300, 4_070_400 + 12_288),
    "lstm": (functional.lstm(240), 240, 4 * (240 * 240 + 240 * 240 + 240)),
    "lstm-layer": (functional.lstm(240, norm="layer"), 240, 4 * (240 * 240 + 240 * 240 + 240) + 18 * 240),
    "lstm-batch": (functional.lstm(240, norm="batch"), 240, 4 * (240 * 240 + 240 * 240 + 240) + 2400),
    "lstm-layer_cell": (functional.lstm(256, norm="layer_cell"), 356, 4 * (356 * 256 + 256 * 256 + 256) + 512),
    "gru-2400-layer": (functional.gru(2400, norm="layer"), 620, 3 * (620 * 2400 + 2400 * 2400 + 2400) + 12 * 2400),
}


@pytest.mark.parametrize("which", COUNTS)
def test_parameter_counts(which):
    cell, features_in, count = COUNTS[which]
    shapes = jax.eval_shape(lambda key: functional.init(cell, key, features_in), jax.random.key(0))
    assert sum(a.size for a in shapes.values()) == count


def test_starting_values():
    params = functional.init(functional.lstm(8, norm="layer", forget_bias=1.0), jax.random.key(0), 3)
    assert (params["bias"][:8] == 1).all()
    assert (params["bias"][8:] == 0).all()
    assert (params["gain_x"] == 1).all()
    for k in range(4):  # every gate's block is orthogonal by itself
        block = params["w_h"][:, 8 * k : 8 * k + 8]
        np.testing.assert_allclose(block @ block.T, np.eye(8), atol=1e-5)
    assert (functional.init(functional.lstm(8, norm="batch"), jax.random.key(0), 3)["gain_h"] == np.float32(0.1)).all()
    weight = functional.lstm(8, norm="weight")
    params = functional.init(weight, jax.random.key(0), 3)
    np.testing.assert_allclose(weight.kernels(params).x, params["w_x"], rtol=1e-6)  # preserves the function
    assert functional.init(functional.gru(8), jax.random.key(0), 3, jnp.bfloat16)["w_h"].dtype == jnp.bfloat16


def test_input_scale_does_not_matter_under_layer_norm(double):
    """LN(W x) of 3 x is LN(W x) of x, up to eps (section 5.1)."""
    cell = functional.lstm(H, norm="layer", eps=0.0)
    params = functional.init(cell, jax.random.key(0), D, jnp.float64)
    carry = (jnp.ones((2, H)), jnp.array([[1.0, -1, 2, 0, 1]] * 2))
    x = jax.random.normal(jax.random.key(1), (2, D), jnp.float64)
    _, y = functional.step(cell, params, carry, x)
    _, z = functional.step(cell, params, carry, 3 * x)
    np.testing.assert_allclose(y, z, atol=1e-12)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: functional.lstm(4, norm="group"), "unknown norm 'group'"),
        (lambda: functional.gru(4, norm="layer_cell"), "layer_cell"),
        (lambda: functional.lstm(0), "positive integer"),
        (lambda: functional.lstm(4, colour=1), "unknown option 'colour'"),
        (lambda: functional.lstm(4, cell_norm="both"), "cell_norm"),
        (lambda: functional.gru(4, reset="never"), "reset"),
        (lambda: functional.init(functional.lstm(4), jax.random.key(0), 0), "at least one input feature"),
    ],
)
def test_bad_options_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_clipped_derivatives_of_the_preactivations(double, norm):
    """One step: the bias's gradient is the pre-activations' derivative, entry by entry clipped; the outputs are not."""
    plain, clipped = functional.lstm(4, norm=norm), functional.lstm(4, norm=norm, clip_gradient=0.01)
    params, x = functional.init(plain, jax.random.key(0), 3, jnp.float64), np.random.RandomState(0).randn(1, 1, 3)
    run = lambda cell, bias: functional.unroll(cell, params | {"bias": bias}, x)[1].sum()  # noqa: E731
    (a, free), (b, held) = (jax.value_and_grad(functools.partial(run, c))(params["bias"]) for c in (plain, clipped))
    assert a == b
    np.testing.assert_allclose(held, np.clip(free, -0.01, 0.01), rtol=1e-12)
    assert (np.abs(free) > 0.01).any()


def test_the_gru_s_derivative_rule(double):
    """Its gates have a rule of their own: both modes and twice, against JAX's own derivative of eq. 23-25 as printed."""
    cell, rng = functional.gru(H), np.random.default_rng(0)
    (px, ph), (h, weights) = rng.standard_normal((2, B, 3 * H)), rng.standard_normal((2, B, H))

    def ours(px, ph):
        return cell.pointwise({}, h, px, ph)[0]

    def theirs(px, ph):
        z, r = jax.nn.sigmoid(px[:, :H] + ph[:, :H]), jax.nn.sigmoid(px[:, H : 2 * H] + ph[:, H : 2 * H])
        return (1 - z) * h + z * jnp.tanh(px[:, 2 * H :] + r * ph[:, 2 * H :])

    def derivatives(function):
        gradient = jax.grad(lambda *a: jnp.sum(jnp.sin(function(*a)) * weights), (0, 1))
        along = (px, ph), (np.cos(ph), np.sin(px))
        again = jax.grad(lambda *a: sum(jnp.sum(jnp.cos(g)) for g in gradient(*a)), (0, 1))
        return jax.jvp(function, *along), gradient(px, ph), jax.jvp(gradient, *along), again(px, ph)

    for mine, plain in zip(*(jax.tree.leaves(derivatives(f)) for f in (ours, theirs)), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-9, atol=1e-10)
