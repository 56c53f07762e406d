"""Checkpoints of a run, written by Orbax, each with a digest of its contents."""

import contextlib
import json
import os
import pathlib
import re
import sys
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lnrepro.engine import orbax_workarounds
from lnrepro.engine.run_config import differences
from lnrepro.errors import RunError, UserError, first_line

# Number of checkpoints in last/ that are kept.
KEPT = 2


class Notes(NamedTuple):
    """What a checkpoint of a run says beside its state.

    Attributes:
      config: the config, as JSON values.
      fingerprint: identity of the data.
      devices: number of devices, where the state depends on it.
      best: the best evaluation: its "metric", "value" and "step".
      meter: the metrics since the last record, see `Meter.state`.
      due: names of the evaluations that are left to do at this step.
      records: the `metrics.Records`.
    """

    config: dict[str, Any]
    fingerprint: str
    devices: int | None = None
    best: dict[str, Any] | None = None
    meter: dict[str, Any] | None = None
    due: Sequence[str] = ()
    records: Sequence[int] = (0, 0, 0)


class Checkpoint(NamedTuple):
    """A restored checkpoint.

    Attributes:
      step: number of steps taken before.
      state: the state, as NumPy arrays.
      notes: what was saved with it, as JSON values.
    """

    step: int
    state: Any
    notes: Any


def digest(state: Any, notes: dict[str, Any]) -> int:
    """Return the CRC-32 of all leaves in tree order, then of the notes.

    Orbax alone does not notice a changed byte.
    """
    crc = 0
    for leaf in jax.tree.leaves(state):
        # Also an array of bfloat16 or without dimensions is bytes.
        content = np.ascontiguousarray(leaf).view(np.uint8).reshape(-1)
        crc = zlib.crc32(content.data, crc)
    return zlib.crc32(json.dumps(notes, sort_keys=True).encode(), crc)


def saved_steps(folder: pathlib.Path) -> list[int]:
    """Return the steps of the checkpoints in last/ or best/, the newest first."""
    names = [path.name for path in folder.glob("*") if path.name.isdigit()]
    return sorted(map(int, names), reverse=True)


def restore(folder: pathlib.Path, like: Any, *, resumes: bool) -> Checkpoint | None:
    """Read the newest checkpoint that can be read; nothing in the folder is changed.

    One that cannot be read is named on stderr and stays where it is, and the one
    before it is read. A run that goes on from there replaces it in time.

    Args:
      folder: last/ or best/ of a run.
      like: a state of the same structure.
      resumes: whether a run goes on from it, also from that of step 0.

    Returns:
      The checkpoint, or None if there is none.

    Raises:
      UserError: there are checkpoints, and none can be read.
    """
    steps, failed = saved_steps(folder), []
    # A damaged checkpoint does not give way to the start.
    if not resumes or steps != [0]:
        steps = [step for step in steps if step]
    for step in steps:
        path = folder / str(step)
        try:
            saved = _read(path, like)
        except MemoryError:
            raise
        # Orbax and TensorStore raise many types for damaged files.
        except Exception as e:
            failed.append(f"{path} cannot be read ({_reason(e)})")
        else:
            print("".join(f"{line}\n" for line in failed), end="", file=sys.stderr)
            return saved
    if not failed:
        return None
    # Starting silently from step 0 would look like a new run.
    again = ", or remove the folder to start again" if resumes else ""
    raise UserError(
        f"{failed[0]}, and no other one of {steps}; put the files of the run back"
        + again
    )


def _read(path: pathlib.Path, like: Any) -> Checkpoint:
    """Return a checkpoint, if it matches its digest."""
    import orbax.checkpoint as ocp

    orbax_workarounds.install()
    handler = ocp.CompositeCheckpointHandler(
        state=ocp.PyTreeCheckpointHandler(), notes=ocp.JsonCheckpointHandler()
    )
    # NumPy arrays do not depend on the devices, so a run may be resumed on other ones.
    as_numpy = ocp.RestoreArgs(restore_type=np.ndarray)
    restore_args = jax.tree.map(lambda _: as_numpy, like)
    with ocp.Checkpointer(handler) as reader:
        # Orbax accepts absolute paths only.
        place = path.absolute()
        there = described(reader.metadata(place).item_metadata.state.tree)
        for array, a, b in differences(there, described(like)):
            raise ValueError(f"another model: {array} is {a} there, {b} in this one")
        read = reader.restore(
            place,
            args=ocp.args.Composite(
                state=ocp.args.PyTreeRestore(item=like, restore_args=restore_args),
                notes=ocp.args.JsonRestore(),
            ),
        )
    notes = dict(read.notes)
    # The digest was taken before it was added to the notes.
    if notes.pop("digest", None) != digest(read.state, notes):
        raise ValueError("its contents do not match its digest")
    return Checkpoint(int(path.name), read.state, notes)


class Store:
    """The checkpoints of a run, which are written.

    `last/` holds the newest ones, for resuming. A run starts from the one of step 0,
    which is nothing else: who reads a run finds no checkpoint in it.

    `best/` follows `last/`. It holds the best checkpoint that the newest one in `last/`
    names, and a better one that the next one will name.

    Saves are asynchronous and atomic: a folder named by its step exists only when it is
    complete.
    """

    def __init__(self, folder: pathlib.Path):
        """Open the store in the folder of the checkpoints."""
        self.folder = folder
        self._managers = {}
        # The step of the best checkpoint that the newest one in last/ names.
        self._named: float | None = None
        orbax_workarounds.install()

    def _manager(self, name):
        """Return Orbax's manager of a kind of checkpoint; make it at first use."""
        if name in self._managers:
            return self._managers[name]
        import orbax.checkpoint as ocp

        # Both kinds may save the same step. Without a prefix, their barriers between
        # processes have the same name.
        processes = ocp.options.MultiprocessingOptions(barrier_sync_key_prefix=name)
        options = ocp.CheckpointManagerOptions(
            multiprocessing_options=processes,
            max_to_keep=KEPT if name == "last" else None,
            cleanup_tmp_directories=True,
            # With orbax-checkpoint 0.12.8, threads that wait for a folder wait for many
            # minutes where Orbax then refuses the save, and Python's exit for them.
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
        )
        handlers = {
            # Trained float32 weights hardly compress, and compressing takes longer than
            # writing.
            "state": ocp.PyTreeCheckpointHandler(
                use_compression=False, multiprocessing_options=processes
            ),
            "notes": ocp.JsonCheckpointHandler(multiprocessing_options=processes),
        }
        # Orbax accepts absolute paths only.
        self._managers[name] = ocp.CheckpointManager(
            (self.folder / name).absolute(), options=options, item_handlers=handlers
        )
        return self._managers[name]

    def begin(self, state: Any, notes: dict[str, Any]) -> Any:
        """Save the state of step 0 and read it back.

        What cannot be saved or read is found before it has cost anything.

        Args:
          state: the state on the host.
          notes: JSON values to save with it.

        Returns:
          The state that was read.

        Raises:
          UserError: it is not equal to the bit; the array or the path is named.
        """
        try:
            self.save("last", 0, state, notes)
            self.wait()
            return _read(self.folder / "last/0", state).state
        except (MemoryError, ModuleNotFoundError):
            raise
        # Orbax and TensorStore raise many types.
        except Exception as e:
            reason = _reason(e.__cause__ if isinstance(e, RunError) else e)
            raise UserError(
                f"{self.folder}: the state of step 0 cannot be saved there and read "
                f"back ({reason}); mend what is named, or give another --workdir whose "
                "path is short, in UTF-8 and has none of []*?"
            ) from e

    def save(self, name: str, step: int, state: Any, notes: dict[str, Any]) -> None:
        """Start to save a checkpoint; return before it is on disk.

        Args:
          name: "last" or "best".
          step: the step of the state.
          state: the state on the host.
          notes: JSON values to save with it. "best" has the step of the best
            checkpoint, if there is one.

        Raises:
          RunError: this save or the one before it failed. Checkpoints of earlier steps
            are intact.
        """
        import orbax.checkpoint as ocp

        # A save goes on in the background, so that an error may be that of the one
        # before.
        what = f"save a checkpoint in {self.folder / name}, at or before step {step}"
        with _errors_of(what):
            # What a checkpoint names is on disk before; what it replaces goes after.
            self.wait()
            best = (notes.get("best") or {}).get("step")
            self._keep_best(self._named, best)
            manager = self._manager(name)
            # A run that fell back to an older checkpoint takes these steps again.
            for later in [s for s in manager.all_steps() if s >= step]:
                manager.delete(later)
            manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.PyTreeSave(state),
                    notes=ocp.args.JsonSave(notes | {"digest": digest(state, notes)}),
                ),
                force=True,
            )
            if name == "last":
                self._named = best

    def follow(self, best: float | None) -> bool:
        """Remove all best checkpoints but the one that a run names.

        Others are of a trajectory that the run has left, or no longer the best.

        Args:
          best: its step, or None.

        Returns:
          Whether it is there.
        """
        self.wait()
        self._named = best
        with _errors_of(f"remove checkpoints in {self.folder / 'best'}"):
            return best in self._keep_best(best)

    def _keep_best(self, *steps):
        """Remove all other best checkpoints; return the steps that are left."""
        if not (self.folder / "best").is_dir():
            return []
        manager = self._manager("best")
        for step in [step for step in manager.all_steps() if step not in steps]:
            manager.delete(step)
        return manager.all_steps()

    def wait(self) -> None:
        """Wait until every save is on disk.

        Raises:
          RunError: a save failed.
        """
        for name, manager in self._managers.items():
            with _errors_of(f"save a checkpoint in {self.folder / name}"):
                manager.wait_until_finished()

    def close(self) -> None:
        """Wait, then end the threads. `wait` has reported a save that failed."""
        for manager in self._managers.values():
            with contextlib.suppress(Exception):
                manager.close()
        self._managers = {}


@contextlib.contextmanager
def _errors_of(what):
    """Turn errors of Orbax into a RunError of one line."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as e:
        raise RunError(
            f"could not {what}: {_reason(e)}; checkpoints of earlier steps are intact, "
            "the same command resumes"
        ) from e


def described(tree: Any) -> dict[str, str]:
    """Return {name: type and shape} of the arrays of a tree, or of their metadata."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        found[name] = f"{leaf.dtype} {list(leaf.shape)}"
    return found


def _reason(error):
    # TensorStore gives the number of the system's error at the end of a long message.
    number = re.search(r"os_error_code='(\d+)'", str(error))
    if number:
        return os.strerror(int(number[1]))
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return first_line(error)
