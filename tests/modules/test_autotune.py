"""`functional.autotune` sees the recurrences of modules, and changes nothing there."""

import jax
import jax.numpy as jnp
from flax import nnx as flax_nnx

from lnrepro import functional, nnx
from lnrepro.functional.fast import measure
from tests.functional import made_up_gpu


def test_autotune_sees_the_recurrence_of_a_training_step(monkeypatch, tmp_path):
    """On a made-up GPU, without measuring; linen calls the same function."""
    module = nnx.LSTM(5, 7, rngs=flax_nnx.Rngs(0))

    @flax_nnx.jit
    def step(module, x):
        gradient = flax_nnx.grad(lambda module: jnp.sum(module(x)))(module)
        flax_nnx.update(module, gradient)

    made_up_gpu.pretend(monkeypatch, tmp_path)
    monkeypatch.setattr(measure, "measure", list)
    before = jax.tree.leaves(module)
    (scan,) = functional.autotune(step, module, jnp.ones((4, 3, 5)))
    assert scan.about["rows"] == 4
    after = jax.tree.leaves(module)
    assert all(a is b for a, b in zip(before, after, strict=True))
