"""What a run prints: lines, and the table at the end."""

import re
import time

import pytest

from lnrepro.engine.progress import Progress, table


def train():
    """A run whose 200th step is evaluated."""
    progress = Progress(300, first="valid/bound")
    progress.start(100)
    progress.metrics(200, {"test/bound": 1.0, "valid/bound": 2.0}, important=True)


LINE = re.compile(r"step 200/300  .* left  valid/bound 2  test/bound 1")


def test_lines_have_the_rate_the_time_left_and_the_deciding_number_first(capsys):
    train()
    (line,) = capsys.readouterr().out.splitlines()
    assert LINE.fullmatch(line)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(50, "2.0 steps/s  0:00:50 left"), (400, "4.0 s/step  0:06:40 left")],
)
def test_the_rate_is_that_of_the_steps_since_the_start(
    capsys, monkeypatch, seconds, shown
):
    times = iter([0, 0, seconds, seconds])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    train()
    assert f"step 200/300  {shown}  " in capsys.readouterr().out


def cells(line):
    # Without the borders on the left and on the right.
    return [cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]]


def test_the_table_has_units(capsys):
    table("title", [("at [/5]", "0.333333", "[red]nats")], ["a line"])
    title, _, head, _, row, _, line = capsys.readouterr().out.splitlines()
    assert (title, line) == ("title", "a line")
    assert cells(head) == ["metric", "value", "unit"]
    assert cells(row) == ["at [/5]", "0.333333", "[red]nats"]
