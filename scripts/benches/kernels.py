"""What `functional.autotune` measures of recurrences, at the shapes of the benchmarks.

    python scripts/bench.py kernels --json docs/benchmarks/DATE-kernels.json

`bench.py cells` then has the kernels that were taken, beside Flax's cells and cuDNN's.
"""

import argparse

import jax

from lnrepro import functional
from lnrepro.errors import UserError
from lnrepro.functional.fast import tuning
from scripts.benches import cells, layers, records
from scripts.benches.layers import Shape

# (class of a cell, its norm).
CELLS = {
    "LN-LSTM": (functional.LSTMCell, "layer"),
    "LN-GRU": (functional.GRUCell, "layer"),
    "LSTM": (functional.LSTMCell, "none"),
    "GRU": (functional.GRUCell, "none"),
}
SHAPES = cells.SHAPES | {
    "ppo": Shape(steps=128, batch=64, features=64, units=64),
    "rl": Shape(steps=64, batch=1024, features=256, units=256),
    # That of TorchRL's benchmarks/test_rnn_reset_backends_benchmark.py.
    "torchrl": Shape(steps=128, batch=128, features=32, units=256, resets=0.03),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `kernels`."""
    add = parser.add_argument
    shapes = ["draw", "reader", "handwriting"]
    add("--shapes", nargs="+", choices=tuple(SHAPES), default=shapes)
    add("--cells", nargs="+", choices=tuple(CELLS), default=list(CELLS))
    records.add_json_flag(parser)


def main(args: argparse.Namespace) -> None:
    """Measure what has no record, and print the tables of `autotune` and the ratios.

    Raises:
      UserError: the platform has no kernels.
    """
    if jax.default_backend() not in tuning.PLATFORMS:
        raise UserError("kernels: there is none for a CPU; run it on a GPU or a TPU")
    print(f"kernel and scan, {records.where()}")
    table, ratios = {}, {}
    for shape in args.shapes:
        for name in args.cells:
            print(f"\n{shape}, {name}")
            cell, norm = CELLS[name]
            made = cell(SHAPES[shape].units, norm=norm)
            function, arguments = layers.ours(made, SHAPES[shape])
            (record,) = functional.autotune(function, *arguments)
            table[f"{shape}, {name}"] = record
            if "kernel ms" in record:
                ratio = record["kernel ms"] / record["scan ms"]
                ratios[f"time, {shape}, {name}, kernel / scan"] = ratio
    records.write(args.json, "kernels", ratios, table)
