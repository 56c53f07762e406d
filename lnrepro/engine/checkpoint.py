"""Checkpoints of a run: what they hold, and how they are read. store.py writes them."""

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
from lnrepro.errors import UserError, first_line, say


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
            saved = read_one(path, like)
        except MemoryError:
            raise
        # Orbax and TensorStore raise many types for damaged files.
        except Exception as e:
            failed.append(f"{path} cannot be read ({reason_of(e)})")
        else:
            for line in failed:
                say(line, sys.stderr)
            return saved
    if not failed:
        return None
    # Starting silently from step 0 would look like a new run.
    again = ", or remove the folder to start again" if resumes else ""
    raise UserError(
        f"{failed[0]}, and no other one of {steps}; put the files of the run back"
        + again
    )


def read_one(path: pathlib.Path, like: Any) -> Checkpoint:
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


def named(tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by their paths, such as "params.gru.w"."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        found[jax.tree_util.keystr(path, simple=True, separator=".")] = leaf
    return found


def described(tree: Any) -> dict[str, str]:
    """Return {name: type and shape} of the arrays of a tree, or of their metadata."""
    leaves = named(tree).items()
    return {name: f"{leaf.dtype} {list(leaf.shape)}" for name, leaf in leaves}


def reason_of(error: Any) -> str:
    """Return why Orbax failed, in one line."""
    # TensorStore gives the number of the system's error at the end of a long message.
    number = re.search(r"os_error_code='(\d+)'", str(error))
    if number:
        return os.strerror(int(number[1]))
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return first_line(error)
