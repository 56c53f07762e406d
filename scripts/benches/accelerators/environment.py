"""The compilers of NVIDIA GPUs and TPUs, in a folder of their own.

    python -m scripts.benches.accelerators.environment

installs them there; scripts/accelerators.sh does the same from a bare clone. They need
no device. The folder is not in .venv, where JAX would look for a GPU at every start. A
process that has it in PYTHONPATH can compile for an H100 or a TPU.
"""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from lnrepro.errors import RunError, UserError, ended

COMMAND = "scripts/accelerators.sh"
# What the CUDA plugin needs besides itself to compile: ptxas and the device library.
# The libraries that run a program, such as cuBLAS, are not needed.
CUDA = ("nvidia-cuda-nvcc-cu12==12.9.*", "nvidia-cuda-runtime-cu12==12.9.*")
# Haiku, which is compared, with what it needs.
PEERS = ("dm-haiku==0.0.*", "jmp==0.0.*", "tabulate==0.9.*")


def requirements() -> list[str]:
    """Return what is installed, in the versions that the installed jax asks for.

    Raises:
      UserError: this jax names no such versions.
    """
    asked = importlib.metadata.requires("jax") or []
    found = []
    for extra, name in (("tpu", "libtpu"), ("cuda12", "jax-cuda12-plugin")):
        for line in asked:
            requirement, _, marker = line.partition(";")
            if re.match(rf"{name}\b", requirement) and f'"{extra}"' in marker:
                found.append(re.sub(r"\[.*?\]|\s", "", requirement))
    if len(found) != 2:
        raise UserError(
            f"jax {importlib.metadata.version('jax')} does not say which libtpu and "
            f"jax-cuda12-plugin it needs; install jax 0.10"
        )
    found.append(found[1].replace("plugin", "pjrt"))
    return [*found, *CUDA, *PEERS]


def folder() -> pathlib.Path:
    """Return the folder of the compilers for this jax and this Python."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
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
            f"them with: {COMMAND}"
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
    """Run a script in a process that has the compilers.

    JAX looks for them when it starts, so the process that a user started is too late.

    Args:
      module: its module.
      arguments: its command line.

    Returns:
      Its exit code; None where this process has the compilers already.

    Raises:
      UserError: the compilers are not installed.
    """
    if str(folder()) in sys.path:
        return None
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env=variables()).returncode


def install() -> None:
    """Install the compilers, once.

    Raises:
      RunError: the package index does not give them.
    """
    final = folder()
    if final.is_dir():
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    print(f"installing the compilers of GPUs and TPUs in {final} (once, about 1 GB)")
    # A folder of the final name is complete.
    with tempfile.TemporaryDirectory(dir=final.parent) as making:
        target = pathlib.Path(making) / final.name
        options = ["--quiet", "--disable-pip-version-check", "--no-deps"]
        words = [sys.executable, "-m", "pip", "install", *options]
        done = subprocess.run(
            [*words, "--target", str(target), *requirements()],
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            errors = [x for x in done.stderr.splitlines() if x.startswith("ERROR")]
            lines = errors or done.stderr.strip().splitlines()
            last = lines[-1] if lines else "no reason given"
            raise RunError(
                "the compilers of GPUs and TPUs cannot be installed; is the package "
                f"index reachable? pip says: {last}"
            )
        if not final.is_dir():
            shutil.move(target, final)


def main(argv: list[str]) -> None:
    """Install, and print the folder."""
    del argv
    install()
    print(folder())


if __name__ == "__main__":
    ended(main, "this installation")
