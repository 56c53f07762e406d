"""The run directory: its config.json, its lock and its results.json."""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

import jax
from ml_collections import ConfigDict

from lnrepro.engine.errors import RunError, UserError

# The facts of the data set that a run was trained on.
FACTS = "data_facts.json"

# What a run writes besides its lock. config.json is moved last.
_RECORDS = (
    FACTS,
    "metrics.jsonl",
    "metrics.csv",
    "report.html",
    "tensorboard",
    "artifacts",
    "checkpoints",
    "evaluation.json",
    "results.json",
    "config.json",
)

# Prefix of the folder that keeps the records of a run without a checkpoint.
SET_ASIDE = "without-checkpoint-"

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


def default(config: ConfigDict, variant: str) -> pathlib.Path:
    """Return runs/EXPERIMENT/VARIANT-NORM-seedSEED; no variant is called "default"."""
    # A value that is not the name of a module is refused when it is imported.
    experiment = str(config.experiment).rpartition(".")[2]
    name = f"{variant or 'default'}-{config.norm}-seed{config.seed}"
    if config.seeds > 1:
        name += f"to{config.seed + config.seeds - 1}"
    return pathlib.Path("runs") / experiment / name


def open_run(
    workdir: pathlib.Path,
    config: ConfigDict,
    fingerprint: str,
    facts: Mapping[str, Any],
) -> None:
    """Write config.json, or check that the directory has a run of this config and data.

    A run without a checkpoint cannot be resumed. What it left is moved into the folder
    without-checkpoint-N where another config or other data shall be trained.

    Args:
      workdir: the run directory.
      config: the config.
      fingerprint: identity of the data.
      facts: facts of the whole data set, such as its vocabulary. They are kept, so that
        the run can be used without the data.

    Raises:
      UserError: the run there has another config, whose fields are named, or other
        data.
    """
    try:
        if check_run(workdir, config, fingerprint):
            return
    except UserError:
        if not (workdir / "config.json").exists() or has_checkpoint(workdir):
            raise
        _set_aside(workdir)
    # What one needs to know to run this again.
    record = {
        "config": as_json(config),
        "data": {"name": config.data.name, "fingerprint": fingerprint},
        "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
        "versions": versions(),
        "git": git_commit(),
        "devices": [f"{d.platform}:{d.device_kind}" for d in jax.devices()],
        "processes": jax.process_count(),
    }
    # First the facts, because a directory with a config.json is a run.
    write_json(workdir / FACTS, facts)
    write_json(workdir / "config.json", record)


def check_run(workdir: pathlib.Path, config: ConfigDict, fingerprint: str) -> bool:
    """Check that the directory has a run of this config and data.

    Args:
      workdir: the run directory.
      config: the config.
      fingerprint: identity of the data.

    Returns:
      False if there is no run.

    Raises:
      UserError: the run there has another config, whose fields are named, or other
        data.
    """
    there = same_config(workdir, config)
    if there is None:
        return False
    fingerprint_there = there["data"]["fingerprint"]
    if fingerprint_there != fingerprint:
        raise UserError(
            f"{workdir} was trained on other data (config.data.name = "
            f"{config.data.name!r}: fingerprint {fingerprint_there} there, "
            f"{fingerprint} now); give another --workdir"
        )
    return True


def has_checkpoint(workdir: pathlib.Path) -> bool:
    """Whether a run directory has a complete checkpoint."""
    # Orbax gives a folder its step as a name when it is complete.
    return any(path.name.isdigit() for path in workdir.glob("checkpoints/*/*"))


def _set_aside(workdir):
    """Move what a run left, except the lock, into a folder of its own."""
    number = 1
    while (aside := workdir / f"{SET_ASIDE}{number}").exists():
        number += 1
    aside.mkdir()
    for name in _RECORDS:
        if (workdir / name).exists():
            (workdir / name).rename(aside / name)
    print(f"{workdir} had no checkpoint; its records are in {aside.name}", flush=True)


def same_config(workdir: pathlib.Path, config: ConfigDict) -> dict[str, Any] | None:
    """Read the config.json of a run and check that its config is `config`.

    Args:
      workdir: the run directory.
      config: the config.

    Returns:
      The contents of config.json, or None if there is none. The data is not touched.

    Raises:
      UserError: the run has another config; the fields are named.
    """
    path = workdir / "config.json"
    if not path.exists():
        return None
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
        # Read all fields that are used later, so that a missing one is reported here.
        config_there, _ = there["config"], there["data"]["fingerprint"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(
            f"{path}: not a run's config.json; give another --workdir"
        ) from None
    # A run may be resumed on other devices, so that the mesh may differ.
    differing = [
        f"{field}: {a!r} there, {b!r} now"
        for field, a, b in _differences(config_there, as_json(config))
        if not field.startswith("config.mesh")
    ]
    if differing:
        raise UserError(
            f"{workdir} holds a run of another config ({'; '.join(differing)}); give "
            "another --workdir, or remove it"
        )
    return there


def as_json(config: ConfigDict) -> dict[str, Any]:
    """Return the resolved config as JSON values; tuples become lists."""
    # Values are compared with those of a config.json, which has lists for tuples.
    return json.loads(json.dumps(config.to_dict()))


def write_json(path: pathlib.Path, value: Any) -> None:
    """Write a JSON file atomically, and make its folder if need be.

    Raises:
      RunError: the system refuses it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # os.replace is atomic, so that a reader sees the old file or the new one,
        # whole.
        new = path.with_suffix(".new")
        new.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        os.replace(new, path)
    except OSError as e:
        raise RunError(f"cannot write {path}: {e.strerror}") from e


def _differences(a: Any, b: Any, at: str = "config") -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, value in a, value in b) where they differ."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in sorted({*a, *b}):
            yield from _differences(a.get(name), b.get(name), f"{at}.{name}")
    elif a != b:
        yield at, a, b


@contextlib.contextmanager
def lock(workdir: pathlib.Path) -> Iterator[Callable[[], None]]:
    """Hold the right to write to a run directory, and make the directory.

    The system releases the lock when the process ends, however it ends.

    Yields:
      A function to call before anything is written. It raises RunError if the directory
      was removed, moved or replaced meanwhile: it may be another run's.

    Raises:
      UserError: another process holds the lock, or the directory cannot be written to.
    """
    path = workdir / "lock"
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        # "a+" makes the file and leaves the contents of one that is there.
        file = open(path, "a+")
    except OSError as e:
        raise UserError(f"cannot write to --workdir {workdir}: {e.strerror}") from None
    with file:
        try:
            # LOCK_NB fails at once in place of waiting for the other run.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"{workdir} is in use by another run; wait for it or give another "
                "--workdir"
            ) from None

        def assert_lock_held() -> None:
            # The open file is still locked after its folder is moved, so the path is
            # compared with it.
            ours = os.fstat(file.fileno())
            if not (path.exists() and os.path.samestat(path.stat(), ours)):
                raise RunError(
                    f"{workdir} was removed, moved or replaced during the run; nothing "
                    "more is written there"
                )

        yield assert_lock_held


@contextlib.contextmanager
def storage_errors(workdir: pathlib.Path) -> Iterator[None]:
    """Turn an OSError, such as of a full or read-only disk, into a RunError."""
    try:
        yield
    except OSError as e:
        raise RunError(
            f"{e.filename or workdir}: {e.strerror or e}; checkpoints saved before are "
            "intact, the same command resumes"
        ) from e


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
