"""The networks that classify MNIST, against NumPy in float64."""

import jax
import numpy as np
import pytest

from experiments.fields.sequential_mnist import FIELDS
from experiments.sets import evaluation_batches, open_set, training_batches
from lnrepro.data.plan import Plan
from lnrepro.engine import experiment
from tests import oracle
from tests.experiments.small import config_of
from tests.functional.programs import drawn


def perceptron(p, image, norm):
    """The logits of the perceptron (eq. 3 and 5)."""

    def batch_norm(a, scale, bias):
        n = len(a)
        a = (a - a.mean(0)) / np.sqrt(a.var(0) * n / (n - 1) + 1e-5)
        return a * scale + bias

    x = image.reshape(4, 64)
    for i in range(3):
        a = x @ p[f"Dense_{i}"]["kernel"] + p[f"Dense_{i}"].get("bias", 0)
        if norm == "batch":
            a = batch_norm(a, **p[f"BatchNorm_{i}"])
        elif norm == "layer" and i < 2:
            norm_of = p[f"LayerNorm_{i}"]
            a = oracle.layer_norm(a, norm_of["scale"], norm_of["bias"])
        x = np.maximum(a, 0)
    return a


def lstm(p, image, norm):
    """The logits of the LSTM over the pixels."""
    embedding, head = p.pop("Dense_0"), p.pop("Dense_1")
    ((_, cell),) = p.items()
    x = image.reshape(4, 64, 1)
    x = x @ embedding["kernel"] + embedding["bias"]
    cell = cell.get("cell", cell)
    _, h, _ = oracle.run("lstm", norm, cell, x, np.ones((4, 64), bool))
    return h @ head["kernel"] + head["bias"]


# Batch norm takes the unbiased variance at batch size 4.
SIZES = {"model.hidden": (30, 20), "data.features": 64, "data.full_ink": 16.0}
MNIST = "mnist", "paper_bz4", SIZES
SEQUENTIAL = "sequential_mnist", "smoke", {}


@pytest.mark.parametrize(
    ("case", "logits", "norm"),
    [
        *((MNIST, perceptron, norm) for norm in ("none", "layer", "batch")),
        *((SEQUENTIAL, lstm, norm) for norm in FIELDS["norm"].allowed),
    ],
)
def test_loss_is_the_papers_equations(case, logits, norm):
    name, variant, sizes = case
    exp = experiment.load(config_of(name, variant, norm=norm, **sizes))
    vars = drawn(jax.eval_shape(exp.init, jax.random.key(1)))
    image = np.random.default_rng(0).integers(0, 17, (4, 8, 8), np.uint8)
    batch = {"image": image, "label": np.array([3, 1, 4, 1])}
    loss, (_, metrics) = jax.jit(exp.loss)(vars, batch, jax.random.key(0))
    params = jax.tree.map(np.float64, dict(vars["params"]))
    a = logits(params, image / 16.0, norm)
    wanted = np.log(np.exp(a).sum(-1)) - a[np.arange(4), batch["label"]]
    np.testing.assert_allclose(loss, wanted.mean(), rtol=2e-5)
    assert metrics["nll"] == loss


def test_batches_are_those_of_a_split_from_any_step():
    config = config_of("mnist")
    opened = open_set(config)
    with training_batches(config, 2) as stream:
        found = next(stream)["label"]
    rows = Plan(opened.splits["train"], config.batch_size, config.seed).rows(2)
    np.testing.assert_array_equal(found, opened.columns("train")["label"][rows])
    with evaluation_batches(config, "test") as stream:
        batch = next(stream)
    labels = opened.columns("test")["label"]
    np.testing.assert_array_equal(batch["label"], labels[batch["index"]])


@pytest.mark.parametrize(
    "norm",
    [
        "layer",
        *(pytest.param(norm, marks=pytest.mark.slow) for norm in ("none", "rms")),
    ],
)
def test_gradients_are_finite_behind_a_blank_beginning(norm):
    """A state that stays exactly 0 would multiply them by 316 in every step."""
    exp = experiment.load(
        config_of("sequential_mnist", norm=norm, **{"data.features": 400})
    )
    image = np.random.default_rng(0).integers(1, 17, (4, 20, 20), np.uint8)
    image[:, :15] = 0
    batch = {"image": image, "label": np.array([3, 1, 4, 1])}
    vars = jax.jit(exp.init)(jax.random.key(0))

    @jax.jit
    @jax.grad
    def gradients(vars):
        return exp.loss(vars, batch, jax.random.key(0))[0]

    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradients(vars)))
