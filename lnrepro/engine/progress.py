"""Output of a run: lines while it trains, then a table."""

import datetime
import time
from collections.abc import Mapping, Sequence

from lnrepro.errors import say

# Training metrics are printed at most this often.
PRINT_EVERY_S = 5.0


class Progress:
    """The rate, the time left and the numbers of a run."""

    def __init__(self, total: int, first: str | None):
        """Print nothing yet.

        Args:
          total: number of steps of the run.
          first: name of the number that is shown before all others.
        """
        self._total, self._first = total, first
        # The step and the time from which the rate is measured; none until `start`.
        self._start = total, 0.0
        self._last_print = 0.0

    def start(self, step: int) -> None:
        """Measure the rate from here, the end of the call that compiles the program."""
        self._start = step, time.monotonic()

    def metrics(self, step: int, values: Mapping[str, float], important: bool) -> None:
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
            say(f"step {step}/{self._total}  {self._rate(step)}  {brief}")

    def _rate(self, step):
        first_step, first_time = self._start
        if step <= first_step:
            return ""
        seconds = max(time.monotonic() - first_time, 1e-9)
        rate = (step - first_step) / seconds
        speed = f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step"
        left = datetime.timedelta(seconds=round((self._total - step) / rate))
        return f"{speed}  {left} left"


# The head of the table of a run's numbers.
HEAD = ("metric", "value", "unit")


def table(*rows: Sequence[str]) -> str:
    """Return rows of texts as lines in which the cells of a column are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
