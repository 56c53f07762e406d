"""Placements: which configs do not fit the devices."""

import jax

from lnrepro.engine import distribute
from tests.refused import refused


def test_a_batch_that_does_not_divide_is_refused():
    with refused("config.batch_size = 6 does not divide over 4 devices"):
        distribute.make("jit", 6)


def test_pmap_is_refused_with_several_processes(monkeypatch):
    assert distribute.make("pmap", 8)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with refused("2 processes need"):
        distribute.make("pmap", 8)
