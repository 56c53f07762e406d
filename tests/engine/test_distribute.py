"""Placements: which configs do not fit the devices."""

import jax
import pytest

from lnrepro.engine import distribute
from tests.refused import refused


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "xmap"}, "config.placement = 'xmap': choose jit or pmap"),
        ({"batch_size": 6}, "config.batch_size = 6 does not divide over 4 devices"),
    ],
)
def test_refusals(options, says):
    with refused(says):
        distribute.make(**{"kind": "jit", "batch_size": 8} | options)


def test_pmap_is_refused_with_several_processes(monkeypatch):
    assert distribute.make("pmap", 8)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with refused("2 processes need"):
        distribute.make("pmap", 8)
