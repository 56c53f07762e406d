"""What the lean backward pass has a derivative of, and where it traces it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import LSTMCell, ScanOptions, scan, unroll
from tests.functional.programs import AUTODIFF, drawn, same, shapes_of, total
from tests.precisions import precisions

T, B, H = 4, 2, 4
RNG = np.random.default_rng(0)
X = RNG.standard_normal((T, B, H))
WEIGHTS = {name: 0.3 * RNG.standard_normal((H, H)) for name in ("w_x", "w_h")}
LEAN = [ScanOptions(), ScanOptions(platform="gpu", save="carries", chunk=3)]


def loss(
    step, options, weights=WEIGHTS, params=None, context=None, carry=X[0], **output
):
    """A number that depends on all outputs of a step over time."""
    # Some that are not floating point stand beside them.
    params = {"floats": params, "rows": np.arange(B) % 2}
    # The generator rbg draws other bits for many steps at once.
    keys = jax.random.split(jax.random.key(0, impl="rbg"), T)
    context = {"floats": context, "flags": jnp.ones((T, B), bool), "keys": keys}
    how = {"context": context, "options": options, **output}
    return total(scan(step, weights, params, carry, X, **how).outputs)


def gradient(step, options, weights=WEIGHTS, params=None, context=None, **named):
    """Its gradients: of weights, parameters and the floats of the context."""
    of = functools.partial(loss, step, options, **named)
    return jax.grad(of, (0, 1, 2))(weights, params, context)


@pytest.mark.parametrize("options", LEAN)
def test_all_numbers_of_a_step_have_gradients(x64, options):
    """Of the context, also where a product reads it, and complex parameters."""

    def step(dot, params, h, x, context):
        scale, read = context["floats"]
        numbers = params["floats"][params["rows"]]
        a = dot("w_x", jnp.where(context["flags"][:, None], read, x)) + dot("w_h", h)
        return jnp.tanh(a * scale + jnp.abs(numbers * h)), None

    context = RNG.standard_normal((T, 1, H)), RNG.standard_normal((T, B, H))
    params = RNG.standard_normal((2, H)) + 1j * RNG.standard_normal((2, H))

    @jax.jit
    def of_both(params, context):
        how = {"params": params, "context": context}
        return [gradient(step, o, **how) for o in (options, AUTODIFF)]

    found, expected = of_both(params, context)
    same(found, expected, 1e-12)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(found))


def test_population_statistics_of_batch_norm_have_gradients(x64):
    """Those that nobody differentiates pass, under jit too."""
    cell, x = LSTMCell(H, "batch"), np.moveaxis(X, 0, 1)
    params = drawn(shapes_of(cell, H, jnp.float64)[0])
    statistics = jax.jit(lambda: unroll(cell, params, x).statistics.values)()

    @jax.jit
    def gradients(statistics, params):
        def loss(statistics, params, options):
            how = {"statistics": statistics, "options": options}
            return jnp.sum(unroll(cell, params, x, **how).outputs ** 2)

        both = [jax.grad(loss)(statistics, params, o) for o in (None, AUTODIFF)]
        return *both, jax.grad(loss, 1)(statistics, params, None)

    found, expected, of_params = gradients(statistics, params)
    same(found, expected, 1e-12)
    assert np.any(found["x"][0])
    assert np.any(of_params["w_h"])


@jax.custom_vjp
def printed(x):
    return x


def print_gradient(_, d):
    jax.debug.callback(SEEN.append, d)
    return (d,)


printed.defvjp(lambda x: (x, None), print_gradient)
SEEN = []


@pytest.mark.parametrize("options", LEAN)
def test_a_step_may_print_the_gradient_of_its_input(options):
    """Although no step needs it, so that it could be taken after the loop."""

    def step(dot, params, h, x, context):
        return jnp.tanh(dot("w_x", printed(x)) + dot("w_h", h)), None

    SEEN.clear()
    jax.jit(lambda: gradient(step, options))()
    jax.effects_barrier()
    assert len(SEEN) == T
    assert all(np.any(d) for d in SEEN)


INNER = {
    "checkpoint": lambda f, h: jax.checkpoint(f)(h),
    "vmap": lambda f, h: jax.vmap(f)(h),
    "loop": lambda f, h: jax.lax.fori_loop(0, 2, lambda _, h: f(h), h),
}


@pytest.mark.parametrize("name", INNER)
def test_products_may_stand_inside_of_transformations(x64, name):
    """Then the step has JAX's own derivative."""

    def step(dot, params, h, x, context):
        inner = INNER[name](lambda h: jnp.tanh(dot("w_h", h)), h)
        return jnp.tanh(dot("w_x", x) + inner), None

    def plain(dot, params, h, x, context):
        weights = params["floats"]
        inner = INNER[name](lambda h: jnp.tanh(h @ weights["w_h"]), h)
        return jnp.tanh(x @ weights["w_x"] + inner), None

    @jax.jit
    def of_all():
        expected = gradient(plain, AUTODIFF, {}, WEIGHTS)[1]
        return expected, [gradient(step, options)[0] for options in LEAN]

    expected, found = of_all()
    for weights in found:
        same(weights, expected, 1e-12)


def test_a_carry_may_have_counts_flags_and_keys(x64):
    def step(dot, params, carry, x, context):
        h, count, flag, key = carry
        key, of_step = jax.random.split(key)
        h = jnp.where(flag, h, jax.random.normal(of_step, h.shape))
        h = jnp.tanh(dot("w_x", x) + count * dot("w_h", h))
        return (h, count + 1, ~flag, key), None

    def of_h(carry):
        return carry[0]

    @jax.jit
    def of_all():
        carry = X[0], np.int32(0), np.zeros((B, 1), bool), jax.random.key(0)
        how = {"carry": carry, "output": of_h}
        return [gradient(step, o, **how)[0] for o in (*LEAN, AUTODIFF)]

    *found, expected = of_all()
    for weights in found:
        same(weights, expected, 1e-12)


def test_a_step_may_read_arrays_of_the_function_around_it(x64):
    """Then the step has JAX's own derivative."""

    def around(shift, options):
        def step(dot, params, h, x, context):
            return jnp.tanh(dot("w_x", x) + dot("w_h", h)) * shift, None

        return loss(step, options)

    @jax.jit
    def of_all(shift):
        return [jax.grad(around)(shift, options) for options in (*LEAN, AUTODIFF)]

    *found, expected = of_all(0.9)
    same(found, [expected] * len(found), 1e-12)


def test_noise_of_any_generator_is_that_of_the_forward_pass(x64):
    """The generator rbg draws other bits for many steps at once."""

    def step(dot, params, h, x, context):
        noise = jax.random.normal(context["keys"], x.shape)
        return jnp.tanh(dot("w_x", x + noise) + dot("w_h", h)), jnp.argmax(h)

    @jax.jit
    def of_all():
        saves = "products", "recurrent", "carries"
        kept = [ScanOptions(save=save, chunk=3) for save in saves]
        return [gradient(step, options)[0] for options in (*kept, AUTODIFF)]

    *found, expected = of_all()
    for weights in found:
        same(weights, expected, 1e-12)


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
    found = jax.make_jaxpr(jax.grad(jax.jit(loss)))(weights)
    assert set(precisions(found)) == {(jax.lax.Precision.HIGHEST,) * 2}
    assert seen == [[True, "raise", "highest", False]] * len(seen)
