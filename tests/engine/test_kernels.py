"""`config.pallas`: recurrences as one kernel, on the devices that have one."""

import types

import jax

from lnrepro.engine import distribute
from tests.refused import refused


def test_a_kernel_is_for_one_device_of_a_program(monkeypatch):
    """XLA does not split a kernel, and pmap gives each device its rows."""
    gpu = types.SimpleNamespace(platform="gpu")
    monkeypatch.setattr(jax, "devices", lambda: [gpu, gpu])
    with refused("does not split a kernel over the 2 devices", "pmap"):
        distribute.check_pallas(True, "jit")
    distribute.check_pallas(True, "pmap")
    distribute.check_pallas(False, "jit")
    monkeypatch.setattr(jax, "devices", lambda: [gpu])
    distribute.check_pallas(True, "jit")


def test_there_is_no_kernel_for_cpus():
    with refused("needs a TPU or a GPU"):
        distribute.check_pallas(True, "jit")
    distribute.check_pallas(None, "jit")
