"""The recurrent cells against Flax and, where installed, torch and dm-haiku.

Time, temporary memory and compile time are measured.
"""

import argparse
import functools
import gzip
import importlib.util
import itertools
import json
import pathlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax

from lnrepro import functional
from scripts import markdown as md
from scripts.benches import records
from scripts.benches.direct import cells_jax, variants_jax
from scripts.benches.direct.cells_jax import Implementation, Shape

# The shapes of the paper's experiments.
SHAPES = {
    "handwriting": Shape(steps=500, batch=8, features=77, units=400),
    "draw": Shape(steps=64, batch=128, features=356, units=256),
    "reader": Shape(steps=300, batch=32, features=240, units=240),
    "order": Shape(steps=25, batch=128, features=300, units=1024),
    "skip": Shape(steps=30, batch=64, features=620, units=2400),
}
# Those of benchmarks that others published, for GPUs.
RIVALS = {
    # FlashRNN's figure.
    "flashrnn": Shape(steps=1024, batch=16, features=768, units=768),
    # TorchRL's benchmark of resets.
    "torchrl": Shape(steps=128, batch=128, features=256, units=256, resets=0.03),
    # TorchRL's block GRU; its cell here is dreamer-block.
    "blocks-64": Shape(steps=64, batch=16, features=512, units=512),
    "blocks-512": Shape(steps=512, batch=16, features=512, units=512),
}


class Compared(NamedTuple):
    """A cell of ours, and what it is measured against.

    Attributes:
      ours: (sizes) -> our cell with its norm.
      plain: (sizes) -> our cell without a norm.
      flax: the same cell written with nn.Dense and Flax's norms.
      flax_plain: Flax's own cell without a norm.
      peer: "lstm" or "gru", the cell of torch and Haiku; None measures none.
    """

    ours: Callable[[Shape], functional.Cell]
    plain: Callable[[Shape], functional.Cell]
    flax: type[nn.RNNCellBase]
    flax_plain: type[nn.RNNCellBase]
    peer: str | None = None


def _of_units(cell_class, **options):
    """(sizes) -> a cell of that class."""

    def make(shape):
        return cell_class(shape.units, **options)

    return make


def _dreamer_block(norm):
    """(sizes) -> DreamerV3's cell, whose input is one part."""

    def make(shape):
        return functional.DreamerBlockGRUCell(
            shape.units,
            hidden_features=shape.units // 2,
            input_sizes=(shape.features,),
            norm=norm,
        )

    return make


_plain_lstm = _of_units(functional.LSTMCell, norm="none")
_joint = {"norm": "layer", "norm_site": "joint", "cell_norm": "carry"}
CELLS = {
    "lstm": Compared(
        _of_units(functional.LSTMCell, norm="layer"),
        _plain_lstm,
        cells_jax.LayerNormLSTMCell,
        nn.OptimizedLSTMCell,
        "lstm",
    ),
    "gru": Compared(
        _of_units(functional.GRUCell, norm="layer"),
        _of_units(functional.GRUCell, norm="none"),
        cells_jax.LayerNormGRUCell,
        nn.GRUCell,
        "gru",
    ),
    "lstm-rms": Compared(
        _of_units(functional.LSTMCell, norm="rms"),
        _plain_lstm,
        variants_jax.RMSLSTMCell,
        nn.OptimizedLSTMCell,
    ),
    "lstm-rnnt": Compared(
        _of_units(functional.LSTMCell, **_joint),
        _plain_lstm,
        variants_jax.RNNTLSTMCell,
        nn.OptimizedLSTMCell,
    ),
    "dreamer": Compared(
        _of_units(functional.DreamerGRUCell, norm="layer"),
        _of_units(functional.DreamerGRUCell, norm="none"),
        variants_jax.DreamerGRUCell,
        nn.GRUCell,
    ),
    "dreamer-block": Compared(
        _dreamer_block("rms"),
        _dreamer_block("none"),
        variants_jax.DreamerBlockGRUCell,
        nn.GRUCell,
    ),
}

# Number of compilations of each function. Their median is reported.
COMPILATIONS = 7
COLUMNS = (
    "shape",
    "what",
    "ms",
    "x Flax plain",
    "x Flax LN",
    "temp MB",
    "compile s",
    "launches a step",
)

# Functions whose times are compared.
PAIRS = (
    ("ours LN", "Flax LN"),
    ("ours LN", "Flax plain"),
    ("ours LN", "torch plain"),
    ("ours LN", "torch script LN"),
    ("ours LN", "torch compile LN"),
    ("ours LN", "cuDNN plain"),
    ("ours LN", "haiku plain"),
    ("ours LN, inference", "Flax plain, inference"),
    ("products alone", "Flax LN"),
    ("products alone", "Flax plain"),
    ("products alone", "torch plain"),
    ("products alone, inference", "Flax plain, inference"),
    ("torch products alone", "torch plain"),
    ("torch products alone", "torch script LN"),
)

# What is measured of a function: "ms", "temp_mb", "compile_s", "rounds" and, on a GPU,
# "launches" of kernels in a step. None where it is not known.
Row = dict[str, float | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `cells`."""
    parser.add_argument("--cell", choices=tuple(CELLS), default="lstm")
    parser.add_argument(
        "--shapes",
        nargs="+",
        choices=(*SHAPES, *RIVALS),
        default=list(SHAPES),
        help="those of the paper by default",
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    add_timing_arguments(parser)
    parser.add_argument(
        "--peers",
        nargs="*",
        default=["torch", "haiku"],
        help="libraries to measure if they are installed",
    )
    records.add_json_flag(parser)


def add_timing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `measure` reads."""
    parser.add_argument(
        "--repeats",
        type=int,
        help="calls between two looks at the clock; by default 1, on a GPU or TPU 10, "
        "so that the time to start a call does not count",
    )
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


def main(args: argparse.Namespace) -> int:
    """Print a Markdown table of medians, and the geometric means of the ratios.

    Returns:
      0.
    """
    commit = records.commit()
    print(f"{args.cell}, {records.device()}, jax {jax.__version__}, commit {commit}")
    print(
        "forward + backward unless it says `inference`; medians of at least "
        f"{args.rounds} interleaved rounds and {args.seconds:g} s a shape; temp = "
        "temporary memory\n"
    )
    print(md.head(COLUMNS))
    # The first compilation of a process takes longer.
    cells_jax.ours(functional.LSTMCell(1, "none"), Shape(2, 1, 1, 1)).compile()
    table = {}
    for name in args.shapes:
        shape = (SHAPES | RIVALS)[name]._replace(dtype=args.dtype)
        functions = implementations(args.cell, shape, args.peers)
        table[name] = measure(functions, args, shape.steps, COMPILATIONS)
        _print_rows(name, table[name])
    means = _means(table.values())
    print("\ngeometric means over the shapes measured:")
    for name, mean in means.items():
        print(f"- {name}: {mean:.3f}")
    of = args.cell if args.dtype == "float32" else f"{args.cell}, {args.dtype}"
    records.write(args.json, f"cells, {of}", means, table)
    return 0


def implementations(
    cell: str, shape: Shape, peers: Iterable[str]
) -> dict[str, Implementation]:
    """Make the functions to measure.

    Args:
      cell: a key of `CELLS`.
      shape: the sizes.
      peers: libraries to measure if they are installed.
    """
    compared = CELLS[cell]
    normed, plain = compared.ours(shape), compared.plain(shape)
    flax_plain = compared.flax_plain
    # "inference" measures the outputs without gradients. "products alone" bounds the
    # time from below, roughly: it has the matrix products and little else.
    made = {
        "ours LN": cells_jax.ours(normed, shape),
        "ours plain": cells_jax.ours(plain, shape),
        "Flax LN": cells_jax.flax(compared.flax, shape),
        "Flax plain": cells_jax.flax(flax_plain, shape),
        "ours LN, inference": cells_jax.ours(normed, shape, inference=True),
        "Flax plain, inference": cells_jax.flax(flax_plain, shape, inference=True),
    }
    if compared.peer is None:
        return made
    if shape.resets:
        # Neither cuDNN nor the other libraries start rows anew within a sequence.
        return made
    if compared.peer == "lstm" and jax.default_backend() == "gpu":
        made["cuDNN plain"] = cells_jax.cudnn_lstm(shape)
    our_class = type(plain)
    made["products alone"] = cells_jax.our_products(our_class, shape)
    made["products alone, inference"] = cells_jax.our_products(
        our_class, shape, inference=True
    )
    if "haiku" in peers and importlib.util.find_spec("haiku"):
        made["haiku plain"] = cells_jax.haiku(compared.peer, shape)
    if "torch" in peers and importlib.util.find_spec("torch"):
        from scripts.benches.direct import cells_torch

        if cells_torch.use_device_of_jax():
            made["torch plain"] = cells_torch.plain(compared.peer, shape)
            made["torch products alone"] = cells_torch.products(compared.peer, shape)
            if compared.peer == "lstm":
                normed_lstm = cells_torch.layer_norm_lstm
                made["torch script LN"] = normed_lstm(shape, "script")
                if jax.default_backend() == "gpu":
                    made["torch compile LN"] = normed_lstm(shape, "compile")
    return made


def measure(
    functions: Mapping[str, Implementation],
    args: argparse.Namespace,
    steps: int,
    compilations: int,
) -> dict[str, Row]:
    """Measure functions interleaved.

    Args:
      functions: {label: function}.
      args: the flags.
      steps: the time steps of a call.
      compilations: number of times that each function is compiled.
    """
    repeats = args.repeats
    if repeats is None:
        repeats = 1 if jax.default_backend() == "cpu" else 10
    rows, calls = _compile(functions, compilations)
    times = {label: [] for label in calls}
    start = time.perf_counter()
    # Take turns, so that a slow phase of the machine affects all functions alike. At
    # least `rounds` turns and `seconds` seconds.
    for done in itertools.count():
        if done >= args.rounds and time.perf_counter() - start > args.seconds:
            break
        for label in _shuffled(calls, done):
            begin = time.perf_counter()
            # Calls are queued on the device, which then never waits for Python.
            for _ in range(repeats):
                result = calls[label]()
            functions[label].wait(result)
            times[label].append((time.perf_counter() - begin) / repeats)
    for label, row in rows.items():
        row["ms"] = 1e3 * statistics.median(times[label])
        row["rounds"] = done
        row["launches"] = None
        if jax.default_backend() == "gpu" and functions[label].compile:
            row["launches"] = count_launches(traced(calls[label])) / steps
    return rows


def traced(run: Callable[[], Any]) -> list[dict[str, Any]]:
    """Call a function, and return the events of the profiler's trace of it."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run())
        (file,) = pathlib.Path(folder).glob("**/*.trace.json.gz")
        return json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]


def count_launches(events: Iterable[Mapping[str, Any]]) -> int:
    """Count the events of the GPUs' streams in a trace.

    Args:
      events: those of a trace, as Chrome's trace viewer reads them.
    """
    streams, durations = set(), []
    for event in events:
        # "M" events name processes and their threads, "X" events have a duration.
        if event.get("ph") == "M" and event.get("name") == "thread_name":
            if str(event["args"]["name"]).startswith("Stream"):
                streams.add((event["pid"], event["tid"]))
        elif event.get("ph") == "X":
            durations.append((event["pid"], event["tid"]))
    return sum(where in streams for where in durations)


def _compile(
    functions: Mapping[str, Implementation], compilations: int
) -> tuple[dict[str, Row], dict[str, Callable[[], Any]]]:
    """Compile functions interleaved, and call each once.

    Returns:
      {label: compile time and memory}, {label: function that runs it once}
    """
    compiled = {}
    seconds = {label: [] for label, f in functions.items() if f.compile}
    for turn in range(compilations):
        for label in _shuffled(seconds, turn):
            # A function would otherwise find traced parts of the one before it.
            jax.clear_caches()
            begin = time.perf_counter()
            compiled[label] = functions[label].compile()
            seconds[label].append(time.perf_counter() - begin)
    rows, calls = {}, {}
    for label, function in functions.items():
        rows[label] = {"compile_s": None, "temp_mb": None}
        calls[label] = function.call
        if label in compiled:
            calls[label] = functools.partial(function.call, compiled[label])
            rows[label]["compile_s"] = statistics.median(seconds[label])
            # Some backends do not report their memory.
            if memory := compiled[label].memory_analysis():
                rows[label]["temp_mb"] = memory.temp_size_in_bytes / 1e6
        # The first call may allocate memory or load kernels, so it is not timed.
        function.wait(calls[label]())
    return rows, calls


def _shuffled(labels: Iterable[str], turn: int) -> list[str]:
    """Return labels in an order that differs from turn to turn.

    Otherwise a function would always follow the same other function.
    """
    labels = list(labels)
    return random.Random(turn).sample(labels, len(labels))


def _print_rows(shape: str, rows: Mapping[str, Row]) -> None:
    for label, row in rows.items():
        inference = label.endswith("inference")
        # Inference is compared with inference only.
        plain = "Flax plain, inference" if inference else "Flax plain"
        ratios = [f"{row['ms'] / rows[plain]['ms']:.2f}", ""]
        if not inference:
            ratios[1] = f"{row['ms'] / rows['Flax LN']['ms']:.2f}"
        temp = "" if row["temp_mb"] is None else f"{row['temp_mb']:.0f}"
        seconds = "" if row["compile_s"] is None else f"{row['compile_s']:.2f}"
        launches = "" if row["launches"] is None else f"{row['launches']:.1f}"
        cells = (shape, label, f"{row['ms']:.1f}", *ratios, temp, seconds, launches)
        print(md.row(cells), flush=True)


def _means(table: Iterable[Mapping[str, Row]]) -> dict[str, float]:
    """Return the geometric means of ratios over the shapes, by their names."""
    table = list(table)
    means = {}
    for ours, theirs in PAIRS:
        if ratios := _ratios(table, "ms", ours, theirs):
            means[f"time, {ours} / {theirs}"] = statistics.geometric_mean(ratios)
    for theirs in ("Flax LN", "Flax plain"):
        if ratios := _ratios(table, "temp_mb", "ours LN", theirs):
            name = f"temporary memory, ours LN / {theirs}"
            means[name] = statistics.geometric_mean(ratios)
            means[f"{name}, largest"] = max(ratios)
    if ratios := _ratios(table, "compile_s", "ours LN", "Flax plain"):
        name = "time to compile, ours LN / Flax plain"
        means[name] = statistics.geometric_mean(ratios)
    return means


def _ratios(
    table: Iterable[Mapping[str, Row]], what: str, ours: str, theirs: str
) -> list[float]:
    """Return the ratios of two functions, one for each shape that has both."""
    ratios = []
    for rows in table:
        if ours in rows and theirs in rows:
            a, b = rows[ours][what], rows[theirs][what]
            if a and b:
                ratios.append(a / b)
    return ratios
