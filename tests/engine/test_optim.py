"""Optimisers against their formulas in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lnrepro.config import FIELDS
from lnrepro.engine import optim
from tests.engine import toy


def make(steps, **changes):
    """The optimiser of a config with a learning rate of 0.1."""
    own = {f"optimizer__{name}": value for name, value in changes.items()}
    return optim.make(toy.config(optimizer__learning_rate=0.1, **own), steps)


def test_every_choice_of_a_config_is_there():
    for field, there in {"name": optim.SCALINGS, "clip_mode": optim.CLIPS}.items():
        assert FIELDS[f"optimizer.{field}"].allowed == tuple(there)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kiros_adam_is_its_recurrence_in_the_dtype_of_the_parameters(dtype):
    """The corrections differ from 1 in all digits of either dtype."""
    grads = np.random.default_rng(1).normal(size=(6, 50)).astype(dtype)
    # The moments themselves are sums that round a few times.
    eps = 20 * np.finfo(dtype).eps
    m, v = np.zeros(50), np.zeros(50)
    with jax.enable_x64(True):
        tx = make(6, name="kiros_adam")
        state = tx.init(jnp.zeros(50, dtype))
        for t, g in enumerate(grads, 1):
            updates, state = tx.update(jnp.asarray(g), state)
            exact = g.astype(float)
            m, v = 0.1 * exact + 0.9 * m, 0.001 * exact**2 + 0.999 * v
            correction = np.sqrt(1 - 0.001**t) / (1 - 0.1**t)
            expected = -0.1 * correction * m / (np.sqrt(v) + 1e-8)
            assert updates.dtype == dtype
            np.testing.assert_allclose(updates, expected, rtol=eps, atol=eps)


def test_clip_each_tensor_on_its_own():
    tx = optim.clip_each_tensor(2.0)
    grads = {
        "large": jnp.full((3, 3), 5.0),
        "small": jnp.full(4, 0.1),
        "zero": jnp.zeros(2),
    }
    out, _ = tx.update(grads, tx.init(grads))
    np.testing.assert_allclose(np.linalg.norm(out["large"]), 2.0, rtol=1e-6)
    np.testing.assert_array_equal(out["small"], grads["small"])
    np.testing.assert_array_equal(out["zero"], 0.0)


@pytest.mark.parametrize(("norm", "left"), [(5.0, 5.0), (99.0, 99.0), (400.0, 200.0)])
def test_clipping_as_the_attentive_readers_code_has_it(norm, left):
    tx = optim.clip_squared(10.0)
    clipped, _ = tx.update(
        {"a": jnp.array([0.6 * norm]), "b": jnp.array([0.8 * norm])}, tx.init(None)
    )
    np.testing.assert_allclose(
        [clipped["a"][0], clipped["b"][0]], [0.6 * left, 0.8 * left], rtol=1e-6
    )


def test_global_clip_comes_before_the_moments():
    tx = make(1, clip=1.0)
    state = tx.init(jnp.zeros(2))
    _, clipped = tx.update(jnp.asarray([30.0, 40.0]), state)
    np.testing.assert_allclose(optax.tree.get(clipped, "mu"), [0.06, 0.08], rtol=1e-6)


def test_cosine_decay_to_zero_over_the_run():
    """Adam's steps for a constant gradient have the length of the learning rate."""
    steps = 7
    tx = make(steps, decay="cosine")
    state = tx.init(jnp.zeros(()))
    update = jax.jit(tx.update)
    for t in range(steps + 1):
        u, state = update(jnp.float32(0.3), state)
        rate = 0.1 * (1 + np.cos(np.pi * t / steps)) / 2
        np.testing.assert_allclose(u, -rate, rtol=1e-5, atol=1e-8)
