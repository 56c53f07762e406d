"""The LSTM over pixels: its equations, and gradients behind a blank beginning."""

import jax
import numpy as np
import pytest

from experiments import sequential_mnist
from experiments.sequential_mnist.fields import FIELDS
from tests import oracle
from tests.experiments.small import config_of
from tests.functional.programs import drawn

NORMS = FIELDS["norm"].allowed


def setting(norm, side, blank=0):
    """(the experiment, four images whose first rows are blank)."""
    config = config_of("sequential_mnist", norm=norm, **{"data.features": side**2})
    image = np.random.default_rng(0).integers(1, 17, (4, side, side), np.uint8)
    image[:, :blank] = 0
    batch = {"image": image, "label": np.array([3, 1, 4, 1])}
    return sequential_mnist.make(config), batch


@pytest.mark.parametrize("norm", NORMS)
def test_loss_is_that_of_the_papers_lstm_over_the_pixels(norm):
    exp, batch = setting(norm, 8)
    vars = drawn(jax.eval_shape(exp.init, jax.random.key(1)))
    loss, _ = jax.jit(exp.loss)(vars, batch, jax.random.key(0))
    p = jax.tree.map(np.float64, dict(vars["params"]))
    embedding, head = p.pop("Dense_0"), p.pop("Dense_1")
    ((_, cell),) = p.items()
    x = batch["image"].reshape(4, 64, 1) / 16.0
    x = x @ embedding["kernel"] + embedding["bias"]
    cell = cell.get("cell", cell)
    _, h, _ = oracle.run("lstm", norm, cell, x, np.ones((4, 64), bool))
    logits = h @ head["kernel"] + head["bias"]
    wanted = np.log(np.exp(logits).sum(-1)) - logits[np.arange(4), batch["label"]]
    np.testing.assert_allclose(loss, wanted.mean(), rtol=2e-5)


@pytest.mark.parametrize(
    "norm",
    [
        "layer",
        *(pytest.param(norm, marks=pytest.mark.slow) for norm in ("none", "rms")),
    ],
)
def test_gradients_are_finite_behind_a_blank_beginning(norm):
    """A state that stays exactly 0 would multiply them by 316 in every step."""
    exp, batch = setting(norm, 20, blank=15)
    vars = jax.jit(exp.init)(jax.random.key(0))

    @jax.jit
    @jax.grad
    def gradients(vars):
        return exp.loss(vars, batch, jax.random.key(0))[0]

    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradients(vars)))
