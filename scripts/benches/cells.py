"""The recurrent cells against Flax and, on a GPU, cuDNN.

Forward and backward: time, temporary memory and compile time.
"""

import argparse
import functools
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import flax.linen as nn
import jax

from lnrepro import functional
from scripts import markdown as md
from scripts.benches import layers, records
from scripts.benches.layers import Measured, Shape

# Those of the paper's experiments.
SHAPES = {
    "handwriting": Shape(steps=500, batch=8, features=77, units=400),
    "draw": Shape(steps=64, batch=128, features=356, units=256),
    "reader": Shape(steps=300, batch=32, features=240, units=240),
    "order": Shape(steps=25, batch=128, features=300, units=1024),
    "skip": Shape(steps=30, batch=64, features=620, units=2400),
}


# {name of a cell: {label: function of its units that makes it}}. Flax has no cell with
# a norm, so that one is written with nn.Dense and nn.LayerNorm.
CELLS = {
    "lstm": {
        "ours LN": functools.partial(functional.LSTMCell, norm="layer"),
        "ours plain": functools.partial(functional.LSTMCell, norm="none"),
        "Flax LN": layers.LayerNormLSTMCell,
        "Flax plain": nn.OptimizedLSTMCell,
    },
    "gru": {
        "ours LN": functools.partial(functional.GRUCell, norm="layer"),
        "ours plain": functools.partial(functional.GRUCell, norm="none"),
        "Flax LN": layers.LayerNormGRUCell,
        "Flax plain": nn.GRUCell,
    },
}
COLUMNS = ("ms", "temp MB", "compile s")
# {what is compared: key of a `Row`}.
RATIOS = {"time": "ms", "temporary memory": "temp_mb", "time to compile": "compile_s"}

# What is measured of a function: "ms", "temp_mb" and "compile_s".
Row = dict[str, float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `cells`."""
    add = parser.add_argument
    add("--cell", choices=tuple(CELLS), default="lstm")
    add("--shapes", nargs="+", choices=tuple(SHAPES), default=list(SHAPES))
    help_autotune = "first measure the kernels of our cells, see functional.autotune"
    add("--autotune", action="store_true", help=help_autotune)
    add_timing_arguments(parser)


def add_timing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `measure` reads."""
    help_rounds = "smallest number of interleaved repetitions, of which medians are"
    parser.add_argument("--rounds", type=int, default=5, help=help_rounds)
    help_seconds = "smallest duration of all repetitions together"
    parser.add_argument("--seconds", type=float, default=30, help=help_seconds)


def main(args: argparse.Namespace) -> None:
    """Print a Markdown table of medians, and the geometric means of the ratios."""
    # The first compilation of a process takes longer.
    layers.ours(functional.LSTMCell(1), Shape(2, 1, 1, 1)).compile()

    def rows_of(name):
        made = implementations(args.cell, SHAPES[name])
        if args.autotune:
            for label in ("ours LN", "ours plain"):
                functional.autotune(made[label].function, *made[label].arguments)
        return measure(made, args)

    table = tabulate(f"{args.cell}, forward and backward", args.shapes, rows_of)
    ratios = {}
    for rows in table.values():
        for what, ratio in compare(rows).items():
            ratios.setdefault(what, []).append(ratio)
    means = {what: statistics.geometric_mean(found) for what, found in ratios.items()}
    print("\ngeometric means over the shapes measured:")
    records.write(args.json, f"cells, {args.cell}", means, table)


def tabulate(
    title: str, names: Iterable[str], rows_of: Callable[[str], Mapping[str, Row]]
) -> dict[str, Mapping[str, Row]]:
    """Print a Markdown table, row by row as they are measured.

    Args:
      title: what is measured.
      names: of shapes or programs.
      rows_of: (name) -> {label: row}.

    Returns:
      {name: {label: row}}.
    """
    print(f"{title}, {records.where()}\n\n{md.head(('', 'what', *COLUMNS))}")
    table = {}
    for name in names:
        table[name] = rows_of(name)
        for label, row in table[name].items():
            numbers = [f"{number:.2f}" for number in row.values()]
            print(md.row((name, label, *numbers)), flush=True)
    return table


def implementations(name: str, shape: Shape) -> dict[str, Measured]:
    """Make the functions to measure.

    Args:
      name: a key of `CELLS`.
      shape: the sizes.
    """
    made = {}
    for label, cell in CELLS[name].items():
        gradient = layers.ours if label.startswith("ours") else layers.flax
        made[label] = gradient(cell(shape.units), shape)
    if name == "lstm" and jax.default_backend() == "gpu":
        made["cuDNN plain"] = layers.cudnn_lstm(shape)
    return made


def measure(
    functions: Mapping[str, Measured], args: argparse.Namespace
) -> dict[str, Row]:
    """Measure functions in JAX.

    Args:
      functions: {label: function}.
      args: the flags.
    """
    rows, calls = {}, {}
    for label, function in functions.items():
        # A function would otherwise find traced parts of the one before it.
        jax.clear_caches()
        begin = time.perf_counter()
        compiled = function.compile()
        seconds = time.perf_counter() - begin
        megabytes = compiled.memory_analysis().temp_size_in_bytes / 1e6
        # Measured below, together.
        rows[label] = {"ms": 0.0, "temp_mb": megabytes, "compile_s": seconds}
        calls[label] = functools.partial(compiled, *function.arguments)
    # Several calls are queued on a GPU or TPU, which then never waits for Python.
    repeats = 1 if jax.default_backend() == "cpu" else 10
    for label, ms in medians(calls, args, repeats).items():
        rows[label]["ms"] = ms
    return rows


def medians(
    calls: Mapping[str, Callable[[], Any]], args: argparse.Namespace, repeats: int = 1
) -> dict[str, float]:
    """Return the milliseconds of functions, {label: median}.

    They run interleaved, so that slow phases of a machine affect all alike.

    Args:
      calls: {label: function}. Its result may not be there yet when it returns.
      args: the flags.
      repeats: how often each is called in a row.
    """
    # The first call may compile, allocate memory or load kernels: it is not timed.
    for call in calls.values():
        jax.block_until_ready(call())
    times = {label: [] for label in calls}
    start, done = time.perf_counter(), 0
    while done < args.rounds or time.perf_counter() - start < args.seconds:
        # In another order each time: otherwise a function would always follow the same
        # other one.
        for label in random.Random(done).sample(list(calls), len(calls)):
            begin = time.perf_counter()
            for _ in range(repeats):
                result = calls[label]()
            jax.block_until_ready(result)
            times[label].append((time.perf_counter() - begin) / repeats)
        done += 1
    return {label: 1e3 * statistics.median(found) for label, found in times.items()}


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
