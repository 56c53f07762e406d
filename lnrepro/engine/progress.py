"""Output of a run: lines while it trains, then a table."""

import datetime
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# Training metrics are printed at most this often.
PRINT_EVERY_S = 5.0


class Progress:
    """The rate, the time left and the numbers of a run."""

    def __init__(self, total: int, quiet: bool = False, first: str | None = None):
        """Print nothing yet.

        Args:
          total: number of steps of the run.
          quiet: whether nothing is printed, as on every process but the first.
          first: name of the number that is shown before all others.
        """
        self._total = total
        self._quiet = quiet
        self._first = first
        # The step and the time from which the rate is measured.
        self._start: tuple[int, float] | None = None
        self._last_print = 0.0

    def step(self, step: int) -> None:
        """Note that `step` steps have been dispatched."""
        # The first call compiles the program, so that the rate is measured from its
        # end.
        if self._start is None:
            self._start = step, time.monotonic()

    def metrics(
        self, step: int, values: Mapping[str, float], important: bool = False
    ) -> None:
        """Print numbers.

        Args:
          step: the step they belong to.
          values: {name: number}.
          important: whether to print them now, as those of evaluations.
        """
        now = time.monotonic()
        if important or now - self._last_print > PRINT_EVERY_S:
            self._last_print = now
            names = sorted(values, key=lambda name: name != self._first)
            brief = "  ".join(f"{name} {values[name]:.4g}" for name in names)
            self.say(f"step {step}/{self._total}  {self._rate(step)}  {brief}")

    def say(self, text: str) -> None:
        """Print a line."""
        if not self._quiet:
            print(text, flush=True)

    def _rate(self, step):
        first_step, first_time = self._start or (step, 0.0)
        if step <= first_step:
            return ""
        seconds = max(time.monotonic() - first_time, 1e-9)
        rate = (step - first_step) / seconds
        speed = f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step"
        left = datetime.timedelta(seconds=round((self._total - step) / rate))
        return f"{speed}  {left} left"


class Row(NamedTuple):
    """A number in a table.

    Attributes:
      name: what it is.
      value: the number.
      unit: its unit; "" if it has none.
    """

    name: str
    value: float
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
        cells = Table("metric", "value", "unit")
        for row in numbers:
            # Brackets in a plain string would be rich's markup.
            cells.add_row(*map(Text, (row.name, f"{row.value:.6g}", row.unit)))
        console.print(cells)
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
