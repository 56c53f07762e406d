"""What the lean backward pass has a derivative of, and where it traces it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import LSTMCell, ScanOptions, scan, unroll
from tests.functional.programs import AUTODIFF, drawn, same, shapes_of

T, B, H = 4, 2, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((T, B, H))
WEIGHTS = {name: 0.3 * RNG.standard_normal((H, H)) for name in ("w_x", "w_h")}
LEAN = [ScanOptions(), ScanOptions(platform="gpu", save="carries", chunk=3)]


def gradient(step, options, weights=WEIGHTS, params=None, context=None):
    """Gradients of weights, parameters and what is floating point of the context."""

    def loss(weights, params, context):
        context = {"floats": context, "flags": jnp.ones((T, B), bool)}
        result = scan(
            step,
            weights,
            params,
            jnp.zeros_like(X[0]),
            X,
            context=context,
            options=options,
        )
        return jnp.sum(jnp.sin(result.outputs))

    return jax.jit(jax.grad(loss, (0, 1, 2)))(weights, params, context)


@pytest.mark.parametrize("options", LEAN)
def test_all_numbers_of_a_step_have_gradients(x64, options):
    """Of the context, also where a product reads it, and complex parameters."""

    def step(dot, params, h, x, context):
        scale, read = context["floats"]
        a = dot("w_x", jnp.where(context["flags"][:, None], read, x)) + dot("w_h", h)
        return jnp.tanh(a * scale + jnp.abs(params * h)), None

    context = RNG.standard_normal((T, 1, H)), RNG.standard_normal((T, B, H))
    params = RNG.standard_normal(H) + 1j * RNG.standard_normal(H)
    found = gradient(step, options, params=params, context=context)
    same(found, gradient(step, AUTODIFF, params=params, context=context), 1e-12)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(found))


def test_population_statistics_of_batch_norm_have_gradients(x64):
    """Those that nobody differentiates pass, under jit too."""
    cell, x = LSTMCell(H, "batch"), np.moveaxis(X, 0, 1)
    params = drawn(shapes_of(cell, H, jnp.float64)[0])
    statistics = jax.jit(lambda: unroll(cell, params, x).statistics.values)()

    def loss(statistics, params, options):
        result = unroll(cell, params, x, statistics=statistics, options=options)
        return jnp.sum(result.outputs**2)

    gradients = jax.jit(jax.grad(loss), static_argnums=2)
    found = gradients(statistics, params, None)
    same(found, gradients(statistics, params, AUTODIFF), 1e-12)
    assert np.any(found["x"][0])
    of_params = jax.jit(jax.grad(loss, 1), static_argnums=2)
    assert np.any(of_params(statistics, params, None)["w_h"])


INNER = {
    "checkpoint": lambda f, h: jax.checkpoint(f)(h),
    "jit": lambda f, h: jax.jit(f)(h),
    "vmap": lambda f, h: jax.vmap(f)(h),
    "cond": lambda f, h: jax.lax.cond(h[0, 0] > 0, f, lambda h: f(2 * h), h),
    "loop": lambda f, h: jax.lax.fori_loop(0, 2, lambda _, h: f(h), h),
}


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("options", LEAN)
def test_products_may_stand_inside_of_transformations(x64, name, options):
    """Then the step has JAX's own derivative."""

    def step(dot, params, h, x, context):
        inner = INNER[name](lambda h: jnp.tanh(dot("w_h", h)), h)
        return jnp.tanh(dot("w_x", x) + inner), None

    def plain(dot, params, h, x, context):
        w_x, w_h = params
        inner = INNER[name](lambda h: jnp.tanh(h @ w_h), h)
        return jnp.tanh(x @ w_x + inner), None

    weights = WEIGHTS["w_x"], WEIGHTS["w_h"]
    expected = gradient(plain, AUTODIFF, {}, weights)[1]
    found = gradient(step, options)[0]
    same((found["w_x"], found["w_h"]), expected, 1e-12)


NAMES = (
    "jax_enable_x64",
    "jax_numpy_rank_promotion",
    "jax_default_matmul_precision",
    "jax_threefry_partitionable",
)


@pytest.mark.parametrize("options", [*LEAN, AUTODIFF])
def test_a_gradient_is_traced_under_the_settings_of_the_call(options):
    """They hold around the network inside of the loss, and the gradient is outside."""
    seen = []

    def step(dot, params, h, x, context):
        seen.append([getattr(jax.config, name) for name in NAMES])
        return jnp.tanh(dot("w_x", x) + dot("w_h", h)), None

    def loss(weights):
        with (
            jax.enable_x64(True),
            jax.numpy_rank_promotion("raise"),
            jax.default_matmul_precision("highest"),
            jax.threefry_partitionable(False),
        ):
            x = jnp.asarray(X, jnp.float32)
            result = scan(step, weights, None, x[0], x, options=options)
            return jnp.sum(result.outputs).astype(jnp.float32)

    weights = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), WEIGHTS)
    jax.eval_shape(jax.grad(jax.jit(loss)), weights)
    assert seen == [[True, "raise", "highest", False]] * len(seen)


@pytest.mark.parametrize("options", [LEAN[0], AUTODIFF])
def test_a_network_in_float64_inside_of_a_loss_in_float32(options):
    cell = LSTMCell(H, gradient_clip=0.1)
    params = drawn(shapes_of(cell, H)[0])
    x = jnp.asarray(np.moveaxis(X, 0, 1), jnp.float32)

    def loss(params, x):
        with jax.enable_x64(True):
            wide, x = jax.tree.map(lambda a: a.astype(jnp.float64), (params, x))
            outputs = unroll(cell, wide, x, options=options).outputs
            assert outputs.dtype == jnp.float64
            return jnp.sum(outputs).astype(jnp.float32)

    found = jax.grad(jax.jit(loss))(params, x)
    with jax.enable_x64(True):
        exact = jax.jit(jax.grad(loss))(params, x)
    same(found, exact, 1e-6)
