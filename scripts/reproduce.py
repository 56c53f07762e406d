"""Train all runs behind the paper's figures and tables, and report what they show.

    python scripts/reproduce.py --scale SCALE [flags]

    python scripts/reproduce.py --scale embedded
    python scripts/reproduce.py --scale small --hours 12 --processes 2
    python scripts/reproduce.py --scale paper --only draw --minutes 9
    python scripts/reproduce.py --scale paper --device v5e

smoke     minutes; it only checks that every step runs
embedded  about an hour on two cores, on data that needs no download
small     the paper's questions at a small size, real data, five seeds, each norm with
          its own learning rate (tuned) and all with one (same_rate); about 14 hours on
          two cores
paper     the paper's protocol

The report is REPORT/index.html: every claim with its number, interval and verdict, the
figures and the tables. Sets that are not prepared are named, and their runs are left
out. The same command goes on where an earlier one stopped, and repeats no finished run.
A run that diverges is counted in the verdicts and not started again.

Exit codes: 0 done, or the time was up; 1 some runs failed; 2 a mistake; 128 + n stopped
by signal n.
"""

import pathlib

from lnrepro import optional
from lnrepro.config import PROTOCOLS
from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, ended
from scripts.sweep import drive, positive, report

SCALES = ("smoke", "embedded", "small", "paper")


def main(argv: list[str]) -> int:
    """Run the command line.

    Returns:
      The exit code.

    Raises:
      UserError: something that the user can correct.
    """
    args = _arguments(argv)
    from lnrepro.engine.workdir import storage_errors
    from scripts.paper import plan
    from scripts.sweeps.local import Local
    from scripts.sweeps.watch import Watch

    root = args.root or pathlib.Path("runs/reproduce") / args.scale
    protocols = [args.protocol] if args.protocol else PROTOCOLS
    if args.device:
        from scripts.paper import on_device

        return on_device.main(args, root, argv)
    planned, skipped = plan.items(args.scale, args.only, root, args.together, protocols)
    for line in skipped:
        print(line, flush=True)
    if not planned:
        if skipped:
            raise UserError("no run is left; prepare a data set, see above")
        raise UserError(
            f"--scale {args.scale} has no runs of the protocol {args.protocol}; its "
            "sweeps have one learning rate for all norms"
        )
    launcher = Local(args.processes)
    planned = plan.with_costs(planned, root, launcher.cores_of(0))
    print(_plan_table(planned, launcher.slots), flush=True)
    if args.plan:
        return 0
    runs = [run for item in planned for run in item.runs]
    todo = [run for run in runs if not run.ended]
    outcomes, stopped = {}, 0
    if todo:
        watch = Watch(runs)
        minutes = args.minutes or 60 * (args.hours or 0)
        try:
            outcomes, stopped = drive(launcher, todo, watch, minutes)
        finally:
            watch.close()
            launcher.close()
    # A machine that only trains may have nothing to draw with.
    if optional.installed("matplotlib"):
        with storage_errors(args.report):
            write_report(planned, args.report)
        print(f"look at {args.report / 'index.html'}")
    return report(runs, outcomes, stopped, root)


def write_report(planned: list, out: pathlib.Path) -> None:
    """Draw the figures and tables of the runs, and write index.html and verdicts.md.

    Args:
      planned: the sweeps.
      out: the folder.
    """
    from scripts import figures
    from scripts.paper import page, records
    from scripts.paper.axes import FIGURES

    out.mkdir(parents=True, exist_ok=True)
    folders = [run.workdir for item in planned for run in item.runs]
    started = [path for path in folders if (path / "config.json").exists()]
    found = records.find(started)
    parts = [figures.write_verdicts(found, out)]
    parts += [figures.draw_figure(number, found, out) for number in FIGURES]
    parts += [figures.draw_table(number, found, out) for number in (1, 2, 3)]
    page.write(parts, out / "index.html")


def _plan_table(planned, processes) -> str:
    """Return the plan as lines of text."""
    rows = [("", "config", "protocol", "finished", "a run", "left")]
    for item in planned:
        n_finished = sum(run.finished for run in item.runs)
        longest = max(item.seconds.values())
        rows.append(
            (
                item.part,
                item.config,
                item.protocol,
                f"{n_finished} of {len(item.runs)}",
                _time(longest) if longest else "",
                _time(item.seconds_left),
            )
        )
    total = sum(item.seconds_left for item in planned)
    for protocol in dict.fromkeys(item.protocol for item in planned):
        of_it = [item for item in planned if item.protocol == protocol]
        left = _time(sum(item.seconds_left for item in of_it))
        rows.append(("all", "", protocol, "", "", left))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        lines.append("  ".join(cell.ljust(width) for cell, width in cells).rstrip())
    lines.append(
        f"{_time(total)} hours of training steps are left; with {processes} at a time "
        f"{_time(total / processes)}. Evaluations come on top."
    )
    return "\n".join(lines)


def _time(seconds) -> str:
    """Return hours and minutes."""
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02}"


def _arguments(argv):
    from scripts.benches.accelerators.devices import DEVICES
    from scripts.paper.plan import PARTS

    parser = Parser(prog="reproduce.py", description=__doc__)
    add = parser.add_argument
    add("--scale", required=True, choices=SCALES)
    add(
        "--only",
        nargs="+",
        default=[],
        choices=PARTS,
        metavar="NAME",
        help=f"only these experiments: {', '.join(PARTS)}",
    )
    add(
        "--protocol",
        choices=PROTOCOLS,
        help="only the runs in which each norm has its own learning rate, or those in "
        "which all have one; both by default",
    )
    add("--plan", action="store_true", help="show the plan and train nothing")
    add(
        "--device",
        choices=tuple(DEVICES),
        help="show a plan for this device, by its compiler's estimate, and "
        "train nothing",
    )
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--hours", type=float, help="stop after this time")
    limit.add_argument("--minutes", type=float, help="stop after this time")
    add(
        "--processes",
        type=positive,
        metavar="N",
        help="number of runs at a time, each with its share of the cores or GPUs",
    )
    add(
        "--root",
        type=pathlib.Path,
        metavar="DIR",
        help="folder of the run directories; runs/reproduce/SCALE by default",
    )
    add(
        "--together",
        type=positive,
        default=1,
        metavar="N",
        help="train seeds 0 to N - 1 of each norm in one run (config.seeds), which "
        "uses a GPU or TPU better",
    )
    add("--report", type=pathlib.Path, default=pathlib.Path("report"), metavar="DIR")
    args = parser.parse_args(argv)
    for name in ("hours", "minutes"):
        value = getattr(args, name)
        if value is not None and not 0 < value < 1e5:
            parser.error(f"--{name} {value:g}: a time above 0 is needed")
    return args


if __name__ == "__main__":
    ended(main, "this reproduction")
