"""Runs of `python -m lnrepro.main` as a user starts them, in a process of their own."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import filelock
import jax
import numpy as np
import pytest

from lnrepro.engine import config_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMOKE = "--config=configs/mnist.py:smoke"
EXPERIMENTS = sorted(path.stem for path in (ROOT / "configs").glob("*.py"))
# Experiments whose batches differ in length, so that they take one step in a call.
WITH_LENGTHS = ("attentive_reader", "skip_thoughts")


# Programs that runs have compiled, and what matplotlib found out about fonts.
CACHES = ROOT / ".pytest_cache" / "runs"


def environment(home: pathlib.Path) -> dict[str, str]:
    """The environment of this process, with the data sets in `home` and one device."""
    # JAX's variables would turn off the trainer's own cache of compiled programs.
    jax_caches = ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE")
    env = {k: v for k, v in os.environ.items() if not k.startswith(jax_caches)}
    # Quick compilation, as in conftest.py.
    kept = [
        f for f in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in f
    ]
    env |= {
        "XLA_FLAGS": " ".join(kept),
        "JAX_PLATFORMS": "cpu",
        "XDG_CACHE_HOME": str(CACHES),
        "COLUMNS": "120",
    }
    return env | {"LNREPRO_DATA": str(home / "data")}


def start(home: pathlib.Path, *flags: str, **env: str) -> subprocess.Popen:
    """Start the trainer; `env` are further environment variables."""
    command = [sys.executable, "-m", "lnrepro.main", *flags]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(home) | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(home: pathlib.Path, *flags: str, **env: str) -> tuple[int, str, str]:
    """Run the trainer to its end: exit code, stdout, stderr."""
    process = start(home, *flags, **env)
    out, err = process.communicate(timeout=900)
    return process.returncode, out, err


def smoke_run(name: str, home: pathlib.Path, **changes: Any) -> pathlib.Path:
    """Train a few steps of configs/NAME.py:smoke in home/run, on one device.

    Its data is prepared in home/data. Nothing is evaluated unless `changes` say so.
    """
    # In a process of its own: on the four devices of this one, the collectives of
    # skip-thoughts may wait for each other with jax 0.10, until XLA aborts the process.
    file = f"configs/{name}.py:smoke"
    fields = {"steps": 3, "curves": (), "best.metric": None}
    for evaluation in config_file.read(f"{ROOT}/{file}").evals:
        fields[f"evals.{evaluation}"] = "never"
    fields |= changes
    flags = [f"--config.{field}={value}" for field, value in fields.items()]
    code, _, error = run(home, f"--config={file}", f"--workdir={home}/run", *flags)
    assert code == 0, error
    return home / "run"


def once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[pathlib.Path], object]
) -> pathlib.Path:
    """Return a folder that is made once, for the processes of all workers.

    Args:
      factory: the fixture `tmp_path_factory`.
      name: of the folder.
      make: fills it.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    made = root / name / "made"
    with filelock.FileLock(root / f"{name}.lock"):
        if not made.exists():
            make(root / name / "run")
            made.touch()
    return root / name / "run"


def newest_state(workdir: pathlib.Path, kind: str = "last") -> dict[str, np.ndarray]:
    """Read the newest checkpoint in "last" or "best" through Orbax alone."""
    import orbax.checkpoint as ocp

    newest = max(
        (p for p in (workdir / "checkpoints" / kind).iterdir() if p.name.isdigit()),
        key=lambda p: int(p.name),
    )
    tree = ocp.PyTreeCheckpointer().restore(newest / "state")
    return {
        jax.tree_util.keystr(path): np.asarray(x)
        for path, x in jax.tree.leaves_with_path(tree)
    }
