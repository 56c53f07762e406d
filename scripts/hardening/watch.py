"""Memory, open files and threads of a process over time: flat or growing (Linux).

python scripts/harden.py watch PID --minutes 30 --out DIR
python scripts/harden.py watch --minutes 30 --out DIR --command python -m lnrepro.main --config=configs/mnist.py
"""

import argparse
import csv
import json
import os
import pathlib
import signal
import subprocess
import time
from typing import NamedTuple

import numpy as np

from lnrepro.engine.errors import UserError

# What is measured, and by how much it may grow from warm-up to the end beside 2% of what it was: the allocator's comings
# and goings. The growth per hour is given all the same, for who trains for days.
SLACK = {"anonymous_mib": 8.0, "file_mib": 8.0, "open_files": 1.0, "threads": 1.0}
SHARE = 0.02


class Trend(NamedTuple):
    """One quantity after warm-up: medians of its first and last tenth, the largest value, growth per hour, and whether it
    is flat."""

    start: float
    end: float
    most: float
    per_hour: float
    flat: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `scripts/harden.py watch`."""
    parser.add_argument(
        "pid",
        type=int,
        nargs="?",
        help="the process to watch; its children do not count",
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="how long, unless it ends before"
    )
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between two samples"
    )
    parser.add_argument(
        "--warm-up",
        type=float,
        default=5.0,
        help="minutes that do not count: compiling, first evaluation",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        required=True,
        help="samples.csv and summary.json are written there",
    )
    parser.add_argument(
        "--command",
        nargs=argparse.REMAINDER,
        help="start this and watch it; it is stopped at the end",
    )


def main(args: argparse.Namespace) -> int:
    """Watch, write both files, print the table; 0 if all is flat, 1 if something grows. Raises UserError."""
    if (args.pid is None) == (not args.command):
        raise UserError(
            "watch: give the PID of a running process, or --command and what to start"
        )
    if args.every <= 0 or args.warm_up < 0 or args.minutes <= args.warm_up:
        raise UserError(
            "watch: --every must be above 0, and --minutes longer than --warm-up"
        )
    trends = _watch(args)
    for line in _table(trends):
        print(line)
    return 0 if all(t.flat for t in trends.values()) else 1


def _watch(args) -> dict[str, Trend]:
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        child = subprocess.Popen(args.command) if args.command else None
    except OSError as e:
        raise UserError(f"watch: {e.filename}: {e.strerror}") from None
    pid = child.pid if child else args.pid
    began, samples = time.monotonic(), []
    try:
        with open(args.out / "samples.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["seconds", *SLACK])
            for k in range(int(args.minutes * 60 / args.every) + 1):
                time.sleep(max(0.0, began + k * args.every - time.monotonic()))
                if (child and child.poll() is not None) or (
                    values := sample(pid)
                ) is None:
                    break
                samples.append((round(time.monotonic() - began, 2), *values))
                writer.writerow(samples[-1])
                file.flush()
    finally:
        if child and child.poll() is None:
            child.send_signal(signal.SIGTERM)
            child.wait()
    table = np.array(samples, float).reshape(len(samples), 1 + len(SLACK))
    table = table[table[:, 0] >= args.warm_up * 60]
    if len(table) < 10:
        raise UserError(
            f"watch: process {pid} gave {len(table)} samples after warm-up; at least 10 are needed"
        )
    trends = {
        name: trend(table[:, 0], table[:, i], SLACK[name])
        for i, name in enumerate(SLACK, 1)
    }
    summary = {
        "minutes": round(samples[-1][0] / 60, 2),
        "warm_up_minutes": args.warm_up,
        "samples": len(samples),
        **{name: t._asdict() for name, t in trends.items()},
    }
    (args.out / "summary.json").write_text(
        json.dumps(summary, indent=2) + "\n", encoding="utf-8"
    )
    return trends


def sample(pid: int) -> tuple[float, float, int, int] | None:
    """(anonymous MiB, file-backed MiB, open files, threads) of a process now; None if it is gone.

    Raises UserError if it belongs to somebody else, or the system keeps no such account.
    """
    proc = pathlib.Path("/proc") / str(pid)
    try:
        lines = (proc / "status").read_text(encoding="utf-8").splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        if (
            "RssAnon" not in status
        ):  # ended, and its parent has not asked for its exit code yet
            return None
        kib = {
            name: int(status[name].split()[0])
            for name in ("RssAnon", "RssFile", "RssShmem")
        }
        files = len(os.listdir(proc / "fd"))
    except (FileNotFoundError, ProcessLookupError):
        if not pathlib.Path("/proc/self/status").exists():
            raise UserError("watch: needs Linux's /proc") from None
        return None
    except PermissionError as e:
        raise UserError(f"watch: {e.filename}: {e.strerror}") from None
    return (
        kib["RssAnon"] / 1024,
        (kib["RssFile"] + kib["RssShmem"]) / 1024,
        files,
        int(status["Threads"]),
    )


def trend(seconds: np.ndarray, values: np.ndarray, slack: float) -> Trend:
    """The trend of one quantity, by the median of the slopes between points half the time apart (Theil-Sen).

    Flat: that slope times the time watched is at most `slack` plus 2% of the first value. Peaks of single evaluations do
    not count, and something that grows at every hundredth sample does.
    """
    tenth, half = max(1, len(values) // 10), len(values) // 2
    slopes = (values[half:] - values[: len(values) - half]) / (
        seconds[half:] - seconds[: len(seconds) - half]
    )
    slope = float(np.median(slopes))
    start, end = float(np.median(values[:tenth])), float(np.median(values[-tenth:]))
    grown = slope * (seconds[-1] - seconds[0])
    return Trend(
        start,
        end,
        float(values.max()),
        slope * 3600,
        bool(grown <= slack + SHARE * start),
    )


def _table(trends: dict[str, Trend]) -> list[str]:
    lines = [
        "| | after warm-up | at the end | most | per hour | |",
        "|---|---|---|---|---|---|",
    ]
    for name, t in trends.items():
        cells = (f"{x:.1f}" for x in (t.start, t.end, t.most))
        lines.append(
            f"| {name} | {' | '.join(cells)} | {t.per_hour:+.2f} | {'flat' if t.flat else 'GROWS'} |"
        )
    return lines
