"""Recurrences as one kernel beside the scan, on the GPU or TPU at hand.

    python scripts/bench.py kernels --json docs/benchmarks/DATE-kernels.json

`ScanOptions(kernels="auto")` may become the default where the kernel's error is no
larger and "time" is below 1.
"""

import argparse
import importlib.util
from collections.abc import Callable

import jax
import jax.numpy as jnp

from lnrepro import functional
from lnrepro.errors import UserError
from lnrepro.functional.fast import platform
from scripts import markdown as md
from scripts.benches import cells, layers, records
from scripts.benches.layers import Shape

CELLS: dict[str, Callable[[int], functional.Cell]] = {
    "LN-LSTM": lambda units: functional.LSTMCell(units, "layer"),
    "LN-GRU": lambda units: functional.GRUCell(units, "layer"),
    "LSTM": lambda units: functional.LSTMCell(units, "none"),
    "GRU": lambda units: functional.GRUCell(units, "none"),
}
WAYS = {"scan": "off", "kernel": "on"}
SHAPES = cells.SHAPES | {
    "ppo": Shape(steps=128, batch=64, features=64, units=64),
    "rl": Shape(steps=64, batch=1024, features=256, units=256),
    # That of TorchRL's benchmarks/test_rnn_reset_backends_benchmark.py.
    "torchrl": Shape(steps=128, batch=128, features=32, units=256, resets=0.03),
}
# Flax, and cuDNN of JAX, know no resets. TorchRL has no norms.
PEERS = ("Flax", "cuDNN", "TorchRL", "TorchRL cuDNN")
# Of each way: microseconds of a step of the sequence, forward and in a training step;
# temporary memory; time to compile; the largest error of a gradient, over its largest
# entry.
MEASURED = ("us forward", "us training", "MB", "compile s", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `kernels`."""
    add = parser.add_argument
    shapes = ["draw", "reader", "handwriting"]
    add("--shapes", nargs="+", choices=tuple(SHAPES), default=shapes)
    add("--cells", nargs="+", choices=tuple(CELLS), default=list(CELLS))
    add("--chunk", type=int, help="steps of a backward pass that are one kernel")
    add(
        "--peers",
        action="store_true",
        help="measure Flax, on a GPU also cuDNN and TorchRL",
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
    columns = [f"{way}: {what}" for way in WAYS for what in MEASURED]
    columns += [f"{peer}: us training" for peer in PEERS] if args.peers else []
    print(f"kernel and scan, {records.where()}\n")
    if args.peers and not has_torchrl():
        print("TorchRL is not installed, and not measured: pip install torchrl\n")
    print(md.head(("shape", "cell", *columns, "time")))
    table, ratios = {}, {}
    for shape in args.shapes:
        for cell in args.cells:
            name = f"{shape}, {cell}"
            numbers = compare(cell, SHAPES[shape], args)
            table[name] = dict(zip(columns, numbers, strict=True))
            scan, kernel = (table[name][f"{way}: us training"] for way in WAYS)
            ratios[f"time, {name}, kernel / scan"] = kernel / scan
            shown = ["" if x is None else f"{x:.3g}" for x in (*numbers, kernel / scan)]
            print(md.row((shape, cell, *shown)), flush=True)
    records.write(args.json, "kernels", ratios, table)
    return 0


def compare(name: str, shape: Shape, args: argparse.Namespace) -> list[float | None]:
    """Return the numbers of `MEASURED` of each way, and the times of `PEERS`.

    Raises:
      UserError: there is no kernel.
    """
    cell = CELLS[name]
    ours, forward = {}, {}
    others = peers(name, shape) if args.peers else {}
    for way, kernels in WAYS.items():
        options = functional.ScanOptions(kernels=kernels, chunk=args.chunk)
        ours[way] = layers.ours(cell(shape.units), shape, options)

        def outputs(params, x, weights, options=options):
            del weights
            return functional.unroll(
                cell(shape.units), params, x, time_major=True, options=options
            ).outputs

        forward[f"{way}, forward"] = layers.measured(outputs, *ours[way].arguments)
    try:
        rows = cells.measure(ours | forward | others, args)
    except ValueError as e:
        if "kernels='on'" not in str(e):
            raise
        raise UserError(f"kernels: {e}") from None
    with jax.default_matmul_precision("highest"):
        exact = ours["scan"].call(ours["scan"].compile())

    def error(a, b):
        return float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)))

    found = []
    for way, function in ours.items():
        errors = jax.tree.map(error, function.call(function.compile()), exact)
        times = rows[f"{way}, forward"]["ms"], rows[way]["ms"]
        found += [1e3 * (ms or 0.0) / shape.steps for ms in times]
        found += [rows[way]["temp_mb"] or 0.0, rows[way]["compile_s"]]
        found.append(max(jax.tree.leaves(errors)))
    for peer in PEERS if args.peers else ():
        ms = rows[peer]["ms"] if peer in rows else None
        found.append(None if ms is None else 1e3 * ms / shape.steps)
    return found


def peers(name: str, shape: Shape) -> dict[str, layers.Measured]:
    """Return Flax's cell with the same norm, and others without one."""
    compared = cells.CELLS["gru" if "GRU" in name else "lstm"]
    flax = compared.flax if name.startswith("LN") else compared.flax_plain
    made = {"Flax": layers.flax(flax, shape)}
    if "LSTM" in name and jax.default_backend() == "gpu":
        made["cuDNN"] = layers.cudnn_lstm(shape)
    if jax.default_backend() == "gpu" and has_torchrl():
        kind = "gru" if "GRU" in name else "lstm"
        made["TorchRL"] = layers.torchrl(kind, shape, "triton")
        made["TorchRL cuDNN"] = layers.torchrl(kind, shape, "pad")
    return made


def has_torchrl() -> bool:
    """Return whether TorchRL is installed."""
    return importlib.util.find_spec("torchrl") is not None
