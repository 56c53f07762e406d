"""What a run shows while it goes on: a bar on a terminal, plain lines elsewhere, a table at the end."""

import sys
import time
from collections.abc import Mapping

PLAIN_EVERY_S = 5.0


class Progress:
    """Rate, time left and the last metrics. Silent where `quiet`, as on every process but the first."""

    def __init__(self, total: int, step: int, quiet: bool = False):
        self._total, self._start, self._began = total, step, None
        self._last, self._shown = {}, 0.0
        self._quiet, self._bar = quiet, None
        if not quiet and sys.stdout.isatty():
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("step"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[metrics]}"),
            )
            self._task = self._bar.add_task(
                "", total=total, completed=step, rate="", metrics=""
            )
            self._bar.start()

    def step(self, step: int) -> None:
        """The run has dispatched `step` steps."""
        if self._began is None:  # the first call compiled; it would spoil the rate
            self._began, self._start = time.monotonic(), step
        if self._bar:
            self._bar.update(self._task, completed=step, rate=self._rate(step))

    def metrics(
        self, step: int, values: Mapping[str, float], important: bool = False
    ) -> None:
        """New numbers; `important` ones (evaluations) are shown at once, others at most every few seconds."""
        self._last.update(values)
        if self._bar:
            self._bar.update(self._task, metrics=_brief(self._last))
        elif not self._quiet and (
            important or time.monotonic() - self._shown > PLAIN_EVERY_S
        ):
            self._shown = time.monotonic()
            print(
                f"step {step}/{self._total}  {self._rate(step)}  {_brief(values)}",
                flush=True,
            )

    def say(self, text: str) -> None:
        """A line of its own, above the bar if there is one."""
        if self._bar:
            self._bar.console.print(text, highlight=False, soft_wrap=True)
        elif not self._quiet:
            print(text, flush=True)

    def close(self) -> None:
        """End the bar."""
        if self._bar:
            self._bar.stop()

    def _rate(self, step: int) -> str:
        if self._began is None or step <= self._start:
            return ""
        seconds = max(time.monotonic() - self._began, 1e-9)
        rate = (step - self._start) / seconds
        left = (self._total - step) / rate
        speed = f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step"
        return speed if self._bar else f"{speed}  {_duration(left)} left"


def _duration(seconds: float) -> str:
    m, s = divmod(round(seconds), 60)
    h, m = divmod(m, 60)
    return f"{h}:{m:02}:{s:02}" if h else f"{m}:{s:02}"


def _brief(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())


def table(title: str, values: Mapping[str, float], lines: list[str]) -> None:
    """Print a short table of final numbers and, below it, lines that say where to look."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    if values:
        console.print(title, highlight=False, soft_wrap=True, markup=False)
        t = Table("metric", "value")
        for name, value in values.items():
            t.add_row(name, f"{value:.6g}")
        console.print(t)
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
