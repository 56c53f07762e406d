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
    "weight": (weight_norm, lambda v, g: v / np.sqrt((v**2).sum(0)) * g, (X, GAIN)),
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


@pytest.mark.parametrize("norm", [layer_norm, rms_norm])
def test_a_row_of_zeros_has_a_finite_gradient(norm):
    def loss(x):
        return jnp.sum(norm(x, GAIN) * OUT[0])

    y, grad = jax.jit(jax.value_and_grad(loss))(np.zeros(6, np.float32))
    assert y == 0
    assert np.abs(grad).max() <= 1.0001 / np.sqrt(1e-5) * np.abs(GAIN * OUT[0]).max()


@pytest.mark.parametrize("unbiased", [False, True])
def test_batch_norm_counts_the_rows_of_its_mask(unbiased):
    # Padding may hold anything.
    mask = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]], bool)
    x = np.where(mask[..., None], RNG.standard_normal((3, 4, 6)), np.nan)

    @jax.jit
    def normalise(x):
        y, statistics = batch_norm(x, GAIN, BIAS, mask=mask, unbiased=unbiased)
        mean, var = statistics
        return y, statistics, batch_norm(x, GAIN, BIAS, mean=mean, var=var)

    y, statistics, (again, given) = jax.device_get(normalise(x.astype(np.float32)))
    wanted = x[mask].mean(0), x[mask].var(0, ddof=int(unbiased))
    same(statistics, wanted, 1e-5)
    same(y[mask], (x[mask] - wanted[0]) / np.sqrt(wanted[1] + 1e-5) * GAIN + BIAS, 1e-5)
    same((again[mask], given), (y[mask], statistics), 1e-5)


def test_batch_norm_without_rows():
    x = RNG.standard_normal((8, 6)).astype(np.float32)

    @jax.jit
    def normalise(x):
        y, (mean, var) = batch_norm(x, mask=np.zeros(8))
        return y, mean, running_average(jnp.ones(6), var, 0.9)

    y, mean, moved = normalise(x)
    assert np.isfinite(y).all()
    assert (np.asarray(mean) == 0).all()
    np.testing.assert_allclose(moved, 0.9, rtol=1e-6)


def test_weight_norm_starts_as_the_weight_and_takes_columns_of_zero():
    v = RNG.standard_normal((3, 5, 4)).astype(np.float32)
    again, of_zeros = jax.jit(
        lambda v: (weight_norm(*weight_norm_preserving(v)), weight_norm(0 * v, v[0, 0]))
    )(v)
    same(again, v, 1e-5)
    assert np.isfinite(of_zeros).all()
