"""The recurrent cells against Flax and, where installed, torch and dm-haiku.

Forward and backward: time, temporary memory and compile time.
"""

import argparse
import functools
import importlib.util
import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax

from lnrepro import functional
from scripts import markdown as md
from scripts.benches import layers, records
from scripts.benches.layers import Measured, Shape

SHAPES = {
    # Those of the paper's experiments.
    "handwriting": Shape(steps=500, batch=8, features=77, units=400),
    "draw": Shape(steps=64, batch=128, features=356, units=256),
    "reader": Shape(steps=300, batch=32, features=240, units=240),
    "order": Shape(steps=25, batch=128, features=300, units=1024),
    "skip": Shape(steps=30, batch=64, features=620, units=2400),
    # FlashRNN's figure, for GPUs.
    "flashrnn": Shape(steps=1024, batch=16, features=768, units=768),
}


class Compared(NamedTuple):
    """A cell of ours, and what it is measured against.

    Attributes:
      ours: our cell.
      flax: the same cell written with nn.Dense and nn.LayerNorm.
      flax_plain: Flax's own cell, without a norm.
    """

    ours: type[functional.Cell]
    flax: type[nn.RNNCellBase]
    flax_plain: type[nn.RNNCellBase]


CELLS = {
    "lstm": Compared(
        functional.LSTMCell, layers.LayerNormLSTMCell, nn.OptimizedLSTMCell
    ),
    "gru": Compared(functional.GRUCell, layers.LayerNormGRUCell, nn.GRUCell),
}
# Our norms by the labels of the tables.
NORMS = {"LN": "layer", "plain": "none"}
COLUMNS = ("ms", "temp MB", "compile s")
# {what is compared: key of a `Row`}.
RATIOS = {"time": "ms", "temporary memory": "temp_mb", "time to compile": "compile_s"}

# What is measured of a function: "ms", "temp_mb" and "compile_s". None where it is not
# known.
Row = dict[str, float | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `cells`."""
    parser.add_argument("--cell", choices=tuple(CELLS), default="lstm")
    parser.add_argument(
        "--shapes",
        nargs="+",
        choices=tuple(SHAPES),
        default=[name for name in SHAPES if name != "flashrnn"],
        help="those of the paper by default",
    )
    add_timing_arguments(parser)
    records.add_json_flag(parser)


def add_timing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `measure` reads."""
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="smallest number of interleaved repetitions; the median is reported",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=30,
        help="smallest duration of all repetitions together",
    )


def main(args: argparse.Namespace) -> None:
    """Print a Markdown table of medians, and the geometric means of the ratios."""
    print(f"{args.cell}, forward and backward, {records.where()}\n")
    print(md.head(("shape", "what", *COLUMNS)))
    # The first compilation of a process takes longer.
    layers.ours(functional.LSTMCell(1), Shape(2, 1, 1, 1)).compile()
    table, ratios = {}, {}
    for name in args.shapes:
        functions = implementations(args.cell, SHAPES[name])
        table[name] = measure(functions, args)
        print_rows(name, table[name])
        for what, ratio in compare(table[name]).items():
            ratios.setdefault(what, []).append(ratio)
    means = {what: statistics.geometric_mean(found) for what, found in ratios.items()}
    print("\ngeometric means over the shapes measured:")
    for name, mean in means.items():
        print(f"- {name}: {mean:.3f}")
    records.write(args.json, f"cells, {args.cell}", means, table)


def implementations(name: str, shape: Shape) -> dict[str, Measured]:
    """Make the functions to measure.

    Args:
      name: a key of `CELLS`.
      shape: the sizes.
    """
    compared, made = CELLS[name], {}
    for label, norm in NORMS.items():
        cell = compared.ours(shape.units, norm=norm)
        made[f"ours {label}"] = layers.ours(cell, shape)
    made["Flax LN"] = layers.flax(compared.flax, shape)
    made["Flax plain"] = layers.flax(compared.flax_plain, shape)
    if importlib.util.find_spec("haiku"):
        made["haiku plain"] = layers.haiku(name, shape)
    if name == "lstm" and jax.default_backend() == "gpu":
        made["cuDNN plain"] = layers.cudnn_lstm(shape)
    if importlib.util.find_spec("torch") and (found := layers.torch(name, shape)):
        made["torch plain"] = found
    return made


def measure(
    functions: Mapping[str, Measured], args: argparse.Namespace
) -> dict[str, Row]:
    """Measure functions interleaved, so that slow phases of a machine affect all alike.

    Args:
      functions: {label: function}.
      args: the flags.
    """
    # Several calls are queued on a GPU or TPU, which then never waits for Python.
    repeats = 1 if jax.default_backend() == "cpu" else 10
    rows, calls = {}, {}
    for label, function in functions.items():
        rows[label], calls[label] = _compile(function)
        # The first call may allocate memory or load kernels, so it is not timed.
        function.wait(calls[label]())
    times = {label: [] for label in functions}
    start, done = time.perf_counter(), 0
    while done < args.rounds or time.perf_counter() - start < args.seconds:
        # In another order each time: otherwise a function would always follow the same
        # other one.
        for label in random.Random(done).sample(list(functions), len(functions)):
            begin = time.perf_counter()
            for _ in range(repeats):
                result = calls[label]()
            functions[label].wait(result)
            times[label].append((time.perf_counter() - begin) / repeats)
        done += 1
    for label, row in rows.items():
        row["ms"] = 1e3 * statistics.median(times[label])
    return rows


def _compile(function: Measured) -> tuple[Row, Callable[[], Any]]:
    """Return compile time and memory of a function, and what calls it once."""
    row: Row = dict.fromkeys(RATIOS.values())
    if function.function is None:
        return row, function.call
    # A function would otherwise find traced parts of the one before it.
    jax.clear_caches()
    begin = time.perf_counter()
    compiled = function.compile()
    row["compile_s"] = time.perf_counter() - begin
    # Some backends do not report their memory.
    if memory := compiled.memory_analysis():
        row["temp_mb"] = memory.temp_size_in_bytes / 1e6
    return row, functools.partial(function.call, compiled)


def compare(rows: Mapping[str, Row]) -> dict[str, float]:
    """Return {what, ours / theirs: ratio} of ours to the others."""
    found = {}
    for what, key in RATIOS.items():
        for ours in ("ours LN", "ours plain"):
            for theirs in rows:
                a, b = rows[ours][key], rows[theirs][key]
                same = theirs.startswith("ours")
                # No norm is compared with none only.
                unlike = ours == "ours plain" and theirs.endswith("LN")
                if a and b and not same and not unlike:
                    found[f"{what}, {ours} / {theirs}"] = a / b
    return found


def print_rows(name: str, rows: Mapping[str, Row]) -> None:
    """Print a table's rows."""
    for label, row in rows.items():
        cells = ["" if value is None else f"{value:.2f}" for value in row.values()]
        print(md.row((name, label, *cells)), flush=True)
