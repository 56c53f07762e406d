"""The memory-lean scan with steps written by hand, against JAX's own derivatives."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from lnrepro.functional import (
    LSTMCell,
    ScanOptions,
    named_dot,
    scan,
    unroll,
)
from lnrepro.functional.fast.platform import tracing_for
from lnrepro.functional.scan_options import FORMS
from tests.functional.programs import AUTODIFF, drawn, same, shapes_of, total
from tests.refused import refused

T, B, D, H = 4, 3, 4, 4


def chained_step(dot, params, carry, x, context):
    """A step with a product of x, one of a function of x, two of the carry, and aux.

    It reads x["left"] beside its product, too.
    """
    c, h = carry
    of_x = dot("w_x", x["left"]) + jnp.sin(dot("w_v", jnp.cos(x["right"])))
    a = of_x + dot("w_h", h) * context
    c = jnp.tanh(a[..., :H]) * c + params["bias"] + jnp.sin(x["left"])
    query = dot("w_q", jnp.sin(c))
    h = jnp.tanh(query + params["gain"] * a[..., H:])
    aux = {"query": jnp.square(query), "norm": jnp.sum(h * c, -1)}
    return (c, h), aux


def show(carry):
    """The output of a step, some function of its carry."""
    c, h = carry
    return jnp.concatenate([h, jnp.cos(c)], -1)


def problem(kind="dense", steps=T):
    """Arguments (weights, params, carry, x) of a scan, and its context."""
    rng = np.random.default_rng(0)

    def draw(*shape):
        return 0.7 * rng.standard_normal(shape)

    def weight(features_in, features):
        if kind == "dense":
            return draw(features_in, features)
        return draw(2, features_in // 2, features // 2)

    weights = {
        "w_x": weight(D, 2 * H),
        "w_v": weight(D, 2 * H),
        "w_h": weight(H, 2 * H),
        "w_q": weight(H, H),
        "w_unused": weight(H, H),
    }
    params = {"bias": draw(H), "gain": draw(H)}
    carry = (draw(B, H), draw(B, H))
    x = {"left": draw(steps, B, D), "right": draw(steps, B, D)}
    return (weights, params, carry, x), draw(steps, 1, 1)


def value_and_gradients(function, arguments):
    """All results of a function, and the gradients of a loss of all of them."""

    def loss(*arguments):
        result = function(*arguments)
        return total(result), result

    gradient = jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True)
    (_, result), gradients = jax.jit(gradient)(*arguments)
    return tuple(result), gradients


@functools.cache
def expected(kind, reverse):
    """The results of JAX's own loop and gradients."""
    arguments, context = problem(kind)

    def loop(weights, params, carry, x):
        def one_step(carry, inputs):
            dot = named_dot(weights)
            carry, aux = chained_step(dot, params, carry, *inputs)
            return carry, (show(carry), aux)

        carry, others = jax.lax.scan(one_step, carry, (x, context), reverse=reverse)
        return carry, *others

    return value_and_gradients(loop, arguments)


SLOW = [
    ScanOptions(),
    AUTODIFF,
    ScanOptions(unroll=2),
    ScanOptions(save="recurrent", platform="gpu"),
    ScanOptions(save="carries", chunk=1, unroll=2, platform="gpu"),
    ScanOptions(backward="autodiff", chunk=3, unroll=3, platform="gpu"),
]
OPTIONS = [
    ScanOptions(save="recurrent", chunk=3, platform="tpu"),
    ScanOptions(platform="gpu"),
    ScanOptions(save="carries", platform="tpu"),
    ScanOptions(save="carries", chunk=2, platform="cpu"),
    *[pytest.param(options, marks=pytest.mark.slow) for options in SLOW],
]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_values_and_gradients_equal_those_of_jax(x64, options, reverse):
    # In one direction with dense weights, in the other with weights in blocks.
    kind = "blocks" if reverse == (options.platform == "tpu") else "dense"
    arguments, context = problem(kind)
    how = {"output": show, "context": context, "reverse": reverse, "options": options}
    run = functools.partial(scan, chained_step, **how)
    found = value_and_gradients(run, arguments)
    same(found, expected(kind, reverse), 1e-10)


def program(options=None):
    """The text of a gradient, as it is traced."""
    cell = LSTMCell(H, norm="layer")

    def loss(params, x):
        return jnp.sum(unroll(cell, params, x, options=options).outputs)

    x = jax.ShapeDtypeStruct((B, T, D), jnp.float32)
    return jax.jit(jax.grad(loss)).lower(shapes_of(cell)[0], x).as_text()


def test_every_platform_has_a_form_of_its_own():
    forms = {name: program(ScanOptions(platform=name)) for name in FORMS}
    # Chunks, barriers and what stands in the loops differ between the forms.
    assert len(set(forms.values())) == 3
    # Without options it is that of the process.
    assert program() == forms["cpu"]
    with tracing_for("tpu"):
        assert program() == forms["tpu"]


@pytest.mark.parametrize(
    "options",
    [
        ScanOptions(platform="gpu", chunk=2, kernels="auto"),
        ScanOptions(platform="tpu", unroll=2, kernels="auto"),
    ],
)
def test_an_export_has_any_number_of_steps_and_several_platforms(options):
    cell = LSTMCell(H, "layer")
    params = drawn(shapes_of(cell)[0])
    x = problem()[0][3]["left"].astype(np.float32)

    @functools.partial(jax.jit, static_argnums=2)
    @functools.partial(jax.grad, argnums=(0, 1))
    def gradient(params, x, options):
        result = unroll(cell, params, x, time_major=True, options=options)
        return total(result[:2])

    t, b = export.symbolic_shape("t, b")
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), params)
    x_shape = jax.ShapeDtypeStruct((t, b, D), x.dtype)
    anywhere = export.export(gradient, platforms=["cpu", "cuda", "tpu"])
    exported = anywhere(shapes, x_shape, options)
    # A kernel, which needs its device, is left out where sizes are open.
    expected = gradient(params, x, dataclasses.replace(options, kernels="off"))
    same(exported.call(params, x), expected, 1e-5)


def test_an_unknown_product_and_one_used_twice_are_named():
    weights = {"w_x": np.eye(H), "w_h": np.eye(H)}

    def run_step(second):
        def step(dot, params, h, x, context):
            return dot(second, jnp.tanh(dot("w_h", h))), None

        scan(step, weights, None, np.ones((B, H)), np.ones((T, B, H)))

    with refused("no weight 'w_z'", "w_h, w_x", error=ValueError):
        run_step("w_z")
    with refused("'w_h'", "twice", error=ValueError):
        run_step("w_h")


def memory(cell, *shape, **options):
    """Bytes of temporary memory of a gradient, for x of a shape."""
    params, _ = shapes_of(cell, shape[-1])

    def loss(params, x):
        how = {"time_major": True, "options": ScanOptions(**options)}
        return unroll(cell, params, x, **how).outputs.sum()

    gradient = jax.jit(jax.grad(loss, (0, 1)))
    compiled = gradient.lower(
        params, jax.ShapeDtypeStruct(shape, jnp.float32)
    ).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_the_memory_of_a_prime_number_of_steps_is_bounded():
    """As that of a number of steps with many divisors."""
    cell = LSTMCell(8, "layer")
    prime, even = (memory(cell, T, 32, 8, platform="gpu") / T for T in (1009, 1008))
    assert prime < 1.1 * even
    assert prime < 0.7 * memory(cell, 1009, 32, 8, platform="gpu", chunk=1009) / 1009


@pytest.mark.slow
def test_what_is_not_kept_takes_no_memory():
    cell = LSTMCell(32, "layer")
    ways = [{"save": save} for save in ("carries", "recurrent", "products")]
    ways.append({"backward": "autodiff"})
    found = [memory(cell, 1024, 2, 8, **way) for way in ways]
    # `scripts/bench.py cells` measures how much.
    assert found == sorted(set(found))
