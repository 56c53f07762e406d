"""Numbers of a run: means over log intervals, metrics.jsonl, metrics.csv."""

import collections
import contextlib
import csv
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import jax
import numpy as np

from lnrepro.engine import json_files
from lnrepro.engine.events import Events
from lnrepro.errors import Diverged, RunError, UserError


class Meter:
    """Means of the training metrics between two log points.

    Metrics are read from the devices only when they have arrived, so that the dispatch
    of steps does not wait. A mean is a number, or a list of numbers with several seeds.

    Sums run in float64 in the order of the steps. `state` can be saved and given to a
    new Meter. An interrupted interval then ends with the same mean to the bit.
    """

    def __init__(self, state: dict[str, Any] | None = None):
        """Start an interval, or go on with the one of `state`."""
        # (first step of a call, its metrics on the devices), or (step, None) where an
        # interval ends.
        self._queue = collections.deque()
        self._sums = dict(state["sums"]) if state else {}
        self._count = state["count"] if state else 0

    def add(self, first_step: int, metrics: Any) -> None:
        """Queue the metrics of a compiled call.

        Args:
          first_step: number of steps taken before the call.
          metrics: {name: [K]} on the devices.
        """
        self._queue.append((first_step, metrics))

    def cut(self, step: int) -> None:
        """End the interval after `step` steps."""
        self._queue.append((step, None))

    def drain(
        self, read: Callable[[Any], dict[str, np.ndarray]], block: bool
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (step, means) of every interval that has ended.

        Args:
          read: turns the metrics of a call into NumPy arrays.
          block: whether to wait for metrics that have not arrived.

        Raises:
          Diverged: a number is not finite; the first such step is named.
        """
        while self._queue:
            step, metrics = self._queue[0]
            # The queue is in the order of the steps: what has not arrived blocks all
            # behind it.
            arrived = metrics is None or block or _is_ready(metrics)
            if not arrived:
                return
            self._queue.popleft()
            if metrics is None:
                yield step, self._means()
            else:
                self._add_up(step, read(metrics))

    def _means(self):
        """Return the means of the interval and start a new one."""
        means = {}
        for name, total in self._sums.items():
            means[name] = (np.asarray(total) / self._count).tolist()
        self._sums, self._count = {}, 0
        return means

    def _add_up(self, first_step, metrics):
        for name, values in metrics.items():
            values = np.asarray(values)
            _check_finite(name, values, first_step)
            # One by one, so that the sum does not depend on the number of steps per
            # call.
            total = np.asarray(self._sums.get(name, 0.0))
            for value in values.astype(np.float64):
                total = total + value
            # Plain numbers, as `state` saves them in JSON. JSON keeps every bit of a
            # float64.
            self._sums[name] = total.tolist()
        # The number of steps, the same for all names.
        self._count += len(values)

    def state(self) -> dict[str, Any]:
        """Return the unfinished interval as numbers, after `drain(block=True)`."""
        return {"sums": dict(self._sums), "count": self._count}


def _is_ready(metrics):
    return all(x.is_ready() for x in jax.tree.leaves(metrics))


def _check_finite(name, values, first_step):
    if np.isfinite(values).all():
        return
    # The first axis of `values` is that of the K steps of a call. Steps count from 1.
    bad = tuple(np.argwhere(~np.isfinite(values))[0])
    _diverged(f"train/{name}", values[bad], int(first_step + bad[0] + 1))


def check_finite(numbers: Mapping[str, float], step: int) -> None:
    """Check the numbers of evaluations as those of training are checked.

    Args:
      numbers: {name: number}.
      step: the step of the state that was evaluated.

    Raises:
      Diverged: one of them is not finite.
    """
    for name, value in numbers.items():
        if not math.isfinite(value):
            _diverged(name, value, step)


def _diverged(name: str, value: float, step: int) -> NoReturn:
    raise Diverged(f"{name} is {value} at step {step}", name, step)


class Log:
    """metrics.jsonl and the TensorBoard events of a run directory.

    Attributes:
      path: the metrics.jsonl.
      records: number of records in it.
    """

    def __init__(self, workdir: pathlib.Path, data: str, step: int, records: int):
        """Open the files, and remove what was written after the checkpoint.

        Args:
          workdir: the run directory.
          data: name of the data set, which is in every record.
          step: the step of the checkpoint; 0 for a new run.
          records: number of records at the checkpoint.

        Raises:
          UserError: records are missing.
        """
        self.path = workdir / "metrics.jsonl"
        self.records = records
        self._data = data
        there = read(self.path) if self.path.exists() else []
        if len(there) < records:
            raise UserError(
                f"{self.path} has {len(there)} of the {records} records that go with "
                f"the checkpoint of step {step}: put the file back, or remove "
                f"{workdir} to start again"
            )
        # An interrupted run may have written records after its last checkpoint. This
        # run writes them again.
        lines = [json_files.text(record) + "\n" for record in there[:records]]
        json_files.replace(self.path, "".join(lines))
        self._file = open(self.path, "a", encoding="utf-8")
        self._events = Events(workdir / "tensorboard", step + 1 if step else 0)

    def write(self, step: int, epoch: float, values: dict[str, float]) -> None:
        """Append a record: the step, the epoch, the name of the data, the values."""
        record = {"step": step, "epoch": round(epoch, 6), "data": self._data, **values}
        with self._write_errors():
            self._file.write(json_files.text(record) + "\n")
            # For programs that follow the file. Only `flush` makes it survive a crash.
            self._file.flush()
            for name, value in values.items():
                self._events.scalar(name, value, step)
        self.records += 1

    def describe(self, config: Mapping[str, Any], metric: str | None) -> None:
        """Write the config for TensorBoard; see `Events.config`."""
        with self._write_errors():
            self._events.config(config, metric)

    def pictures(self, step: int, paths: Iterable[pathlib.Path]) -> None:
        """Copy those of the files that are pictures into the TensorBoard events."""
        with self._write_errors():
            for path in paths:
                if path.suffix in (".png", ".gif"):
                    self._events.picture(path, step)

    def flush(self) -> None:
        """Put everything on disk, before a checkpoint that counts the records."""
        with self._write_errors():
            os.fsync(self._file.fileno())
            self._events.flush()

    @contextlib.contextmanager
    def _write_errors(self):
        try:
            yield
        except OSError as e:
            raise RunError(
                f"could not write {self.path}: {e.strerror}; checkpoints saved before "
                "are intact"
            ) from e

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()
        self._events.close()


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Read the records of a metrics.jsonl; null is a number that is not finite.

    A last line without its end, which a killed process leaves, is dropped.

    Raises:
      UserError: another line is not a record; file and line are named.
    """
    lines = path.read_bytes().split(b"\n")
    records = []
    # Behind the last newline is nothing, or the line that was cut.
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = json.loads(line).items()
        except (ValueError, AttributeError):
            raise UserError(f"{path}:{number}: not a metrics record") from None
        records.append({k: math.nan if v is None else v for k, v in record})
    return records


def write_csv(workdir: pathlib.Path) -> None:
    """Write the records of a run directory as metrics.csv.

    Each record is a row, with empty cells for the numbers that it does not have.
    """
    records = read(workdir / "metrics.jsonl")
    columns = {}
    for record in records:
        columns |= dict.fromkeys(record)
    with open(workdir / "metrics.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(records)


def is_better(value: float, best: float | None, mode: str) -> bool:
    """Whether a value is better than the best so far.

    Args:
      value: the new value; NaN is never better.
      best: the best so far, or None.
      mode: "min" or "max".
    """
    if math.isnan(value):
        return False
    if best is None:
        return True
    return value < best if mode == "min" else value > best
