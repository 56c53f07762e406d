"""The plan of a scale for a device that is not here, by its compiler's estimate."""

import argparse
import pathlib
from collections.abc import Sequence

from scripts import markdown as md
from scripts.benches.accelerators import environment
from scripts.paper import plan

COLUMNS = ("", "config", "flags", "needs", "a step", "steps", "runs", "device-hours")


def main(args: argparse.Namespace, root: pathlib.Path, argv: Sequence[str]) -> int:
    """Print what the runs need on one device, and what the estimate leaves out.

    Args:
      args: the flags of reproduce.py.
      root: folder of the runs.
      argv: its command line.

    Returns:
      The exit code: 1 where a config does not fit.

    Raises:
      UserError: the compilers are not installed.
    """
    code = environment.run_with_compilers("scripts.reproduce", argv)
    if code is not None:
        return code
    from scripts.benches.accelerators import plans

    planned, _ = plan.items(args.scale, args.only, root, needs_data=False)
    print(md.head(COLUMNS), flush=True)
    total, missing = 0.0, 0
    for item in planned:
        # Runs that differ in the seed alone are one program.
        by_flags = {}
        for run in item.runs:
            flags = tuple(flag for flag in run.command if plan.affects_time(flag))
            by_flags.setdefault(flags, []).append(run)
        for flags, runs in by_flags.items():
            step = plans.compile_step(args.device, item.config, 1, "ours", flags)
            line = [item.part, item.config, " ".join(flags)]
            if step.report is None or not step.report.fits:
                missing += 1
                line.append(f"does not fit {step.message}")
            else:
                seconds = step.report.seconds
                hours = sum(run.total for run in runs) * seconds / 3600
                total += hours
                line += [
                    f"{step.report.needed / 1e9:.2f} GB",
                    f"{1e3 * seconds:.2f} ms",
                    f"{runs[0].total:,}",
                    str(len(runs)),
                    f"{hours:,.1f}",
                ]
            print(md.row(line), flush=True)
    print(f"\n{total:,.1f} device-hours of training steps on one {args.device}.")
    print(plans.LEFT_OUT)
    return 1 if missing else 0
