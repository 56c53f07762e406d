"""List the runs below a folder: python -m lnrepro.runs [DIR]

    python -m lnrepro.runs                      all runs in the folder runs
    python -m lnrepro.runs runs/draw --report   also write the report.html of each

A run is "training" while a process holds its lock, "finished" when it has trained to
its end, "diverged" when a number was not finite, and else "stopped". Runs that are
stopped go on with the command
python -m lnrepro.main --resume --workdir=RUN
"""

import math
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from lnrepro.engine import columns
from lnrepro.engine.command_line import Parser, flag_value
from lnrepro.errors import UserError, ended

# A narrow terminal shows the first of these columns that fit. The name of a run, which
# one wants to copy, often has its variant, norm and seed.
IMPORTANT = (
    "run",
    "state",
    "best",
    "step",
    "age",
    "norm",
    "seed",
    "data",
    "variant",
    "experiment",
)


class Line(NamedTuple):
    """A row of the table of runs, as text."""

    run: str
    experiment: str
    variant: str
    norm: str
    seed: str
    data: str
    state: str
    step: str
    best: str
    age: str


def main(argv: Sequence[str]) -> None:
    """Print the table.

    Raises:
      UserError: a wrong argument, or there is no run.
    """
    parser = Parser(prog="python -m lnrepro.runs", description=__doc__)
    parser.add_argument(
        "folder",
        nargs="?",
        type=pathlib.Path,
        default=pathlib.Path("runs"),
        metavar="DIR",
        help="where to look; runs by default",
    )
    parser.add_argument(
        "--report", action="store_true", help="write the report.html of every run"
    )
    args = parser.parse_args(argv)
    from lnrepro.engine import loaded_run

    lines, locks = [], held_locks()
    for path in _configs(args.folder):
        try:
            run = loaded_run.load(path.parent)
            line = describe(run, args.folder, locks)
            if args.report:
                write_report(run, line)
            lines.append(line)
        except (UserError, OSError) as e:
            # An error of `load` names the folder itself.
            where = "" if str(path.parent) in str(e) else f"{path.parent}: "
            print(f"left out: {where}{e}", file=sys.stderr)
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            # A field that the trainer would not have written, such as a string in place
            # of a number.
            reason = f"not a run's config.json ({e})"
            print(f"left out: {path.parent}: {reason}", file=sys.stderr)
    if not lines:
        raise UserError(
            f"{args.folder}: there is no run directory (with a config.json) at or "
            "below it"
        )
    _print(lines)


def _configs(folder):
    """Return the config.json of every run below a folder, sorted."""
    return sorted(folder.rglob("config.json"))


def describe(run, root: pathlib.Path, locks: set[int]) -> Line:
    """Return what is shown of a run.

    Args:
      run: the run, as `lnrepro.engine.loaded_run.load` returns it.
      root: its name is the path from here.
      locks: what `held_locks` returned.

    Raises:
      UserError: its metrics.jsonl cannot be read, or a number in its config is
        missing or out of its range.
    """
    from lnrepro.checks import check_ranges, missing_fields
    from lnrepro.engine import experiment

    config, records = run.config, run.metrics
    run.add_defaults()
    with missing_fields(config):
        check_ranges(config)
        total = experiment.total_steps(config)
    seed = str(config.seed)
    if config.seeds > 1:
        seed += f" to {config.seed + config.seeds - 1}"
    # A stopped run has a checkpoint of a later step than its last record.
    checkpoints = (run.folder / "checkpoints" / "last").glob("*")
    steps = [int(path.name) for path in checkpoints if path.name.isdigit()]
    step = max(steps, default=0)
    if records:
        step = max(step, records[-1]["step"])
    newest = run.folder / ("metrics.jsonl" if records else "config.json")
    return Line(
        run=os.path.relpath(run.folder, root),
        experiment=str(config.experiment).rpartition(".")[2],
        variant=flag_value(run.about.get("command", []), "config").partition(":")[2],
        norm=str(config.norm),
        seed=seed,
        data=str(config.data.name),
        state=_state(run.folder, locks),
        step=f"{step}/{total}",
        best=_best(config, records),
        age=_age(time.time() - newest.stat().st_mtime),
    )


def write_report(run, line: Line) -> None:
    """Write the report.html of a run, with the last value of every number.

    Args:
      run: the run.
      line: what is shown of it.

    Raises:
      OSError: it cannot be written.
      UserError: its results.json is damaged.
    """
    from lnrepro.engine import artifacts, report, workdir
    from lnrepro.engine.progress import Row

    numbers = {}
    for record in run.metrics:
        numbers |= record
    rows = []
    for name, value in numbers.items():
        if "/" in name and isinstance(value, int | float):
            rows.append(Row(name, value))
    results = workdir.read_results(run.folder) or {}
    for name in (f"best {run.config.best.metric}", "best step"):
        if name in results:
            rows.append(Row(name, results[name]))
    if run.metrics:
        artifacts.draw_curves(run.folder, run.config)
    state = f"{line.state}, step {line.step}"
    print(report.write(run.folder, run.about, rows, state))


def held_locks() -> set[int]:
    """Return the inodes of the files that processes of this machine have locked."""
    try:
        lines = pathlib.Path("/proc/locks").read_text().splitlines()
    except OSError:
        # Only Linux has this file.
        return set()
    inodes = set()
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF, where 5678 is the inode. A
        # line with an arrow is a process that waits for the lock.
        if "->" not in line:
            inodes.add(int(line.split()[5].rpartition(":")[2]))
    return inodes


def _state(folder, locks):
    from lnrepro.engine import workdir

    try:
        if (folder / "lock").stat().st_ino in locks:
            return "training"
    except OSError:
        # Runs that were copied from elsewhere may have no lock.
        pass
    if workdir.is_diverged(folder):
        return "diverged"
    return "finished" if workdir.read_results(folder) else "stopped"


def _best(config, records):
    """Return the best value of `config.best.metric`."""
    metric = config.best.metric
    values = [record[metric] for record in records if metric in record]
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return ""
    best = min(values) if config.best.mode == "min" else max(values)
    return f"{metric} {best:.4g}"


def _age(seconds):
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _print(lines):
    from rich.console import Console

    names = Line._fields
    # Where there is no terminal, all columns are shown. A name that is longer than the
    # terminal is wrapped by the terminal itself, so that it is copied as one line.
    limit = columns.width(names, lines)
    if sys.stdout.isatty():
        longest = columns.width(("run",), [(line.run,) for line in lines])
        limit = max(Console().width, longest)
    kept = columns.that_fit(names, lines, IMPORTANT, limit)
    left_out = [name for name in names if name not in kept]
    Console(width=limit).print(columns.table(names, lines, kept), crop=False)
    if left_out:
        print(f"not shown: {', '.join(left_out)}; `| cat` shows all")


if __name__ == "__main__":
    ended(main, "the table of runs")
