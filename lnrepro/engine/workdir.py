"""The run directory: its config.json, its starts, its lock and its results.json."""

import collections
import contextlib
import fcntl
import json
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

import jax
from ml_collections import ConfigDict

from lnrepro.config import add_defaults
from lnrepro.engine import json_files
from lnrepro.errors import Diverged, RunError, UserError

# The facts of the data set that a run was trained on.
FACTS = "data_facts.json"
# One record for each start after the first, which config.json describes.
RESUMES = "resumes.jsonl"
# Where and when a number was not finite.
DIVERGED = "diverged.json"

# What a run writes besides its lock. config.json is moved last.
_RECORDS = (
    FACTS,
    RESUMES,
    DIVERGED,
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

# Names, without their suffixes, of what may stand in a run directory. The scripts that
# start sweeps write launch.lock and output.log.
_STEMS = {"lock", "launch", "output", *(name.partition(".")[0] for name in _RECORDS)}

# What the parameters of a network depend on, besides its training.
OF_NETWORK = ("config.experiment", "config.norm", "config.model", "config.seed")

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
) -> bool:
    """Write config.json, or check that the directory has a run of this config and data.

    A run without a checkpoint cannot be resumed. What it left is moved into the folder
    without-checkpoint-N where another config or other data shall be trained.

    Fields that may be corrected are written into the config.json that is there.

    Args:
      workdir: the run directory.
      config: the config.
      fingerprint: identity of the data.
      facts: facts of the whole data set, such as its vocabulary. They are kept, so that
        the run can be used without the data.

    Returns:
      Whether there was no such run before.

    Raises:
      UserError: the run there has another config, whose fields are named, or other
        data; or its config.json is gone.
    """
    try:
        if check_run(workdir, config, fingerprint):
            _correct(workdir, config)
            return False
    except UserError:
        if not (workdir / "config.json").exists() or has_checkpoint(workdir):
            raise
        _set_aside(workdir)
    if has_checkpoint(workdir):
        raise UserError(
            f"{workdir} has checkpoints, but no config.json that says what they are: "
            "put the file back, or give another --workdir"
        )
    # What one needs to know to run this again.
    record = {
        "config": as_json(config),
        "data": {"name": config.data.name, "fingerprint": fingerprint},
        **_this_start(),
    }
    # First the facts, because a directory with a config.json is a run.
    json_files.write(workdir / FACTS, facts)
    json_files.write(workdir / "config.json", record)
    return True


def _this_start() -> dict[str, Any]:
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
    first one also have "step". Fields that an earlier version did not write are
    missing.
    """
    found = [json_files.read_object(workdir / "config.json") or {}]
    path = workdir / RESUMES
    lines = json_files.read_bytes(path).splitlines() if path.exists() else ()
    for line in lines:
        # Someone may have edited it.
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict):
                found.append(record)
    return found


def commits(workdir: pathlib.Path) -> list[str]:
    """Return the commits that a run was trained with, without repeats, in order."""
    found = [str(start["git"]) for start in starts(workdir) if start.get("git")]
    return list(dict.fromkeys(found))


def record_resume(workdir: pathlib.Path, step: int) -> str:
    """Record that a run goes on.

    Args:
      workdir: the run directory.
      step: the number of steps taken so far.

    Returns:
      A line about what differs from its last start, "" if nothing does.

    Raises:
      OSError: it cannot be written.
    """
    first, *resumes = starts(workdir)
    before, now = (resumes or [first])[-1], _this_start()
    lines = [json_files.text(record) for record in (*resumes, {"step": step, **now})]
    json_files.replace(workdir / RESUMES, "\n".join(lines) + "\n")
    names = ("git", "versions", "devices", "processes")
    # Versions before this record did not write all of them.
    known = [name for name in names if name in before]
    then, now = (
        {name: _in_short(start[name]) for name in known} for start in (before, now)
    )
    words = [f"{field} {a} -> {b}" for field, a, b in differences(then, now)]
    if not words:
        return ""
    return f"resumed otherwise than started before: {'; '.join(words)}"


def _in_short(value: Any) -> Any:
    """Return a list of devices as text, such as "4 x cpu:cpu"."""
    if not isinstance(value, list):
        return value
    counts = collections.Counter(map(str, value))
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _correct(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Write the fields that `same_config` lets differ into config.json."""
    about = json_files.read_object(workdir / "config.json") or {}
    now = as_json(config)
    # A resume on other devices is no correction.
    now["mesh"] = about["config"].get("mesh", now["mesh"])
    if list(_differing(about["config"], now)):
        json_files.write(workdir / "config.json", about | {"config": now})


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


def has_checkpoint(workdir: pathlib.Path, kind: str = "*") -> bool:
    """Whether a run directory has a complete checkpoint.

    Args:
      workdir: the run directory.
      kind: "last" or "best"; "*" is any of them.
    """
    # Orbax gives a folder its step as a name when it is complete.
    return any(path.name.isdigit() for path in workdir.glob(f"checkpoints/{kind}/*"))


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
    now = as_json(config)
    try:
        there = json.loads(json_files.read_bytes(path))
        fields = list(_differing(there["config"], now))
        # It is used later, so that it is reported here if it is missing.
        there["data"]["fingerprint"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(
            f"{path}: not a run's config.json; give another --workdir"
        ) from None
    # A metric of the best checkpoint that was never measured may be corrected.
    no_best = not has_checkpoint(workdir, "best")
    differing = []
    for field, a, b in fields:
        is_best = field.startswith("config.best.")
        if not _may_change(field, a, b) and not (is_best and a and no_best):
            differing.append(f"{field}: {a!r} there, {b!r} now")
    if differing:
        raise UserError(
            f"{workdir} holds a run of another config ({'; '.join(differing)}); give "
            "another --workdir, or remove it"
        )
    return there


def _differing(there: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of two configs; older ones get the defaults first."""
    yield from differences(_filled(there), _filled(now), "config")


def _filled(fields: Any) -> dict[str, Any]:
    config = ConfigDict(fields)
    add_defaults(config)
    return as_json(config)


def _may_change(field: str, there: Any, now: Any) -> bool:
    """Whether a field of the config may differ when a run goes on.

    These are the mesh, since a run may go on with other devices, and what a run shows
    only at its end: a mistake there would be known after all of the training.
    """
    if field.startswith("config.evals."):
        at_end = (None, "end", "never")
        return there in at_end and now in at_end
    return field.startswith(("config.mesh", "config.curves"))


def checkpoint_notes(config: ConfigDict, fingerprint: str) -> dict[str, Any]:
    """Return what a checkpoint says about its run; see `check_checkpoint`.

    Args:
      config: the config.
      fingerprint: identity of the data.
    """
    return {
        "config": as_json(config),
        "fingerprint": fingerprint,
        "devices": jax.device_count(),
    }


def check_checkpoint(
    path: pathlib.Path,
    notes: Mapping[str, Any],
    config: ConfigDict,
    fingerprint: str | None = None,
    fields: tuple[str, ...] = ("config",),
) -> None:
    """Check that a checkpoint belongs to a run.

    Args:
      path: where it is, for the message.
      notes: its notes. Earlier versions did not note their config, so that nothing is
        checked.
      config: the config of the run.
      fingerprint: identity of the data; None is not compared.
      fields: the fields that are compared, and what is below them.

    Raises:
      UserError: it belongs to a run of another config or of other data.
    """
    if "config" not in notes:
        return
    try:
        found = list(_differing(notes["config"], as_json(config)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{path}: its notes are not those of a run") from None
    differing = [
        f"{field}: {a!r} there, {b!r} in this run"
        for field, a, b in found
        # Whether `best` may be corrected was decided when the run was opened.
        if field.startswith(fields)
        and not _may_change(field, a, b)
        and not field.startswith("config.best.")
    ]
    data_there = notes.get("fingerprint")
    if fingerprint not in (None, data_there):
        differing.append(f"data {data_there} there, {fingerprint} now")
    if differing:
        raise UserError(
            f"{path} is a checkpoint of another run ({'; '.join(differing)}); put the "
            "run's own files back, or give another --workdir"
        )


def read_results(workdir: pathlib.Path) -> dict[str, Any] | None:
    """Read results.json; None if the run is not finished.

    Raises:
      UserError: the file is damaged.
    """
    path = workdir / "results.json"
    if not path.exists():
        return None
    results = json_files.read_object(path)
    if not results:
        raise UserError(
            f"{path} is damaged: remove it, and the command of the run finishes it "
            "again"
        )
    return results


def note_diverged(workdir: pathlib.Path, error: Diverged) -> None:
    """Note that a run has diverged; see `is_diverged`."""
    json_files.write(workdir / DIVERGED, {"metric": error.metric, "step": error.step})


def is_diverged(workdir: pathlib.Path) -> bool:
    """Whether a number of a run was not finite.

    The trainer ends such a run and notes it. Version 0.2.0 finished it where only
    numbers of evaluations were not finite, and wrote them into results.json.
    """
    if (workdir / DIVERGED).exists():
        return True
    with contextlib.suppress(OSError, UserError):
        results = json_files.read_object(workdir / "results.json") or {}
        return any(not is_finite(value) for value in results.values())
    return False


def is_finite(value: Any) -> bool:
    """Whether a value of a JSON file is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def as_json(config: ConfigDict) -> dict[str, Any]:
    """Return the resolved config as JSON values; tuples become lists."""
    # Values are compared with those of a config.json, which has lists for tuples.
    return json.loads(json.dumps(config.to_dict()))


def differences(a: Any, b: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, value in a, value in b) where JSON values differ.

    Args:
      a: one of them.
      b: the other one.
      at: name of the values, which stands before those of their fields.
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in sorted({*a, *b}):
            field = f"{at}.{name}" if at else name
            yield from differences(a.get(name), b.get(name), field)
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
      UserError: another process holds the lock, the directory cannot be written to, or
        it holds what is not a run's.
    """
    path = workdir / "lock"
    try:
        _check_is_run(workdir)
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


def _check_is_run(workdir: pathlib.Path) -> None:
    """Check that a directory is new, empty or that of a run.

    Raises:
      UserError: it is not. Nothing is written there.
    """
    try:
        str(workdir.absolute()).encode()
    except UnicodeEncodeError:
        # Orbax cannot write there.
        shown = str(workdir).encode("utf-8", "backslashreplace").decode()
        raise UserError(
            f"--workdir {shown}: its path is not UTF-8; give another folder, or set "
            "LC_ALL=C.UTF-8 if it is"
        ) from None
    if not workdir.exists() or (workdir / "config.json").exists():
        return
    for path in sorted(workdir.iterdir()):
        # A run may have been killed before it wrote its config.json. Operating systems
        # leave hidden files.
        is_ours = path.stem in _STEMS or path.name.startswith((".", SET_ASIDE))
        if not is_ours:
            raise UserError(
                f"--workdir {workdir} is not empty and holds no run (there is "
                f"{path.name}); give a new folder"
            )


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
