"""`functional.autotune` sees the recurrences of modules, and changes nothing there."""

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx as flax_nnx

from lnrepro import functional, linen, nnx
from lnrepro.functional.fast import measure
from tests.functional import made_up_gpu

X = jnp.ones((4, 3, 5))


def linen_step():
    module = linen.ScannedRNN(7, options=functional.ScanOptions())
    carry = linen.ScannedRNN.initialize_carry(4, 7)
    inputs = jnp.moveaxis(X, 1, 0), jnp.zeros((3, 4), bool)
    variables = module.init(jax.random.key(0), carry, inputs)

    @jax.jit
    @jax.grad
    def step(variables, inputs):
        return jnp.sum(module.apply(variables, carry, inputs)[1])

    return step, variables, inputs


def nnx_step():
    module = nnx.LSTM(5, 7, rngs=flax_nnx.Rngs(0))
    optimizer = flax_nnx.Optimizer(module, optax.adam(0.1), wrt=flax_nnx.Param)

    @flax_nnx.jit
    def step(module, optimizer, x):
        gradient = flax_nnx.grad(lambda module: jnp.sum(module(x)))(module)
        optimizer.update(module, gradient)

    return step, module, optimizer, X


@pytest.mark.slow
@pytest.mark.parametrize("problem", [linen_step, nnx_step])
def test_autotune_sees_modules(problem, monkeypatch, tmp_path):
    """On a made-up GPU."""
    step, *arguments = problem()
    made_up_gpu.pretend(monkeypatch, tmp_path)
    monkeypatch.setattr(measure, "RUNS", 1)
    monkeypatch.setattr(measure, "ENOUGH", 1e9)
    before = jax.tree.map(jnp.copy, arguments)
    (record,) = functional.autotune(step, *arguments)
    assert record["kernel"]
    assert record["rows"] == 4
    assert jax.tree.all(jax.tree.map(jnp.array_equal, before, arguments))
    step(*arguments)
