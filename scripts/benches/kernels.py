"""Recurrences as one kernel beside the scan, on the GPU or TPU at hand.

    python scripts/bench.py kernels --json docs/benchmarks/DATE-kernels.json

`functional.autotune` takes a kernel whose error is as small and whose "time" is at most
0.9.
"""

import argparse

import jax
import jax.numpy as jnp

from lnrepro import functional
from lnrepro.errors import UserError
from lnrepro.functional.fast import platform
from scripts import markdown as md
from scripts.benches import cells, layers, records
from scripts.benches.layers import Shape

# (key of `cells.CELLS`, norm of our cell, field of `Compared` with Flax's).
CELLS = {
    "LN-LSTM": ("lstm", "layer", "flax"),
    "LN-GRU": ("gru", "layer", "flax"),
    "LSTM": ("lstm", "none", "flax_plain"),
    "GRU": ("gru", "none", "flax_plain"),
}
WAYS = {"scan": "off", "kernel": "on"}
SHAPES = cells.SHAPES | {
    "ppo": Shape(steps=128, batch=64, features=64, units=64),
    "rl": Shape(steps=64, batch=1024, features=256, units=256),
    # That of TorchRL's benchmarks/test_rnn_reset_backends_benchmark.py.
    "torchrl": Shape(steps=128, batch=128, features=32, units=256, resets=0.03),
}
# They know no resets.
PEERS = ("Flax", "cuDNN")


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
        help="measure Flax, on a GPU also cuDNN",
    )
    cells.add_timing_arguments(parser)
    records.add_json_flag(parser)


def main(args: argparse.Namespace) -> None:
    """Print a Markdown table of medians.

    Raises:
      UserError: there is no kernel for the devices, or for a cell at a shape.
    """
    if platform.current() == "cpu":
        raise UserError("kernels: there is none for a CPU; run it on a GPU or a TPU")
    print(f"kernel and scan, {records.where()}\n")
    table, ratios = {}, {}
    for shape in args.shapes:
        for cell in args.cells:
            name = f"{shape}, {cell}"
            numbers = compare(cell, SHAPES[shape], args)
            if not table:
                print(md.head(("shape", "cell", *numbers, "time")))
            scan, kernel = (numbers[f"{way}: us training"] for way in WAYS)
            table[name] = numbers
            ratios[f"time, {name}, kernel / scan"] = ratio = kernel / scan
            shown = ["" if x is None else f"{x:.3g}" for x in numbers.values()]
            print(md.row((shape, cell, *shown, f"{ratio:.3g}")), flush=True)
    records.write(args.json, "kernels", ratios, table)


def compare(
    name: str, shape: Shape, args: argparse.Namespace
) -> dict[str, float | None]:
    """Return the numbers of each way, and the times of `PEERS`.

    Of each way: microseconds of a step of the sequence, forward and in a training step;
    temporary memory; time to compile; the largest error of a gradient, over its largest
    entry.

    Raises:
      UserError: there is no kernel.
    """
    kind, norm, _ = CELLS[name]
    cell = cells.CELLS[kind].ours(shape.units, norm=norm)
    functions = peers(name, shape) if args.peers else {}
    for way, kernels in WAYS.items():
        options = functional.ScanOptions(kernels=kernels, chunk=args.chunk)
        functions[way] = layers.ours(cell, shape, options)
        params, x, _ = functions[way].arguments
        forward = layers.outputs(cell, shape, options)
        functions[f"{way}, forward"] = layers.Measured(forward, (params, x))
    try:
        rows = cells.measure(functions, args)
    except ValueError as e:
        if "kernels='on'" not in str(e):
            raise
        raise UserError(f"kernels: {e}") from None
    with jax.default_matmul_precision("highest"):
        exact = functions["scan"].compile()(*functions["scan"].arguments)

    def error(a, b):
        return float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)))

    def microseconds(label):
        return 1e3 * rows[label]["ms"] / shape.steps if label in rows else None

    found = {}
    for way in WAYS:
        function = functions[way]
        own = function.compile()(*function.arguments)
        errors = jax.tree.map(error, own, exact)
        found[f"{way}: us forward"] = microseconds(f"{way}, forward")
        found[f"{way}: us training"] = microseconds(way)
        found[f"{way}: MB"] = rows[way]["temp_mb"]
        found[f"{way}: compile s"] = rows[way]["compile_s"]
        found[f"{way}: error"] = max(jax.tree.leaves(errors))
    for peer in PEERS if args.peers else ():
        found[f"{peer}: us training"] = microseconds(peer)
    return found


def peers(name: str, shape: Shape) -> dict[str, layers.Measured]:
    """Return Flax's cell with the same norm, and cuDNN's without one."""
    kind, _, flax = CELLS[name]
    made = {"Flax": layers.flax(getattr(cells.CELLS[kind], flax), shape)}
    if kind == "lstm" and jax.default_backend() == "gpu":
        made["cuDNN"] = layers.cudnn_lstm(shape)
    return made
