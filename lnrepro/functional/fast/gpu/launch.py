"""A kernel's source to PTX, by NVRTC, and into an XLA program, by its call for PTX."""

import contextlib
import ctypes
import functools
import glob
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lnrepro.functional.fast.gpu import kernel as layout
from lnrepro.functional.fast.gpu.kernel import Kernel
from lnrepro.functional.fast.kernels import NoKernel

_SOURCE = pathlib.Path(__file__).parent / "source"
# NVRTC writes the newest version of PTX, which an older ptxas or driver refuses. This
# one, of CUDA 12.1, has all that is needed.
_PTX_VERSION = "8.1"


def reason_against_device() -> str | None:
    """Say in one line why no kernel can be made or run here, or return None.

    Where there is no GPU, a program is compiled for another machine.
    """
    if jax.default_backend() == "gpu":
        device = jax.local_devices()[0]
        capability = str(getattr(device, "compute_capability", "unknown"))
        # Clusters came with 9.0 (Hopper). From 12.0 on, a block of the GPUs that there
        # are has 99 KiB of shared memory in place of 227.
        if not re.fullmatch(r"(9|10|11)\.\d", capability):
            return (
                f"{device.device_kind} has compute capability {capability}, and the "
                "kernel needs 9.0 (Hopper) to 11.0"
            )
    if _nvrtc() is None:
        return "NVRTC is not installed, which compiles it; jax[cuda12] installs it"
    return None


def call(kernel: Kernel, arguments: Sequence[jax.Array]) -> list[jax.Array]:
    """Run a kernel in an XLA program for a GPU; return its results."""
    sizes = dict.fromkeys(("grid_y", "grid_z", "block_y", "block_z"), 1)
    sizes |= {"grid_x": kernel.blocks, "block_x": kernel.threads}
    sizes |= {"shared_mem_bytes": layout.SHARED_MEMORY}
    results = jax.ffi.ffi_call("__gpu$xla.gpu.ptx", kernel.results)(
        *arguments,
        name="recurrence",
        kernel_type="ptx",
        kernel_data=ptx(kernel.source),
        # XLA reads these numbers as 64 bits.
        **{name: np.int64(size) for name, size in sizes.items()},
    )
    return list(results)


@functools.cache
def ptx(source: str) -> str:
    """Compile CUDA to PTX.

    Raises:
      NoKernel: NVRTC refuses it.
    """
    nvrtc: Any = _nvrtc()
    program = ctypes.c_void_p()
    headers = [b"device.cuh", b"parts.cuh"]
    texts = [(_SOURCE / name.decode()).read_bytes() for name in headers]
    nvrtc.nvrtcCreateProgram(
        ctypes.byref(program),
        source.encode(),
        b"recurrence.cu",
        len(headers),
        _strings(texts),
        _strings(headers),
    )
    options = [b"--std=c++17", b"--gpu-architecture=compute_90", b"-default-device"]
    try:
        code = nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
        if code:
            log = _text(nvrtc, program, "ProgramLog").strip() or f"error {code}"
            raise NoKernel(f"NVRTC: {log.splitlines()[0][:200]}")
        text = _text(nvrtc, program, "PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    text = re.sub(r"\.version .*", f".version {_PTX_VERSION}", text, count=1)
    # A hint of a newer version.
    return re.sub(r'.*\.pragma "used_bytes_mask.*\n', "", text)


def _strings(values):
    return (ctypes.c_char_p * len(values))(*values)


def _text(nvrtc, program, what):
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, text)
    return text.value.decode()


@functools.cache
def _nvrtc():
    """The library of the wheel nvidia-cuda-nvrtc or of an installed CUDA, or None."""
    folders = [f"{path}/nvidia/*/lib" for path in sys.path]
    for folder in [*folders, "/usr/local/cuda*/lib64"]:
        for path in glob.glob(f"{folder}/libnvrtc.so.1[2-9]"):
            with contextlib.suppress(OSError):
                return ctypes.CDLL(path)
    return None
