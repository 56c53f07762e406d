"""Numbers of a run: means over log intervals, metrics.jsonl, metrics.csv."""

import collections
import csv
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, NoReturn

import numpy as np

from lnrepro.engine import json_files
from lnrepro.errors import Diverged, UserError


class Meter:
    """Means of the training metrics between two log points.

    Metrics are read from the devices late, so that the dispatch of steps does not wait
    for them.

    Sums run in float64 in the order of the steps. `state` can be saved and given to a
    new Meter. An interrupted interval then ends with the same mean to the bit.
    """

    def __init__(
        self,
        read: Callable[[Any], dict[str, np.ndarray]],
        state: dict[str, Any] | None = None,
    ):
        """Start an interval, or go on with the one of `state`.

        Args:
          read: turns the metrics of a call into NumPy arrays.
          state: what `state` returned.
        """
        self._read = read
        # (step after a call, its metrics on the devices, whether an interval ends).
        self._queue = collections.deque()
        self._sums = dict(state["sums"]) if state else {}
        self._count = state["count"] if state else 0

    def add(self, step: int, metrics: Any, is_end: bool = False) -> None:
        """Queue the metrics of a compiled call.

        Args:
          step: number of steps taken after the call.
          metrics: {name: [K]} on the devices.
          is_end: whether the interval ends after this call.
        """
        self._queue.append((step, metrics, is_end))

    def drain(self, keep: int = 0) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield (step, means) of every interval that has ended.

        Args:
          keep: number of the newest calls, whose metrics are left for a later read.

        Raises:
          Diverged: a number is not finite; the first such step is named.
        """
        while len(self._queue) > keep:
            step, metrics, is_end = self._queue.popleft()
            self._add_up(step, self._read(metrics))
            if is_end:
                yield step, {n: total / self._count for n, total in self._sums.items()}
                self._sums, self._count = {}, 0

    def _add_up(self, step, metrics):
        for name, values in metrics.items():
            first_step = step - len(values)
            if not np.isfinite(values).all():
                # Steps count from 1.
                bad = int(np.flatnonzero(~np.isfinite(values))[0])
                _diverged(f"train/{name}", values[bad], first_step + bad + 1)
            # One by one, so that the sum does not depend on the number of steps per
            # call. JSON, in which `state` is saved, keeps every bit of a float64.
            total = self._sums.get(name, 0.0)
            for value in values.astype(np.float64).tolist():
                total += value
            self._sums[name] = total
        # The number of steps, the same for all names.
        self._count += len(values)

    def state(self) -> dict[str, Any]:
        """Return the unfinished interval as numbers, after `drain`."""
        return {"sums": dict(self._sums), "count": self._count}


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


def open_records(workdir: pathlib.Path, step: int, count: int) -> IO[str]:
    """Open metrics.jsonl to append, and remove what was written after the checkpoint.

    Args:
      workdir: the run directory.
      step: the step of the checkpoint; 0 for a new run.
      count: number of records at the checkpoint.

    Raises:
      UserError: records are missing.
    """
    path = workdir / "metrics.jsonl"
    there = read(path) if path.exists() else []
    if len(there) < count:
        raise UserError(
            f"{path} has {len(there)} of the {count} records that go with the "
            f"checkpoint of step {step}: put the file back, or remove {workdir} to "
            "start again"
        )
    # An interrupted run may have written records after its last checkpoint. This run
    # writes them again.
    lines = [json_files.text(record) + "\n" for record in there[:count]]
    json_files.replace(path, "".join(lines))
    return open(path, "a", encoding="utf-8")


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
