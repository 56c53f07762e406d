"""Batches from a data set on the device equal those from the host."""

import contextlib

import jax
import numpy as np
import pytest

from lnrepro.data import batches
from lnrepro.data.batches import Plan
from lnrepro.engine import config_file, resident, train, train_step
from tests.engine.test_train import assert_same_bits, final_state


@pytest.fixture
def on_device(monkeypatch):
    monkeypatch.setattr(resident, "_helps", lambda columns: True)


def test_batches_equal_those_of_the_host_across_epochs(on_device):
    rng = np.random.default_rng(0)
    columns = {
        "image": rng.integers(0, 256, (23, 4, 4)).astype(np.uint8),
        "label": np.arange(23),
    }
    plan = Plan(23, 5, seed=3)
    ours = resident.train_batches(columns, plan, start_step=2)
    assert isinstance(ours, resident.Resident)
    with batches.train_batches(columns, plan, start_step=2) as theirs:
        for n in (1, 4, 3):
            batch, expected = train_step.take(ours, n), train_step.take(theirs, n)
            assert all(isinstance(x, jax.Array) for x in batch.values())
            for name, x in expected.items():
                np.testing.assert_array_equal(batch[name], x)
        jax.tree.map(np.testing.assert_array_equal, next(ours), next(theirs))


def test_batches_are_closed_as_those_of_the_host_are(on_device):
    columns = {"label": np.arange(8)}
    with resident.train_batches(columns, Plan(8, 2, seed=0)) as stream:
        assert isinstance(stream, resident.Resident)
        next(stream)
    with contextlib.closing(stream):
        next(stream)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_run_ends_with_the_same_bits(tmp_path, monkeypatch, seeds):
    flags = [f"--config.seeds={seeds}", "--config.epochs=1.0"]
    config = config_file.read("configs/mnist.py:smoke", flags)
    train.train(config, tmp_path / "host")
    monkeypatch.setattr(resident, "_helps", lambda columns: True)
    train.train(config, tmp_path / "device")
    assert_same_bits(
        final_state(tmp_path / "host", config).state,
        final_state(tmp_path / "device", config).state,
    )


def test_a_cpu_keeps_the_data_on_the_host():
    columns = {"label": np.arange(8)}
    stream = resident.train_batches(columns, Plan(8, 2, seed=0))
    assert isinstance(stream, batches.Stream)
    stream.close()
