"""A run's directory: whose it is (config.json), who writes to it now (lock), and whether it is finished (results.json)."""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from lnrepro.engine.errors import RunError, UserError


def default(config: ConfigDict, variant: str) -> pathlib.Path:
    """runs/EXPERIMENT/VARIANT-NORM-seedSEED; the variant of a config without one is called "default"."""
    name = config.experiment.rpartition(".")[2]
    several = (
        f"to{config.seed + config.seeds - 1}" if config.get("seeds", 1) > 1 else ""
    )
    return (
        pathlib.Path("runs")
        / name
        / f"{variant or 'default'}-{config.norm}-seed{config.seed}{several}"
    )


def open_run(workdir: pathlib.Path, config: ConfigDict, fingerprint: str) -> None:
    """Make `workdir` and its config.json, or check that it holds a run of the same config and data.

    Raises UserError that names the differing fields.
    """
    path = workdir / "config.json"
    held = same_config(workdir, config)
    if held is not None:
        if (held_data := held["data"]["fingerprint"]) != fingerprint:
            raise UserError(
                f"{workdir} was trained on other data (config.data.name = {config.data.name!r}: fingerprint {held_data} "
                f"there, {fingerprint} now); give another --workdir"
            )
        return
    record = {
        "config": as_json(config),
        "data": {"name": config.data.name, "fingerprint": fingerprint},
        "command": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
        "versions": versions(),
        "git": git_commit(),
        "devices": [f"{d.platform}:{d.device_kind}" for d in jax.devices()],
        "processes": jax.process_count(),
    }
    write_json(path, record)


def same_config(workdir: pathlib.Path, config: ConfigDict) -> dict[str, Any] | None:
    """The config.json of the run in `workdir`, None if it holds no run; does not touch the data.

    Raises UserError that names the differing fields if it is a run of another config.
    """
    path = workdir / "config.json"
    if not path.exists():
        return None
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        held_config, _ = held["config"], held["data"]["fingerprint"]
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{path}: not a run's config.json; give another --workdir"
        ) from None
    differing = [
        f"{k}: {a!r} there, {b!r} now"
        for k, a, b in _differences(held_config, as_json(config))
        if not k.startswith(
            "config.mesh"
        )  # which devices share the work may change on the way
    ]
    if differing:
        raise UserError(
            f"{workdir} holds a run of another config ({'; '.join(differing)}); give another --workdir, or remove it"
        )
    return held


def as_json(config: ConfigDict) -> dict[str, Any]:
    """The resolved config as plain JSON values (tuples become lists)."""
    return json.loads(json.dumps(config.to_dict()))


def write_json(path: pathlib.Path, value: Any) -> None:
    """Write atomically, making the folder if need be. Raises RunError if that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        os.replace(new, path)
    except OSError as e:
        raise RunError(f"cannot write {path}: {e.strerror}") from e


def _differences(a: Any, b: Any, at: str = "config") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for k in sorted({*a, *b}):
            yield from _differences(a.get(k), b.get(k), f"{at}.{k}")
    elif a != b:
        yield at, a, b


@contextlib.contextmanager
def lock(workdir: pathlib.Path) -> Iterator[Callable[[], None]]:
    """Hold the right to write to `workdir`; the system frees it when the process ends, however it ends.

    Yields what to call before anything is written there: it raises RunError if the directory was removed, moved or
    replaced meanwhile, for then it may be another run's. Raises UserError if another process holds the lock.
    """
    path = workdir / "lock"
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+")
    except OSError as e:
        raise UserError(f"cannot write to --workdir {workdir}: {e.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"{workdir} is in use by another run; wait for it or give another --workdir"
            ) from None

        def held() -> None:
            if not (
                path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))
            ):
                raise RunError(
                    f"{workdir} was removed, moved or replaced during the run; nothing more is written there"
                )

        yield held


@contextlib.contextmanager
def storage_errors(workdir: pathlib.Path) -> Iterator[None]:
    """What the system refuses, such as to write on a full or read-only disk, becomes a RunError."""
    try:
        yield
    except OSError as e:
        raise RunError(
            f"{e.filename or workdir}: {e.strerror or e}; checkpoints saved before are intact, the same command resumes"
        ) from e


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result may depend on."""
    from importlib import metadata

    found = {"python": sys.version.split()[0]}
    for name in (
        "lnrepro",
        "jax",
        "jaxlib",
        "flax",
        "optax",
        "orbax-checkpoint",
        "tensorflow-datasets",
        "grain",
        "numpy",
    ):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def git_commit() -> str | None:
    """The checkout's commit, with "+" behind it if there are uncommitted changes; None outside a checkout."""
    here = pathlib.Path(__file__).parent
    try:
        run = lambda *a: subprocess.run(  # noqa: E731
            ["git", *a],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout.strip()
        return run("rev-parse", "HEAD") + (
            "+" if run("status", "--porcelain", "--untracked-files=no") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None
