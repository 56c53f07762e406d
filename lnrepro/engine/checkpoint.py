"""Checkpoints of a run: Orbax underneath, a digest on top, and a way back to the newest state that can be read."""

import contextlib
import json
import logging
import os
import pathlib
import re
import shutil
import sys
import zlib
from typing import Any, NamedTuple

import jax
import numpy as np

from lnrepro.engine.errors import RunError, UserError


class Saved(NamedTuple):
    """A restored checkpoint: the step it was saved at, the state as numpy arrays, and the notes saved beside it."""

    step: int
    state: Any
    notes: dict[str, Any]


def digest(state: Any, notes: dict[str, Any] | None = None) -> int:
    """CRC-32 over the bytes of all leaves in tree order, then of the notes; Orbax alone does not notice a flipped byte."""
    crc = 0
    for leaf in jax.tree.leaves(state):
        crc = zlib.crc32(np.ascontiguousarray(leaf).view(np.uint8).reshape(-1), crc)
    return (
        crc
        if notes is None
        else zlib.crc32(json.dumps(notes, sort_keys=True).encode(), crc)
    )


class Store:
    """The checkpoints below `folder`: `last/` for resuming (the newest two), `best/` for the best evaluation (one).

    Saves are asynchronous and atomic: a folder named by its step exists only when it is complete. Without `writing`,
    nothing below `folder` is changed, so that a run in progress may be looked at.
    """

    def __init__(self, folder: pathlib.Path, writing: bool = True):
        self.folder, self._writing = folder, writing
        self._managers = {}
        if not isinstance(sys.unraisablehook, _Leftovers):
            sys.unraisablehook = _Leftovers(sys.unraisablehook)
        for name in ("asyncio", "absl"):
            logging.getLogger(name).addFilter(_is_news)

    def _manager(self, name: str):
        if name not in self._managers:
            import orbax.checkpoint as ocp

            # Both may save the same step at once; without a prefix their barriers between processes collide.
            processes = ocp.options.MultiprocessingOptions(barrier_sync_key_prefix=name)
            if self._writing:
                kept = {"last": 2, "best": 1}[name]
                how = {
                    "max_to_keep": kept,
                    "create": True,
                    "cleanup_tmp_directories": True,
                }
            else:
                how = {"read_only": True, "create": False, "save_interval_steps": 0}
            options = ocp.CheckpointManagerOptions(
                multiprocessing_options=processes, **how
            )
            handlers = {
                # Trained float32 weights hardly compress, and compressing costs more time than writing.
                "state": ocp.PyTreeCheckpointHandler(
                    use_compression=False, multiprocessing_options=processes
                ),
                "notes": ocp.JsonCheckpointHandler(multiprocessing_options=processes),
            }
            with _clear_errors(f"open {self.folder / name}"):
                self._managers[name] = ocp.CheckpointManager(
                    (self.folder / name).absolute(),
                    options=options,
                    item_handlers=handlers,
                )
        return self._managers[name]

    def save(self, name: str, step: int, state: Any, notes: dict[str, Any]) -> None:
        """Begin to save host `state` as `name` ("last" or "best"); returns before it is on disk.

        Raises RunError if this or the save before it failed; what was saved earlier is intact then.
        """
        import orbax.checkpoint as ocp

        manager = self._manager(name)
        if (
            name == "last"
        ):  # its notes say which the best is: a run that resumes from it will not save that one again
            self.wait()
        # Saving goes on in the background, so what fails here may be the checkpoint before.
        with _clear_errors(
            f"save a checkpoint in {self.folder / name}, at or before step {step}"
        ):
            if (
                step in manager.all_steps()
            ):  # saved before an interruption that fell back to an older step
                manager.delete(step)
            manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.PyTreeSave(state),
                    notes=ocp.args.JsonSave(notes | {"digest": digest(state, notes)}),
                ),
            )

    def restore(self, name: str, like: Any) -> Saved | None:
        """The newest readable checkpoint of `name` as numpy arrays in the structure of `like`; None if there is none.

        A checkpoint that cannot be read is said so on stderr, moved to `damaged/` if writing, and the one before is taken.
        Raises UserError if checkpoints exist and none can be read.
        """
        if not (self.folder / name).is_dir():
            return None
        steps = sorted(self._manager(name).all_steps(), reverse=True)
        for step in steps:
            try:
                return self._read(name, step, like)
            except (
                Exception
            ) as e:  # Orbax and TensorStore raise many types for damaged files
                self._set_aside(name, step, e)
        if steps:
            moved = f"; they were moved to {self.folder / 'damaged'}. Run again to start from the beginning"
            raise UserError(
                f"{self.folder / name}: none of the checkpoints {steps} can be read{moved if self._writing else ''}"
            )
        return None

    def _read(self, name: str, step: int, like: Any) -> Saved:
        import orbax.checkpoint as ocp

        args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), like)
        read = self._manager(name).restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.PyTreeRestore(item=like, restore_args=args),
                notes=ocp.args.JsonRestore(),
            ),
        )
        notes = dict(read.notes)
        if notes.pop("digest", None) not in (
            digest(read.state, notes),
            digest(read.state),
        ):  # (before 0.2: state alone)
            raise ValueError("its contents do not match its digest")
        return Saved(step, read.state, notes)

    def _set_aside(self, name: str, step: int, why: Exception) -> None:
        first = (str(why).strip().splitlines() or [""])[0][:200]
        what = "set aside" if self._writing else "passed over"
        print(
            f"checkpoint {self.folder / name / str(step)} cannot be read ({first}); {what}",
            file=sys.stderr,
        )
        if self._writing and jax.process_index() == 0:
            target = self.folder / "damaged" / f"{name}-{step}"
            target.parent.mkdir(exist_ok=True)
            shutil.rmtree(target, ignore_errors=True)
            shutil.move(self.folder / name / str(step), target)
        if self._writing:
            self._manager(name).reload()

    def wait(self) -> None:
        """Until everything begun is on disk. Raises RunError if a save failed."""
        for name, manager in self._managers.items():
            with _clear_errors(f"save a checkpoint in {self.folder / name}"):
                manager.wait_until_finished()

    def close(self) -> None:
        """Wait, then end the background threads; a failed save has been reported by `wait` and is not reported again."""
        for manager in self._managers.values():
            with contextlib.suppress(Exception):
                manager.close()
        self._managers = {}


class _Leftovers:
    """A sys.unraisablehook. When one read or write of a checkpoint fails, Orbax leaves the others; each then complains that
    nobody waits for it, also after the line that says what happened."""

    def __init__(self, hook):
        self._hook = hook

    def __call__(self, unraisable):
        if str(unraisable.exc_value) != "Event loop is closed":
            self._hook(unraisable)


def _is_news(record: logging.LogRecord) -> bool:
    """Neither the same complaint, where asyncio makes it, nor that a folder opened to be looked at is opened for that."""
    said = record.getMessage()
    return " exception was never retrieved" not in said and not said.startswith(
        "Given directory is read only"
    )


@contextlib.contextmanager
def _clear_errors(what: str):
    try:
        yield
    except (OSError, ValueError, RuntimeError) as e:
        line = next(
            (line for line in str(e).splitlines() if line.strip()), type(e).__name__
        )
        # TensorStore names the system's error behind all that it tried, with its number.
        number = re.search(r"os_error_code='(\d+)'", str(e))
        why = (
            os.strerror(int(number[1]))
            if number
            else getattr(e, "strerror", None) or line[:300]
        )
        raise RunError(
            f"could not {what}: {why}; checkpoints saved before are intact, the same command resumes"
        ) from e
