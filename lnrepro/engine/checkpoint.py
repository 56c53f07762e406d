"""Checkpoints of a run, written by Orbax, each with a digest of its contents."""

import contextlib
import json
import os
import pathlib
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lnrepro.engine import orbax_workarounds
from lnrepro.engine.run_config import differences
from lnrepro.errors import RunError, UserError

# How often a reader starts over, while the run that it reads makes new checkpoints.
# Each time the run has saved again during one read, so that a second is rare.
TRIES = 20
# Number of checkpoints of each kind that are kept.
KEPT = {"last": 2, "best": 1}


class Notes(NamedTuple):
    """What a checkpoint of a run says beside its state.

    Attributes:
      config: the config, as JSON values.
      fingerprint: identity of the data.
      devices: number of devices, where the state depends on it.
      best: the best evaluation: its "metric", "value" and "step".
      numbers: the last value of everything that was logged.
      artifacts: the paths that were written.
      meter: the metrics since the last record, see `Meter.state`.
      due: names of the evaluations that are left to do at this step.
      records: number of records in metrics.jsonl.
    """

    config: dict[str, Any]
    fingerprint: str
    devices: int | None = None
    best: dict[str, Any] | None = None
    numbers: Mapping[str, float] = {}
    artifacts: Sequence[str] = ()
    meter: dict[str, Any] | None = None
    due: Sequence[str] = ()
    records: int = 0


class Checkpoint(NamedTuple):
    """A restored checkpoint, or the start of a run, which has step 0.

    Attributes:
      step: number of steps taken before.
      state: the state, as NumPy arrays.
      notes: what was saved with it: JSON values, of a run's start its `Notes`.
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
        # CRC-32 reads bytes. bfloat16 and 0-dimensional arrays are viewed as bytes too.
        data = np.ascontiguousarray(leaf).view(np.uint8).reshape(-1)
        crc = zlib.crc32(data.data, crc)
    return zlib.crc32(json.dumps(notes, sort_keys=True).encode(), crc)


class Store:
    """The checkpoints of a run.

    `last/` holds the newest ones, for resuming. `best/` holds that of the best
    evaluation.

    Saves are asynchronous and atomic: a folder named by its step exists only when it is
    complete.
    """

    def __init__(self, folder: pathlib.Path, writing: bool = True):
        """Open the store.

        Args:
          folder: where the checkpoints are.
          writing: whether anything may be changed there. Without it, a run in progress
            can be looked at.
        """
        self.folder, self._writing = folder, writing
        self._managers = {}
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
            max_to_keep=KEPT[name] if self._writing else None,
            read_only=not self._writing,
            create=self._writing,
            cleanup_tmp_directories=self._writing,
            # Orbax wants 0 of a manager that only reads.
            save_interval_steps=int(self._writing),
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
        with _errors_of(f"open {self.folder / name}"):
            self._managers[name] = ocp.CheckpointManager(
                (self.folder / name).absolute(), options=options, item_handlers=handlers
            )
        return self._managers[name]

    def save(self, name: str, step: int, state: Any, notes: dict[str, Any]) -> None:
        """Start to save a checkpoint; return before it is on disk.

        Args:
          name: "last" or "best".
          step: the step of the state.
          state: the state on the host.
          notes: JSON values to save with it.

        Raises:
          RunError: this save or the one before it failed. Checkpoints of earlier steps
            are intact.
        """
        import orbax.checkpoint as ocp

        manager = self._manager(name)
        if name == "last":
            # Its notes name the best checkpoint, which must be on disk before.
            self.wait()
        # A save goes on in the background, so that an error may be that of the one
        # before.
        what = f"save a checkpoint in {self.folder / name}, at or before step {step}"
        with _errors_of(what):
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

    def restore(self, name: str, like: Any) -> Checkpoint | None:
        """Read the newest checkpoint that can be read.

        One that cannot be read is named on stderr and stays where it is, and the one
        before it is read. A run that goes on from there replaces it in time.

        Args:
          name: "last" or "best".
          like: a state of the same structure.

        Returns:
          The checkpoint, or None if there is none.

        Raises:
          UserError: there are checkpoints, and none can be read.
        """
        if not (self.folder / name).is_dir():
            return None
        saved, failed, steps = None, [], []
        for _ in range(TRIES):
            steps = self._steps(name)
            saved, failed = self._newest(name, steps, like)
            # A run that goes on has removed what was to be read.
            if self._writing or not failed or steps == self._steps(name):
                break
        if saved:
            print("".join(f"{line}\n" for line in failed), end="", file=sys.stderr)
        elif failed:
            # Starting silently from step 0 would look like a new run.
            start_again = ", or remove the folder to start again"
            raise UserError(
                f"{failed[0]}, and no other one of {steps}; put the files of the run "
                f"back{start_again if self._writing else ''}"
            )
        return saved

    def _steps(self, name):
        """Return the steps of the checkpoints on disk, the newest first."""
        manager = self._manager(name)
        manager.reload()
        return sorted(manager.all_steps(), reverse=True)

    def _newest(self, name, steps, like):
        """Return the first checkpoint that can be read, and lines about the others."""
        failed = []
        for step in steps:
            try:
                return self._read(name, step, like), failed
            except MemoryError:
                raise
            # Orbax and TensorStore raise many types for damaged files.
            except Exception as e:
                path = self.folder / name / str(step)
                failed.append(f"{path} cannot be read ({_reason(e)})")
        return None, failed

    def _read(self, name, step, like):
        import orbax.checkpoint as ocp

        there = described(self._manager(name).item_metadata(step).state.tree)
        for array, a, b in differences(there, described(like)):
            raise ValueError(f"another model: {array} is {a} there, {b} in this one")
        # NumPy arrays do not depend on the devices, so a run may be resumed on other
        # ones.
        as_numpy = ocp.RestoreArgs(restore_type=np.ndarray)
        restore_args = jax.tree.map(lambda _: as_numpy, like)
        read = self._manager(name).restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.PyTreeRestore(item=like, restore_args=restore_args),
                notes=ocp.args.JsonRestore(),
            ),
        )
        notes = dict(read.notes)
        # The digest was taken before it was added to the notes.
        if notes.pop("digest", None) != digest(read.state, notes):
            raise ValueError("its contents do not match its digest")
        return Checkpoint(step, read.state, notes)

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
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
