"""Batches from a data set on the device equal those from the host."""

import contextlib

import jax
import numpy as np
import pytest

from lnrepro.data import batches, resident
from lnrepro.data.plan import Plan
from lnrepro.data.ragged import Ragged
from lnrepro.engine import config_file, train
from lnrepro.engine.train_step import take
from tests.engine.toy import assert_same_bits, final_state


@pytest.fixture
def on_device(monkeypatch):
    monkeypatch.setattr(resident, "helps", lambda columns: True)


def columns(size=23):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (size, 4, 4)).astype(np.uint8)
    return {"image": images, "label": np.arange(size)}


def stream(seed, start_step=2):
    return batches.train_batches(
        columns(), Plan(23, 5, seed=seed), start_step=start_step
    )


def test_batches_equal_those_of_the_host_across_epochs(on_device):
    ours = stream(3)
    plan = Plan(23, 5, seed=3)
    assert isinstance(ours, resident.Resident)
    with batches.train_batches(columns(), plan, start_step=2, process=(0, 1)) as theirs:
        for n in (1, 4, 3):
            batch, expected = take(ours, n), take(theirs, n)
            assert all(isinstance(x, jax.Array) for x in batch.values())
            jax.tree.map(np.testing.assert_array_equal, dict(batch), expected)
        jax.tree.map(np.testing.assert_array_equal, next(ours), next(theirs))
    with contextlib.closing(ours):
        next(ours)


def test_what_is_padded_or_transformed_stays_on_the_host(on_device):
    plan = Plan(23, 5, seed=3)
    ragged = Ragged(np.arange(23), np.arange(24))
    for options in (
        {"data": {"x": ragged}, "pad": {"x": 1}},
        {"data": columns(), "transform": lambda rows, draws: rows},
        {"data": [{"x": i} for i in range(23)]},
    ):
        with batches.train_batches(**options, plan=plan) as found:
            assert not isinstance(found, resident.Resident)


def test_one_accelerator_takes_arrays_that_fit(monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    monkeypatch.setattr("jax.device_count", lambda: 1)
    assert resident.helps(columns())
    assert not resident.helps({"x": Ragged(np.arange(3), np.arange(4))})
    monkeypatch.setattr(resident, "LARGEST_BYTES", 100)
    assert not resident.helps(columns())
    monkeypatch.setattr("jax.device_count", lambda: 2)
    assert not resident.helps(columns(1))


def test_a_run_ends_with_the_same_bits(tmp_path, monkeypatch):
    config = config_file.read("configs/mnist.py:smoke", ["--config.epochs=1.0"])
    train.train(config, tmp_path / "host")
    monkeypatch.setattr(resident, "helps", lambda columns: True)
    train.train(config, tmp_path / "device")
    assert_same_bits(
        final_state(tmp_path / "host", config).state,
        final_state(tmp_path / "device", config).state,
    )


def test_a_cpu_keeps_the_data_on_the_host():
    with stream(0) as found:
        assert not isinstance(found, resident.Resident)
