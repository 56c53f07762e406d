"""`functional.autotune` sees the recurrences of modules, and changes nothing there."""

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx as flax_nnx

from lnrepro import functional, nnx
from lnrepro.functional.fast import measure
from tests.functional import made_up_gpu


@pytest.mark.slow
def test_autotune_sees_the_recurrence_of_a_training_step(monkeypatch, tmp_path):
    """On a made-up GPU; the modules of linen call the same function."""
    module = nnx.LSTM(5, 7, rngs=flax_nnx.Rngs(0))
    optimizer = flax_nnx.Optimizer(module, optax.adam(0.1), wrt=flax_nnx.Param)

    @flax_nnx.jit
    def step(module, optimizer, x):
        gradient = flax_nnx.grad(lambda module: jnp.sum(module(x)))(module)
        optimizer.update(module, gradient)

    arguments = module, optimizer, jnp.ones((4, 3, 5))
    made_up_gpu.pretend(monkeypatch, tmp_path)
    monkeypatch.setattr(measure, "RUNS", 1)
    monkeypatch.setattr(measure, "ENOUGH", 1e9)
    before = jax.tree.map(jnp.copy, arguments)
    (record,) = functional.autotune(step, *arguments)
    assert record["kernel"]
    assert record["rows"] == 4
    assert jax.tree.all(jax.tree.map(jnp.array_equal, before, arguments))
    step(*arguments)
