"""Kernels for GPUs on a CPU, where every thread is a fiber, and compiled for an H100.

`run_on_cpu(seed)` takes the place of `launch.call`, and needs g++; `launch.PLATFORMS`
then has "cpu".

    python -m tests.functional.gpu_programs

prints what the compilers say about kernels and about a training step, as JSON. The
process needs the compilers that scripts/accelerators.sh installs.
"""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from lnrepro.functional import GRUCell, LSTMCell, ScanOptions, stack, unroll
from lnrepro.functional.fast import disk_cache
from lnrepro.functional.fast.gpu import kernel as layout
from lnrepro.functional.fast.gpu import launch, nvrtc
from lnrepro.functional.fast.kernels import NoKernel

HERE = pathlib.Path(__file__).parent / "gpu_cpu"
SOURCE = pathlib.Path(nvrtc.__file__).parent / "source"
# The threads of the devices of a mesh run kernels one after the other.
LOCK = threading.Lock()
FOLDER = pathlib.Path(tempfile.gettempdir()) / f"lnrepro-gpu-kernels-{os.getuid()}"


def library(kernel) -> pathlib.Path:
    """Compile a kernel for this CPU, unless that was done before."""
    sources = [*HERE.iterdir(), SOURCE / "parts.cuh"]
    texts = [kernel.source, *(path.read_text() for path in sources)]
    name = FOLDER / disk_cache.digest(*texts)
    result = name.with_suffix(".so")
    if not result.exists():
        FOLDER.mkdir(exist_ok=True)
        text = name.with_suffix(".cu")
        text.write_text(kernel.source)
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w"]
        # The first folder has the device.cuh of a CPU.
        command += [f"-I{HERE}", f"-I{SOURCE}", f'-DSOURCE="{text}"']
        half = name.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, HERE / "host.cpp", "-o", half], check=True)
        half.replace(result)
    return result


def run_on_cpu(seed: int, seen: list | None = None):
    """Return a function that runs a kernel, in place of `launch.call`.

    Args:
      seed: of the order of threads and messages; see gpu_cpu/host.cpp.
      seen: a list, to which the kernels are appended.
    """

    def call(kernel, arguments):
        if seen is not None:
            seen.append(kernel)
        function = ctypes.CDLL(str(library(kernel))).run
        clusters = kernel.clusters

        def run(*arrays):
            results = [_unwritten(a) for a in kernel.results]
            arrays = [*map(np.ascontiguousarray, arrays), *results]
            pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
            with LOCK:
                failed = function(pointers, seed, clusters)
            assert not failed, "the threads wait for each other"
            return results

        return list(jax.pure_callback(run, kernel.results, *arguments))

    return call


def _unwritten(a):
    """An array of NaN, or of ones where there is none."""
    result = np.empty(a.shape, a.dtype)
    result.view(np.uint8)[...] = 0xFF if a.dtype != bool else 1
    return result


LSTM_320 = LSTMCell(320, "layer")
# Compiled for an H100: (cell, T, B, D), and the dtype if it is not float32.
PROGRAMS = {
    "lstm draw": (LSTMCell(256, "layer"), 64, 128, 356),
    "gru draw": (GRUCell(256, "layer"), 64, 128, 356),
    "lstm reader": (LSTMCell(240, "none"), 300, 32, 240),
    "lstm handwriting": (LSTMCell(400, "layer"), 500, 8, 77),
    "lstm bfloat16": (LSTMCell(400, "layer"), 500, 8, 77, jnp.bfloat16),
    "two lstm bfloat16": (stack(LSTM_320, LSTM_320), 64, 32, 64, jnp.bfloat16),
    "gru 1024 rows": (GRUCell(64, "layer"), 64, 1024, 64),
    "lstm 1024 rows": (LSTMCell(256, "layer"), 64, 1024, 356),
}
MIB = 2**20
# What is compiled for other GPUs, of which those before 9.0 have no clusters.
GPUS = {
    "sm_80": layout.Device(108, 163 * 1024, False, 40 * MIB),
    "sm_86": layout.Device(82, 99 * 1024, False, 6 * MIB, 1536),
    "sm_89": layout.Device(128, 99 * 1024, False, 72 * MIB, 1536),
    "sm_90": layout.Device(has_clusters=False),
    "sm_120": layout.Device(170, 99 * 1024, l2=96 * MIB, threads=1536),
}
ELSEWHERE = {
    "lstm 64": (LSTMCell(64, "layer"), 64, 64, 64),
    "lstm 128": (LSTMCell(128, "layer"), 64, 64, 64),
    "gru 128": (GRUCell(128, "layer"), 64, 64, 64),
    "lstm 192 bfloat16": (LSTMCell(192, "layer"), 64, 64, 64, jnp.bfloat16),
}
# Bytes of registers that a thread of a kernel may store in memory, where it may.
SPILLED = {"two lstm bfloat16": 168, "gru 128": 180, "lstm 192 bfloat16": 212}


def training_step(name: str, kernels: str):
    """The gradients of a program, and the shapes of its arguments."""
    cell, steps, batch, features, *other = (PROGRAMS | ELSEWHERE)[name]
    (dtype,) = other or [jnp.float32]
    options = ScanOptions(kernels=kernels, platform="gpu")

    def loss(params, x):
        outputs = unroll(cell, params, x, time_major=True, options=options).outputs
        return jnp.sum(jnp.sin(outputs))

    params = jax.eval_shape(lambda: cell.init(jax.random.key(0), features, dtype))
    x = jax.ShapeDtypeStruct((steps, batch, features), dtype)
    return jax.grad(loss, (0, 1)), (params, x)


def usage_of(name: str, gpu: str, device: layout.Device) -> dict:
    """What ptxas says about the kernels of a training step, for an architecture.

    Returns:
      The most registers, the most bytes that are spilled, and the most bytes of weights
      that a block reads in every step.
    """
    import nvidia.cuda_nvcc

    ptxas = pathlib.Path(nvidia.cuda_nvcc.__path__[0]) / "bin" / "ptxas"
    function, shapes = training_step(name, "on")
    kernels, said, run = [], "", launch.call

    def call(kernel, arguments):
        kernels.append(kernel)
        return run(kernel, arguments)

    at_hand = mock.patch.object(layout, "device", return_value=device)
    with at_hand, mock.patch.object(launch, "call", call):
        jax.jit(function).trace(*shapes).lower(lowering_platforms=("cuda",))
    for kernel in kernels:
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(nvrtc.ptx(kernel.source, kernel.architecture))
            file.flush()
            command = [ptxas, "-v", f"-arch={gpu}", file.name, "-o", "/dev/null"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        said += done.stderr
    return {
        "registers": max(map(int, re.findall(r"Used (\d+) registers", said))),
        "spilled": max(map(int, re.findall(r"(\d+) bytes spill stores", said))),
        "behind_l2": max(kernel.behind_l2 for kernel in kernels),
    }


def compiled_step(name: str, kernels: str) -> dict:
    """Compile a training step for an H100."""
    from scripts.benches.accelerators import devices

    function, shapes = training_step(name, kernels)
    where = jax.sharding.SingleDeviceSharding(devices.described("h100")[0])
    compiled = devices.compile("h100", jax.jit(function, in_shardings=where), *shapes)
    return {
        "kernels": compiled.as_text().count("__gpu$xla.gpu.ptx"),
        "temporary": compiled.memory_analysis().temp_size_in_bytes,
    }


def main() -> None:
    """Compile all programs, and print what the compilers say."""
    usage = {name: usage_of(name, "sm_90", layout.Device()) for name in PROGRAMS}
    for gpu, device in GPUS.items():
        usage |= {f"{name}, {gpu}": usage_of(name, gpu, device) for name in ELSEWHERE}
    steps = {
        name: [compiled_step(name, kernels) for kernels in ("on", "off")]
        for name in ("lstm draw", "gru draw")
    }
    found: dict = {"kernels": usage, "steps": steps}
    try:
        nvrtc.ptx("no CUDA", "compute_90")
    except NoKernel as reason:
        found["refused"] = str(reason)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
