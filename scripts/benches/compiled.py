"""Cells, programs and optimiser steps compiled for an H100 or a TPU, without one.

    python scripts/bench.py compiled --device v5e --json FILE
    python scripts/bench.py compiled --device h100 --programs ppo seq2seq
    python scripts/bench.py compiled --device h100 --configs configs/draw.py:paper
    python scripts/bench.py compiled --device v5e --devices 4 --configs FILE:paper ...

The compilers are those of scripts/accelerators.sh. Nothing runs: the numbers are counts
of a compiler's schedule. docs/performance.md says what they are and are not.
"""

import argparse
from collections.abc import Mapping, Sequence

from lnrepro.errors import RunError
from scripts import markdown as md
from scripts.benches import cells, programs, records
from scripts.benches.accelerators import analysis, devices, environment
from scripts.benches.accelerators.analysis import Report

# The most that programs of a shape may need, which .ci/run checks: kernels of an H100,
# millions of cycles of a v5e. {device: {(cell, shape): {label: limit}}}.
LIMITS = {
    "h100": {("lstm", "draw"): {"ours LN": 1160, "ours plain": 790}},
    "v5e": {("lstm", "draw"): {"ours LN": 7.5, "ours plain": 3.6}},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `compiled`."""
    parser.add_argument("--device", choices=tuple(devices.DEVICES), required=True)
    parser.add_argument(
        "--cells", nargs="+", choices=tuple(cells.CELLS), default=["lstm"]
    )
    parser.add_argument(
        "--shapes",
        nargs="+",
        choices=(*cells.SHAPES, *cells.RIVALS),
        default=["draw", "reader", "handwriting"],
    )
    parser.add_argument(
        "--configs",
        nargs="+",
        metavar="FILE[:VARIANT]",
        help="compile an optimiser step of these configs, and no cells",
    )
    parser.add_argument(
        "--programs",
        nargs="+",
        choices=tuple(programs.PROGRAMS),
        help="compile a step of these programs, and no cells",
    )
    parser.add_argument(
        "--devices",
        type=int,
        default=1,
        metavar="N",
        help="chips that share the batches of --configs",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compile what has limits, and fail where one is passed",
    )
    records.add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """Compile, print tables and write the record.

    Returns:
      The exit code.

    Raises:
      UserError: the compilers are not installed, or a program cannot be read.
      RunError: a limit is passed.
    """
    code = environment.run_with_compilers("scripts.bench", args.arguments)
    if code is not None:
        return code
    if args.check:
        return _check(args.device)
    if args.configs:
        from scripts.benches.accelerators import plans

        return plans.main(args)
    benchmark = f"compiled, {args.device}"
    compared = [("cell", cell, shape) for cell in args.cells for shape in args.shapes]
    if args.programs:
        benchmark = f"compiled programs, {args.device}"
        compared = [("program", program) for program in args.programs]
    ratios, details = {}, {}
    for words in compared:
        name = ", ".join(words[1:])
        reports = _reports(args.device, words)
        details[name] = {label: report.as_json() for label, report in reports.items()}
        ratios |= _ratios(name, reports)
        # Programs take minutes to compile, so what there is is kept.
        of_device = f"described {args.device}"
        records.write(args.json, benchmark, ratios, details, of_device)
    for name, ratio in ratios.items():
        print(f"- {name}: {ratio:.3f}")
    return 0


def _reports(
    device: str, words: Sequence[str], labels: Sequence[str] | None = None
) -> dict[str, Report]:
    """Compile the functions that words name, and print their table.

    Args:
      device: name of the device.
      words: see `analysis.functions`.
      labels: those to compile; None compiles all.
    """
    functions = analysis.functions(device, *words)
    print(f"{_title(device, *words)}\n")
    print(md.head(("what", *COLUMNS)))
    reports = {}
    for label, function in functions.items():
        if labels and label not in labels:
            continue
        compiled = analysis.compile_function(device, function)
        kind, *of_kind = words
        named = (kind, device, *of_kind, label)
        reports[label] = analysis.report(device, compiled, named)
        print(md.row((label, *row(reports[label]))), flush=True)
    print(flush=True)
    return reports


def _title(device, kind, name, shape=None):
    """Return the line above a table."""
    if kind == "program":
        return f"{name}, {device}: {programs.PROGRAMS[name].meaning}"
    sizes = (cells.SHAPES | cells.RIVALS)[shape]
    text = f"{name}, {shape}, {device}: T {sizes.steps} B {sizes.batch} "
    return f"{text}D {sizes.features} H {sizes.units}, forward + backward"


COLUMNS = (
    "kernels",
    "M cycles",
    "loops: trips x kernels (cycles)",
    "ms",
    "temporary MB",
    "moved MB",
    "floor MB",
    "compile s",
)


def row(report: Report) -> list[str]:
    """Return the cells of a table's row, in the order of `COLUMNS`."""
    loops = [analysis.loops_text(report.loops)] if report.loops else []
    for steps, bundles, _ in report.pallas.values():
        loops.append(f"{steps} x Pallas ({bundles:,} bundles)")
    return [
        f"{report.kernels:,.0f}",
        f"{report.cycles / 1e6:.2f}" if report.cycles else "",
        "; ".join(loops),
        f"{1e3 * report.seconds:.2f}",
        f"{report.temporary / 1e6:.0f}",
        f"{report.bytes / 1e6:.0f}",
        f"{report.floor / 1e6:.0f}",
        f"{report.compile_s:.0f}",
    ]


def _ratios(name: str, reports: Mapping[str, Report]) -> dict[str, float]:
    """Return the ratios of ours to the others: kernels or cycles, and memory."""
    found = {}
    for ours, theirs in (
        ("ours LN", "Flax LN"),
        ("ours LN", "Flax plain"),
        ("ours LN", "haiku plain"),
        ("ours plain", "Flax plain"),
        ("ours LN, Pallas", "Flax LN"),
        ("ours LN, Pallas", "Flax plain"),
    ):
        if ours not in reports or theirs not in reports:
            continue
        a, b = reports[ours], reports[theirs]
        what = "cycles" if b.cycles else "kernels"
        found[f"{what}, {name}, {ours} / {theirs}"] = analysis.ratio(a, b)
        # A TPU may keep all of it in its vector memory.
        if a.temporary and b.temporary:
            memory = a.temporary / b.temporary
            found[f"temporary memory, {name}, {ours} / {theirs}"] = memory
    return found


def _check(device: str) -> int:
    """Compile what has limits.

    Raises:
      RunError: a limit is passed.
    """
    passed, held = [], 0
    for (cell, shape), limits in LIMITS.get(device, {}).items():
        reports = _reports(device, ("cell", cell, shape), tuple(limits))
        for label, limit in limits.items():
            report = reports[label]
            number = report.cycles / 1e6 if report.cycles else report.kernels
            held += number <= limit
            if number > limit:
                passed.append(f"{cell}, {shape}, {label}: {number:g} > {limit:g}")
    if passed:
        raise RunError(f"limits of {device} are passed: {'; '.join(passed)}")
    print(f"{device}: {held} limits hold")
    return 0
