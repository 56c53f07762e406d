# ruff: noqa: E501, the screens are as wide as the terminals.
"""What terminals of 80 and 120 columns show, kept as text."""

import contextlib
import io
import re

import pytest

from lnrepro import runs
from lnrepro.engine.progress import Progress
from lnrepro.runs import Line


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """Return a function (width, what prints) -> the lines on a terminal."""

    def show(width, prints):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm-256color")
        terminal = Terminal()
        with contextlib.redirect_stdout(terminal):
            prints()
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
        lines = text.replace("\r", "\n").split("\n")
        return [line.rstrip() for line in lines if line.strip()]

    return show


LINES = [
    Line(
        run="draw/default/norm=layer_cell,optimizer.learning_rate=0.0003",
        experiment="draw",
        variant="",
        norm="layer_cell",
        seed="0",
        data="binarized_digits",
        state="finished",
        step="3000/3000",
        best="valid/bound_binarized_digits 91.42",
        age="3 min",
    ),
    Line(
        run="mnist/smoke-layer-seed3",
        experiment="mnist",
        variant="smoke",
        norm="layer",
        seed="3",
        data="digits",
        state="stopped",
        step="20/44",
        best="valid/error 0.1222",
        age="2 h",
    ),
]
RUNS_80 = """\
  run                                                           state
 ────────────────────────────────────────────────────────────────────────
  draw/default/norm=layer_cell,optimizer.learning_rate=0.0003   finished
  mnist/smoke-layer-seed3                                       stopped
not shown: experiment, variant, norm, seed, data, step, best, age; `| cat` shows all
"""
RUNS_120 = """\
  run                                                           state      best                                 age
 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
  draw/default/norm=layer_cell,optimizer.learning_rate=0.0003   finished   valid/bound_binarized_digits 91.42   3 min
  mnist/smoke-layer-seed3                                       stopped    valid/error 0.1222                   2 h
not shown: experiment, variant, norm, seed, data, step; `| cat` shows all
"""
PROGRESS_80 = """\
step  200/3000 ━━━━ 20.0 steps/s 0:02:20 left
valid/bound_binarized_digits 92.5  train/bound 95.12  train/reconstruction 71.2…
"""
PROGRESS_120 = """\
step  200/3000 ━━━━ 20.0 steps/s 0:02:20 left
valid/bound_binarized_digits 92.5  train/bound 95.12  train/reconstruction 71.2  train/divergence 23.9  test/bound_bina…
"""


@pytest.mark.parametrize(("width", "screen"), [(80, RUNS_80), (120, RUNS_120)])
def test_the_table_of_runs_drops_columns_and_cuts_no_cell(shown, width, screen):
    lines = shown(width, lambda: runs._print(LINES))
    assert lines == screen.splitlines()


def test_a_name_longer_than_the_terminal_is_whole(shown):
    line = LINES[0]._replace(run="a" * 130)
    lines = shown(80, lambda: runs._print([line]))
    assert any(line.strip().startswith("a" * 130) for line in lines)


def test_a_pipe_has_all_columns_of_the_longest_name(capsys):
    line = LINES[0]._replace(run="a" * 400)
    runs._print([line])
    head, _, row = filter(str.strip, capsys.readouterr().out.splitlines())
    assert tuple(head.split()) == Line._fields
    assert row.split()[0] == "a" * 400
    assert line.best in row


VALUES = {
    "train/bound": 95.123456,
    "train/reconstruction": 71.2,
    "train/divergence": 23.9,
    "test/bound_binarized_digits": 93.01,
    "valid/bound_binarized_digits": 92.5,
}


@pytest.mark.parametrize(("width", "screen"), [(80, PROGRESS_80), (120, PROGRESS_120)])
def test_the_number_that_decides_comes_first(shown, width, screen):
    def train():
        progress = Progress(3000, 0, first="valid/bound_binarized_digits")
        for step in (1, 200):
            progress.step(step)
        progress.metrics(200, VALUES)
        progress.close()

    *_, bar, numbers = shown(width, train)
    assert len(bar) <= width
    # The bar is as long as the speed of this machine lets it be.
    bar = re.sub(r"[\d.]+ steps/s +[\d:-]+", "20.0 steps/s 0:02:20", bar)
    bar = re.sub("[━╸╺]+", "━━━━", bar)
    assert [bar, numbers] == screen.splitlines()


def test_lines_without_a_terminal_begin_with_it_too(capsys):
    Progress(3000, 0, first="valid/bound").metrics(
        200, {"test/bound": 1.0, "valid/bound": 2.0}, important=True
    )
    assert capsys.readouterr().out.split("  ")[-2:] == [
        "valid/bound 2",
        "test/bound 1\n",
    ]
