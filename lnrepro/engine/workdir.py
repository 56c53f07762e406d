"""The run directory: its config.json, its lock and its results.json."""

import contextlib
import fcntl
import json
import pathlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from lnrepro.engine import json_files, provenance
from lnrepro.engine.checkpoint import saved_steps
from lnrepro.engine.run_config import check_same
from lnrepro.errors import UserError

# The checkpoints from which a run goes on.
LAST = "checkpoints/last"
# The facts of the data set that a run was trained on.
FACTS = "data_facts.json"
# Where and when a number was not finite.
DIVERGED = "diverged.json"
# Names, without their suffixes, of what a run that was killed at its start may leave.
# The scripts that start sweeps write output.log. checkpoints/ has step 0 only.
_FIRST_FILES = ("lock", "output", "checkpoints", "data_facts", "config")


def default(config: ConfigDict, variant: str) -> pathlib.Path:
    """Return runs/EXPERIMENT/VARIANT-NORM-seedSEED; no variant is called "default"."""
    # A value that is not the name of a module is refused when it is imported.
    experiment = str(config.experiment).rpartition(".")[2]
    name = f"{variant or 'default'}-{config.norm}-seed{config.seed}"
    return pathlib.Path("runs") / experiment / name


@contextlib.contextmanager
def lock(workdir: pathlib.Path) -> Iterator[None]:
    """Hold the right to write to a run directory, and make the directory.

    The system releases the lock when the process ends, however it ends.

    Raises:
      UserError: another process holds the lock, the directory cannot be written to, or
        it holds what is not a run's.
    """
    path = workdir / "lock"
    # The file is closed here; while it is open, it is locked.
    with contextlib.ExitStack() as stack:
        try:
            _check_is_run(workdir)
            workdir.mkdir(parents=True, exist_ok=True)
            # "a+" makes the file and leaves the contents of one that is there.
            file = stack.enter_context(open(path, "a+"))
            # LOCK_NB fails at once in place of waiting for the other process.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{workdir} is in use by another run; wait for it or give another "
                "--workdir"
            ) from None
        except OSError as e:
            # Such as ENOLCK of a network file system without locks.
            raise UserError(
                f"cannot write to --workdir {workdir}, or lock a file there: "
                f"{e.strerror}"
            ) from None
        yield


def is_training(workdir: pathlib.Path) -> bool:
    """Ask the lock of a run directory whether a process trains there.

    The answer also holds for processes of other machines, wherever the file system has
    locks that machines share. Where it has none, no run can start. A run that starts in
    the microseconds of the question is refused as in use; its command starts it again.
    """
    try:
        # A shared lock needs no right to write.
        with open(workdir / "lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as e:
        return isinstance(e, BlockingIOError)
    return False


def _check_is_run(workdir: pathlib.Path) -> None:
    """Check that a directory is new, empty or that of a run.

    Raises:
      UserError: it is not. Nothing is written there.
    """
    if not workdir.exists() or (workdir / "config.json").exists():
        return
    for path in sorted(workdir.iterdir()):
        # Operating systems leave hidden files.
        is_first = path.stem in _FIRST_FILES or path.name.startswith(".")
        if not is_first or any(saved_steps(workdir / LAST)):
            raise UserError(
                f"--workdir {workdir} is not empty and has no config.json of a run "
                f"(there is {path.name}); give a new folder, or put the file back"
            )


def check_no_export(workdir: pathlib.Path) -> None:
    """Raise UserError where a directory is an export, which has one checkpoint."""
    # A run writes its checkpoint's name nowhere.
    if "checkpoint" in (read_about(workdir) or {}):
        raise UserError(
            f"{workdir} is an exported network, not a run directory: lnrepro.load "
            "opens it; train and evaluate in the directory of its run"
        )


def describe(
    workdir: pathlib.Path, identity: Mapping[str, Any], facts: Mapping[str, Any]
) -> None:
    """Write what a new run is. Its first checkpoint is on disk.

    Args:
      workdir: the run directory.
      identity: `Run.identity`.
      facts: facts of the whole data set, such as its vocabulary. They are kept, so that
        the run can be used without the data.
    """
    json_files.write(workdir / FACTS, facts)
    digest = zlib.crc32((workdir / FACTS).read_bytes())
    config, fingerprint = identity["config"], identity["fingerprint"]
    data = {"name": config["data"]["name"], "fingerprint": fingerprint, "facts": digest}
    # A directory with a config.json is a run, so that this is the last file. It says
    # what one needs to know to run this again.
    about = {"config": config, "data": data, **provenance.this_start()}
    json_files.write(workdir / "config.json", about)


def check_run(
    workdir: pathlib.Path, identity: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Read the config.json of a run, and check that it is of this config and data.

    Args:
      workdir: the run directory.
      identity: `Run.identity`, or its "config" alone.

    Returns:
      The contents of config.json, or None if there is no run.

    Raises:
      UserError: the run there has another config, whose fields are named, other data,
        or other settings of JAX.
    """
    there = read_about(workdir)
    if there is None:
        return None
    # Versions of JAX differ in the options that they have.
    now = {**identity, **provenance.settings()}
    recorded = {"config": there["config"], **there["data"], **there.get("settings", {})}
    check_same(
        f"{workdir} holds a run of another config",
        {**now, **recorded},
        now,
        "give another --workdir, remove it, or set what differs as it is there",
    )
    return there


def read_about(workdir: pathlib.Path) -> dict[str, Any] | None:
    """Read the config.json of a run; None if there is none that can be read.

    Raises:
      UserError: it is not that of a run.
    """
    path = workdir / "config.json"
    try:
        about = json.loads(path.read_bytes())
        _ = about["config"]["experiment"]
    except OSError:
        return None
    except json_files.MALFORMED as e:
        raise UserError(
            f"{path}: not a run's config.json ({type(e).__name__}); give another "
            "directory"
        ) from None
    return about


def read_results(workdir: pathlib.Path) -> dict[str, Any] | None:
    """Read results.json; None if the run is not finished."""
    path = workdir / "results.json"
    return json.loads(path.read_bytes()) if path.exists() else None


def ended(workdir: pathlib.Path) -> str:
    """Return how a run has ended: "finished" or "diverged"; "" if it has not.

    It diverged if a metric became NaN or infinite. The trainer ends such a run.
    """
    if (workdir / DIVERGED).exists():
        return "diverged"
    return "finished" if read_results(workdir) is not None else ""
