"""The watch sees what grows, and lets pass what only comes and goes."""

import argparse
import contextlib
import csv
import io
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from lnrepro.errors import UserError
from tests.hardening import watch

# Half an hour with a sample every five seconds.
SECONDS = np.arange(0.0, 1800.0, 5.0)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        (np.full(360, 300.0), True),
        (
            300 + RNG.normal(0, 5, 360) + 100 * (np.arange(360) % 30 == 0),
            True,
        ),  # noise, and an evaluation's peaks
        (300 - SECONDS / 60, True),
        (300 + RNG.normal(0, 5, 360) + SECONDS / 60, False),  # a MiB a minute
        (300 + 4.0 * (np.arange(360) // 30), False),  # 4 MiB an evaluation
    ],
)
def test_trend(values, flat):
    found = watch.trend(SECONDS, values, slack=8.0)
    assert found.flat == flat
    assert found.most == values.max()


def test_slope_is_per_hour():
    found = watch.trend(SECONDS, 10 + SECONDS * 2, slack=1.0)
    # 2 a second.
    assert found.per_hour == pytest.approx(7200)
    assert (found.start, found.end) == pytest.approx((10 + 2 * 87.5, 10 + 2 * 1707.5))


# A process that holds 40 MiB until its standard input is closed.
HOLDS = (
    "import sys; held = b'x' * (40 << 20); print('up', flush=True); sys.stdin.read()"
)
# A process that takes 10 MiB and five open files more, twenty times a second.
GROWS = """
import time
held = []
while True:
    held += [b"x" * (10 << 20), *(open("/dev/null") for _ in range(5))]
    time.sleep(0.05)
"""


def watched(tmp_path, *flags):
    """The exit code and the lines of the table by their first cell."""
    parser = argparse.ArgumentParser()
    watch.add_arguments(parser)
    timing = [
        "--minutes",
        "0.04",
        "--warm-up",
        "0.01",
        "--every",
        "0.05",
        "--out",
        str(tmp_path),
    ]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = watch.main(parser.parse_args([*timing, *flags]))
    lines = [line.strip("| ").split(" | ") for line in out.getvalue().splitlines()]
    return code, {cells[0]: cells[-1] for cells in lines}


@pytest.mark.slow
def test_a_process_that_holds_what_it_has_is_flat_and_goes_on(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"up\n"
        code, table = watched(tmp_path, str(process.pid))
        assert process.poll() is None
        # Watching a process by its PID does not end it.
        process.stdin.close()
    assert code == 0
    assert {table[name] for name in watch.SLACK} == {"flat"}
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["anonymous_mib"]["start"] > 40
    with open(tmp_path / "samples.csv", newline="") as file:
        assert len(list(csv.reader(file))) == summary["samples"] + 1


@pytest.mark.slow
def test_a_command_that_takes_more_and_more_grows_and_is_stopped(tmp_path):
    before = set(children())
    code, table = watched(tmp_path, "--command", sys.executable, "-c", GROWS)
    assert code == 1
    assert (table["anonymous_mib"], table["open_files"], table["threads"]) == (
        "GROWS",
        "GROWS",
        "flat",
    )
    assert set(children()) <= before


def children():
    """This process's children."""
    return pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def test_sample_counts_files_and_threads():
    before = watch.sample(os.getpid())
    with open(os.devnull), open(os.devnull):
        during = watch.sample(os.getpid())
    assert during[2] - before[2] == 2
    assert during[3] >= 1
    ended = subprocess.Popen([sys.executable, "-c", ""])
    # WNOWAIT leaves the ended process as a zombie, whose exit code is not read yet.
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert watch.sample(ended.pid) is None  # a zombie
    ended.wait()
    assert watch.sample(ended.pid) is None


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], "give the PID of a running process, or --command"),
        (["1", "--minutes", "1"], "--minutes longer than --warm-up"),
        (
            ["--minutes", "9", "--command", "/no/such/program"],
            "/no/such/program: No such file",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path, flags, line):
    parser = argparse.ArgumentParser()
    watch.add_arguments(parser)
    with pytest.raises(UserError, match=line) as e:
        watch.main(parser.parse_args(["--out", str(tmp_path), *flags]))
    assert "\n" not in str(e.value)
