"""A GPU that is made up: kernels are traced, and may run on this CPU as fibers."""

import shutil
import types

import jax
import pytest

from lnrepro.functional.fast.gpu import driver, launch, nvrtc
from lnrepro.functional.fast.gpu import kernel as layout
from tests.functional import gpu_programs


def trace_kernels(monkeypatch) -> None:
    """Let kernels be traced for an H100, and lowered without a compiler."""
    monkeypatch.setattr(nvrtc, "reason_against_device", lambda: None)
    monkeypatch.setattr(nvrtc, "ptx", lambda *words: "")


def run_kernels(monkeypatch, seed: int = 0) -> list:
    """Run kernels on this CPU. Return a list, to which each call adds its kernel.

    Args:
      monkeypatch: that of a test.
      seed: as for `gpu_programs.run_on_cpu`.
    """
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    trace_kernels(monkeypatch)
    called = []
    monkeypatch.setattr(launch, "call", gpu_programs.run_on_cpu(seed, called))
    monkeypatch.setattr(launch, "PLATFORMS", ["cuda", "cpu"])
    return called


def device(kind="made up", process=0) -> types.SimpleNamespace:
    """Return a GPU, as far as it is asked."""
    return types.SimpleNamespace(
        device_kind=kind,
        process_index=process,
        platform="gpu",
        local_hardware_id=0,
        client=types.SimpleNamespace(platform_version="1"),
    )


def have(monkeypatch, *devices) -> None:
    """Let this process have some GPUs."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for name in ("devices", "local_devices"):
        monkeypatch.setattr(jax, name, lambda *backend: devices)


def pretend(monkeypatch, folder) -> None:
    """Let this process have an H100, whose records lie in a cache."""
    trace_kernels(monkeypatch)
    have(monkeypatch, device())
    monkeypatch.setattr(layout, "device", layout.Device)
    monkeypatch.setattr(driver, "clusters", lambda blocks, *sizes: 132 // blocks - 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
