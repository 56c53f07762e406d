"""The sweep as it goes on: a live table on a terminal, a line for whatever changes elsewhere."""

import collections
import sys
import time

from scripts.sweeps.runs import Run, Seen, last_line, log_size, look

PLAIN_EVERY_S = 30.0
SILENT_S = 300.0  # a run without a record for so long shows since when
MARKS = 20  # records from which the pace is taken
STYLE = {
    "finished": "green",
    "running": "bold",
    "failed": "red",
    "stopped": "yellow",
    "queued": "dim",
}


class Watch:
    """State, step, metric and time left of every run, read from the files of their directories."""

    def __init__(self, runs: list[Run]):
        self._out = sys.stdout  # a launcher may send what libraries print elsewhere
        self._runs, self._began = runs, {run: log_size(run) for run in runs}
        self._marks: dict[
            Run, collections.deque
        ] = {}  # (step, time) of a run's newest records
        self._said: dict[Run, tuple[str, float]] = {}  # state last printed, and when
        self._live = None
        if sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(file=self._out),
                auto_refresh=False,
                redirect_stdout=False,
            )

    def show(self, codes: dict[Run, int]) -> None:
        """Bring it up to date; `codes` are the exit codes of the runs that have ended."""
        rows = {run: self._row(run, codes) for run in self._runs}
        if self._live:
            self._live.start()  # once; nothing is drawn if the launcher refuses
            self._live.update(_table(rows), refresh=True)
            return
        for run, (state, *cells) in rows.items():
            said, when = self._said.get(run, ("", 0.0))
            if state != said or (
                state == "running" and time.monotonic() - when > PLAIN_EVERY_S
            ):
                self._said[run] = state, time.monotonic()
                print(
                    "  ".join([f"{run.id}: {state}", *filter(None, cells)]),
                    file=self._out,
                    flush=True,
                )

    def say(self, line: str) -> None:
        """A line of its own."""
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

    def _row(self, run: Run, codes: dict[Run, int]) -> tuple[str, str, str, str]:
        state, seen = self._state(run, codes), look(run)
        step = f"{seen.step}/{run.total}" if seen.step else ""
        metric = f"{run.metric} {seen.value:.4g}" if seen.value is not None else ""
        left = ""
        if state == "running" and seen.step:
            left = self._left(run, seen)
        elif state == "failed":
            metric = last_line(run)
        return state, step, metric, left

    def _left(self, run: Run, seen: Seen) -> str:
        """Time left at the pace of the newest records; how long there was none, if that is long."""
        if (age := time.time() - seen.time) > SILENT_S:
            return f"no record for {_duration(age)}"
        marks = self._marks.setdefault(run, collections.deque(maxlen=MARKS))
        if marks and seen.step < marks[-1][0]:  # resumed from before it
            marks.clear()
        if not marks or seen.step > marks[-1][0]:
            marks.append((seen.step, seen.time))
        (step0, time0), (step1, time1) = marks[0], marks[-1]
        if step1 == step0:
            return ""
        return (
            f"{_duration((time1 - time0) / (step1 - step0) * (run.total - step1))} left"
        )

    def _state(self, run: Run, codes: dict[Run, int]) -> str:
        if run.finished:
            return "finished"
        if run in codes:
            return "stopped" if codes[run] > 128 else "failed"
        return "running" if log_size(run) > self._began[run] else "queued"


def _table(rows: dict[Run, tuple[str, str, str, str]]):
    from rich.table import Table

    t = Table("run", "state", "step", "metric", "left")
    for run, (state, *cells) in rows.items():
        t.add_row(run.id, f"[{STYLE[state]}]{state}[/]", *cells)
    done = sum(state == "finished" for state, *_ in rows.values())
    t.caption = f"{done} of {len(rows)} finished"
    return t


def _duration(seconds: float) -> str:
    m, s = divmod(max(0, round(seconds)), 60)
    h, m = divmod(m, 60)
    return f"{h}:{m:02}:{s:02}" if h else f"{m}:{s:02}"
