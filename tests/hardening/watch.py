"""Memory, open files and threads of a process over time: flat or growing (Linux).

python -m tests.hardening watch PID --minutes 30 --out DIR
python -m tests.hardening watch --out DIR --command python -m lnrepro.main ...
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

from lnrepro.errors import UserError
from scripts import markdown as md

# A quantity may grow by this much, and by SHARE of its first value, and still be flat.
# Allocators vary that much. The growth per hour is reported in any case, for runs that
# take days.
SLACK = {"anonymous_mib": 8.0, "file_mib": 8.0, "open_files": 1.0, "threads": 1.0}
SHARE = 0.02


class Trend(NamedTuple):
    """The trend of a quantity after warm-up.

    Attributes:
      start: the median of the first tenth.
      end: the median of the last tenth.
      most: the largest value.
      per_hour: the growth in an hour.
      flat: whether it grows by no more than is allowed.
    """

    start: float
    end: float
    most: float
    per_hour: float
    flat: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `watch`."""
    add = parser.add_argument
    add(
        "pid",
        type=int,
        nargs="?",
        help="the process to watch; its children do not count",
    )
    add("--minutes", type=float, default=30.0, help="how long, unless it ends before")
    add("--every", type=float, default=5.0, help="seconds between two samples")
    add(
        "--warm-up",
        type=float,
        default=5.0,
        help="minutes that do not count: compiling, first evaluation",
    )
    add(
        "--out",
        type=pathlib.Path,
        required=True,
        help="folder for samples.csv and summary.json",
    )
    add(
        "--command",
        nargs=argparse.REMAINDER,
        help="start this and watch it; it is stopped at the end",
    )


def main(args: argparse.Namespace) -> int:
    """Watch a process, write both files and print the table.

    Returns:
      0 if everything is flat, 1 if something grows.

    Raises:
      UserError: a wrong flag, or a process that cannot be watched.
    """
    if (args.pid is None) == (not args.command):
        raise UserError(
            "watch: give the PID of a running process, or --command and what to start"
        )
    if args.every <= 0 or args.warm_up < 0 or args.minutes <= args.warm_up:
        raise UserError(
            "watch: --every must be above 0, and --minutes longer than --warm-up"
        )
    trends = _watch(args)
    print(_table(trends))
    return 0 if all(t.flat for t in trends.values()) else 1


def _watch(args):
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        child = subprocess.Popen(args.command) if args.command else None
    except OSError as e:
        raise UserError(f"watch: {e.filename}: {e.strerror}") from None
    pid = child.pid if child else args.pid
    try:
        samples = _samples(args, pid, child)
    finally:
        if child and child.poll() is None:
            child.send_signal(signal.SIGTERM)
            child.wait()
    table = np.array(samples, float).reshape(len(samples), 1 + len(SLACK))
    table = table[table[:, 0] >= args.warm_up * 60]
    if len(table) < 10:
        raise UserError(
            f"watch: process {pid} gave {len(table)} samples after warm-up; at least "
            "10 are needed"
        )
    trends = {}
    for name, values in zip(SLACK, table.T[1:], strict=True):
        trends[name] = trend(table[:, 0], values, SLACK[name])
    summary = {
        "minutes": round(samples[-1][0] / 60, 2),
        "warm_up_minutes": args.warm_up,
        "samples": len(samples),
        **{name: t._asdict() for name, t in trends.items()},
    }
    text = json.dumps(summary, indent=2) + "\n"
    (args.out / "summary.json").write_text(text, encoding="utf-8")
    return trends


def _samples(args, pid, child):
    """Return (seconds, values of SLACK) until the process or the time ends."""
    began, samples = time.monotonic(), []
    with open(args.out / "samples.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", *SLACK])
        for k in range(int(args.minutes * 60 / args.every) + 1):
            # Samples have fixed times, so that slow ones do not shift those that
            # follow.
            time.sleep(max(0.0, began + k * args.every - time.monotonic()))
            ended = child and child.poll() is not None
            values = None if ended else sample(pid)
            if values is None:
                break
            samples.append((round(time.monotonic() - began, 2), *values))
            writer.writerow(samples[-1])
            # The file can be read while the process runs.
            file.flush()
    return samples


def sample(pid: int) -> tuple[float, float, int, int] | None:
    """Measure a process now.

    Returns:
      (anonymous MiB, file-backed MiB, open files, threads), or None if it is gone.

    Raises:
      UserError: it belongs to another user, or this is not Linux.
    """
    proc = pathlib.Path("/proc") / str(pid)
    try:
        lines = (proc / "status").read_text(encoding="utf-8").splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        # It has ended, and its parent has not read its exit code yet.
        if "RssAnon" not in status:
            return None
        files = len(os.listdir(proc / "fd"))
    except (FileNotFoundError, ProcessLookupError):
        if not pathlib.Path("/proc/self/status").exists():
            raise UserError("watch: needs Linux's /proc") from None
        return None
    except PermissionError as e:
        raise UserError(f"watch: {e.filename}: {e.strerror}") from None

    def mib(name):
        return int(status[name].split()[0]) / 1024

    # Mapped files and shared memory, whose pages the system may take back.
    in_files = mib("RssFile") + mib("RssShmem")
    return mib("RssAnon"), in_files, files, int(status["Threads"])


def trend(seconds: np.ndarray, values: np.ndarray, slack: float) -> Trend:
    """Return the trend of a quantity.

    The slope is the median of the slopes between points that are half the time apart
    (Theil-Sen): peaks of single evaluations do not count, and what grows at every
    hundredth sample does. The quantity is flat where slope times time is at most
    `slack` plus SHARE of the first value.

    Args:
      seconds: [N].
      values: [N].
      slack: the growth that is allowed.
    """
    tenth, half = max(1, len(values) // 10), len(values) // 2
    rise = values[half:] - values[: len(values) - half]
    time_between = seconds[half:] - seconds[: len(seconds) - half]
    slope = float(np.median(rise / time_between))
    start, end = float(np.median(values[:tenth])), float(np.median(values[-tenth:]))
    growth = slope * (seconds[-1] - seconds[0])
    flat = bool(growth <= slack + SHARE * start)
    return Trend(start, end, float(values.max()), slope * 3600, flat)


def _table(trends):
    rows = []
    for name, t in trends.items():
        verdict = "flat" if t.flat else "GROWS"
        cells = [f"{value:.1f}" for value in (t.start, t.end, t.most)]
        rows.append((name, *cells, f"{t.per_hour:+.2f}", verdict))
    return md.table(("", "after warm-up", "at the end", "most", "per hour", ""), rows)
