"""The LSTM over pixels: its equations, and gradients behind a blank beginning."""

import jax
import numpy as np
import pytest

from configs import sequential_mnist as configs
from experiments import sequential_mnist
from tests import oracle
from tests.functional.programs import drawn


def make(norm, **changes):
    c = configs.get_config("smoke")
    c.update_from_flattened_dict({"norm": norm, **changes})
    return sequential_mnist.make(c)


def images(rng, side=8, blank=0):
    """Four images whose first rows are blank."""
    image = rng.integers(1, 17, (4, side, side), np.uint8)
    image[:, :blank] = 0
    return {"image": image, "label": np.array([3, 1, 4, 1])}


@pytest.mark.parametrize("norm", configs.NORMS)
def test_loss_is_that_of_the_papers_lstm_over_the_pixels(norm):
    rng = np.random.default_rng(0)
    exp = make(norm)
    vars = drawn(jax.eval_shape(exp.init, jax.random.key(1)))
    batch = images(rng)
    loss, _ = jax.jit(exp.loss)(vars, batch, jax.random.key(0))
    p = jax.tree.map(lambda a: np.asarray(a, np.float64), dict(vars["params"]))
    embedding, head = p["Dense_0"], p["Dense_1"]
    (cell,) = (p[name] for name in p if not name.startswith("Dense"))
    x = batch["image"].reshape(4, 64, 1) / 16.0
    x = x @ embedding["kernel"] + embedding["bias"]
    cell = cell.get("cell", cell)
    _, h, _ = oracle.run("lstm", norm, cell, x, np.ones((4, 64), bool))
    logits = h @ head["kernel"] + head["bias"]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    wanted = -log_p[np.arange(4), batch["label"]].mean()
    np.testing.assert_allclose(loss, wanted, rtol=2e-5)


@pytest.mark.parametrize("norm", configs.NORMS)
def test_gradients_are_finite_behind_a_blank_beginning(norm):
    """A state that stays exactly 0 would multiply them by 316 in every step."""
    exp = make(norm, **{"data.features": 400})
    vars = jax.jit(exp.init)(jax.random.key(0))
    batch = images(np.random.default_rng(0), side=20, blank=15)

    @jax.jit
    @jax.grad
    def gradients(vars):
        return exp.loss(vars, batch, jax.random.key(0))[0]

    gradient = gradients(vars)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))
