"""Every form in `lnrepro.functional.fast` equals its plain form, with derivatives."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import (
    layer_norm,
    products,
    rms_norm,
)
from lnrepro.functional.fast import fission, platform
from lnrepro.functional.fast.layer_norm import centre, layer_norm_of_groups
from tests.functional import programs

GROUPS = [(1,), (2, 1)]


same = functools.partial(programs.same, tolerance=1e-12)
layer_norm_centred = functools.partial(layer_norm_of_groups, is_centred=True)
pytestmark = pytest.mark.usefixtures("x64")


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


@functools.partial(jax.jit, static_argnums=0)
def derivatives(function, *arguments):
    """The value, and all first derivatives in both modes."""
    tangents = jax.tree.map(jnp.cos, arguments)
    y, tangent = jax.jvp(function, arguments, tangents)
    return y, tangent, jax.vjp(function, *arguments)[1](jnp.sin(y))


@functools.partial(jax.jit, static_argnums=0)
def second_derivatives(function, *arguments):
    """Forward over reverse and reverse over reverse."""
    numbers = tuple(range(len(arguments)))

    def loss(*arguments):
        y = function(*arguments)
        return jnp.sum(jnp.sin(y) * jnp.cos(jnp.arange(y.size)).reshape(y.shape))

    gradient = jax.grad(loss, numbers)

    def length(*arguments):
        return sum(jnp.sum(jnp.cos(leaf)) for leaf in gradient(*arguments))

    tangents = jax.tree.map(jnp.cos, arguments)
    forward = jax.jvp(gradient, arguments, tangents)[1]
    return forward, jax.grad(length, numbers)(*arguments)


# Layer norm of vectors whose mean is zero


def of_each_group(norm, a, gain, groups):
    """The plain norm of each group of units by itself, times the gain."""
    part = a.shape[-1] // sum(groups)
    edges = [0, *(part * sum(groups[: i + 1]) for i in range(len(groups)))]
    pairs = itertools.pairwise(edges)
    normalised = [norm(a[..., i:j], epsilon=0.1) for i, j in pairs]
    return jnp.concatenate(normalised, -1) * gain


def centred(a, gain, groups):
    a = centre(a, groups=groups)
    return layer_norm_centred(a, gain, epsilon=0.1, groups=groups)


# Each fast form, and the plain norm that it is.
FORMS = {
    "centred": (centred, layer_norm),
    "of groups": (
        functools.partial(layer_norm_of_groups, epsilon=0.1),
        layer_norm,
    ),
    "without centring": (
        functools.partial(layer_norm_centred, epsilon=0.1),
        rms_norm,
    ),
}


@pytest.mark.parametrize("shape", [(12,), (2, 3, 12)])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("name", FORMS)
def test_a_form_of_layer_norm_equals_the_norm_of_each_group(name, groups, shape):
    form, norm = FORMS[name]
    arguments = draw(0, *shape) + 3.0, draw(1, 12)
    fast = functools.partial(form, groups=groups)
    plain = functools.partial(of_each_group, norm, groups=groups)
    same(derivatives(fast, *arguments), derivatives(plain, *arguments))
    if len(shape) > 1:
        found = second_derivatives(fast, *arguments)
        same(found, second_derivatives(plain, *arguments), tolerance=1e-11)


@pytest.mark.parametrize("groups", GROUPS)
def test_layer_norm_has_the_same_gradients_on_all_platforms(groups):
    a, gain = draw(0, 2, 3, 12) + 3.0, draw(1, 12)

    def loss(a, gain):
        y = layer_norm_of_groups(a, gain, groups=groups)
        z = layer_norm_centred(centre(a, groups=groups), gain, groups=groups)
        return jnp.sum(jnp.sin(y) + jnp.cos(z))

    def gradient(name):
        with platform.tracing_for(name):
            return jax.grad(loss, (0, 1))(a, gain)

    of_cpu, *others = jax.jit(lambda: [gradient(n) for n in ("cpu", "gpu", "tpu")])()
    for found in others:
        same(found, of_cpu)


def test_derivatives_without_jit_compile_nothing_again(caplog):
    norm = functools.partial(layer_norm_of_groups, groups=(2, 1), is_centred=True)

    def transform(a, gain):
        jax.grad(lambda *arguments: jnp.sum(norm(*arguments)), (0, 1))(a, gain)
        jax.vmap(norm, (0, None))(a[None], gain)

    arguments = draw(0, 2, 6), draw(1, 6)
    transform(*arguments)
    with jax.log_compiles():
        transform(*arguments)
    assert "Compiling" not in caplog.text
    # A program has a function of its own each time.
    assert "jit[" in str(jax.make_jaxpr(norm)(*arguments))


@pytest.mark.parametrize("groups", GROUPS)
def test_the_product_of_a_centred_weight_is_the_centred_product(groups):
    v, weight, bias = draw(0, 5, 4), draw(1, 4, 12), draw(2, 12)

    @jax.jit
    def both(v, weight, bias):
        of_weight = v @ centre(weight, groups=groups) + centre(bias, groups=groups)
        return of_weight, centre(v @ weight + bias, groups=groups)

    same(*both(v, weight, bias))


@pytest.mark.parametrize("groups", GROUPS)
def test_layer_norm_centred_without_variance(groups):
    gain = jnp.ones(12)

    def total(a):
        return layer_norm_centred(a, gain, groups=groups).sum()

    y, gradient = jax.jit(jax.value_and_grad(total))(np.zeros((2, 12)))
    assert y == 0
    assert np.isfinite(gradient).all()


def test_a_narrow_weight_is_centred_in_float32_and_rounded_once():
    a = draw(0, 5, 12).astype(jnp.bfloat16)
    exact = np.asarray(jax.jit(centre)(a.astype(np.float32))).astype(jnp.bfloat16)
    np.testing.assert_array_equal(jax.jit(centre)(a), exact)


# Products


def block_diag(left, right):
    """A matrix of two blocks."""
    zeros = np.zeros_like(left)
    return np.block([[left, zeros], [zeros, right]])


def weight_of(kind, rows=6, columns=4):
    """A weight, and the dense matrix that it stands for."""
    if kind == "dense":
        weight = draw(1, rows, columns)
        return weight, weight
    if kind == "blocks":
        blocks = draw(1, 2, rows // 2, columns // 2)
        return blocks, block_diag(*blocks)
    # Each of two blocks has two gates. The units of a gate stand side by side.
    gates = draw(1, 2, rows // 2, 2, columns // 4)
    dense = block_diag(*gates.reshape(2, rows // 2, columns // 2))
    by_gate = dense.reshape(rows, 2, 2, columns // 4).swapaxes(1, 2)
    return gates, by_gate.reshape(rows, columns)


@pytest.mark.parametrize("shape", [(6,), (3, 2, 6)])
@pytest.mark.parametrize("kind", ["dense", "blocks", "gates"])
def test_products_and_their_gradients_equal_matmul(kind, shape):
    v, d = draw(0, *shape), draw(2, *shape[:-1], 4)
    weight, dense = weight_of(kind)
    d_dense = v.reshape(-1, 6).T @ d.reshape(-1, 4)

    @jax.jit
    def found(v, d, weight):
        y, pull = jax.vjp(products.multiply, v, weight)
        of_input = products.input_gradient(d, v, weight)
        return y, (of_input, products.weight_gradient(v, d, weight)), pull(d)

    y, (d_v, d_weight), pulled = found(v, d, weight)
    same((y, d_v), (v @ dense, d @ dense.T))
    # The gradient of a block is that part of the dense matrix's gradient.
    same(np.vdot(d_weight, weight), np.vdot(d_dense, dense))
    same(pulled, (d_v, d_weight))


@pytest.mark.parametrize("kind", ["dense", "blocks", "gates"])
def test_gradients_of_the_gradients_of_products(kind):
    v, d = draw(0, 5, 6), draw(2, 5, 4)
    weight, _ = weight_of(kind)

    def of_input(d, weight):
        return products.input_gradient(d, v, weight)

    def plain_of_input(d, weight):
        return jax.vjp(lambda v: products.multiply(v, weight), v)[1](d)[0]

    def of_weight(v, d):
        return products.weight_gradient(v, d, weight)

    def plain_of_weight(v, d):
        return jax.vjp(lambda w: products.multiply(v, w), weight)[1](d)[0]

    same(derivatives(of_input, d, weight), derivatives(plain_of_input, d, weight))
    same(derivatives(of_weight, v, d), derivatives(plain_of_weight, v, d))


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


@pytest.mark.parametrize(
    ("implementation", "one_slice", "reverse"),
    [
        ("threefry2x32", False, True),
        ("threefry2x32", True, False),
        ("rbg", False, False),
        ("rbg", True, True),
    ],
)
def test_fission_is_a_scan(reverse, one_slice, implementation):
    keys = jax.random.split(jax.random.key(0, impl=implementation), 5)
    xs = draw(0, 5, 4, 3), keys, jnp.arange(5)
    carry = draw(1, 4, 3), draw(2, 4, 3)

    def of_scan(carry, scan=jax.lax.scan):
        return scan(body, carry, xs, reverse=reverse)

    of_fission = functools.partial(
        of_scan, scan=functools.partial(fission.scan, one_slice=one_slice)
    )

    @jax.jit
    def both(carry):
        expected, pull = jax.vjp(of_scan, carry)
        cotangent = jax.tree.map(jnp.cos, expected)
        found, pull_fission = jax.vjp(of_fission, carry)
        return (found, pull_fission(cotangent)), (expected, pull(cotangent))

    same(*both(carry))


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


def test_what_is_only_added_to_is_no_carry_of_the_loop():
    def body(carry, x):
        h, total, count, mean, unread, twice = carry
        new = jnp.tanh(h + x)
        total = total + jnp.sum(new * x, 0).astype(jnp.bfloat16)
        new_carry = new, total, 1 + count, 0.5 * mean + x, unread + 2.0, twice + twice
        return new_carry, h

    xs, zeros = draw(0, 5, 4, 3), jnp.zeros((4, 3))
    carry = (zeros, jnp.ones(3, jnp.bfloat16), 7, zeros, jnp.ones(()), jnp.ones(2))

    @jax.jit
    def both(carry, xs):
        return fission.scan(body, carry, xs), jax.lax.scan(body, carry, xs)

    found, expected = both(carry, xs)
    same(found, expected, tolerance=1e-2)
    assert jax.tree.map(jnp.result_type, found) == jax.tree.map(
        jnp.result_type, expected
    )
    jaxpr = jax.make_jaxpr(lambda *a: fission.scan(body, *a))(carry, xs)
    (loop,) = (e for e in jaxpr.eqns if e.primitive.name == "scan")
    shapes = [v.aval.shape for v in loop.outvars]
    assert [shape for shape in shapes if shape[0] != len(xs)] == [(4, 3), (4, 3), (2,)]


def test_one_slice_stacks_all_shapes_together():
    """A canvas [B, 2, 2] and rows [B, 3]; the second aux needs the new canvas."""

    def body(carry, x):
        canvas, h = carry
        canvas = canvas + jnp.tanh(h)[:, :2, None]
        late = jnp.sum(canvas, (1, 2))[:, None] * jnp.ones(3)
        return (canvas, jnp.tanh(late + x)), (jnp.sin(h)[:, :2, None], jnp.sin(late))

    carry, xs = (draw(1, 4, 2, 2), draw(2, 4, 3)), draw(0, 6, 4, 3)
    run = functools.partial(fission.scan, body, one_slice=True)
    same(*jax.jit(lambda *a: (run(*a), jax.lax.scan(body, *a)))(carry, xs))
    (loop,) = (
        e for e in jax.make_jaxpr(run)(carry, xs).eqns if e.primitive.name == "scan"
    )
    # What is known before the new canvas, and what depends on it.
    stacked = [v.aval.shape[:2] for v in loop.outvars[len(carry) :]]
    assert len(stacked) <= 2
    assert set(stacked) == {(6, 4)}


def test_a_fission_keeps_what_a_body_prints():
    printed = []

    def body(h, x):
        jax.debug.callback(lambda x: printed.append(float(x)), x * 2)
        return h + x, None

    jax.jit(lambda h, x: fission.scan(body, h, x))(0.0, jnp.arange(3.0))
    jax.effects_barrier()
    assert sorted(printed) == [0, 2, 4]


def test_a_fission_of_a_body_that_reads_and_returns_nothing():
    def body(h, x):
        return jnp.sin(h), None

    last, _ = jax.jit(lambda *a: fission.scan(body, *a))(np.ones(2), np.ones(3))
    same(last, np.sin(np.sin(np.sin(np.ones(2)))))
