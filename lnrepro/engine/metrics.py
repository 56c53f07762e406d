"""Numbers of a run: means over log intervals, metrics.jsonl, metrics.csv."""

import collections
import csv
import json
import math
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lnrepro.engine import json_files
from lnrepro.errors import Diverged, RunError, UserError


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
            # Steps count from 1.
            first = step - len(values) + 1
            # One by one, so that the sum does not depend on the number of steps per
            # call. JSON, in which `state` is saved, keeps every bit of a float64.
            total = self._sums.get(name, 0.0)
            for at, value in enumerate(values.astype(np.float64).tolist(), first):
                if not math.isfinite(value):
                    raise Diverged(f"train/{name}", value, at)
                total += value
            self._sums[name] = total
        # The number of steps, the same for all names.
        self._count += len(values)

    def state(self) -> dict[str, Any]:
        """Return the unfinished interval as numbers, after `drain`."""
        return {"sums": dict(self._sums), "count": self._count}


def check_finite(numbers: Mapping[str, float], step: int) -> None:
    """Check that numbers are finite.

    Args:
      numbers: {name: number}.
      step: the step that they belong to.

    Raises:
      Diverged: one of them is not finite.
    """
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise Diverged(name, value, step)


class Records(NamedTuple):
    """What a metrics.jsonl holds: number of records, bytes, and the CRC-32 of these."""

    count: int
    size: int
    digest: int


class RecordFile:
    """The metrics.jsonl of a run, to append to.

    The digest of its bytes is kept as they are written.

    Attributes:
      written: what this run has written, also before it was resumed.
    """

    def __init__(self, workdir: pathlib.Path, step: int, noted: Sequence[int]):
        """Open the file, and remove what was written after the checkpoint.

        Args:
          workdir: the run directory.
          step: the step of the checkpoint.
          noted: the Records at the checkpoint.

        Raises:
          UserError: the file holds other records.
        """
        self._path = workdir / "metrics.jsonl"
        content = self._path.read_bytes() if self._path.exists() else b""
        self.written = Records(*noted)
        content = content[: self.written.size]
        if zlib.crc32(content) != self.written.digest:
            raise UserError(
                f"{self._path} does not hold the {self.written.count} records that go "
                f"with the checkpoint of step {step}: put the file back, or remove "
                f"{workdir} to start again"
            )
        # This run writes again what an interrupted one wrote after its checkpoint.
        self._file = open(self._path, "a+b")
        self._file.truncate(len(content))

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record."""
        line = (json_files.text(record) + "\n").encode()
        self._file.write(line)
        # For programs that follow the file. Only `flush` makes it survive a crash.
        self._file.flush()
        count, size, digest = self.written
        self.written = Records(count + 1, size + len(line), zlib.crc32(line, digest))

    def check_ours(self) -> None:
        """Check that the run directory is still ours, before anything is written to it.

        Raises:
          RunError: the file in it is not the one that is written, or was changed, as by
            an editor.
        """
        ours = os.fstat(self._file.fileno())
        # The open file is still written after its folder is moved.
        is_there = self._path.exists() and os.path.samestat(self._path.stat(), ours)
        if not is_there or ours.st_size != self.written.size:
            raise RunError(
                f"{self._path} was removed, moved, replaced or changed while the run "
                "trained: put it back, then the same command resumes; nothing more is "
                "written there"
            )

    def flush(self) -> Records:
        """Put all records on disk, and return `written`; see also `check_ours`."""
        self.check_ours()
        os.fsync(self._file.fileno())
        return self.written

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Read the records of a metrics.jsonl; null is a number that is not finite.

    A last line without its end, which a killed process leaves, is dropped.

    Raises:
      ValueError: another line is not JSON.
    """
    # Behind the last newline is nothing, or the line that was cut.
    *lines, _ = path.read_bytes().split(b"\n")
    records = []
    for line in lines:
        record = json.loads(line).items()
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
