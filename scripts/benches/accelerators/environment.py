"""The compilers of NVIDIA GPUs and TPUs, in a folder of their own.

scripts/accelerators.sh installs them there. They need no device. The folder is not in
.venv, where JAX would look for a GPU at every start. A process that has it in
PYTHONPATH can compile for an H100 or a TPU.
"""

import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence

from lnrepro.errors import UserError, run_script
from lnrepro.paths import local_path

# What the CUDA plugin needs besides itself to compile: ptxas, the device library, and
# NVRTC for our own kernels. The libraries that run a program, such as cuBLAS, are not
# needed.
CUDA = tuple(
    f"nvidia-cuda-{name}-cu12==12.9.*" for name in ("nvcc", "runtime", "nvrtc")
)


def requirements() -> list[str]:
    """Return what is installed, in the versions that the installed jax asks for."""
    asked = "\n".join(importlib.metadata.requires("jax") or [])
    # The extra cuda12-local asks for the plugin without the libraries of CUDA.
    wanted = r"^(libtpu\S+|jax-cuda12-plugin<\S+);"
    libtpu, plugin = re.findall(wanted, asked, re.M)
    return [libtpu, plugin, plugin.replace("plugin", "pjrt"), *CUDA]


def folder() -> pathlib.Path:
    """Return the folder of the compilers for this jax and this Python."""
    cache = os.environ.get("XDG_CACHE_HOME") or local_path("~/.cache", "the cache")
    version = importlib.metadata.version("jax")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return pathlib.Path(cache) / "lnrepro" / f"accelerators-jax{version}-py{python}"


def variables() -> dict[str, str]:
    """Return the environment of a process that compiles.

    Raises:
      UserError: the compilers are not installed.
    """
    if not folder().is_dir():
        raise UserError(
            f"the compilers of GPUs and TPUs are not installed in {folder()}; install "
            "them with: scripts/accelerators.sh"
        )
    paths = [str(folder()), os.environ.get("PYTHONPATH")]
    # No device is looked for: not by libtpu on a network, and not by JAX.
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_STDERR_LOG_LEVEL": "3",
        "TPU_MIN_LOG_LEVEL": "3",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def run_with_compilers(module: str, arguments: Sequence[str]) -> int | None:
    """Run a script in a process that has the compilers, and return its exit code.

    JAX looks for them when it starts, so the process that a user started is too late.
    None is returned where this process has them already.

    Raises:
      UserError: the compilers are not installed.
    """
    if str(folder()) in sys.path:
        return None
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env=variables()).returncode


def main(argv: list[str]) -> None:
    """Print the folder and what is installed in it, for scripts/accelerators.sh."""
    print(folder(), *requirements(), sep="\n")


if __name__ == "__main__":
    run_script(main, "this installation")
