"""Batches from a data set on the device equal those from the host."""

import jax
import numpy as np

from lnrepro.data import batches, resident
from lnrepro.data.plan import Plan
from lnrepro.data.ragged import Ragged

COLUMNS = {"image": np.arange(23 * 16).reshape(23, 4, 4), "label": np.arange(23)}
PLAN = Plan(23, 5, seed=3)
RAGGED = {"x": Ragged(np.arange(23), np.arange(24))}


def test_batches_equal_those_of_the_host_across_epochs(monkeypatch):
    theirs = batches.train_batches(COLUMNS, PLAN, start_step=2)
    assert not isinstance(theirs, resident.Resident)
    monkeypatch.setattr(resident, "helps", lambda columns: True)
    with batches.train_batches(COLUMNS, PLAN, start_step=2) as ours, theirs:
        for n in (1, 4, 3):
            batch, expected = ours.take(n), theirs.take(n)
            assert all(isinstance(x, jax.Array) for x in batch.values())
            jax.tree.map(np.testing.assert_array_equal, dict(batch), expected)
        jax.tree.map(np.testing.assert_array_equal, next(ours), next(theirs))
    # What is padded, transformed or made when it is asked for stays on the host.
    for data, options in (
        (RAGGED, {"pad": {"x": 1}}),
        (COLUMNS, {"transform": lambda rows, draws: rows}),
        ([{"x": i} for i in range(23)], {}),
    ):
        with batches.train_batches(data, PLAN, **options) as found:
            assert not isinstance(found, resident.Resident)


def test_one_accelerator_takes_arrays_that_fit(monkeypatch):
    # The limit is the size of the columns, or a byte less.
    size = sum(column.nbytes for column in COLUMNS.values())
    for backend, devices, limit, columns, wanted in (
        ("gpu", 1, size, COLUMNS, True),
        ("gpu", 1, size - 1, COLUMNS, False),
        ("gpu", 2, size, COLUMNS, False),
        ("cpu", 1, size, COLUMNS, False),
        ("gpu", 1, size, RAGGED, False),
    ):
        monkeypatch.setattr("jax.default_backend", lambda found=backend: found)
        monkeypatch.setattr("jax.device_count", lambda found=devices: found)
        monkeypatch.setattr(resident, "LARGEST_BYTES", limit)
        assert resident.helps(columns) == wanted
