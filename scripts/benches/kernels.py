"""Recurrences as one kernel beside the scan, on the GPU or TPU at hand.

    python scripts/bench.py kernels --json docs/benchmarks/DATE-kernels.json

For each shape: the error of the gradients, the time of a step of the sequence, forward
and within a training step, memory and time to compile. `ScanOptions(kernels="auto")`
may become the default where the error is no larger and the ratio of the training steps
is below 1.
"""

import argparse
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from lnrepro.errors import UserError
from lnrepro.functional import GRUCell, LSTMCell, ScanOptions, unroll
from lnrepro.functional.fast import platform
from scripts import markdown as md
from scripts.benches import cells, layers, records
from scripts.benches.layers import Measured, Shape

CELLS: dict[str, Callable] = {
    "LN-LSTM": functools.partial(LSTMCell, norm="layer"),
    "LN-GRU": functools.partial(GRUCell, norm="layer"),
    "LSTM": functools.partial(LSTMCell, norm="none"),
}
COLUMNS = (
    "shape",
    "cell",
    "what",
    "error",
    "us a step, forward",
    "us a step, training",
    "x scan",
    "temp MB",
    "compile s",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `kernels`."""
    parser.add_argument(
        "--shapes",
        nargs="+",
        choices=tuple(cells.SHAPES),
        default=["draw", "reader", "handwriting"],
    )
    parser.add_argument("--cells", nargs="+", choices=tuple(CELLS), default=list(CELLS))
    parser.add_argument(
        "--chunk",
        type=int,
        help="steps of a chunk of the backward pass, each of which is a kernel",
    )
    cells.add_timing_arguments(parser)
    records.add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """Print a Markdown table of medians.

    Returns:
      0.

    Raises:
      UserError: there is no kernel for the devices, or for a cell at a shape.
    """
    if platform.current() == "cpu":
        raise UserError("kernels: there is none for a CPU; run it on a GPU or a TPU")
    print(f"forward and backward, {records.where()}\n")
    print(md.head(COLUMNS))
    table, ratios = {}, {}
    for shape in args.shapes:
        for name in args.cells:
            found = compare(CELLS[name], cells.SHAPES[shape], args)
            table[f"{shape}, {name}"] = found
            ratio = found["kernel"]["ms"] / found["scan"]["ms"]
            ratios[f"{shape}, {name}, kernel / scan"] = ratio
            for what, row in found.items():
                microseconds = 1e3 / cells.SHAPES[shape].steps
                print(
                    md.row(
                        (
                            shape,
                            name,
                            what,
                            f"{row['error']:.1e}",
                            f"{microseconds * row['forward_ms']:.2f}",
                            f"{microseconds * row['ms']:.2f}",
                            f"{row['ms'] / found['scan']['ms']:.2f}",
                            f"{row['temp_mb'] or 0:.1f}",
                            f"{row['compile_s']:.1f}",
                        )
                    ),
                    flush=True,
                )
    records.write(args.json, "kernels", ratios, table)
    return 0


def compare(cell: Callable, shape: Shape, args: argparse.Namespace) -> dict:
    """Return {"scan" or "kernel": numbers} of a cell.

    Args:
      cell: (units) -> the cell.
      shape: the sizes.
      args: the flags.

    Raises:
      UserError: there is no kernel.
    """
    ways = {
        "scan": ScanOptions(chunk=args.chunk),
        "kernel": ScanOptions(kernels="on", chunk=args.chunk),
    }
    functions = {}
    for what, options in ways.items():
        functions[what] = layers.ours(cell(shape.units), shape, options)
        functions[f"{what}, forward"] = _forward(functions[what], cell, shape, options)
    try:
        rows = cells.measure(functions, args)
    except ValueError as e:
        if "kernels='on'" not in str(e):
            raise
        raise UserError(f"kernels: {e}") from None
    with jax.default_matmul_precision("highest"):
        exact = functions["scan"].call(functions["scan"].compile())
    for what in ways:
        rows[what]["forward_ms"] = rows.pop(f"{what}, forward")["ms"]
        rows[what]["error"] = _error(
            functions[what].call(functions[what].compile()), exact
        )
    return rows


def _forward(training: Measured, cell, shape, options) -> Measured:
    """The outputs alone, of the arguments of a training step."""

    def outputs(params, x, weights):
        del weights
        result = unroll(cell(shape.units), params, x, time_major=True, options=options)
        return result.outputs

    return layers.measured(outputs, *training.arguments)


def _error(found, exact) -> float:
    """The largest difference of a gradient, divided by its largest entry."""

    def of_leaf(a, b):
        return float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)))

    return max(jax.tree.leaves(jax.tree.map(of_leaf, found, exact)))
