"""A kernel's source to PTX, by NVRTC."""

import contextlib
import ctypes
import functools
import glob
import os
import pathlib
import re
import sys
from typing import Any

import jax

from lnrepro.functional.fast import disk_cache
from lnrepro.functional.fast.gpu import driver
from lnrepro.functional.fast.kernels import NoKernel

_SOURCE = pathlib.Path(__file__).parent / "source"
_OLDEST_DRIVER = 12010  # Of PTX 8.1, which has all that is needed.
_OPTIONS = [b"--std=c++17", b"-default-device"]
# Exact division costs 7 % of a step (H200, T 300, B 32, H 240), and more exactness than
# the products have is of no use.
_OPTIONS += [b"--prec-div=false", b"--prec-sqrt=false", b"--ftz=true"]


def reason_against_device() -> str | None:
    """Say in one line why no kernel can be made or run here, or return None.

    Where there is no GPU, a program is compiled for another machine.
    """
    if jax.default_backend() == "gpu":
        # Products of TF32 and bfloat16 came with 8.0 (Ampere).
        if driver.attribute(driver.MAJOR_COMPUTE_CAPABILITY) < 8:
            kind = jax.local_devices()[0].device_kind
            return f"{kind} is not of compute capability 8.0 (Ampere) or newer"
        if driver.version() < _OLDEST_DRIVER:
            cuda = driver.version() / 1000
            return f"the driver is one of CUDA {cuda:.2f}; 12.1 is needed"
    if library() is None:
        return "NVRTC is not installed, which compiles it; jax[cuda12] installs it"
    return None


@functools.cache
def ptx(source: str, architecture: str) -> str:
    """Compile CUDA to PTX, once for all processes that share a cache.

    Args:
      source: in CUDA.
      architecture: the oldest GPUs that run it, as "compute_90".

    Raises:
      NoKernel: NVRTC refuses it.
    """
    headers = {
        name: (_SOURCE / name).read_bytes() for name in ("device.cuh", "parts.cuh")
    }
    options = [*_OPTIONS, f"--gpu-architecture={architecture}".encode()]
    words = [source, *headers.values(), *options, versions()]
    name = f"{disk_cache.digest(*words)}.ptx"
    text = disk_cache.read(name)
    if text is None:
        text = _compiled(source, headers, options)
        # Where it cannot be kept, the next process compiles it again.
        with contextlib.suppress(OSError, RuntimeError):
            disk_cache.write(name, text)
    return text


def versions() -> list[int]:
    """Return those of the driver's CUDA and of NVRTC, as [12080, 12, 9]."""
    found = (ctypes.c_int(), ctypes.c_int())
    if library() is not None:
        library().nvrtcVersion(*map(ctypes.byref, found))
    return [driver.version(), *(number.value for number in found)]


def _compiled(source, headers, options):
    nvrtc, program = library(), ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(
        ctypes.byref(program),
        source.encode(),
        b"recurrence.cu",
        len(headers),
        _strings(headers.values()),
        _strings(name.encode() for name in headers),
    )
    try:
        code = nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
        if code:
            log = _text(nvrtc, program, "ProgramLog").strip() or f"error {code}"
            raise NoKernel(f"NVRTC: {log.splitlines()[0][:200]}")
        text = _text(nvrtc, program, "PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return _readable(text, _ptx_version())


def _ptx_version():
    """The newest version of PTX that the driver reads; without one, that of all."""
    major, minor = divmod(max(driver.version(), _OLDEST_DRIVER) // 10, 100)
    # CUDA 12.1 has 8.1, and CUDA 13.0 has 9.0; 12.6 has that of 12.5 (release history
    # of NVIDIA's "Parallel Thread Execution ISA").
    return major - 4, minor - (major == 12 and minor >= 6)


def _readable(text, newest):
    """PTX in a version that a driver reads; NVRTC writes its own newest one."""
    major, minor = re.findall(r"\.version (\d+)\.(\d+)", text)[0]
    if (int(major), int(minor)) <= newest:
        return text
    # An older driver refuses the number, and a hint, which came with 8.3. The kernel
    # uses nothing else that is newer than 8.1.
    old, new = f".version {major}.{minor}", ".version {}.{}".format(*newest)
    return re.sub(r'.*\.pragma "used_bytes_mask.*\n', "", text.replace(old, new, 1))


def _strings(values):
    values = list(values)
    return (ctypes.c_char_p * len(values))(*values)


def _text(nvrtc, program, what):
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, text)
    return text.value.decode()


@functools.cache
def library() -> Any:
    """Return NVRTC: of a wheel, a conda environment, CUDA_HOME, or the loader's path.

    None where there is none.
    """
    folders = [f"{path}/nvidia/*/lib" for path in sys.path]
    variables = ("CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH")
    homes = [sys.prefix, *map(os.environ.get, variables), "/usr/local/cuda*"]
    folders += [f"{home}/lib*" for home in homes if home]
    found = [
        path for folder in folders for path in glob.glob(f"{folder}/libnvrtc.so.1[2-9]")
    ]
    # The loader looks in its own path for a name without a folder.
    for path in (*found, "libnvrtc.so.13", "libnvrtc.so.12"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    return None
