"""Numbers of a run: means over log intervals, metrics.jsonl, TensorBoard events."""

import collections
import contextlib
import json
import math
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from lnrepro.engine.errors import RunError, UserError


class Meter:
    """Means of the training metrics between two log points, read back late so that dispatch never waits.

    A mean is a number, or with several seeds a list of them.

    Sums run in float64 in the order of the steps, and `state` can be saved and given to a new Meter, so that an
    interrupted interval ends with the same mean to the bit.
    """

    def __init__(self, state: dict[str, Any] | None = None):
        self._queue = collections.deque()  # (first step of the call, {name: (K,) still on the devices}), or a step where to cut
        self._sums = dict(state["sums"]) if state else {}
        self._count = state["count"] if state else 0

    def add(self, first_step: int, metrics: Any) -> None:
        """Queue the metrics of one compiled call that began at `first_step`."""
        self._queue.append((first_step, metrics))

    def cut(self, step: int) -> None:
        """End the current interval at `step`."""
        self._queue.append((step, None))

    def drain(self, read, block: bool) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield (step, means) of every ended interval whose numbers have arrived; with `block`, wait for all.

        `read` turns a call's metrics into numpy. Raises RunError on the first step with a number that is not finite.
        """
        while self._queue:
            step, metrics = self._queue[0]
            if (
                not block
                and metrics is not None
                and not all(x.is_ready() for x in jax.tree.leaves(metrics))
            ):
                return
            self._queue.popleft()
            if metrics is None:
                yield (
                    step,
                    {
                        name: (np.asarray(total) / self._count).tolist()
                        for name, total in self._sums.items()
                    },
                )
                self._sums, self._count = {}, 0
            else:
                self._sum(step, read(metrics))

    def _sum(self, first_step: int, metrics: dict[str, np.ndarray]) -> None:
        for name, values in metrics.items():
            values = np.asarray(values)
            if not np.isfinite(values).all():
                bad = tuple(np.argwhere(~np.isfinite(values))[0])
                raise RunError(
                    f"train/{name} is {values[bad]} at step {first_step + bad[0] + 1}: stopped; the last good checkpoint "
                    f"is kept. Try a smaller config.optimizer.learning_rate or config.optimizer.clip > 0"
                )
            total = np.asarray(self._sums.get(name, 0.0))
            for v in values.astype(np.float64):
                total = total + v
            self._sums[name] = total.tolist()
        self._count += len(values)

    def state(self) -> dict[str, Any]:
        """The unfinished interval as plain numbers; call it after `drain(block=True)`."""
        return {"sums": dict(self._sums), "count": self._count}


class Log:
    """metrics.jsonl and TensorBoard events of one run directory, continued after `records` records at `step`."""

    def __init__(self, workdir: pathlib.Path, data: str, step: int, records: int):
        self.path, self._data, self.records = workdir / "metrics.jsonl", data, records
        there = read(self.path) if self.path.exists() else []
        if len(there) < records:
            raise UserError(
                f"{self.path} has {len(there)} of the {records} records that go with the checkpoint of step {step}: put "
                f"the file back, or remove {workdir} to start again"
            )
        # What an interrupted run wrote after its last checkpoint is written again by this one.
        _rewrite(self.path, there[:records])
        self._file = open(self.path, "a", encoding="utf-8")
        self._events = Events(workdir / "tensorboard", step + 1 if step else 0)

    def write(self, step: int, epoch: float, values: dict[str, float]) -> None:
        """Append one record: step, epoch, the data set's name, then the values."""
        record = {"step": step, "epoch": round(epoch, 6), "data": self._data, **values}
        with self._clear_errors():
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()  # for who follows the file; `flush` makes it last
            for name, value in values.items():
                self._events.scalar(name, value, step)
        self.records += 1

    def flush(self) -> None:
        """Everything written so far is on disk after this: called before a checkpoint that relies on it."""
        with self._clear_errors():
            os.fsync(self._file.fileno())
            self._events.flush()

    @contextlib.contextmanager
    def _clear_errors(self):
        try:
            yield
        except OSError as e:
            raise RunError(
                f"could not write {self.path}: {e.strerror}; checkpoints saved before are intact"
            ) from e

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()
        self._events.close()


class Events:
    """TensorBoard's file of one process, which hides what earlier processes wrote from step `purge` > 0 on.

    Written by who calls. tensorboardX's SummaryWriter has a thread and a queue for it: on a full disk the thread dies
    unseen and the queue, once it is full too, is waited for in vain.
    """

    def __init__(self, folder: pathlib.Path, purge: int):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.summary import scalar

        self._event, self._summary = Event, scalar
        folder.mkdir(parents=True, exist_ok=True)
        self._file = EventsWriter(str(folder / "events"))
        if purge:
            self._add(step=purge, session_log=SessionLog(status=SessionLog.START))
        self.flush, self.close = self._file.flush, self._file.close

    def scalar(self, name: str, value: float, step: int) -> None:
        """Append one number."""
        self._add(step=step, summary=self._summary(name, value))

    def _add(self, **fields: Any) -> None:
        self._file.write_event(self._event(wall_time=time.time(), **fields))


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a torn last line, left by a kill, is dropped.

    Raises UserError, naming file and line, if another line is not a record.
    """
    records = []
    lines = path.read_bytes().split(b"\n")
    for n, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            record = json.loads(line)
            if not isinstance(record["step"], int):
                raise TypeError
            records.append(record)
        except (ValueError, KeyError, TypeError):
            if n == len(lines):  # no newline behind it: torn
                break
            raise UserError(
                f"{path}:{n}: not a metrics record: {line[:60].decode(errors='replace')!r}"
            ) from None
    return records


def _rewrite(path: pathlib.Path, records: list[dict[str, Any]]) -> None:
    new = path.with_suffix(".new")
    new.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    os.replace(new, path)


def is_better(value: float, best: float | None, mode: str) -> bool:
    """Whether `value` beats `best` under mode "min" or "max"; a value that is not a number never does."""
    if math.isnan(value):
        return False
    return best is None or (value < best if mode == "min" else value > best)
