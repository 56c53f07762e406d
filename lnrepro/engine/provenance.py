"""Provenance of a run: what a result depends on besides its config and data.

These are the command, the commit, the versions, the devices, the settings of JAX and
the machine. config.json has those of the first start, resumes.jsonl of the others. The
config in config.json is that of the last start: some fields may change.
"""

import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import jax

from lnrepro.engine import json_files, machine
from lnrepro.engine.run_config import differences
from lnrepro.functional.fast.kernels import KERNEL
from lnrepro.functional.fast.tuning import NOT_MEASURED

# One record for each start after the first, which config.json describes.
RESUMES = "resumes.jsonl"

# Packages that a result may depend on.
PACKAGES = (
    "lnrepro",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "tensorflow-datasets",
    "grain",
    "numpy",
)

# Options of JAX that decide which random numbers are drawn, and how precisely is
# computed. A run keeps them.
SETTINGS = (
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_high_dynamic_range_gumbel",
    "jax_enable_x64",
    "jax_default_matmul_precision",
)


def versions() -> dict[str, str]:
    """Return the versions of Python and of PACKAGES."""
    found = {"python": sys.version.split()[0]}
    # A package that is not installed is left out.
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def git_commit() -> str | None:
    """Return the checkout's commit, None outside of a checkout.

    "+" at its end means that there are uncommitted changes.
    """
    command = ["git", "-C", os.path.dirname(__file__), "describe", "--always"]
    command += ["--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=10
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def settings() -> dict[str, Any]:
    """Return the values of SETTINGS, of those that this version of JAX has."""
    there = jax.config.values
    return {name: there[name] for name in SETTINGS if name in there}


def this_start() -> dict[str, Any]:
    """Return what a result depends on besides the config and the data."""
    return {
        "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
        "versions": versions(),
        "git": git_commit(),
        "devices": [f"{d.platform}:{d.device_kind}" for d in jax.devices()],
        "processes": jax.process_count(),
        "settings": settings(),
        "machine": {
            "cpu": machine.processor(),
            "cores": machine.cores(),
            "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        },
    }


def about_kernels(seen: list[str]) -> list[str]:
    """Return lines about what the recurrences of a run run as.

    Args:
      seen: what `functional.fast.kernels.watched` collected.
    """
    lines = []
    for words in sorted(set(seen)):
        what = words if words == KERNEL else f"scan: {words}"
        lines.append(f"recurrences: {what}")
    if NOT_MEASURED in seen:
        command = f"python -m lnrepro.main {shlex.join(sys.argv[1:])} --autotune"
        lines.append(f"to measure kernels: {command}")
    return lines


def starts(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """Return a record for each start of a run, the first one first.

    Each has what `this_start` returns, and "config"; those after the first one also
    have "step". The config of the first record is that of the last start.
    Fields that are newer than the start are missing.
    """
    found = [json.loads((workdir / "config.json").read_bytes())]
    path = workdir / RESUMES
    lines = path.read_bytes().splitlines() if path.exists() else ()
    return found + [json.loads(line) for line in lines]


def commits(workdir: pathlib.Path) -> list[str]:
    """Return the commits that a run was trained with, without repeats, in order."""
    found = [str(start["git"]) for start in starts(workdir) if start.get("git")]
    return list(dict.fromkeys(found))


def record_resume(
    workdir: pathlib.Path, identity: Mapping[str, Any], step: int
) -> list[str]:
    """Record that a run goes on. Its config.json gets the config that it has now.

    Args:
      workdir: the run directory.
      identity: `Run.identity`.
      step: the number of steps taken so far.

    Returns:
      A line about each thing that differs from its last start.

    Raises:
      OSError: it cannot be written.
    """
    there, config = starts(workdir), {"config": identity["config"]}
    # Earlier commits recorded no config of a resume.
    before, now = there[0] | there[-1], this_start() | config
    path = workdir / RESUMES
    records = path.read_text() if path.exists() else ""
    record = json_files.text({"step": step, **now})
    json_files.replace(path, f"{records}{record}\n")
    json_files.write(workdir / "config.json", there[0] | config)
    # The command differs between --config and --resume, so it is recorded and not
    # compared. Settings are compared by `workdir.check_run`.
    del now["command"], now["settings"]
    return [
        f"resumed otherwise than started before: {field} {a} -> {b}"
        for field, a, b in differences(before, before | now)
    ]
