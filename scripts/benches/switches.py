"""What each switch of the scan, of XLA and of the products does to a cell's time.

    python scripts/bench.py switches --shapes draw torchrl --json FILE

Options of the scan and precisions are measured interleaved in one process. XLA reads a
flag when a process starts. So each flag has its own processes, interleaved with
processes that have no flag. Ratios are to the defaults.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

import jax

from lnrepro.errors import RunError
from lnrepro.functional import ScanOptions
from scripts import markdown as md
from scripts.benches import cells, records
from scripts.benches.direct import cells_jax

DEFAULT = "default"
OPTIONS = {
    DEFAULT: ScanOptions(),
    "unroll 2": ScanOptions(unroll=2),
    "unroll 4": ScanOptions(unroll=4),
    "unroll 8": ScanOptions(unroll=8),
    "unroll 16": ScanOptions(unroll=16),
    "save recurrent": ScanOptions(save="recurrent"),
    "save carries": ScanOptions(save="carries"),
    "autodiff": ScanOptions(backward="autodiff"),
}
PRECISIONS = ("highest", "tensorfloat32", "BF16_BF16_F32_X3")
XLA_FLAGS = (
    "--xla_gpu_enable_command_buffer=+WHILE",
    "--xla_gpu_graph_min_graph_size=1",
    "--xla_gpu_enable_command_buffer=+WHILE --xla_gpu_graph_min_graph_size=1",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `switches`, which are those of `cells` and these."""
    cells.add_arguments(parser)
    parser.add_argument(
        "--xla_flags",
        nargs="*",
        default=list(XLA_FLAGS),
        help="values of XLA_FLAGS to measure",
    )
    parser.add_argument(
        "--in_this_process",
        action="store_true",
        help="measure the defaults in this process, and print ms as JSON",
    )


def main(args: argparse.Namespace) -> int:
    """Print a Markdown table of ratios.

    Returns:
      0.

    Raises:
      RunError: a process with other flags of XLA failed.
    """
    shapes = cells.SHAPES | cells.RIVALS
    if args.in_this_process:
        found = {}
        for name in args.shapes:
            default = {DEFAULT: OPTIONS[DEFAULT]}
            found[name] = _measure(shapes[name], default, (), args)[DEFAULT]
        print(json.dumps(found))
        return 0
    print(f"{args.cell}, {args.dtype}, {records.device()}, jax {jax.__version__}")
    print(f"\n{md.head(('switch', *args.shapes))}")
    columns = {}
    for name in args.shapes:
        times = _measure(shapes[name], OPTIONS, PRECISIONS, args)
        columns[name] = {label: ms / times[DEFAULT] for label, ms in times.items()}
        columns[name][DEFAULT] = 1.0
        default_ms = times[DEFAULT]
        print(f"| {name}: {default_ms:.2f} ms by default |", file=sys.stderr)
    for label, ratios in _of_flags(args).items():
        for name, ratio in ratios.items():
            columns[name][label] = ratio
    ratios = {}
    for label in columns[args.shapes[0]]:
        row = [f"{columns[name][label]:.3f}" for name in args.shapes]
        print(md.row((label, *row)))
        for name in args.shapes:
            ratios[f"{label} / default, {name}"] = columns[name][label]
    records.write(args.json, f"switches, {args.cell}, {args.dtype}", ratios)
    return 0


def _measure(shape, options, precisions, args):
    """Return {label: ms} of our cell at one shape."""
    shape = shape._replace(dtype=args.dtype)
    cell = cells.CELLS[args.cell].ours(shape)
    functions = {}
    for label, option in options.items():
        functions[label] = cells_jax.ours(cell, shape, options=option)
    for name in precisions:
        label = f"products in {name}"
        functions[label] = cells_jax.ours(cell, shape, precision=name)
    rows = cells.measure(functions, args, shape.steps, compilations=1)
    return {label: row["ms"] for label, row in rows.items()}


def _of_flags(args):
    """Return {value of XLA_FLAGS: {shape: ratio to a process without it}}."""
    times = {flags: [] for flags in ("", *args.xla_flags)}
    if not args.xla_flags:
        return {}
    # The processes take turns, so that a slow phase of the machine affects all alike.
    for _ in range(args.rounds):
        for flags in times:
            times[flags].append(_in_child(flags, args))
    ratios = {}
    for flags in args.xla_flags:
        ratios[flags] = {}
        for name in args.shapes:
            pairs = zip(times[flags], times[""], strict=True)
            ratios[flags][name] = statistics.median(a[name] / b[name] for a, b in pairs)
    return ratios


def _in_child(flags, args):
    """Measure the defaults in a process with these flags of XLA; return {shape: ms}."""
    command = [sys.executable, "-m", "scripts.bench", "switches", "--in_this_process"]
    command += ["--cell", args.cell, "--dtype", args.dtype, "--rounds", "1"]
    command += ["--seconds", str(args.seconds / 2), "--shapes", *args.shapes]
    if args.repeats is not None:
        command += ["--repeats", str(args.repeats)]
    given = os.environ.get("XLA_FLAGS", "")
    env = os.environ | {"XLA_FLAGS": f"{given} {flags}".strip()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"XLA_FLAGS={flags!r}: the process failed: {reason}")
    return json.loads(done.stdout.splitlines()[-1])
