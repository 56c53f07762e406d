"""What a run shows and writes, besides its checkpoints."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence

from lnrepro.engine import artifacts, json_files, provenance, report
from lnrepro.engine.artifacts import Results
from lnrepro.engine.checkpoint import Checkpoint
from lnrepro.engine.events import Events
from lnrepro.engine.experiment import Metric
from lnrepro.engine.metrics import RecordFile, write_csv
from lnrepro.engine.progress import Progress, table
from lnrepro.engine.run import Run
from lnrepro.engine.workdir import Lock
from lnrepro.errors import say


class Output:
    """What a run shows and writes, besides its checkpoints.

    Process 0 holds the lock of the run directory. In the others, nothing is done.
    """

    def __init__(self, run: Run, lock: Lock | None, start: Checkpoint):
        """Open the records, see `RecordFile`.

        Args:
          run: the run.
          lock: the lock of its directory, None in the other processes.
          start: where it starts.
        """
        self._run, self._lock = run, lock
        self._progress = Progress(run.total_steps, run.config.best.metric)
        if not lock:
            return
        self._records = RecordFile(run.folder, start.step, start.notes.records)
        self._events = Events(run.folder / "tensorboard", start.step + 1)
        if not start.step:
            self._events.config(run.config.to_dict())

    def say(self, *lines: str) -> None:
        """Print lines."""
        for line in lines if self._lock else ():
            say(line)

    def check_held(self) -> None:
        """Check that the run directory is still ours, see `Lock.check_held`."""
        if self._lock:
            self._lock.check_held()

    def compiled(self, step: int, kernels: list[str]) -> None:
        """Note that the first call, which ends with `step`, is compiled.

        Args:
          step: the step.
          kernels: what recurrences run as, see `provenance.record_kernels`.
        """
        self._progress.start(step)
        if self._lock:
            self.say(*provenance.record_kernels(self._run.folder, kernels))

    def record(self, step: int, values: Mapping[str, float], important: bool) -> None:
        """Append to the records, and print.

        Args:
          step: the step they belong to.
          values: {name: number}.
          important: whether to print them now, as those of evaluations.
        """
        if not self._lock:
            return
        epoch = round(step / self._run.steps_per_epoch, 6)
        about = {"step": step, "epoch": epoch, "data": self._run.config.data.name}
        self._records.append(about | dict(values))
        for name, value in values.items():
            self._events.scalar(name, value, step)
        self._progress.metrics(step, values, important)

    def pictures(self, paths: Iterable[pathlib.Path], step: int) -> None:
        """Show files that an evaluation has written; process 0 alone has any."""
        for path in paths:
            self._events.picture(path, step)

    def flush(self) -> Sequence[int]:
        """Put all records on disk, and return what a checkpoint says of them."""
        if not self._lock:
            return ()
        self._records.flush()
        self._events.flush()
        return self._records.written

    def check_records(self) -> None:
        """Check that the records are still ours, see `RecordFile.check`."""
        if self._lock:
            self._records.check()

    def finish(self, results: Results) -> None:
        """Write metrics.csv, report.html and results.json, and print the table."""
        if not self._lock:
            return
        run, folder = self._run, self._run.folder
        self.flush()
        self.check_held()
        self.check_records()
        self._records.close()
        self._events.close()
        write_csv(folder)
        # The curves first.
        shown = artifacts.draw_curves(folder, run.config.to_dict())
        shown.add(results)
        numbers = rows(run, shown.numbers)
        page = report.write(folder, numbers, f"finished, {run.total_steps} steps")
        json_files.write(folder / "results.json", shown.to_json())
        lines = [
            f"numbers    {folder / 'metrics.jsonl'} (metrics.csv)",
            f"page       {page}",
            *shown.lines(),
        ]
        table(f"{run.title}, {run.total_steps} steps", numbers, lines)


def rows(run: Run, numbers: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Return the names, values and units of a run's numbers, the best ones first."""
    known = {"step": Metric("steps"), **run.metrics}
    found = []
    for name in sorted(numbers, key=lambda name: not name.startswith("best ")):
        metric = known.get(name.removeprefix("best "), Metric())
        found.append((name, f"{numbers[name]:.6g}", metric.unit))
    return found
