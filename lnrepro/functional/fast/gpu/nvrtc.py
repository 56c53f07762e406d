"""A kernel's source to PTX, by NVRTC."""

import contextlib
import ctypes
import functools
import glob
import hashlib
import os
import pathlib
import re
import sys
import tempfile
from typing import Any

import jax

from lnrepro.functional.fast.kernels import NoKernel

_SOURCE = pathlib.Path(__file__).parent / "source"
# NVRTC writes the newest version of PTX, which an older ptxas or driver refuses. This
# one, of CUDA 12.1, has all that is needed.
_PTX_VERSION, _DRIVER = "8.1", 12010
_OPTIONS = [b"--std=c++17", b"--gpu-architecture=compute_90", b"-default-device"]
# Exact division costs 7 % of a step (H200, T 300, B 32, H 240), and more exactness than
# the products have is of no use.
_OPTIONS += [b"--prec-div=false", b"--prec-sqrt=false", b"--ftz=true"]


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
        if 0 < driver() < _DRIVER:
            return f"the driver is one of CUDA {driver() / 1000:.2f}; 12.1 is needed"
    if library() is None:
        return "NVRTC is not installed, which compiles it; jax[cuda12] installs it"
    return None


@functools.cache
def driver() -> int:
    """Return the version of CUDA that the driver has, as 12010; 0 if it tells none."""
    version = ctypes.c_int()
    # The second one is that of Linux under Windows.
    for name in ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(version))
            break
    return version.value


@functools.cache
def ptx(source: str) -> str:
    """Compile CUDA to PTX, once for all processes that share a cache.

    Raises:
      NoKernel: NVRTC refuses it.
    """
    headers = {
        name: (_SOURCE / name).read_bytes() for name in ("device.cuh", "parts.cuh")
    }
    kept = _folder() / f"{_digest(source, headers)}.ptx"
    with contextlib.suppress(OSError):
        return kept.read_text()
    text = _compiled(source, headers)
    # Another process may write the same.
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, kept)
    return text


def _folder():
    """Where PTX is kept: beside the programs that XLA keeps, if they are on a disk."""
    beside = jax.config.values.get("jax_compilation_cache_dir")
    if beside and "://" not in beside:
        return pathlib.Path(beside) / "kernels"
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "lnrepro" / "kernels"


def _digest(source, headers):
    version = (ctypes.c_int(), ctypes.c_int())
    library().nvrtcVersion(*map(ctypes.byref, version))
    words = [source.encode(), *headers.values(), *_OPTIONS, _PTX_VERSION.encode()]
    words.append(f"{version[0].value}.{version[1].value}".encode())
    return hashlib.sha256(b"\0".join(words)).hexdigest()


def _compiled(source, headers):
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
        options = _strings(_OPTIONS)
        code = nvrtc.nvrtcCompileProgram(program, len(_OPTIONS), options)
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
    homes = [sys.prefix, *map(os.environ.get, ("CONDA_PREFIX", "CUDA_HOME"))]
    homes += [os.environ.get("CUDA_PATH"), "/usr/local/cuda*"]
    folders += [f"{home}/lib*" for home in homes if home]
    found = [
        path for folder in folders for path in glob.glob(f"{folder}/libnvrtc.so.1[2-9]")
    ]
    # The loader looks in its own path for a name without a folder.
    for path in [*found, *(f"libnvrtc.so.{n}" for n in (13, 12))]:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    return None
