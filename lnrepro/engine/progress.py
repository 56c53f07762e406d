"""Output of a run: a progress bar on a terminal, else lines; then a table."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Where there is no terminal, training metrics are printed at most this often.
PRINT_EVERY_S = 5.0


class Progress:
    """The rate, the time left and the last metrics of a run."""

    def __init__(
        self, total: int, step: int, quiet: bool = False, first: str | None = None
    ):
        """Start the bar.

        Args:
          total: number of steps of the run.
          step: number of steps taken before.
          quiet: whether nothing is printed, as on every process but the first.
          first: name of the number that is shown before all others, since the end of a
            long line is cut.
        """
        self._total = total
        self._quiet = quiet
        self._first = first
        # The step and the time from which the rate is measured.
        self._first_step = step
        self._first_time = None
        self._last_values = {}
        self._last_print = 0.0
        self._bar = None
        if not quiet and sys.stdout.isatty():
            self._bar = _Bar(total, step)

    def step(self, step: int) -> None:
        """Note that `step` steps have been dispatched."""
        # The first call compiles the program, so that the rate is measured from its
        # end.
        if self._first_time is None:
            self._first_time, self._first_step = time.monotonic(), step
        if self._bar:
            self._bar.show(step, self._rate(step))

    def metrics(
        self, step: int, values: Mapping[str, float], important: bool = False
    ) -> None:
        """Show numbers.

        Args:
          step: the step they belong to.
          values: {name: number}.
          important: whether to print them now, as those of evaluations.
        """
        self._last_values.update(values)
        if self._bar:
            self._bar.metrics.plain = self._brief(self._last_values)
            return
        now = time.monotonic()
        if not self._quiet and (important or now - self._last_print > PRINT_EVERY_S):
            self._last_print = now
            print(
                f"step {step}/{self._total}  {self._rate(step)}  {self._brief(values)}",
                flush=True,
            )

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar:
            self._bar.live.console.print(
                text, highlight=False, soft_wrap=True, markup=False
            )
        elif not self._quiet:
            print(text, flush=True)

    def close(self) -> None:
        """End the bar."""
        if self._bar:
            self._bar.live.stop()

    def _brief(self, values):
        names = sorted(values, key=lambda name: name != self._first)
        return "  ".join(f"{name} {values[name]:.4g}" for name in names)

    def _rate(self, step):
        if self._first_time is None or step <= self._first_step:
            return ""
        seconds = max(time.monotonic() - self._first_time, 1e-9)
        rate = (step - self._first_step) / seconds
        speed = f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step"
        if self._bar:
            # The bar has a column of its own for the time left.
            return speed
        return f"{speed}  {_duration((self._total - step) / rate)} left"


class _Bar:
    """Two lines of a terminal: the progress, and the last metrics below it.

    Attributes:
      live: what draws them.
      metrics: the second line, which is cut to the width of the terminal.
    """

    def __init__(self, total, step):
        from rich import console, live, progress, text

        self._progress = progress.Progress(
            progress.TextColumn("step"),
            progress.MofNCompleteColumn(),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("left"),
        )
        # The first call of the step compiles it, which may take a minute.
        self._task = self._progress.add_task(
            "", total=total, completed=step, rate="compiling"
        )
        self.metrics = text.Text(no_wrap=True, overflow="ellipsis")
        self.live = live.Live(
            console.Group(self._progress, self.metrics),
            console=console.Console(file=sys.stdout),
            refresh_per_second=4,
        )
        self.live.start()

    def show(self, step, rate):
        self._progress.update(self._task, completed=step, rate=rate)


def _duration(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Row(NamedTuple):
    """A number in a table.

    Attributes:
      name: what it is.
      value: the number, or the mean over several seeds.
      spread: standard deviation over the seeds; None with one seed.
      unit: its unit; "" if it has none.
    """

    name: str
    value: float
    spread: float | None = None
    unit: str = ""


def table(title: str, numbers: Sequence[Row], lines: Sequence[str]) -> None:
    """Print a table of numbers, and lines below it.

    Args:
      title: stands above the table.
      numbers: the rows; without any there is no table.
      lines: say where to look further.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 120)
    if numbers:
        console.print(title, highlight=False, soft_wrap=True, markup=False)
        has_spread = any(row.spread is not None for row in numbers)
        columns = ["metric", "value"]
        if has_spread:
            columns = ["metric", "mean", "std over seeds"]
        cells = Table(*columns, "unit")
        for row in numbers:
            values = [row.name, f"{row.value:.6g}"]
            if has_spread:
                values.append("" if row.spread is None else f"{row.spread:.2g}")
            # Brackets in a plain string would be rich's markup.
            cells.add_row(*map(Text, (*values, row.unit)))
        console.print(cells)
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
