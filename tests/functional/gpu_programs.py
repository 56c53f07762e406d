"""Kernels for GPUs on a CPU, where every thread is a fiber.

`run_on_cpu(seed)` takes the place of `gpu_compile.call`. It needs g++.
"""

import ctypes
import hashlib
import pathlib
import re
import subprocess
import tempfile
import threading

import jax
import numpy as np

from lnrepro.functional.fast import gpu_compile

HERE = pathlib.Path(__file__).parent / "gpu_cpu"
SOURCE = pathlib.Path(gpu_compile.__file__).parent / "gpu_source"
# The threads of the devices of a mesh run kernels one after the other.
LOCK = threading.Lock()
FOLDER = pathlib.Path(tempfile.gettempdir()) / "lnrepro-gpu-kernels"


def library(kernel) -> pathlib.Path:
    """Compile a kernel for this CPU, unless that was done before."""
    texts = [kernel.source.encode()]
    texts += [path.read_bytes() for path in (*HERE.iterdir(), SOURCE / "parts.cuh")]
    name = FOLDER / hashlib.sha256(b"".join(texts)).hexdigest()[:24]
    result = name.with_suffix(".so")
    if not result.exists():
        FOLDER.mkdir(exist_ok=True)
        text = name.with_suffix(".cu")
        text.write_text(kernel.source + _call(kernel.source))
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w"]
        # The first folder has the device.cuh of a CPU.
        command += [f"-I{HERE}", f"-I{SOURCE}", f'-DSOURCE="{text}"']
        half = name.with_suffix(f".{id(kernel)}")
        subprocess.run([*command, HERE / "host.cpp", "-o", half], check=True)
        half.replace(result)
    return result


def _call(source):
    """A macro that calls a kernel with the pointers of gpu_cpu/host.cpp."""
    parameters = re.search(r"KERNEL recurrence\((.*?)\) {", source, re.S)[1].split(",")
    numbers, arguments = {"inputs": 0, "outputs": 0}, []
    for parameter in parameters:
        array = "inputs" if "const" in parameter else "outputs"
        type = parameter.partition("*")[0].strip()
        arguments.append(f"({type}*){array}[{numbers[array]}]")
        numbers[array] += 1
    return f"#define CALL recurrence({', '.join(arguments)})\n"


def run_on_cpu(seed: int, seen: list | None = None):
    """Return a function that runs a kernel, in place of `gpu_compile.call`.

    Args:
      seed: of the order of threads and messages; see gpu_cpu/host.cpp.
      seen: a list, to which the kernels are appended.
    """

    def call(kernel, arguments):
        if seen is not None:
            seen.append(kernel)
        function = ctypes.CDLL(str(library(kernel))).run

        def run(*arrays):
            arrays = [np.ascontiguousarray(a) for a in arrays]
            results = [_unwritten(a) for a in kernel.results]
            pointers = [
                (ctypes.c_void_p * len(group))(*(a.ctypes.data for a in group))
                for group in (arrays, results)
            ]
            with LOCK:
                failed = function(*pointers, seed)
            assert not failed, "the threads wait for each other"
            return results

        return list(jax.pure_callback(run, kernel.results, *arguments))

    return call


def _unwritten(a):
    """An array of NaN, or of ones where there is none."""
    result = np.empty(a.shape, a.dtype)
    result.view(np.uint8)[...] = 0xFF if a.dtype != bool else 1
    return result
