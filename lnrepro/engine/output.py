"""What a run shows and writes, besides its checkpoints."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lnrepro.engine import (
    artifacts,
    json_files,
    metrics,
    progress,
    provenance,
    report,
)
from lnrepro.engine.checkpoint import Checkpoint
from lnrepro.engine.events import Events
from lnrepro.engine.experiment import Evaluation, Metric
from lnrepro.engine.metrics import RecordFile
from lnrepro.engine.progress import HEAD, table
from lnrepro.engine.run import Run
from lnrepro.errors import say

# Training metrics are printed at most this often.
PRINT_EVERY_S = 5.0


class Output:
    """What a run shows and writes, besides its checkpoints.

    Process 0 alone writes. In the others, nothing is done.
    """

    def __init__(self, run: Run, writes: bool, start: Checkpoint):
        """Open the records, see `RecordFile`.

        Args:
          run: the run.
          writes: whether this process is the first one.
          start: where it starts.
        """
        self._run, self._writes = run, writes
        # The step and the time from which the rate is measured.
        self._start, self._last_print = None, 0.0
        if not writes:
            return
        self._records = RecordFile(run.folder, start.step, start.notes.records)
        self._events = Events(run.folder / "tensorboard", start.step + 1)

    def say(self, *lines: str) -> None:
        """Print lines."""
        for text in lines if self._writes else ():
            say(text)

    def compiled(self, step: int, kernels: list[str]) -> None:
        """Note the first call that is compiled. Later ones change nothing.

        Args:
          step: the step that it ends with.
          kernels: what recurrences run as.
        """
        if self._start:
            return
        self._start = step, time.monotonic()
        self.say(*provenance.about_kernels(kernels))

    def record(self, step: int, values: Mapping[str, float], important: bool) -> None:
        """Append to the records, and print.

        Args:
          step: the step they belong to.
          values: {name: number}.
          important: whether to print them now, as those of evaluations.
        """
        if not self._writes:
            return
        epoch = round(step / self._run.steps_per_epoch, 6)
        about = {"step": step, "epoch": epoch, "data": self._run.config.data.name}
        self._records.append(about | dict(values))
        for name, value in values.items():
            self._events.scalar(name, value, step)
        now, first = time.monotonic(), self._run.config.best.metric
        if important or now - self._last_print > PRINT_EVERY_S:
            self._last_print = now
            total, start = self._run.total_steps, self._start
            say(progress.line(step, total, values, first, start))

    def evaluated(self, evaluations: Iterable[Evaluation]) -> None:
        """Write what evaluations show.

        Raises:
          RunError: the run directory is not ours, see `RecordFile`.
          OSError: the disk failed.
        """
        if not self._writes:
            return
        self._records.check_ours()
        for evaluation in evaluations:
            artifacts.write(self._run.folder / "artifacts", evaluation)

    def flush(self) -> Sequence[int]:
        """Put all records on disk, and return what a checkpoint says of them.

        Raises:
          RunError: the run directory is not ours, see `RecordFile`.
        """
        if not self._writes:
            return ()
        self._events.flush()
        return self._records.flush()

    def finish(self, best: Mapping[str, Any] | None) -> dict[str, float]:
        """Write metrics.csv, report.html and results.json, and print the table.

        Args:
          best: the best evaluation, see `Notes`.

        Returns:
          The last value of every number; {} in the other processes.
        """
        if not self._writes:
            return {}
        run, folder = self._run, self._run.folder
        self.flush()
        self._records.close()
        self._events.close()
        numbers = {}
        for record in metrics.read(folder / "metrics.jsonl"):
            # Numbers are called EVALUATION/NAME.
            numbers |= {name: record[name] for name in record if "/" in name}
        if best:
            numbers[f"best {best['metric']}"] = best["value"]
            numbers["best step"] = best["step"]
        metrics.write_csv(folder)
        artifacts.draw_curves(folder, run.config.to_dict())
        found = rows(run, numbers)
        page = report.write(folder, found)
        json_files.write(folder / "results.json", numbers)
        self.say(
            f"{artifacts.title(run.config)}, {run.total_steps} steps",
            table(HEAD, *found),
            f"numbers    {folder / 'metrics.jsonl'} (metrics.csv)",
            f"page       {page}",
            f"pictures   {folder / 'artifacts'}",
        )
        return numbers


def rows(run: Run, numbers: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Return the names, values and units of a run's numbers, the best ones first."""
    known = {"step": Metric("steps"), **run.metrics}
    found = []
    for name in sorted(numbers, key=lambda name: not name.startswith("best ")):
        metric = known.get(name.removeprefix("best "), Metric())
        found.append((name, f"{numbers[name]:.6g}", metric.unit))
    return found
