"""Output of a run: lines while it trains, then a table."""

import datetime
import time
from collections.abc import Mapping, Sequence


def line(
    step: int,
    total: int,
    values: Mapping[str, float],
    first: str | None,
    start: tuple[int, float] | None,
) -> str:
    """Return the line about the numbers of a step.

    Args:
      step: the step they belong to.
      total: number of steps of the run.
      values: {name: number}.
      first: name of the number that is shown before all others.
      start: the step and the time from which the rate is measured, if it is.
    """
    names = sorted(values, key=lambda name: name != first)
    brief = "  ".join(f"{name} {values[name]:.4g}" for name in names)
    rate = _rate(total, step, *start) if start and step > start[0] else ""
    return f"step {step}/{total}  {rate}  {brief}"


def _rate(total, step, first_step, first_time):
    seconds = max(time.monotonic() - first_time, 1e-9)
    rate = (step - first_step) / seconds
    speed = f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s/step"
    left = datetime.timedelta(seconds=round((total - step) / rate))
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
