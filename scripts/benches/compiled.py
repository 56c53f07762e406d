"""Cells and optimiser steps compiled for an H100 or a TPU, without one.

    python scripts/bench.py compiled --device v5e --json FILE
    python scripts/bench.py compiled --device h100 --configs configs/draw.py:paper

The compilers are those of scripts/accelerators.sh. Nothing runs: the numbers are counts
of a compiler's schedule. docs/benchmarks.md says what they are and are not.
"""

import argparse
import itertools
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from lnrepro.engine import config_file
from scripts import markdown as md
from scripts.benches import cells, engine, records
from scripts.benches.accelerators import devices, environment, program

COLUMNS = ("what", "kernels", "M cycles", "GB")
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
    help_configs = "compile an optimiser step of these configs, and no cells"
    add("--configs", nargs="+", metavar="FILE[:VARIANT]", help=help_configs)


def main(args: argparse.Namespace) -> int:
    """Compile, print a table and write the record.

    Returns:
      The exit code.

    Raises:
      UserError: the compilers are not installed, or a program cannot be read.
    """
    code = environment.run_with_compilers("scripts.bench", args.arguments)
    if code is not None:
        return code
    print(f"{args.device}, jax {jax.__version__}\n\n{md.head(COLUMNS)}")
    details, what = {}, "compiled"
    if args.configs:
        what = "compiled steps"
        for name in args.configs:
            details[name] = compile_config(args.device, name)
    else:
        for cell, shape in itertools.product(args.cells, args.shapes):
            found = compile_cells(args.device, cell, shape)
            details[f"{cell}, {shape}"] = found
    name = f"{what}, {args.device}"
    records.write(args.json, name, {}, details, f"described {args.device}")
    return 0


def compile_cells(device: str, cell: str, shape: str) -> dict[str, Report]:
    """Compile the gradients of a cell at a shape of `cells.SHAPES`, and print rows."""
    where = jax.sharding.SingleDeviceSharding(devices.described(device)[0])
    found = {}
    for label, measured in cells.implementations(cell, cells.SHAPES[shape]).items():
        function = jax.jit(measured.function, in_shardings=where)
        name = f"{cell}, {shape}, {label}"
        found[label] = _compile(device, name, function, measured.arguments)
    return found


def compile_config(device: str, name: str) -> Report:
    """Compile an optimiser step of a config, and print its row.

    Raises:
      UserError: a config that is not possible, or its data is not prepared.
    """
    config, trips = config_file.read(name), None
    # Experiments look at the number of devices when they are made and traced.
    with mock.patch.object(jax, "device_count", return_value=1):
        step, (state, batch) = split_step(config, devices.described(device)[:1])
        if config.experiment.endswith("skip_thoughts"):
            # The chunks of its softmax are the only loop whose trips are data.
            words = batch["previous"].size + batch["next"].size
            trips = -(-words // config.model.chunk_rows)
        return _compile(device, name, step, (state, batch), trips)


def split_step(config: ConfigDict, where: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return the trainer's step with its batch split over devices, and its arguments.

    The arguments are the shapes of the state, and the first batch.

    Args:
      config: the config.
      where: the devices.
    """
    run, step, (batch,) = engine.first_batches(config, 1, 1)
    mesh = Mesh(np.array(where), ("data",), axis_types=(AxisType.Auto,))
    shardings = NamedSharding(mesh, P()), NamedSharding(mesh, P(None, "data"))
    step = jax.jit(step, donate_argnums=0, in_shardings=shardings)
    return step, (run.shapes(), batch)


def _compile(
    device: str,
    name: str,
    function: Callable,
    arguments: tuple[Any, ...],
    assumed_trips: int | None = None,
) -> Report:
    """Compile a function for described devices, and print the row `name`."""
    shapes = jax.eval_shape(lambda *x: x, *arguments)
    compiled = devices.compile(device, function, *shapes)
    total = program.count(program.read(compiled.as_text()), assumed_trips=assumed_trips)
    if device in devices.TPUS and not total["cycles"]:
        raise program.unreadable("no instruction has an estimate of its cycles")
    memory = compiled.memory_analysis()
    needed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    needed += memory.temp_size_in_bytes - memory.alias_size_in_bytes
    row = f"{total['kernels']:,}", f"{total['cycles'] / 1e6:.2f}", f"{needed / 1e9:.2f}"
    print(md.row((name, *row)), flush=True)
    return {**total, "bytes": needed}
