"""Experiments with their recurrences as kernels for GPUs, whose threads are fibers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.engine import distribute, experiment
from lnrepro.engine import kernels as engine_kernels
from lnrepro.functional.fast import kernels, measure, tuning
from lnrepro.functional.fast.platform import tracing_for
from tests.experiments.test_every_setting import first_batches, smoke
from tests.functional import made_up_gpu

# What each runs as, besides kernels.
SCANS = {
    "attentive_reader": set(),
    # The cell with the window, whose carry has too few Gaussians in this config.
    "handwriting": {"a carry of 2 units"},
    "order_embeddings": set(),
    "sequential_mnist": set(),
    "skip_thoughts": set(),
}


def two_steps(name, choice):
    """The losses of two steps, the gradient of the first, and what loops run as."""
    exp = experiment.load(smoke(name, kernels=choice))
    vars = exp.init(jax.random.key(0))
    first, second = first_batches(exp, 2)

    def loss(params, batch):
        return exp.loss(vars | {"params": params}, batch, jax.random.key(1))[0]

    step = jax.jit(jax.value_and_grad(loss))
    with (
        tracing_for("gpu"),
        tuning.answering(tuning.kernel_where_it_can),
        kernels.watched() as seen,
    ):
        before, gradient = step(vars["params"], first)
        params = jax.tree.map(lambda p, d: p - 0.1 * d, vars["params"], gradient)
        after, _ = step(params, second)
    return jnp.stack([before, after]), gradient, set(seen)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCANS)
def test_an_experiment_trains_with_kernels(name, monkeypatch):
    made_up_gpu.run_kernels(monkeypatch)
    losses, gradient, seen = two_steps(name, "auto")
    expected, of_scan, _ = two_steps(name, "off")
    assert kernels.KERNEL in seen
    reasons = seen - {kernels.KERNEL}
    assert len(reasons) == len(SCANS[name])
    assert all(any(word in r for word in SCANS[name]) for r in reasons)
    largest = max(float(jnp.abs(d).max()) for d in jax.tree.leaves(of_scan))
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(of_scan), strict=True)
    assert all(np.allclose(a, b, rtol=0, atol=1e-4 * largest) for a, b in pairs)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_autotune_sees_the_steps_and_the_evaluations(monkeypatch, tmp_path):
    """And makes no run directory. The GPU is made up, and nothing is measured."""
    config = smoke("sequential_mnist")
    noted = []
    made_up_gpu.pretend(monkeypatch, tmp_path / "none")
    monkeypatch.setattr(distribute, "make", lambda *a: distribute._pmap())
    monkeypatch.setattr(measure, "measure", noted.append)
    engine_kernels.autotune(config, tmp_path / "run")
    (scans,) = noted
    rows = {config.batch_size // jax.device_count(), config.eval_batch_size}
    assert {scan.about["rows"] for scan in scans} >= rows
    assert {scan.about["steps"] for scan in scans} == {config.data.features}
    assert not (tmp_path / "run").exists()
