"""The norms against float64 NumPy, values and gradients, and their edge cases.

Edge cases: large means, no variance, low precision, masks, wrong shapes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional.norms import (
    batch_norm,
    layer_norm,
    rms_norm,
    running_average,
    weight_norm,
    weight_norm_preserving,
)
from tests import oracle
from tests.functional.programs import same

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6)) * 3 + 1
GAIN, BIAS = RNG.standard_normal((2, 6))
OUT = RNG.standard_normal((4, 6))
NORMS = {
    "layer": (layer_norm, oracle.layer_norm, (X, GAIN, BIAS)),
    "rms": (rms_norm, oracle.rms_norm, (X, GAIN)),
    "batch": (
        lambda x, gain, bias: batch_norm(x, gain, bias)[0],
        lambda x, gain, bias: oracle.batch_norm(x, np.ones(4, bool), gain, bias),
        (X, GAIN, BIAS),
    ),
}


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(jnp.float32, 2e-5), (jnp.bfloat16, 4e-2)]
)
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_and_its_gradients_equal_the_oracle(name, dtype, tolerance):
    norm, reference, arguments = NORMS[name]
    arguments = [a.astype(dtype) for a in arguments]

    @jax.jit
    def value_and_gradients(*arguments):
        y, back = jax.vjp(norm, *arguments)
        return y, back(OUT.astype(dtype))

    y, gradients = value_and_gradients(*arguments)
    exact = [np.asarray(a, np.float64) for a in arguments]
    assert y.dtype == dtype
    same(np.asarray(y, np.float64), reference(*exact), tolerance)
    for number, grad in enumerate(gradients):
        direction = np.ones_like(exact[number])
        direction.flat[1] = -2
        # The imaginary part along a tiny step is the exact slope.
        moved = list(exact)
        moved[number] = exact[number] + 1e-30j * direction
        slope = (OUT * reference(*moved)).sum().imag / 1e-30
        mine = (np.asarray(grad, np.float64) * direction).sum()
        np.testing.assert_allclose(mine, slope, rtol=5 * tolerance, atol=20 * tolerance)


def test_layer_norm_of_large_means():
    """In float32 the one-pass variance is lost at mean 10,000."""
    x = (X + 1e4).astype(np.float32)
    np.testing.assert_allclose(
        jax.jit(layer_norm)(x), oracle.layer_norm(x.astype(np.float64)), atol=2e-3
    )


def test_layer_norm_without_variance():
    def loss(x):
        return jnp.sum(layer_norm(x, GAIN, BIAS) * OUT[0])

    y, grad = jax.jit(jax.value_and_grad(loss))(np.full(6, 3.0))
    np.testing.assert_allclose(y, (BIAS * OUT[0]).sum(), rtol=1e-5)
    assert np.isfinite(grad).all()
    assert np.abs(grad).max() <= 1.0001 / np.sqrt(1e-5) * np.abs(GAIN * OUT[0]).max()


def test_rms_norm_is_layer_norm_of_centred_values_and_ignores_scale():
    centred = (X - X.mean(-1, keepdims=True)).astype(np.float32)
    of_rms, of_layer = (jax.jit(norm)(centred) for norm in (rms_norm, layer_norm))
    np.testing.assert_allclose(of_rms, of_layer, atol=1e-6)
    scaled = jax.jit(lambda x: rms_norm(x, epsilon=0.0))
    x = X.astype(np.float32)
    np.testing.assert_allclose(scaled(100 * x), scaled(x), rtol=1e-5)
    loss = jax.value_and_grad(lambda x: rms_norm(x).sum())
    y, grad = jax.jit(loss)(np.zeros(6, np.float32))
    assert y == 0
    assert np.isfinite(grad).all()


def test_norms_do_not_need_implicit_rank_promotion():
    def all_norms(x, ones):
        layer_norm(x, ones, ones)
        rms_norm(x, ones)
        _, (mean, var) = batch_norm(x, ones, ones, mask=x[..., 0], unbiased=True)
        batch_norm(x, ones, ones, mean=mean, var=var)
        running_average(mean, mean, 0.9)
        weight_norm(x, ones)
        weight_norm_preserving(x)

    with jax.numpy_rank_promotion("raise"):
        jax.eval_shape(all_norms, np.ones((2, 3, 4), np.float32), np.ones(4))


@pytest.mark.slow
def test_norms_of_symbolic_sizes():
    """One exported program serves every batch size."""
    batch, steps = jax.export.symbolic_shape("b, t")
    inputs = (
        jax.ShapeDtypeStruct((batch, steps, 6), jnp.float32),
        jax.ShapeDtypeStruct((batch, steps), jnp.bool_),
    )

    def norms_of(x, mask):
        masked = batch_norm(x, mask=mask, unbiased=True)
        whole = batch_norm(x, unbiased=True)
        return masked, whole, layer_norm(x), rms_norm(x)

    exported = jax.export.export(jax.jit(norms_of))(*inputs)
    for shape in ((2, 3), (5, 1)):
        x = jnp.asarray(RNG.standard_normal((*shape, 6)), jnp.float32)
        mask = jnp.arange(shape[1]) < jnp.arange(1, shape[0] + 1)[:, None]
        same(exported.call(x, mask), norms_of(x, mask), 1e-5)


@pytest.mark.parametrize("unbiased", [False, True])
def test_batch_norm_counts_the_rows_of_its_mask(unbiased):
    x = RNG.standard_normal((3, 4, 6)).astype(np.float32)
    mask = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]], bool)
    # Padding may hold anything.
    x = np.where(mask[..., None], x, np.nan)

    @jax.jit
    def normalise(x, mask):
        y, (mean, var) = batch_norm(x, GAIN, BIAS, mask=mask, unbiased=unbiased)
        return y, (mean, var), batch_norm(x, GAIN, BIAS, mean=mean, var=var)

    y, (mean, var), (again, given) = jax.device_get(normalise(x, mask))
    rows = np.asarray(x, np.float64)[mask]
    wanted = rows.mean(0), rows.var(0, ddof=int(unbiased))
    same((mean, var), wanted, 1e-5)
    centred = (rows - wanted[0]) / np.sqrt(wanted[1] + 1e-5)
    same(y[mask], centred * GAIN + BIAS, 1e-5)
    same(again[mask], y[mask], 1e-5)
    same(given[0], mean, 0)


def test_batch_norm_without_rows():
    x = RNG.standard_normal((8, 6)).astype(np.float32)
    y, (mean, _) = jax.jit(lambda x: batch_norm(x, mask=np.zeros(8)))(x)
    assert np.isfinite(y).all()
    assert (np.asarray(mean) == 0).all()
    moved = jax.jit(running_average)(np.ones(6, np.float32), mean, 0.9)
    np.testing.assert_allclose(moved, 0.9, rtol=1e-6)


def test_weight_norm():
    v, g = (
        RNG.standard_normal((3, 5, 4)).astype(np.float32),
        RNG.standard_normal(4).astype(np.float32),
    )
    dw = RNG.standard_normal(v.shape).astype(np.float32)

    @jax.jit
    def value_and_gradients(v, g):
        w, back = jax.vjp(weight_norm, v, g)
        return w, back(dw), weight_norm(*weight_norm_preserving(v))

    w, (dv, dg), again = value_and_gradients(v, g)
    length = np.sqrt((v**2).sum((0, 1)))
    np.testing.assert_allclose(w, g * v / length, rtol=1e-5)
    want = (dw * v).sum((0, 1)) / length  # Salimans and Kingma, eq. 3
    np.testing.assert_allclose(dg, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        dv, g / length * dw - g * want / length**2 * v, rtol=1e-3, atol=1e-5
    )
    np.testing.assert_allclose(again, v, rtol=1e-5)
    of_zeros = jax.jit(weight_norm)(np.zeros((3, 2)), np.ones(2))
    assert np.isfinite(of_zeros).all()
