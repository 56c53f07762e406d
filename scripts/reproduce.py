"""Train all runs behind the paper's figures and tables, and report what they show.

    python scripts/reproduce.py --scale SCALE [flags]

    python scripts/reproduce.py --scale embedded
    python scripts/reproduce.py --scale small --hours 12 --processes 2
    python scripts/reproduce.py --scale paper --only draw --hours 0.15

smoke     minutes; it only checks that every step runs
embedded  about an hour on two cores, on data that needs no download
small     the paper's questions at a small size, real data, five seeds, each norm with
          its own learning rate (tuned) and all with one (same_rate); about 14 hours on
          two cores
paper     the paper's protocol

The report is REPORT/index.md: the numbers of each claim with their intervals, the
figures and the tables. Sets that are not prepared are named, and their runs are left
out. The same command goes on where an earlier one stopped, and repeats no finished run.
A run that diverges is counted in the verdicts and not started again.

Exit codes: 0 done, or the time was up; 1 some runs failed; 2 a mistake; 128 + n stopped
by signal n.
"""

import pathlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from lnrepro.engine.command_line import Parser
from lnrepro.errors import DataError, UserError, run_script
from lnrepro.sweeps import PROTOCOLS
from scripts.sweep import drive, ended_runs, positive, report, seeds

# What of the paper the runs of each experiment are for, and {variant: minutes of a run
# with layer norm}; the cheapest first. `small` takes one core of an AMD EPYC
# (experiments/README.md), the others two cores (docs/reproduce.md).
PARTS = {
    "convnet": ("Section 6.7", {"smoke": 0.1, "": 0.15, "small": 1.5, "paper": 3}),
    "mnist": (
        "Figure 6",
        {
            "smoke": 0.1,
            "": 0.1,
            "small": 1.5,
            "small_bz4": 5,
            "paper": 5,
            "paper_bz4": 35,
        },
    ),
    "attentive_reader": (
        "Figure 2",
        {"smoke": 0.1, "": 1.5, "small": 2.5, "paper": 5_500},
    ),
    "draw": ("Figure 4", {"smoke": 0.1, "": 1.5, "small": 4, "paper": 480}),
    "order_embeddings": (
        "Figure 1, Table 2",
        {"smoke": 0.1, "": 0.5, "small": 7, "paper": 660},
    ),
    "handwriting": ("Figure 5", {"smoke": 0.1, "": 1.7, "small": 17, "paper": 3_300}),
    "skip_thoughts": (
        "Figure 3, Table 3",
        {"smoke": 0.1, "": 1.1, "small": 42, "paper": 140_000},
    ),
}
TUNED, SAME = PROTOCOLS
# {scale: (variant, protocol, name of its sweep) of each sweep}. Only MNIST has the
# variants with batches of 4. The sweeps of the paper's figures have one rate for all
# norms.
SCALES = {
    "smoke": (("smoke", TUNED, "small"), ("smoke", SAME, "small_same_rate")),
    "embedded": (("", SAME, ""),),
    "small": (
        ("small", TUNED, "small"),
        ("small", SAME, "small_same_rate"),
        ("small_bz4", TUNED, "small_bz4"),
        ("small_bz4", SAME, "small_bz4_same_rate"),
    ),
    "paper": (("paper", SAME, ""), ("paper_bz4", SAME, "")),
}


class Item(NamedTuple):
    """A sweep of the plan.

    Attributes:
      part: the figures and tables that it is for.
      config: FILE:VARIANT.
      protocol: one of `PROTOCOLS`.
      runs: its runs, without those that belong to an earlier item too.
      minutes: about the time of one run.
    """

    part: str
    config: str
    protocol: str
    runs: Sequence
    minutes: float

    @property
    def left(self) -> Sequence:
        """The runs that have not ended."""
        return [run for run in self.runs if not run.ended]


def plan(
    scale: str, only: Collection[str], root: pathlib.Path, seeds: Sequence[int] = ()
) -> tuple[list[Item], list[str]]:
    """Return the sweeps of a scale, and a line for each that is left out.

    Args:
      scale: a key of `SCALES`.
      only: names of experiments; all if there are none.
      root: folder of the runs. A run of both protocols is planned once.
      seeds: seeds in place of those of the sweeps.
    """
    from scripts.sweeps.planned_runs import check_data
    from scripts.sweeps.planned_runs import plan as plan_sweep

    found, skipped, planned = [], {}, set()
    few = ["seed=0,1"] if scale == "smoke" and not seeds else []
    for name, (part, minutes) in PARTS.items():
        for variant, protocol, sweep in SCALES[scale]:
            if name not in (only or PARTS) or variant not in minutes:
                continue
            config = f"configs/{name}.py:{variant}".removesuffix(":")
            folder = root / f"{name}-{variant or 'default'}"
            try:
                of_sweep = plan_sweep(config, sweep, str(folder), [], few, seeds)
                check_data(of_sweep)
            except DataError as e:
                skipped[config] = f"left out: {part}, {config}: {e}"
                continue
            runs = [run for run in of_sweep if run.workdir not in planned]
            planned.update(run.workdir for run in runs)
            if runs:
                found.append(Item(part, config, protocol, runs, minutes[variant]))
    return found, list(skipped.values())


def main(argv: list[str]) -> int:
    """Run the command line.

    Returns:
      The exit code.

    Raises:
      UserError: something that the user can correct.
    """
    args = _arguments(argv)
    from scripts import figures
    from scripts.paper.records import find
    from scripts.sweeps.local import Local

    root = args.root or pathlib.Path("runs/reproduce") / args.scale
    planned, skipped = plan(args.scale, args.only, root, args.seeds)
    for line in skipped:
        print(line, flush=True)
    for item in planned:
        line = f"{item.part:18} {item.config:35} {item.protocol:10}"
        print(line, ended_runs(item.runs), flush=True)
    if not planned:
        raise UserError("no run is left; prepare a data set")
    todo = [run for item in planned for run in item.left]
    hours = sum(item.minutes * len(item.left) for item in planned) / 60
    print(f"{len(todo)} runs are left, about {hours:,.1f} hours one after the other")
    if args.plan:
        return 0
    # What the report needs is read before anything is trained.
    find(args.records)
    runs = [run for item in planned for run in item.runs]
    outcomes, stopped = drive(Local(args.processes), todo, 60 * args.hours)
    started = [run.workdir for run in runs if (run.workdir / "config.json").exists()]
    found = find([*args.records, *started])
    figures.draw_all(found, args.report, args.only or PARTS)
    return report(runs, outcomes, stopped, root)


def _arguments(argv):
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--scale", required=True, choices=SCALES)
    names = ", ".join(PARTS)
    add("--only", nargs="+", default=[], choices=PARTS, metavar="NAME", help=names)
    add("--seeds", type=seeds, default=[], metavar="A-B", help="in place of 0 to 4")
    add("--plan", action="store_true", help="show the plan and train nothing")
    add("--hours", type=float, default=0.0, help="stop after this time; 0: at the end")
    add("--processes", type=positive, metavar="N", help="number of runs at a time")
    add("--root", type=pathlib.Path, help="default: runs/reproduce/SCALE")
    kept = "kept records that the report has too: experiments/results/small"
    path = {"type": pathlib.Path}
    add("--records", nargs="+", default=[], metavar="FILE", help=kept, **path)
    add("--report", default=pathlib.Path("report"), metavar="DIR", **path)
    args = parser.parse_args(argv)
    if not 0 <= args.hours < 1e5:
        parser.error(f"--hours {args.hours:g}: a time of 0 or more is needed")
    return args


if __name__ == "__main__":
    run_script(main, "this reproduction")
