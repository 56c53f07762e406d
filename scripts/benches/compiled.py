"""Cells and optimiser steps compiled for an H100 or a TPU, without one.

    python scripts/bench.py compiled --device v5e --json FILE
    python scripts/bench.py compiled --device h100 --configs configs/draw.py:paper
    python scripts/bench.py compiled --device v5e --devices 4 --configs FILE:paper ...

The compilers are those of scripts/accelerators.sh. Nothing runs: the numbers are counts
of a compiler's schedule. docs/performance.md says what they are and are not.
"""

import argparse
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from lnrepro.engine import config_file
from lnrepro.errors import RunError
from scripts import markdown as md
from scripts.benches import cells, records, steps
from scripts.benches.accelerators import batches, devices, environment, program

# The most that the cells of "draw" may need, which --check checks: kernels of an H100,
# cycles of a v5e. {device: {label: limit}} of the LSTM.
CHECKED = ("lstm", "draw")
LIMITS = {
    "h100": {"ours LN": 1160, "ours plain": 790},
    "v5e": {"ours LN": 7.5e6, "ours plain": 3.6e6},
}
COLUMNS = (
    "what",
    "kernels",
    "M cycles",
    "temporary MB",
    "needed GB",
    "collectives",
    "loops: trips x kernels (cycles)",
    "compile s",
)
# A program's numbers: "kernels", "cycles" (0 on a GPU), bytes of "temporary" memory and
# of all memory that is "needed", "collectives", "loops" and "compile_s".
Report = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `compiled`."""
    add = parser.add_argument
    add("--device", choices=tuple(devices.DEVICES), required=True)
    add("--cells", nargs="+", choices=tuple(cells.CELLS), default=["lstm"])
    shapes = ["draw", "reader", "handwriting"]
    add("--shapes", nargs="+", choices=tuple(cells.SHAPES), default=shapes)
    add(
        "--configs",
        nargs="+",
        metavar="FILE[:VARIANT]",
        help="compile an optimiser step of these configs, and no cells",
    )
    add(
        "--devices",
        type=int,
        default=1,
        metavar="N",
        help="chips that share the batches of --configs",
    )
    add(
        "--check",
        action="store_true",
        help="compile what has limits, and fail where one is passed",
    )
    records.add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """Compile, print a table and write the record.

    Returns:
      The exit code.

    Raises:
      UserError: the compilers are not installed, or a program cannot be read.
      RunError: a limit is passed.
    """
    code = environment.run_with_compilers("scripts.bench", args.arguments)
    if code is not None:
        return code
    print(f"{args.device}, jax {jax.__version__}\n\n{md.head(COLUMNS)}")
    if args.check:
        check(args.device)
        return 0
    ratios, details = {}, {}
    if args.configs:
        for name in args.configs:
            details[name] = compile_config(args.device, name, args.devices)
    else:
        for cell in args.cells:
            for shape in args.shapes:
                name = f"{cell}, {shape}"
                details[name] = compile_cells(args.device, cell, shape)
                ratios |= compare(name, details[name])
    for name, ratio in ratios.items():
        print(f"- {name}: {ratio:.3f}")
    what = "compiled steps" if args.configs else "compiled"
    name = f"{what}, {args.devices} {args.device}"
    records.write(args.json, name, ratios, details, f"described {args.device}")
    return 0


def compile_cells(
    device: str, cell: str, shape: str, labels: Collection[str] = ()
) -> dict[str, Report]:
    """Compile the gradients of a cell, and print a row for each.

    Args:
      device: a key of `devices.DEVICES`.
      cell: a key of `cells.CELLS`.
      shape: a key of `cells.SHAPES`.
      labels: those to compile; all if there are none.
    """
    where = jax.sharding.SingleDeviceSharding(devices.described(device)[0])
    found = {}
    for label, measured in cells.implementations(cell, cells.SHAPES[shape]).items():
        # Functions in torch are not compiled here.
        if measured.function and (label in labels or not labels):
            shapes = _placed(measured.arguments, where)
            name = f"{cell}, {shape}, {label}"
            found[label] = compile_one(device, name, jax.jit(measured.function), shapes)
    return found


def compile_config(device: str, name: str, count: int) -> Report:
    """Compile an optimiser step of a config, and print its row.

    State and batch are shapes; nothing of them is allocated.

    Args:
      device: a key of `devices.DEVICES`.
      name: FILE[:VARIANT].
      count: number of devices, over which batches are split.

    Raises:
      UserError: a config or a number of devices that is not possible.
    """
    config = config_file.read(name)
    axes = (AxisType.Auto,)
    mesh = Mesh(np.array(devices.described(device, count)), ("data",), axis_types=axes)
    with devices.of_number(count):
        init, step = steps.make(config)
        key = jax.random.key(config.seed)
        state = jax.eval_shape(init, key)
        # One step a call.
        batch = jax.tree.map(lambda x: x[None], batches.of(config, count))
        everywhere = NamedSharding(mesh, P())
        arguments = (
            _placed(state, everywhere),
            _placed(batch, NamedSharding(mesh, P(None, "data"))),
            _placed(key, everywhere),
        )
        step = jax.jit(step, donate_argnums=0)
        trips = batches.data_dependent_trips(config, count)
        return compile_one(device, name, step, arguments, trips)


def _placed(tree: Any, sharding: jax.sharding.Sharding) -> Any:
    """Return the shapes of a tree of arrays, with their sharding."""

    def shape(a):
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding)

    return jax.tree.map(shape, tree)


def compile_one(
    device: str,
    name: str,
    function: Callable,
    shapes: tuple[Any, ...],
    assumed_trips: int | None = None,
) -> Report:
    """Compile a function, read the program and print its row.

    Args:
      device: a key of `devices.DEVICES`.
      name: what stands in the row.
      function: what jax.jit returned.
      shapes: its arguments, shapes with shardings on described devices.
      assumed_trips: see `program.Program`.

    Raises:
      UserError: the program cannot be read.
      RunError: it needs more memory than the device has.
    """
    began = time.perf_counter()
    try:
        compiled = devices.compile(device, function, *shapes)
    except JaxRuntimeError as e:
        # A TPU's compiler places all arrays, and stops where they do not fit.
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        raise RunError(f"{name} does not fit: {str(e).splitlines()[0]}") from None
    seconds = time.perf_counter() - began
    found = report(device, compiled, assumed_trips) | {"compile_s": seconds}
    print(md.row(row(name, found)), flush=True)
    return found


def report(device: str, compiled: Any, assumed_trips: int | None = None) -> Report:
    """Return what a compiled program needs.

    Raises:
      UserError: the program cannot be read.
    """
    text = program.read(compiled.as_text(), assumed_trips)
    total, memory = program.count(text), compiled.memory_analysis()
    if devices.DEVICES[device].platform == "tpu" and not total["cycles"]:
        raise program.unreadable("no instruction has an estimate of its cycles")
    needed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    needed += memory.temp_size_in_bytes - memory.alias_size_in_bytes
    collectives = {}
    for kind in program.COLLECTIVES:
        if total[kind]:
            collectives[kind] = {"times": total[kind], "bytes": total[f"{kind} bytes"]}
    loops = []
    for trips, body in program.loops(text):
        of_trip = {"kernels": body["kernels"], "cycles": body["cycles"]}
        loops.append({"trips": trips, **of_trip})
    return {
        "kernels": total["kernels"],
        "cycles": total["cycles"],
        "temporary": memory.temp_size_in_bytes,
        "needed": needed,
        "fits": needed <= devices.DEVICES[device].memory,
        "collectives": collectives,
        "loops": loops,
    }


def row(name: str, found: Report) -> list[str]:
    """Return the cells of a table's row, in the order of `COLUMNS`."""
    loops, collectives = [], []
    for loop in found["loops"]:
        cycles = f" ({loop['cycles']:,})" if loop["cycles"] else ""
        loops.append(f"{loop['trips']} x {loop['kernels']}{cycles}")
    for kind, of_kind in found["collectives"].items():
        size = of_kind["bytes"] / 1e6
        collectives.append(f"{of_kind['times']} {kind} ({size:.1f} MB)")
    return [
        name,
        f"{found['kernels']:,}",
        f"{found['cycles'] / 1e6:.2f}" if found["cycles"] else "",
        f"{found['temporary'] / 1e6:.0f}",
        f"{found['needed'] / 1e9:.2f}{'' if found['fits'] else ', too much'}",
        ", ".join(collectives),
        "; ".join(loops),
        f"{found['compile_s']:.0f}",
    ]


def compare(name: str, found: Mapping[str, Report]) -> dict[str, float]:
    """Return the ratios of ours to the others: kernels or cycles, and memory."""
    ratios = {}
    for theirs in ("Flax LN", "Flax plain", "haiku plain"):
        for what in ("kernels", "cycles", "temporary"):
            # A TPU may keep all of it in its vector memory, and a GPU has no cycles.
            if theirs in found and found[theirs][what]:
                ratio = found["ours LN"][what] / found[theirs][what]
                ratios[f"{what}, {name}, ours LN / {theirs}"] = ratio
    return ratios


def check(device: str) -> None:
    """Compile what has limits.

    Raises:
      RunError: a limit is passed.
    """
    found, passed = compile_cells(device, *CHECKED, LIMITS[device]), []
    for label, limit in LIMITS[device].items():
        number = found[label]["cycles"] or found[label]["kernels"]
        if number > limit:
            passed.append(f"{label}: {number:,} > {limit:,}")
    if passed:
        raise RunError(f"limits of {device} are passed: {'; '.join(passed)}")
    print(f"{device}: {len(LIMITS[device])} limits hold")
