"""Progress of a sweep: a live table on a terminal, otherwise a line for each change."""

import collections
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from scripts.sweeps import columns
from scripts.sweeps.planned_runs import PlannedRun, last_line, log_size, progress

# Seconds between two lines about a run that goes on, where there is no terminal.
PLAIN_SECONDS = 30.0
# A run without a record for this many seconds shows for how long there was none.
SILENT_SECONDS = 300.0
# Larger tables show only runs that are neither finished nor queued.
MOST_ROWS = 30
# A longer line of a failed run is cut. The end of the sweep prints the whole line.
LONGEST = 40
# A narrow terminal shows the first of these columns that fit.
IMPORTANT = ("run", "state", "metric", "left", "step")
# Number of records from which the speed is computed.
MARKS = 20
STYLE = {
    "finished": "green",
    "running": "bold",
    "failed": "red",
    "diverged": "red",
    "stopped": "yellow",
    "queued": "dim",
}


class Row(NamedTuple):
    """What is shown of a run; `left` is the time left."""

    state: str
    step: str
    metric: str
    left: str


class Watch:
    """Shows state, step, metric and time left of every run, read from its files."""

    def __init__(self, runs: list[PlannedRun]):
        """Start to watch, and draw nothing yet."""
        # A launcher may send to another place what libraries print.
        self._out = sys.stdout
        self._runs = runs
        self._log_sizes = {run: log_size(run) for run in runs}
        # (step, time) of a run's newest records.
        self._marks: dict[PlannedRun, collections.deque] = {}
        # The state that was printed last, and when.
        self._printed: dict[PlannedRun, tuple[str, float]] = {}
        self._live = None
        if sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._out)
            self._live = Live(
                console=console, auto_refresh=False, redirect_stdout=False
            )

    def show(self, codes: Mapping[PlannedRun, int]) -> None:
        """Read the files and show what has changed.

        Args:
          codes: the exit codes of the runs that have ended.
        """
        rows = {run: self._row(run, codes) for run in self._runs}
        if self._live:
            # It starts here, so that nothing is drawn if the launcher refuses.
            self._live.start()
            table = _table(rows, self._live.console.width)
            self._live.update(table, refresh=True)
            return
        for run, row in rows.items():
            printed, when = self._printed.get(run, ("", 0.0))
            late = row.state == "running" and time.monotonic() - when > PLAIN_SECONDS
            if row.state != printed or late:
                self._printed[run] = row.state, time.monotonic()
                words = [f"{run.id}: {row.state}", *row[1:]]
                self.say("  ".join(word for word in words if word))

    def say(self, line: str) -> None:
        """Print a line."""
        if self._live:
            self._live.console.print(
                line, highlight=False, markup=False, soft_wrap=True
            )
        else:
            print(line, file=self._out, flush=True)

    def close(self) -> None:
        """End the live table; its last state stays on the screen."""
        if self._live:
            self._live.stop()
            self._live = None

    def _row(self, run, codes):
        state, record = self._state(run, codes), progress(run)
        step = f"{record.step}/{run.total}" if record.step else ""
        metric = ""
        if state in ("failed", "diverged"):
            metric = last_line(run)
        elif state == "finished" and run.best is not None:
            # The number that `python -m lnrepro.runs` shows.
            metric = f"best {run.metric} {run.best:.4g}"
        elif record.value is not None:
            metric = f"last {run.metric} {record.value:.4g}"
        left = ""
        if state == "running" and record.step:
            left = self._left(run, record)
        return Row(state, step, metric, left)

    def _left(self, run, record):
        """Return the time left, or for how long there was no record."""
        age = time.time() - record.time
        if age > SILENT_SECONDS:
            return f"no record for {_duration(age)}"
        marks = self._marks.setdefault(run, collections.deque(maxlen=MARKS))
        # A run that was resumed is at an earlier step.
        if marks and record.step < marks[-1][0]:
            marks.clear()
        if not marks or record.step > marks[-1][0]:
            marks.append((record.step, record.time))
        (step0, time0), (step1, time1) = marks[0], marks[-1]
        if step1 == step0:
            return ""
        seconds_per_step = (time1 - time0) / (step1 - step0)
        return f"{_duration(seconds_per_step * (run.total - step1))} left"

    def _state(self, run, codes):
        if run.finished:
            return "finished"
        if run.diverged:
            return "diverged"
        if run in codes:
            return "stopped" if codes[run] > 128 else "failed"
        return "running" if log_size(run) > self._log_sizes[run] else "queued"


def _table(rows, width):
    """Return the table, without the columns for which a terminal is too narrow."""
    names = ("run", *Row._fields)
    shown = []
    for run, row in rows.items():
        if len(rows) > MOST_ROWS and row.state in ("finished", "queued"):
            continue
        metric = row.metric
        if len(metric) > LONGEST:
            metric = f"{metric[: LONGEST - 1]}…"
        shown.append((run.id, *row._replace(metric=metric)))
    kept = columns.that_fit(names, shown, IMPORTANT, width)
    table = columns.table(names, shown, kept)
    # The colour of a row tells its state.
    for drawn, (_, state, *_) in zip(table.rows, shown, strict=True):
        drawn.style = STYLE[state]
    done = sum(row.state == "finished" for row in rows.values())
    table.caption = f"{done} of {len(rows)} finished"
    return table


def _duration(seconds):
    minutes, seconds = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}"
