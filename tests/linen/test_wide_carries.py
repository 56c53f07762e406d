"""Modules of a narrow dtype accept a wide carry and keep its dtype, as Flax does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from lnrepro import functional, linen
from lnrepro import nnx as lnnx

B, T, D, H = 2, 5, 3, 4
X = jax.random.normal(jax.random.key(0), (B, T, D))
RESETS = jnp.arange(T) == jnp.array([[2], [3]])
CELLS = [
    functional.LSTMCell(H, "layer"),
    functional.GRUCell(H, "layer", reset="before"),
    functional.stack(functional.LSTMCell(H), functional.GRUCell(H, "rms")),
]


def dtypes(tree):
    return {leaf.dtype for leaf in jax.tree.leaves(tree)}


def wide_carry(cell, params):
    own = cell.initial_carry(params, X[:, 0])
    return jax.tree.map(lambda a: jnp.full(a.shape, 0.3, jnp.float32), own)


@pytest.mark.parametrize("cell", CELLS, ids=["lstm", "gru", "stack"])
def test_a_float32_carry_of_a_bfloat16_cell(cell):
    module = linen.RNN(linen.FunctionalCell(cell, dtype=jnp.bfloat16))
    variables = module.init(jax.random.key(1), X)
    params = variables["params"]["cell"]
    if isinstance(cell, functional.Stack):
        params = tuple(params.values())
    carry = wide_carry(cell, params)

    @jax.jit
    def run(carry):
        return module.apply(
            variables, X, initial_carry=carry, resets=RESETS, return_carry=True
        )

    last, y = run(carry)
    assert dtypes(last) == {jnp.dtype(jnp.float32)}
    assert y.dtype == jnp.bfloat16
    exact = functional.unroll(cell, params, X, initial_carry=carry, resets=RESETS)
    np.testing.assert_allclose(np.float32(y), exact.outputs, atol=0.05)
    gradient = jax.grad(lambda c: jnp.sum(run(c)[1].astype(jnp.float32)))(carry)
    assert dtypes(gradient) == {jnp.dtype(jnp.float32)}

    step, stepped = carry, []
    for t in range(T):
        step, y_t = module.apply(
            variables, step, X[:, t], reset=RESETS[:, t], method="step"
        )
        stepped.append(y_t)
    assert dtypes(step) == {jnp.dtype(jnp.float32)}
    np.testing.assert_allclose(
        np.float32(jnp.stack(stepped, 1)), np.float32(y), atol=0.02
    )


def test_nnx_does_the_same():
    module = lnnx.LSTM(D, H, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    carry = (jnp.ones((B, H)), jnp.ones((B, H)))
    last, y = module(X, initial_carry=carry, return_carry=True)
    assert (dtypes(last), y.dtype) == ({jnp.dtype(jnp.float32)}, jnp.bfloat16)
    last, y = module.step(carry, X[:, 0])
    assert (dtypes(last), y.dtype) == ({jnp.dtype(jnp.float32)}, jnp.bfloat16)


def test_a_narrow_carry_and_another_size_are_refused():
    module = linen.LSTM(H)
    variables = module.init(jax.random.key(1), X)

    def run(shape, dtype=jnp.float32):
        carry = (jnp.ones(shape, dtype),) * 2
        return module.apply(variables, X, initial_carry=carry)

    with pytest.raises(TypeError, match="the carry has dtype bfloat16"):
        run((B, H), jnp.bfloat16)
    with pytest.raises(ValueError, match=r"`features` asks for \(2, 4\)"):
        run((B, H + 1))
    with pytest.raises(ValueError, match=r"these inputs ask for \(2, 4\)"):
        run((B + 1, H))


@pytest.mark.slow
def test_a_wide_carry_follows_float64_over_a_thousand_steps():
    """The memory of an LSTM adds small numbers to a large one."""
    x = jax.random.normal(jax.random.key(2), (4, 1000, 8))
    module = linen.LSTM(32, norm="none", dtype=jnp.bfloat16, return_carry=True)
    params = module.init(jax.random.key(3), x)["params"]
    # The forget gate stays near 1, so that c integrates.
    params["bias"] = params["bias"].at[:32].set(6.0)
    zeros = jnp.zeros((4, 32))
    errors = {}
    with jax.enable_x64(True):
        double = jax.tree.map(lambda a: np.float64(a), params)
        cell = functional.LSTMCell(32)
        exact = functional.unroll(cell, double, np.float64(x)).carry[0]
        exact = np.asarray(exact)
    for dtype in (jnp.bfloat16, jnp.float32):
        carry = (zeros.astype(dtype), zeros.astype(dtype))
        (c, _), _ = module.apply({"params": params}, x, initial_carry=carry)
        errors[dtype] = np.abs(np.float64(c) - exact).mean() / np.abs(exact).mean()
    assert errors[jnp.float32] < errors[jnp.bfloat16] / 2, errors
