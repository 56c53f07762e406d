"""The run directory: its config.json, its starts, its lock and its results.json."""

import contextlib
import fcntl
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Literal

from ml_collections import ConfigDict

from lnrepro.engine import json_files, provenance
from lnrepro.engine.provenance import RESUMES
from lnrepro.engine.run_config import as_json, config_differences, may_change
from lnrepro.errors import Diverged, RunError, UserError

# The facts of the data set that a run was trained on.
FACTS = "data_facts.json"
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

# Prefix of the folder that keeps the records of a run without a checkpoint.
SET_ASIDE = "without-checkpoint-"


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
        **provenance.this_start(),
    }
    # First the facts, because a directory with a config.json is a run.
    json_files.write(workdir / FACTS, facts)
    json_files.write(workdir / "config.json", record)
    return True


def _correct(workdir: pathlib.Path, config: ConfigDict) -> None:
    """Write the fields that `same_config` lets differ into config.json."""
    about = json_files.read_object(workdir / "config.json") or {}
    now = as_json(config)
    # A resume on other devices is no correction.
    now["mesh"] = about["config"].get("mesh", now["mesh"])
    if list(config_differences(about["config"], now)):
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
        fields = list(config_differences(there["config"], now))
        # It is used later, so that it is reported here if it is missing.
        there["data"]["fingerprint"]
    except json_files.MALFORMED:
        raise UserError(
            f"{path}: not a run's config.json; give another --workdir"
        ) from None
    # A metric of the best checkpoint that was never measured may be corrected.
    no_best = not has_checkpoint(workdir, "best")
    differing = []
    for field, a, b in fields:
        is_best = field.startswith("config.best.")
        if not may_change(field, a, b) and not (is_best and a and no_best):
            differing.append(f"{field}: {a!r} there, {b!r} now")
    if differing:
        raise UserError(
            f"{workdir} holds a run of another config ({'; '.join(differing)}); give "
            "another --workdir, or remove it"
        )
    return there


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
            _take(file)
        except BlockingIOError:
            raise UserError(
                f"{workdir} is in use by another run; wait for it or give another "
                "--workdir"
            ) from None
        except OSError as e:
            # Such as ENOLCK of a network file system without locks.
            raise UserError(
                f"cannot lock {path}: {e.strerror}; give a --workdir on a disk with "
                "file locks"
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


def _take(file: IO) -> None:
    """Lock a file at once.

    Raises:
      BlockingIOError: another process has locked it.
      OSError: the file system cannot lock it.
    """
    # LOCK_NB fails at once in place of waiting for the other process.
    exclusive = fcntl.LOCK_EX | fcntl.LOCK_NB
    try:
        fcntl.flock(file, exclusive)
    except BlockingIOError:
        # `lock_state` of another process holds it for microseconds.
        time.sleep(0.1)
        fcntl.flock(file, exclusive)


def lock_state(workdir: pathlib.Path) -> Literal["held", "free", "unknown"]:
    """Ask the lock of a run directory whether a process trains there.

    The lock itself is asked, so that the answer also holds for processes of other
    machines wherever the file system has locks that machines share.

    Args:
      workdir: the run directory.

    Returns:
      "held" while a process has the lock, "free" if none has it or there is no lock,
      "unknown" where the lock cannot be asked, such as on a file system without locks.
    """
    try:
        # A shared lock needs no right to write.
        with open(workdir / "lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except FileNotFoundError:
        return "free"
    except OSError:
        return "unknown"
    return "free"


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
