"""Every form in `lnrepro.functional.fast` equals its plain form, with derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

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


def derivatives(function, *arguments):
    """The value, and all first derivatives in both modes."""
    tangents = jax.tree.map(jnp.cos, arguments)
    y, tangent = jax.jvp(function, arguments, tangents)
    return y, tangent, jax.vjp(function, *arguments)[1](jax.tree.map(jnp.sin, y))


@functools.partial(jax.jit, static_argnums=0)
def two_derivatives(function, *arguments):
    """The derivatives, and those of the gradients."""

    def gradients(*arguments):
        y, pull = jax.vjp(function, *arguments)
        return pull(jnp.sin(y))

    return derivatives(function, *arguments), derivatives(gradients, *arguments)


# Layer norm of vectors whose mean is zero


def of_each_group(norm, a, gain, groups):
    """The plain norm of each group of units by itself, times the gain."""
    edges = np.cumsum(groups)[:-1] * (a.shape[-1] // sum(groups))
    parts = [norm(part, epsilon=0.1) for part in jnp.split(a, edges, -1)]
    return jnp.concatenate(parts, -1) * gain


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


@pytest.mark.parametrize(
    ("shape", "groups", "of"),
    [
        ((12,), (2, 1), "cpu"),
        ((2, 3, 12), (1,), "cpu"),
        ((2, 3, 12), (2, 1), "cpu"),
        ((2, 3, 12), (2, 1), "gpu"),
        ((2, 3, 12), (1,), "tpu"),
    ],
)
@pytest.mark.parametrize("name", FORMS)
def test_a_form_of_layer_norm_equals_the_norm_of_each_group(name, shape, groups, of):
    form, norm = FORMS[name]
    arguments = draw(0, *shape) + 3.0, draw(1, 12)

    def fast(*arguments):
        with platform.tracing_for(of):
            return form(*arguments, groups=groups)

    plain = functools.partial(of_each_group, norm, groups=groups)
    found = two_derivatives(fast, *arguments)
    same(found, two_derivatives(plain, *arguments), tolerance=1e-11)


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
    @jax.jit
    def both(v, weight, bias):
        of_weight = v @ centre(weight, groups=groups) + centre(bias, groups=groups)
        return of_weight, centre(v @ weight + bias, groups=groups)

    same(*both(draw(0, 5, 4), draw(1, 4, 12), draw(2, 12)))


def test_layer_norm_centred_without_variance():
    def total(a):
        return layer_norm_centred(a, np.ones(12), groups=(2, 1)).sum()

    y, gradient = jax.jit(jax.value_and_grad(total))(np.zeros((2, 12)))
    assert y == 0
    assert np.isfinite(gradient).all()


def test_a_narrow_weight_is_centred_in_float32_and_rounded_once():
    a = draw(0, 5, 12).astype(jnp.bfloat16)
    exact = np.asarray(jax.jit(centre)(a.astype(np.float32))).astype(jnp.bfloat16)
    np.testing.assert_array_equal(jax.jit(centre)(a), exact)


# Products


def weight_of(kind, rows=6, columns=4):
    """A weight, and the dense matrix that it stands for."""
    if kind == "dense":
        weight = draw(1, rows, columns)
        return weight, weight
    if kind == "blocks":
        blocks = draw(1, 2, rows // 2, columns // 2)
        return blocks, scipy.linalg.block_diag(*blocks)
    # Each of two blocks has two gates. The units of a gate stand side by side.
    gates = draw(1, 2, rows // 2, 2, columns // 4)
    dense = scipy.linalg.block_diag(*gates.reshape(2, rows // 2, columns // 2))
    by_gate = dense.reshape(rows, 2, 2, columns // 4).swapaxes(1, 2)
    return gates, by_gate.reshape(rows, columns)


@pytest.mark.parametrize("shape", [(6,), (3, 2, 6)])
@pytest.mark.parametrize("kind", ["dense", "blocks", "gates"])
def test_products_and_their_gradients_equal_matmul(kind, shape):
    v, d = draw(0, *shape), draw(2, *shape[:-1], 4)
    weight, dense = weight_of(kind)

    def plain_gradient(v, d, weight):
        return jax.vjp(lambda w: products.multiply(v, w), weight)[1](d)[0]

    @jax.jit
    def results(*arguments):
        forms = products.weight_gradient, plain_gradient
        both = [derivatives(f, *arguments) for f in forms]
        return products.multiply(v, weight), both

    y, (found, plain) = results(v, d, weight)
    same(found, plain)
    d_weight = found[0]
    same(y, v @ dense)
    # The gradient of a block is that part of the dense matrix's gradient.
    d_dense = v.reshape(-1, 6).T @ d.reshape(-1, 4)
    same(np.vdot(d_weight, weight), np.vdot(d_dense, dense))


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
    row = {"row": jnp.ones(2)}
    return (c, jnp.sin(c) + noise), (late, x, h, x_part, noise, 0.0, row)


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

    def of_fission(carry):
        return fission.scan(body, carry, xs, reverse=reverse, one_slice=one_slice)

    def of_scan(carry):
        return jax.lax.scan(body, carry, xs, reverse=reverse)

    @functools.partial(jax.jit, static_argnums=0)
    def derivative(run, carry):
        results, pull = jax.vjp(run, carry)
        return results, pull(jax.tree.map(jnp.cos, results))

    carry = draw(1, 4, 3), draw(2, 4, 3)
    same(derivative(of_fission, carry), derivative(of_scan, carry))


def is_the_scan(body, carry, xs, tolerance=1e-12, **how):
    """Compare a fission with the scan, in values and dtypes."""

    @jax.jit
    def both(carry, xs):
        found = fission.scan(body, carry, xs, **how)
        return found, jax.lax.scan(body, carry, xs)

    found, expected = both(carry, xs)
    same(found, expected, tolerance=tolerance)
    types = functools.partial(jax.tree.map, jnp.result_type)
    assert types(found) == types(expected)


def loop_of(run, *arguments):
    """The equation of the only loop of a function."""
    equations = jax.make_jaxpr(run)(*arguments).eqns
    (loop,) = (e for e in equations if e.primitive.name == "scan")
    return loop


def test_the_loop_of_a_fission_holds_only_what_is_sequential():
    def body(h, x):
        return jnp.tanh(h + jnp.sum(x)), jnp.sinh(h) * jnp.cosh(x)

    run = functools.partial(fission.scan, body)
    loop = loop_of(run, jnp.zeros(()), draw(0, 4, 3)).params["jaxpr"]
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
    carry = (
        zeros,
        jnp.ones(3, jnp.bfloat16),
        np.int32(7),
        zeros,
        jnp.ones(()),
        jnp.ones(2),
    )
    is_the_scan(body, carry, xs, tolerance=1e-2)
    loop = loop_of(functools.partial(fission.scan, body), carry, xs)
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
    is_the_scan(body, carry, xs, one_slice=True)
    run = functools.partial(fission.scan, body, one_slice=True)
    # What is known before the new canvas, and what depends on it.
    stacked = [v.aval.shape[:2] for v in loop_of(run, carry, xs).outvars[len(carry) :]]
    assert len(stacked) <= 2
    assert set(stacked) == {(6, 4)}


def test_a_fission_of_a_body_that_reads_and_returns_nothing():
    def body(h, x):
        return jnp.sin(h), None

    is_the_scan(body, np.ones(2), np.ones(3))
