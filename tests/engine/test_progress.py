"""What a terminal shows: the progress stays whole however long the metrics are."""

import contextlib
import io
import re

import pytest

from lnrepro.engine.progress import Progress, Row, table


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(params=[80, 120, 200])
def terminal(request, monkeypatch):
    found = Terminal()
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("TERM", "xterm-256color")
    found.width = request.param
    return found


def lines(terminal) -> list[str]:
    """The lines without colours and cursor movements."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    return [line.strip("\r") for line in text.replace("\r", "\n").split("\n")]


def test_the_bar_keeps_step_total_rate_and_time_beside_many_metrics(terminal):
    values = {f"valid/a_long_name_{i}": 1 / 3 for i in range(20)}
    with contextlib.redirect_stdout(terminal):
        progress = Progress(total=300, step=0)
        for step in (100, 200):
            progress.step(step)
            progress.metrics(step, values, important=True)
        progress.close()
    shown = lines(terminal)
    bars = [line for line in shown if line.startswith("step 200/300")]
    assert re.search(r"steps/s .*\d:\d\d:\d\d left$", bars[-1].rstrip())
    metrics = [line for line in shown if line.startswith("valid/a_long_name_0 0.3333")]
    assert metrics[-1].rstrip().endswith("…")
    assert max(len(line.rstrip()) for line in shown) <= terminal.width


def test_brackets_are_no_markup(terminal, capsys):
    with contextlib.redirect_stdout(terminal):
        progress = Progress(total=3, step=0)
        progress.say("training, in runs/[red]/x and runs/[/a]/y")
        progress.close()
    assert "training, in runs/[red]/x and runs/[/a]/y" in map(
        str.strip, lines(terminal)
    )
    table("title", [Row("at [/5]", 1.0, unit="[red]nats")], [])
    *_, row, _ = capsys.readouterr().out.splitlines()
    assert cells(row) == ["at [/5]", "1", "[red]nats"]


def test_the_first_step_compiles(terminal):
    with contextlib.redirect_stdout(terminal):
        Progress(total=300, step=0).close()
    assert any("compiling" in line for line in lines(terminal))


def cells(line):
    # Without the borders on the left and on the right.
    return [cell.strip() for cell in line.replace("┃", "│").split("│")[1:-1]]


def test_the_table_has_units_and_the_spread_over_seeds(capsys):
    table("title", [Row("loss", 1 / 3, unit="nats"), Row("best step", 40)], ["a line"])
    title, _, head, _, *rows, _, line = capsys.readouterr().out.splitlines()
    assert (title, line) == ("title", "a line")
    assert cells(head) == ["metric", "value", "unit"]
    assert [cells(row) for row in rows] == [
        ["loss", "0.333333", "nats"],
        ["best step", "40", ""],
    ]
    table("title", [Row("loss", 2.0, spread=0.5), Row("best step", 40)], [])
    _, _, head, _, *rows, _ = capsys.readouterr().out.splitlines()
    assert cells(head) == ["metric", "mean", "std over seeds", "unit"]
    assert [cells(row) for row in rows] == [
        ["loss", "2", "0.5", ""],
        ["best step", "40", "", ""],
    ]
