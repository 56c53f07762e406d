"""Batches from a data set on the device equal those from the host."""

import contextlib

import jax
import numpy as np
import pytest

from lnrepro.data import batches
from lnrepro.data.batches import Plan
from lnrepro.engine import config_file, resident, train
from lnrepro.engine.train_step import take
from tests.engine.toy import assert_same_bits, final_state


@pytest.fixture
def on_device(monkeypatch):
    monkeypatch.setattr(resident, "_helps", lambda columns: True)


def columns(size=23):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (size, 4, 4)).astype(np.uint8)
    return {"image": images, "label": np.arange(size)}


def stream(seed, of=columns, start_step=2):
    return resident.train_batches(of(), Plan(23, 5, seed=seed), start_step=start_step)


def test_batches_equal_those_of_the_host_across_epochs(on_device):
    ours = stream(3)
    plan = Plan(23, 5, seed=3)
    assert isinstance(ours, resident.Resident)
    with batches.train_batches(columns(), plan, start_step=2) as theirs:
        for n in (1, 4, 3):
            batch, expected = take(ours, n), take(theirs, n)
            assert all(isinstance(x, jax.Array) for x in batch.values())
            jax.tree.map(np.testing.assert_array_equal, dict(batch), expected)
        jax.tree.map(np.testing.assert_array_equal, next(ours), next(theirs))
    with contextlib.closing(ours):
        next(ours)


def test_several_seeds_share_one_copy_of_the_data_set(on_device, monkeypatch):
    put, copies = jax.device_put, []

    def count(x, *args, **kwargs):
        copies.append(x)
        return put(x, *args, **kwargs)

    monkeypatch.setattr(jax, "device_put", count)
    together = resident.together([stream(seed) for seed in range(3)])
    apart = [stream(seed) for seed in range(3)]
    for n in (1, 4):
        batch = take(together, n)
        for i, own in enumerate(apart):
            for name, expected in take(own, n).items():
                np.testing.assert_array_equal(batch[name][:, i], expected)
    # One for all seeds together, and one for each stream of its own.
    assert sum("image" in x for x in copies) == 1 + 3


def test_seeds_of_different_data_are_not_put_together(on_device):
    def others():
        return {**columns(), "label": np.arange(23)[::-1].copy()}

    assert resident.together([stream(0), stream(1, others)]) is None


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_ends_with_the_same_bits(tmp_path, monkeypatch, count):
    flags = [f"--config.seeds={count}", "--config.epochs=1.0"]
    config = config_file.read("configs/mnist.py:smoke", flags)
    train.train(config, tmp_path / "host")
    monkeypatch.setattr(resident, "_helps", lambda columns: True)
    train.train(config, tmp_path / "device")
    assert_same_bits(
        final_state(tmp_path / "host", config).state,
        final_state(tmp_path / "device", config).state,
    )


def test_a_cpu_keeps_the_data_on_the_host():
    with stream(0) as found:
        assert not isinstance(found, resident.Resident)
