"""Permutation-invariant MNIST: the sites of the norms, and the loss."""

import jax
import numpy as np
import pytest

from experiments import mnist
from tests import oracle
from tests.experiments.small import config_of


def forward(p, x, norm):
    """The network in NumPy float64 (eq. 3 and 5)."""

    def batch_norm(a, scale, bias):
        n = len(a)
        a = (a - a.mean(0)) / np.sqrt(a.var(0) * n / (n - 1) + 1e-5)
        return a * scale + bias

    for i in range(3):
        a = x @ p[f"Dense_{i}"]["kernel"] + p[f"Dense_{i}"].get("bias", 0)
        if norm == "batch":
            a = batch_norm(a, **p[f"BatchNorm_{i}"])
        elif norm == "layer" and i < 2:
            norm_of = p[f"LayerNorm_{i}"]
            a = oracle.layer_norm(a, norm_of["scale"], norm_of["bias"])
        x = np.maximum(a, 0)
    return a


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_loss_is_the_papers_net(norm):
    """Batch norm takes the unbiased variance at batch size 4."""
    changes = {"model.hidden": (30, 20), "data.features": 64}
    exp = mnist.make(config_of("mnist", "paper_bz4", norm=norm, **changes))
    rng = np.random.default_rng(0)
    vars = jax.eval_shape(exp.init, jax.random.key(1))
    vars = jax.tree.map(lambda x: rng.normal(0.1, 0.2, x.shape).astype(x.dtype), vars)
    image, label = rng.integers(0, 256, (4, 8, 8), np.uint8), np.array([3, 1, 4, 1])
    batch = {"image": image, "label": label}
    loss, (_, metrics) = jax.jit(exp.loss)(vars, batch, jax.random.key(0))
    p = jax.tree.map(np.float64, dict(vars["params"]))
    logits = forward(p, image.reshape(4, -1) / 255.0, norm)
    wanted = np.log(np.exp(logits).sum(-1)) - logits[np.arange(4), label]
    np.testing.assert_allclose(loss, wanted.mean(), rtol=2e-5)
    assert metrics["nll"] == loss
