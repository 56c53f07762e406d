"""Provenance of a run: what a result depends on besides its config and data.

These are the command, the commit, the versions and the devices. config.json has those
of the first start, resumes.jsonl those of the others.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from importlib import metadata
from typing import Any

import jax

from lnrepro.engine import json_files
from lnrepro.engine.run_config import differences

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
    try:
        commit = _git("rev-parse", "HEAD")
        changes = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+" if changes else "")


def _git(*arguments):
    # The package's own checkout, whatever the current directory is.
    done = subprocess.run(
        ["git", *arguments],
        cwd=pathlib.Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    return done.stdout.strip()


def this_start() -> dict[str, Any]:
    """Return what a result depends on besides the config and the data."""
    return {
        "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
        "versions": versions(),
        "git": git_commit(),
        "devices": [f"{d.platform}:{d.device_kind}" for d in jax.devices()],
        "processes": jax.process_count(),
    }


def starts(workdir: pathlib.Path) -> list[dict[str, Any]]:
    """Return a record for each start of a run, the first one first.

    Each has "command", "versions", "git", "devices" and "processes"; those after the
    first one also have "step".
    """
    found = [json_files.read_object(workdir / "config.json") or {}]
    path = workdir / RESUMES
    lines = path.read_bytes().splitlines() if path.exists() else ()
    return found + [json.loads(line) for line in lines]


def commits(workdir: pathlib.Path) -> list[str]:
    """Return the commits that a run was trained with, without repeats, in order."""
    found = [str(start["git"]) for start in starts(workdir) if start.get("git")]
    return list(dict.fromkeys(found))


def record_resume(workdir: pathlib.Path, step: int) -> list[str]:
    """Record that a run goes on.

    Args:
      workdir: the run directory.
      step: the number of steps taken so far.

    Returns:
      A line about each thing that differs from its last start.

    Raises:
      OSError: it cannot be written.
    """
    first, *resumes = starts(workdir)
    before, now = (resumes or [first])[-1], this_start()
    lines = [json_files.text(record) for record in (*resumes, {"step": step, **now})]
    json_files.replace(workdir / RESUMES, "\n".join(lines) + "\n")
    # The command differs between --config and --resume, so it is recorded and not
    # compared.
    names = ("git", "versions", "devices", "processes")
    then, now = ({name: start.get(name) for name in names} for start in (before, now))
    return [
        f"resumed otherwise than started before: {field} {a} -> {b}"
        for field, a, b in differences(then, now)
    ]
