"""What NVIDIA's driver says about itself and about a GPU."""

import contextlib
import ctypes
import functools
from typing import Any

import jax

# Attributes of a GPU, by the numbers of CUDA's API.
MULTIPROCESSORS, L2_CACHE_SIZE, THREADS_OF_MULTIPROCESSOR = 16, 38, 39
MAJOR_COMPUTE_CAPABILITY, SHARED_MEMORY_OF_BLOCK = 75, 97
# Those of a kernel and of a launch.
_MAX_DYNAMIC_SHARED_SIZE_BYTES, _CLUSTER_DIMENSION = 8, 4
# How many clusters are held at once depends on the blocks and their threads and shared
# memory alone.
_EMPTY_KERNEL = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry empty() { ret; }
"""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose value has 64 bytes."""

    _fields_ = [("id", ctypes.c_uint64), ("value", ctypes.c_uint * 16)]


class _Launch(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_memory", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    ]


def library() -> Any:
    """Return the driver's library.

    Raises:
      OSError: there is none.
    """
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        # That of Linux under Windows.
        return ctypes.CDLL("/usr/lib/wsl/lib/libcuda.so.1")


def _call(name, *arguments):
    if code := getattr(library(), name)(*arguments):
        raise RuntimeError(f"{name}: error {code}")


def _device():
    """The GPU of this process."""
    device = ctypes.c_int()
    _call("cuInit", 0)
    ordinal = jax.local_devices()[0].local_hardware_id
    _call("cuDeviceGet", ctypes.byref(device), ordinal)
    return device


@functools.cache
def version() -> int:
    """Return the version of CUDA that the driver has, as 12010; 0 if it tells none."""
    found = ctypes.c_int()
    # A driver may be broken in many ways. None of them is a reason to stop a program.
    with contextlib.suppress(Exception):
        _call("cuDriverGetVersion", ctypes.byref(found))
    return found.value


@functools.cache
def attribute(number: int) -> int:
    """Return an attribute of the GPU of this process, 0 where it is not told."""
    found = ctypes.c_int()
    with contextlib.suppress(Exception):
        _call("cuDeviceGetAttribute", ctypes.byref(found), number, _device())
    return found.value


@functools.cache
def clusters(blocks: int, threads: int, shared_memory: int) -> int:
    """Return how many clusters the GPU of this process holds at once.

    Args:
      blocks: of a cluster.
      threads: of a block.
      shared_memory: of a block, in bytes.

    Returns:
      The number; 0 where the driver does not tell.
    """
    found = ctypes.c_int()
    context, module, function = (ctypes.c_void_p() for _ in range(3))
    with contextlib.suppress(Exception), contextlib.ExitStack() as undo:
        device = _device()
        # The context that XLA has too.
        _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        undo.callback(_call, "cuDevicePrimaryCtxRelease_v2", device)
        _call("cuCtxPushCurrent_v2", context)
        undo.callback(_call, "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        _call("cuModuleLoadData", ctypes.byref(module), _EMPTY_KERNEL)
        undo.callback(_call, "cuModuleUnload", module)
        _call("cuModuleGetFunction", ctypes.byref(function), module, b"empty")
        limit = _MAX_DYNAMIC_SHARED_SIZE_BYTES
        _call("cuFuncSetAttribute", function, limit, shared_memory)
        attribute = _Attribute(_CLUSTER_DIMENSION, (blocks, 1, 1))
        launch = _Launch((blocks, 1, 1), (threads, 1, 1), shared_memory)
        launch.attributes, launch.count = ctypes.pointer(attribute), 1
        references = ctypes.byref(found), function, ctypes.byref(launch)
        _call("cuOccupancyMaxActiveClusters", *references)
        return found.value
    return 0
