"""Cells and optimiser steps compiled for an H100 or a TPU, without one.

    python scripts/bench.py compiled --device v5e --json FILE
    python scripts/bench.py compiled --device h100 --configs configs/draw.py:paper
    python scripts/bench.py compiled --device v5e --devices 4 --configs FILE:paper ...

The compilers are those of scripts/accelerators.sh. Nothing runs: the numbers are counts
of a compiler's schedule. docs/performance.md says what they are and are not.
"""

import argparse
import functools
import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from lnrepro.engine import config_file
from lnrepro.engine.run import Run
from lnrepro.engine.train_step import close, take
from lnrepro.errors import RunError, UserError
from scripts import markdown as md
from scripts.benches import cells, records
from scripts.benches.accelerators import devices, environment, program

# The most that the cells of "draw" may need, which --check checks: kernels of an H100,
# cycles of a v5e. {device: {label: limit}} of the LSTM.
CHECKED = ("lstm", "draw")
LIMITS = {
    "h100": {"ours LN": 1160, "ours plain": 790},
    "v5e": {"ours LN": 6.6e6, "ours plain": 3.5e6},
}
COLUMNS = ("what", "kernels", "M cycles", "GB", "collectives")
# A program's numbers: those of `program.count`, and the bytes of memory that it needs,
# "bytes". The cycles of a GPU are 0.
Report = dict[str, float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `compiled`."""
    add = parser.add_argument
    add("--device", choices=devices.DEVICES, required=True)
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
    details = {}
    for name in args.configs or ():
        details[name] = compile_config(args.device, name, args.devices)
    if not args.configs:
        for cell in args.cells:
            for shape in args.shapes:
                found = compile_cells(args.device, cell, shape)
                details[f"{cell}, {shape}"] = found
    what = "compiled steps" if args.configs else "compiled"
    name = f"{what}, {args.devices} {args.device}"
    records.write(args.json, name, {}, details, f"described {args.device}")
    return 0


def compile_cells(
    device: str, cell: str, shape: str, labels: Collection[str] = ()
) -> dict[str, Report]:
    """Compile the gradients of a cell at a shape of `cells.SHAPES`, and print rows.

    Without `labels` all functions are compiled.
    """
    where = jax.sharding.SingleDeviceSharding(devices.described(device)[0])
    found = {}
    for label, measured in cells.implementations(cell, cells.SHAPES[shape]).items():
        # Functions in torch are not compiled here.
        if measured.function and (label in labels or not labels):
            function = jax.jit(measured.function, in_shardings=where)
            name = f"{cell}, {shape}, {label}"
            found[label] = _compile(device, name, function, measured.arguments)
    return found


def compile_config(device: str, name: str, count: int) -> Report:
    """Compile an optimiser step of a config for so many chips, and print its row.

    Raises:
      UserError: a config or a number of devices that is not possible, or its data is
        not prepared.
    """
    config = config_file.read(name)
    # Experiments look at the number of devices when they are made and traced.
    with mock.patch.object(jax, "device_count", return_value=count):
        step, (state, batch) = split_step(config, devices.described(device, count))
        trips = None
        if config.experiment.endswith("skip_thoughts"):
            # The chunks of its softmax are the only loop whose trips are data.
            words = batch["previous"].size + batch["next"].size
            trips = -(-words // count // config.model.chunk_rows)
        return _compile(device, name, step, (state, batch), trips)


def split_step(config: ConfigDict, where: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return the trainer's step with its batch split over devices, and its arguments.

    The arguments are shapes, those of the first batch.

    Args:
      config: the config.
      where: the devices.
    """
    run = Run(config, pathlib.Path())
    step = functools.partial(run.step(), axis=None)
    stream = run.experiment.batches(0)
    batch = jax.eval_shape(lambda x: x, take(stream, 1))
    close(stream)
    mesh = Mesh(np.array(where), ("data",), axis_types=(AxisType.Auto,))
    shardings = NamedSharding(mesh, P()), NamedSharding(mesh, P(None, "data"))
    return jax.jit(step, donate_argnums=0, in_shardings=shardings), (
        run.shapes(),
        batch,
    )


def _compile(
    device: str,
    name: str,
    function: Callable,
    arguments: tuple[Any, ...],
    assumed_trips: int | None = None,
) -> Report:
    """Compile a function for described devices, and print the row `name`."""
    shapes = jax.eval_shape(lambda *x: x, *arguments)
    try:
        compiled = devices.compile(device, function, *shapes)
    except JaxRuntimeError as e:
        # A TPU's compiler places all arrays, and stops where they do not fit.
        if "RESOURCE_EXHAUSTED" not in str(e):
            raise
        raise RunError(f"{name} does not fit: {str(e).splitlines()[0]}") from None
    total = program.count(program.read(compiled.as_text(), assumed_trips))
    if device in devices.TPUS and not total["cycles"]:
        raise program.unreadable("no instruction has an estimate of its cycles")
    memory = compiled.memory_analysis()
    needed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    needed += memory.temp_size_in_bytes - memory.alias_size_in_bytes
    collectives = []
    for kind in program.COLLECTIVES:
        if total[kind]:
            size = total[f"{kind} bytes"] / 1e6
            collectives.append(f"{total[kind]} {kind} ({size:.1f} MB)")
    cells = [
        name,
        f"{total['kernels']:,}",
        f"{total['cycles'] / 1e6:.2f}",
        f"{needed / 1e9:.2f}",
        ", ".join(collectives),
    ]
    print(md.row(cells), flush=True)
    return {**total, "bytes": needed}


def check(device: str) -> None:
    """Compile what has limits.

    Raises:
      UserError: there are no limits of this device.
      RunError: a limit is passed.
    """
    if device not in LIMITS:
        raise UserError(f"--check: there are limits of {', '.join(LIMITS)} only")
    found, passed = compile_cells(device, *CHECKED, LIMITS[device]), []
    for label, limit in LIMITS[device].items():
        number = found[label]["cycles"] or found[label]["kernels"]
        if number > limit:
            passed.append(f"{label}: {number:,} > {limit:,}")
    if passed:
        raise RunError(f"limits of {device} are passed: {'; '.join(passed)}")
    print(f"{device}: {len(LIMITS[device])} limits hold")
