"""List the runs below a folder: python -m lnrepro.runs [DIR]

A run is "training" while a process holds its lock, "finished" when it has trained to
its end, "diverged" when a number was not finite, and else "stopped". A network that was
exported is an "export". Runs that are stopped go on with the command
python -m lnrepro.main --resume --workdir=RUN
"""

import datetime
import math
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, run_script
from lnrepro.folders import files_below

if TYPE_CHECKING:
    from lnrepro.engine.loaded_run import LoadedRun


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
    folder = parser.parse_args(argv).folder
    from lnrepro.engine import json_files, loaded_run
    from lnrepro.engine.progress import table

    lines = []
    for path in files_below(folder):
        if path.name != "config.json":
            continue
        try:
            lines.append(describe(loaded_run.load(path.parent), folder))
        # A run of another version may lack fields.
        except (UserError, OSError, *json_files.MALFORMED) as e:
            print(f"left out: {path.parent}: {type(e).__name__}: {e}", file=sys.stderr)
    if not lines:
        raise UserError(
            f"{folder}: there is no run directory (with a config.json) at or below it"
        )
    # No cell is cut, so that the name of a run can be copied.
    print(table(list(lines[0]), *(list(line.values()) for line in lines)))


def describe(run: "LoadedRun", root: pathlib.Path) -> dict[str, str]:
    """Return the row of a run in the table, by the names of the columns.

    Args:
      run: the run, as `lnrepro.engine.loaded_run.load` returns it.
      root: its name is the path from here.

    Raises:
      ValueError: its metrics.jsonl cannot be read.
    """
    from lnrepro.engine import checkpoint, experiment, workdir

    config, records = run.config, run.metrics
    # A stopped run has a checkpoint of a later step than its last record.
    steps = checkpoint.saved_steps(run.folder / workdir.LAST)
    step = max([*steps, *(record["step"] for record in records[-1:])], default=0)
    newest = run.folder / ("metrics.jsonl" if records else "config.json")
    age = datetime.timedelta(seconds=round(time.time() - newest.stat().st_mtime))
    return {
        "run": os.path.relpath(run.folder, root),
        "state": _state(run),
        "step": f"{step}/{experiment.total_steps(config)}",
        "best": _best(config, records),
        "age": str(age),
        "norm": config.norm,
        "seed": str(config.seed),
        "data": config.data.name,
    }


def _state(run):
    from lnrepro.engine import workdir

    if "checkpoint" in run.about:
        return "export"
    if workdir.is_training(run.folder):
        return "training"
    return workdir.ended(run.folder) or "stopped"


def _best(config, records):
    """Return the best value of `config.best.metric`."""
    metric = config.best.metric
    # Records of other steps have no such number.
    values = [record.get(metric, math.nan) for record in records]
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return ""
    best = min(values) if config.best.mode == "min" else max(values)
    return f"{metric} {best:.4g}"


if __name__ == "__main__":
    run_script(main, "the table of runs")
