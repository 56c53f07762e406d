"""What a run prints: lines, and the table at the end."""

import re

from lnrepro.engine.progress import Progress, Row, table


def train():
    """Two steps of a run, the second of which is evaluated."""
    progress = Progress(300, first="valid/bound")
    progress.say("training, in runs/[red]/x and runs/[/a]/y")
    for step in (100, 200):
        progress.step(step)
    progress.metrics(200, {"test/bound": 1.0, "valid/bound": 2.0}, important=True)


LINE = re.compile(r"step 200/300  .* left  valid/bound 2  test/bound 1")


def test_lines_have_the_rate_the_time_left_and_the_deciding_number_first(capsys):
    train()
    said, line = capsys.readouterr().out.splitlines()
    assert said == "training, in runs/[red]/x and runs/[/a]/y"
    assert LINE.fullmatch(line)


def test_other_processes_print_nothing(capsys):
    progress = Progress(300, quiet=True)
    progress.step(1)
    progress.metrics(1, {"a": 1.0}, important=True)
    progress.say("a line")
    assert capsys.readouterr().out == ""


def cells(line):
    # Without the borders on the left and on the right.
    return [cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]]


def test_the_table_has_units(capsys):
    table("title", [Row("at [/5]", 1 / 3, unit="[red]nats")], ["a line"])
    title, _, head, _, row, _, line = capsys.readouterr().out.splitlines()
    assert (title, line) == ("title", "a line")
    assert cells(head) == ["metric", "value", "unit"]
    assert cells(row) == ["at [/5]", "0.333333", "[red]nats"]
