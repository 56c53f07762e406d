"""Every form in `lnrepro.functional.fast` equals its plain form, with derivatives."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import (
    GRUCell,
    LSTMCell,
    layer_norm,
    products,
    rms_norm,
    step,
    unroll,
)
from lnrepro.functional.fast import fission, platform
from lnrepro.functional.fast.layer_norm import (
    centre,
    layer_norm_centred,
    layer_norm_of_groups,
)

GROUPS = [(1,), (2, 1)]


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def same(mine, plain, tolerance=1e-12):
    jax.tree.map(
        lambda u, v: np.testing.assert_allclose(u, v, rtol=tolerance, atol=tolerance),
        mine,
        plain,
    )


def derivatives(function, arguments):
    """All first derivatives of a function, in both modes."""

    def run(arguments):
        tangents = jax.tree.map(jnp.cos, arguments)
        y, tangent = jax.jvp(function, arguments, tangents)
        gradients = jax.vjp(function, *arguments)[1](jnp.sin(y))
        return y, tangent, gradients

    return jax.jit(run)(arguments)


def second_derivatives(function, arguments):
    """Forward over reverse and reverse over reverse."""
    numbers = tuple(range(len(arguments)))

    def loss(*arguments):
        y = function(*arguments)
        return jnp.sum(jnp.sin(y) * jnp.cos(jnp.arange(y.size)).reshape(y.shape))

    gradient = jax.grad(loss, numbers)

    def length(*arguments):
        return sum(jnp.sum(jnp.cos(leaf)) for leaf in gradient(*arguments))

    def run(arguments):
        tangents = jax.tree.map(jnp.cos, arguments)
        forward = jax.jvp(gradient, arguments, tangents)[1]
        return forward, jax.grad(length, numbers)(*arguments)

    return jax.jit(run)(arguments)


# Layer norm of vectors whose mean is zero


def of_each_group(norm, a, gain, groups):
    """The plain norm of each group of units by itself, times the gain."""
    part = a.shape[-1] // sum(groups)
    edges = [0, *(part * sum(groups[: i + 1]) for i in range(len(groups)))]
    normalised = [norm(a[..., i:j]) for i, j in itertools.pairwise(edges)]
    return jnp.concatenate(normalised, -1) * gain


@pytest.mark.parametrize("shape", [(12,), (5, 12), (2, 3, 12)])
@pytest.mark.parametrize("groups", GROUPS)
def test_layer_norm_centred_equals_layer_norm_of_each_group(groups, shape):
    arguments = draw(0, *shape) + 3.0, draw(1, 12), draw(2, 12)

    def fast(a, gain, bias):
        a = centre(a, groups=groups)
        return layer_norm_centred(a, gain, bias, groups=groups)

    def plain(a, gain, bias):
        return of_each_group(layer_norm, a, gain, groups) + bias

    same(derivatives(fast, arguments), derivatives(plain, arguments))


@pytest.mark.parametrize("groups", GROUPS)
def test_layer_norm_of_groups_equals_layer_norm_of_each_group(groups):
    arguments = draw(0, 2, 3, 12) + 3.0, draw(1, 12), draw(2, 12)

    def fast(a, gain, bias):
        return layer_norm_of_groups(a, gain, bias, epsilon=0.1, groups=groups)

    def plain(a, gain, bias):
        def norm(part):
            return layer_norm(part, epsilon=0.1)

        return of_each_group(norm, a, gain, groups) + bias

    same(derivatives(fast, arguments), derivatives(plain, arguments))
    same(
        second_derivatives(fast, arguments), second_derivatives(plain, arguments), 1e-11
    )


@pytest.mark.parametrize("groups", GROUPS)
def test_layer_norm_has_the_same_gradients_in_the_form_of_cpus(groups):
    a, gain = draw(0, 2, 3, 12) + 3.0, draw(1, 12)

    def gradients(plan, a, gain):
        del plan

        def loss(a, gain):
            y = layer_norm_of_groups(a, gain, groups=groups)
            z = layer_norm_centred(centre(a, groups=groups), gain, groups=groups)
            return jnp.sum(jnp.sin(y) + jnp.cos(z))

        return jax.grad(loss, (0, 1))(a, gain)

    of_cpu = platform.choose(gradients, {"cpu": None, "": None}, a, gain)
    same(of_cpu, gradients(None, a, gain))


@pytest.mark.parametrize("groups", GROUPS)
def test_layer_norm_centred_has_the_second_derivatives_of_layer_norm(groups):
    arguments = draw(0, 2, 3, 12), draw(1, 12)

    def fast(a, gain):
        a = centre(a, groups=groups)
        return layer_norm_centred(a, gain, epsilon=0.1, groups=groups)

    def plain(a, gain):
        def norm(part):
            return layer_norm(part, epsilon=0.1)

        return of_each_group(norm, a, gain, groups)

    same(
        second_derivatives(fast, arguments), second_derivatives(plain, arguments), 1e-11
    )


@pytest.mark.parametrize("groups", GROUPS)
def test_without_centring_it_is_the_rms_norm(groups):
    arguments = draw(0, 5, 12) + 1.0, draw(1, 12)

    def fast(a, gain):
        return layer_norm_centred(a, gain, groups=groups)

    def plain(a, gain):
        return of_each_group(rms_norm, a, gain, groups)

    same(derivatives(fast, arguments), derivatives(plain, arguments))


@pytest.mark.parametrize("groups", GROUPS)
def test_the_product_of_a_centred_weight_is_the_centred_product(groups):
    v, weight, bias = draw(0, 5, 4), draw(1, 4, 12), draw(2, 12)
    of_weight = v @ centre(weight, groups=groups) + centre(bias, groups=groups)
    same(of_weight, centre(v @ weight + bias, groups=groups))


@pytest.mark.parametrize("groups", GROUPS)
def test_layer_norm_centred_without_variance(groups):
    gain = jnp.ones(12)

    def total(a):
        return layer_norm_centred(a, gain, groups=groups).sum()

    y, gradient = jax.value_and_grad(total)(jnp.zeros((2, 12)))
    assert y == 0
    assert np.isfinite(gradient).all()


def test_layer_norm_centred_computes_low_precision_in_float32():
    a = draw(0, 5, 12).astype(jnp.bfloat16)
    gain = jnp.ones(12, jnp.bfloat16)
    y = layer_norm_centred(a, gain)
    assert y.dtype == jnp.float32
    assert centre(a).dtype == jnp.bfloat16
    same(y, rms_norm(a.astype(jnp.float32)), 1e-6)


# Products


def weight_of(kind, rows=6, columns=4):
    """A weight, and the dense matrix that it stands for."""
    if kind == "dense":
        weight = draw(1, rows, columns)
        return weight, weight
    blocks = draw(1, 2, rows // 2, columns // 2)
    return blocks, jax.scipy.linalg.block_diag(*blocks)


def test_blocks_of_gates_are_blocks_in_another_order():
    v, weight = draw(0, 3, 6), draw(1, 2, 3, 4, 5)
    by_block = products.multiply(v, weight.reshape(2, 3, 20))
    by_gate = by_block.reshape(3, 2, 4, 5).swapaxes(1, 2).reshape(3, 40)
    same(products.multiply(v, weight), by_gate)
    d = draw(2, 3, 40)
    d_v, d_weight = jax.vjp(products.multiply, v, weight)[1](d)
    same(products.input_gradient(d, v, weight), d_v)
    same(products.weight_gradient(v, d, weight), d_weight)


@pytest.mark.parametrize("shape", [(6,), (5, 6), (3, 2, 6)])
@pytest.mark.parametrize("kind", ["dense", "blocks"])
def test_products_and_their_gradients_equal_matmul(kind, shape):
    v = draw(0, *shape)
    weight, dense = weight_of(kind)
    d = draw(2, *shape[:-1], 4)
    y, pull = jax.vjp(jnp.matmul, v, dense)
    d_v, d_dense = pull(d)

    same(products.multiply(v, weight), y)
    same(products.input_gradient(d, v, weight), d_v)
    d_weight = products.weight_gradient(v, d, weight)
    assert d_weight.shape == weight.shape
    if kind == "blocks":
        # The gradient of a block is that part of the dense matrix's gradient.
        d_dense = jnp.stack([d_dense[:3, :2], d_dense[3:, 2:]])
    same(d_weight, d_dense)


@pytest.mark.parametrize("kind", ["dense", "blocks"])
def test_gradients_of_the_gradients_of_products(kind):
    v, d = draw(0, 5, 6), draw(2, 5, 4)
    weight, _ = weight_of(kind)

    def plain_input_gradient(d, v, weight):
        return jax.vjp(lambda v: products.multiply(v, weight), v)[1](d)[0]

    def plain_weight_gradient(v, d, weight):
        return jax.vjp(lambda w: products.multiply(v, w), weight)[1](d)[0]

    def input_gradient(d, weight):
        return products.input_gradient(d, v, weight)

    same(
        derivatives(input_gradient, (d, weight)),
        derivatives(lambda d, w: plain_input_gradient(d, v, w), (d, weight)),
    )
    same(
        derivatives(lambda v, d: products.weight_gradient(v, d, weight), (v, d)),
        derivatives(lambda v, d: plain_weight_gradient(v, d, weight), (v, d)),
    )


@pytest.mark.parametrize("kind", ["dense", "blocks"])
def test_product_has_the_gradients_of_matmul(kind):
    arguments = draw(0, 5, 6), weight_of(kind)[0]

    def loss(product):
        return lambda v, weight: jnp.sum(jnp.sin(product(v, weight)))

    fast, plain = (
        jax.jit(jax.value_and_grad(loss(product), (0, 1)))(*arguments)
        for product in (products.product, products.multiply)
    )
    same(fast, plain)


# Loop fission


def body(carry, inputs):
    """A body with parts before, in and after the loop, and results of all kinds."""
    (c, h), weight = carry, jnp.eye(3) * 0.5
    x, key, t = inputs
    x_part = jax.jit(jnp.tanh)(x @ weight)
    noise = jax.random.bernoulli(key, 0.5, h.shape)
    a = jax.jit(jnp.tanh)(x_part + h @ weight)
    c = jnp.where(t > 1, c * a, c)
    late = jnp.sum(jnp.exp(a) * x_part, 0)
    return (c, jnp.sin(c) + noise), (late, x, h, x_part, 0.0, {"row": jnp.ones(2)})


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
@pytest.mark.parametrize("one_slice", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_fission_is_a_scan(reverse, one_slice, implementation):
    keys = jax.random.split(jax.random.key(0, impl=implementation), 5)
    xs = draw(0, 5, 4, 3), keys, jnp.arange(5)
    carry = draw(1, 4, 3), draw(2, 4, 3)

    def of_fission(carry):
        return fission.scan(body, carry, xs, reverse=reverse, one_slice=one_slice)

    def of_scan(carry):
        return jax.lax.scan(body, carry, xs, reverse=reverse)

    same(jax.jit(of_fission)(carry), of_scan(carry))
    cotangent = jax.tree.map(jnp.cos, of_scan(carry))
    same(
        jax.jit(lambda carry: jax.vjp(of_fission, carry)[1](cotangent))(carry),
        jax.vjp(of_scan, carry)[1](cotangent),
    )


def test_the_loop_of_a_fission_holds_only_what_is_sequential():
    def body(h, x):
        return jnp.tanh(h + jnp.sum(x)), jnp.sinh(h) * jnp.cosh(x)

    run = jax.make_jaxpr(lambda h, x: fission.scan(body, h, x))
    jaxpr = run(jnp.zeros(()), draw(0, 4, 3))
    names = [e.primitive.name for e in jaxpr.eqns]
    loop = jaxpr.eqns[names.index("scan")].params["jaxpr"]
    in_loop = {e.primitive.name for e in loop.eqns}
    assert "tanh" in in_loop
    assert not in_loop & {"reduce_sum", "sinh", "cosh"}


def test_one_slice_stacks_all_shapes_together():
    """A canvas [B, 2, 2] and rows [B, 3]; `late` is known after the new canvas."""

    def body(carry, x):
        canvas, h = carry
        patch = jnp.sum(canvas, -1)
        a = jnp.concatenate([patch, h], -1) @ jnp.ones((5, 3))
        canvas = canvas + jnp.tanh(a)[:, :2, None]
        late = jnp.sum(canvas, (1, 2))[:, None] @ jnp.ones((1, 3))
        return (canvas, late + x), (canvas * jnp.sin(h[:, :2, None]), jnp.sin(late))

    carry, xs = (draw(1, 4, 2, 2), draw(2, 4, 3)), draw(0, 6, 4, 3)
    run = functools.partial(fission.scan, body, one_slice=True)
    same(jax.jit(run)(carry, xs), jax.lax.scan(body, carry, xs))
    jaxpr = jax.make_jaxpr(run)(carry, xs).jaxpr
    (loop,) = (e for e in jaxpr.eqns if e.primitive.name == "scan")
    # What is known before the new canvas, and what depends on it.
    stacked = [v.aval.shape for v in loop.outvars[len(carry) :]]
    assert len(stacked) == 2
    assert {shape[:2] for shape in stacked} == {(6, 4)}


def test_a_fission_keeps_what_a_body_prints():
    printed = []

    def body(h, x):
        jax.debug.callback(lambda x: printed.append(float(x)), x * 2)
        return h + x, None

    jax.jit(lambda h, x: fission.scan(body, h, x))(0.0, jnp.arange(3.0))
    jax.effects_barrier()
    assert sorted(printed) == [0, 2, 4]


@pytest.mark.parametrize("rows", [(), (2,), (8,)])
def test_one_step_equals_a_step_of_a_sequence(rows):
    """With few rows the norms of products take the mean of the product."""
    for cell in (LSTMCell(4, inner_bias=True), GRUCell(4, reset="before")):
        params = cell.init(jax.random.key(0), 3, jnp.float64)
        x = draw(0, *rows, 2, 3)
        carry = cell.initial_carry(params, x[..., 0, :])
        for t in range(2):
            carry, y = step(cell, params, carry, x[..., t, :])
        whole = unroll(cell, params, x)
        same((carry, y), (whole.carry, whole.outputs[..., 1, :]))
