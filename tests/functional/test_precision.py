"""What bfloat16 and float16 cost: errors of gradients against float64.

docs/capabilities.md has the numbers of a larger network.
The gains are 0.3. At 1 a fresh network is chaotic, so that even float32 is far from
float64 after some hundred steps.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.functional import DreamerGRUCell, GRUCell, LSTMCell, unroll

B, T, H = 4, 128, 32
# Relative errors of the whole gradient, about twice those that were measured.
LIMITS = {"float32": 6e-6, "bfloat16": 0.04, "float16": 0.008}
CELLS = {"lstm": LSTMCell, "gru": GRUCell, "dreamer": DreamerGRUCell}
slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def gradient_errors(cell, dtypes, scale=1.0):
    """{dtype: |g - g64| / |g64| over all parameters} of the narrow gradients."""
    keys = jax.random.split(jax.random.key(0), 3)
    params = cell.init(keys[0], H, jnp.float64)
    x, w = (jax.random.normal(key, (B, T, H), jnp.float64) for key in keys[1:])

    # The program in float64 is traced once for all dtypes.
    @jax.jit
    @jax.grad
    def gradient(params, x):
        outputs = unroll(cell, params, x).outputs
        assert outputs.dtype == x.dtype
        return scale * jnp.sum(outputs.astype(jnp.float32) * w.astype(jnp.float32))

    def flat(tree):
        return np.concatenate(
            [np.asarray(a, np.float64).ravel() for a in tree.values()]
        )

    errors = {}
    for dtype in dtypes:
        # Both start from the numbers that the narrow dtype can hold.
        narrow = jax.tree.map(lambda a, d=dtype: a.astype(d), (params, x))
        mine = gradient(*narrow)
        exact = flat(gradient(*jax.tree.map(lambda a: a.astype(jnp.float64), narrow)))
        assert {a.dtype for a in mine.values()} == {jnp.dtype(dtype)}
        errors[dtype] = np.linalg.norm(flat(mine) - exact) / np.linalg.norm(exact)
    return errors


@pytest.mark.parametrize("norm", ["layer", slow("none"), slow("rms")])
@pytest.mark.parametrize("name", CELLS)
def test_error_of_the_gradient(double, name, norm):
    gain = jax.nn.initializers.constant(0.3)
    cell = CELLS[name](H, norm, scale_init=gain)
    errors = gradient_errors(cell, LIMITS)
    for dtype, limit in LIMITS.items():
        assert errors[dtype] < limit, errors
    # Where the loss is scaled, float16 is the more exact of the two.
    assert errors["float16"] < errors["bfloat16"]


def test_float16_needs_a_scaled_loss(double):
    """The terms of a mean over many outputs are below its range."""
    cell = LSTMCell(H, "none")
    errors = gradient_errors(cell, ("float16", "bfloat16"), scale=2.0**-20)
    assert errors["float16"] > 0.05
    assert errors["bfloat16"] < LIMITS["bfloat16"]


def test_sums_over_time_are_taken_in_float32():
    """The sum of 4096 ones is 256 in bfloat16, where each is added by itself."""
    cell = LSTMCell(1, "none", use_bias=True)
    params = jax.tree.map(jnp.zeros_like, cell.init(jax.random.key(0), 1))
    params = jax.tree.map(lambda a: a.astype(jnp.bfloat16), params)
    x = jnp.ones((1, 4096, 1), jnp.bfloat16)

    def loss(params, x):
        return unroll(cell, params, x).outputs.astype(jnp.float32).sum()

    narrow = jax.jit(jax.grad(loss))(params, x)["bias"].astype(jnp.float32)
    wide = jax.tree.map(lambda a: a.astype(jnp.float32), (params, x))
    np.testing.assert_allclose(narrow, jax.grad(loss)(*wide)["bias"], rtol=0.01)
