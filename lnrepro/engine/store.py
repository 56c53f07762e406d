"""The checkpoints that a run writes, by Orbax."""

import contextlib
import pathlib
from collections.abc import Mapping
from typing import Any

import orbax.checkpoint as ocp

from lnrepro.engine import orbax_workarounds
from lnrepro.engine.checkpoint import digest, read_one, reason_of
from lnrepro.errors import RunError, UserError

# Number of checkpoints in last/ that are kept.
KEPT = 2


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
            return read_one(self.folder / "last/0", state).state
        except MemoryError:
            raise
        # Orbax and TensorStore raise many types.
        except Exception as e:
            reason = reason_of(e.__cause__ if isinstance(e, RunError) else e)
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
          notes: `Notes` as JSON values, to save with it.

        Raises:
          RunError: this save or the one before it failed. Checkpoints of earlier steps
            are intact.
        """
        # A save goes on in the background, so that an error may be that of the one
        # before.
        what = f"save a checkpoint in {self.folder / name}, at or before step {step}"
        with _errors_of(what):
            # What a checkpoint names is on disk before; what it replaces goes after.
            self.wait()
            best = _step_of(notes.get("best"))
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

    def follow(self, best: Mapping[str, Any] | None) -> bool:
        """Remove all best checkpoints but the one that a run names.

        Each of the others has a worse value, or is of a step that the run takes again.

        Args:
          best: the best evaluation, see `Notes`.

        Returns:
          Whether it is there.
        """
        self.wait()
        self._named = _step_of(best)
        with _errors_of(f"remove checkpoints in {self.folder / 'best'}"):
            return self._named in self._keep_best(self._named)

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


def _step_of(best):
    return best["step"] if best else None


@contextlib.contextmanager
def _errors_of(what):
    """Turn errors of Orbax into a RunError of one line."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as e:
        raise RunError(
            f"could not {what}: {reason_of(e)}; checkpoints of earlier steps are "
            "intact, the same command resumes"
        ) from e
