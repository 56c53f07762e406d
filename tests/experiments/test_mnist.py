"""Permutation-invariant MNIST: sizes, sites of the norms, units of the metrics."""

import jax
import numpy as np
import pytest

from configs import mnist as configs
from experiments import mnist
from tests import oracle


def forward(p, x, norm):
    """The network in NumPy float64 (eq. 3 and 5)."""

    def batch_norm(a, name):
        n = len(a)
        a = (a - a.mean(0)) / np.sqrt(a.var(0) * n / (n - 1) + 1e-5)
        return a * p[name]["scale"] + p[name]["bias"]

    for i in range(3):
        a = x @ p[f"Dense_{i}"]["kernel"] + p[f"Dense_{i}"].get("bias", 0)
        if norm == "batch":
            a = batch_norm(a, f"BatchNorm_{i}")
        elif norm == "layer" and i < 2:
            norm_of = p[f"LayerNorm_{i}"]
            a = oracle.layer_norm(a, norm_of["scale"], norm_of["bias"])
        x = np.maximum(a, 0)
    return a


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
def test_loss_is_the_papers_net(norm):
    """Batch norm takes the unbiased variance at batch size 4."""
    config = configs.get_config("paper_bz4")
    config.norm = norm
    exp = mnist.make(config)
    rng = np.random.default_rng(0)
    vars = jax.tree.map(
        lambda x: np.asarray(x) + 0.1 * rng.normal(size=x.shape).astype(np.float32),
        jax.jit(exp.init)(jax.random.key(1)),
    )
    batch = {
        "image": rng.integers(0, 256, (4, 28, 28), np.uint8),
        "label": np.array([3, 1, 4, 1]),
    }
    loss, (_, metrics) = jax.jit(exp.loss)(vars, batch, jax.random.key(0))
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), dict(vars["params"]))
    logits = forward(p, batch["image"].reshape(4, -1) / 255.0, norm)
    wanted = (
        np.log(np.exp(logits).sum(-1)) - logits[np.arange(4), batch["label"]]
    ).mean()
    np.testing.assert_allclose(loss, wanted, rtol=2e-5)
    assert metrics["nll"] == loss
