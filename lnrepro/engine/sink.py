"""Where the numbers of a run go.

Process 0 prints them and writes them to the run directory. The others do nothing.
"""

import pathlib
from collections.abc import Iterable, Mapping, Sequence

from lnrepro.engine import artifacts, json_files, provenance, report, workdir
from lnrepro.engine.checkpoint import Checkpoint
from lnrepro.engine.events import Events
from lnrepro.engine.experiment import Metric
from lnrepro.engine.metrics import RecordFile, write_csv
from lnrepro.engine.progress import Progress, table
from lnrepro.engine.run import Results, Run
from lnrepro.engine.workdir import Lock
from lnrepro.errors import Diverged, say


class Sink:
    """Takes what a run has to show, and does nothing with it."""

    def say(self, text: str) -> None:
        """Print a line."""

    def check_held(self) -> None:
        """Check that the run directory is still ours, see `Lock.check_held`."""

    def started(self, step: int, is_resumed: bool) -> None:
        """Record that training starts.

        Args:
          step: number of steps taken before.
          is_resumed: whether the run was started before.
        """

    def compiled(self, step: int, kernels: list[str]) -> None:
        """Note that the first call, which ends with `step`, is compiled.

        Args:
          step: the step.
          kernels: what recurrences run as, see `provenance.record_kernels`.
        """

    def record(self, step: int, values: Mapping[str, float], important: bool) -> None:
        """Record numbers.

        Args:
          step: the step they belong to.
          values: {name: number}.
          important: whether to print them now, as those of evaluations.
        """

    def pictures(self, paths: Iterable[pathlib.Path], step: int) -> None:
        """Show files that an evaluation has written."""

    def flush(self) -> Sequence[int]:
        """Put all records on disk, and return what a checkpoint says of them."""
        return ()

    def check_records(self) -> None:
        """Check that the records are still ours, see `RecordFile.check`."""

    def diverged(self, error: Diverged) -> None:
        """Note that a number is not finite."""

    def finish(self, results: Results) -> None:
        """Write what a finished run shows."""


class Writer(Sink):
    """The sink of process 0, which holds the lock of the run directory."""

    def __init__(self, run: Run, lock: Lock, start: Checkpoint):
        """Open the records, see `RecordFile`.

        Args:
          run: the run.
          lock: the lock of its directory.
          start: where it starts.
        """
        self._run, self._lock = run, lock
        self._progress = Progress(run.total_steps, run.config.best.metric)
        self._records = RecordFile(run.folder, start.step, start.notes.records)
        self._events = Events(run.folder / "tensorboard", start.step + 1)

    def say(self, text: str) -> None:
        """Print a line."""
        say(text)

    def check_held(self) -> None:
        """Check that the run directory is still ours."""
        self._lock.check_held()

    def started(self, step: int, is_resumed: bool) -> None:
        """Record the config of a new run, and how a resumed one differs."""
        if not step:
            self._events.config(self._run.config.to_dict())
        if not is_resumed:
            return
        for line in provenance.record_resume(self._run.folder, step):
            self.say(line)

    def compiled(self, step: int, kernels: list[str]) -> None:
        """Measure the rate from here; print and record what recurrences run as."""
        self._progress.start(step)
        for line in provenance.record_kernels(self._run.folder, kernels):
            self.say(line)

    def record(self, step: int, values: Mapping[str, float], important: bool) -> None:
        """Append to the records, and print."""
        epoch = round(step / self._run.steps_per_epoch, 6)
        about = {"step": step, "epoch": epoch, "data": self._run.config.data.name}
        self._records.append(about | dict(values))
        for name, value in values.items():
            self._events.scalar(name, value, step)
        self._progress.metrics(step, values, important)

    def pictures(self, paths: Iterable[pathlib.Path], step: int) -> None:
        """Append to TensorBoard's events."""
        for path in paths:
            self._events.picture(path, step)

    def flush(self) -> Sequence[int]:
        """Put all records on disk, and return what a checkpoint says of them."""
        self._records.flush()
        self._events.flush()
        return self._records.written

    def check_records(self) -> None:
        """Check that the records are still ours, see `RecordFile.check`."""
        self._records.check()

    def diverged(self, error: Diverged) -> None:
        """Write diverged.json."""
        where = {"metric": error.metric, "step": error.step}
        json_files.write(self._run.folder / workdir.DIVERGED, where)

    def finish(self, results: Results) -> None:
        """Write metrics.csv, report.html and results.json, and print the table."""
        run, folder = self._run, self._run.folder
        self.flush()
        self.check_held()
        self.check_records()
        self._records.close()
        self._events.close()
        write_csv(folder)
        shown = artifacts.draw_curves(folder, run.config.to_dict())
        shown.add(results.artifacts)
        results = results._replace(artifacts=shown)
        numbers = rows(run, results.numbers)
        page = report.write(folder, numbers, f"finished, {run.total_steps} steps")
        json_files.write(folder / "results.json", results.to_json())
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
