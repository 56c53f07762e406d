"""Tables of the pages, from the kept records of benchmarks.

Each table ends with a line that names its records, so that no number stands without
machine, commit and versions.
"""

import itertools

from scripts import markdown as md
from scripts.benches import records

# {label of a record: head of its column}. LN is layer norm.
COLUMNS = {
    "kernel": "kernel",
    "scan": "scan",
    "ours LN": "ours, LN",
    "ours plain": "ours, no norm",
    "Flax LN": "Flax, LN",
    "Flax plain": "Flax, no norm",
    "haiku plain": "Haiku, no norm",
    "torch plain": "torch, no norm",
    "cuDNN plain": "cuDNN, no norm",
}
# {device: {cell: its record}}.
CELLS = {
    "CPU": {"LSTM": "cells-lstm", "GRU": "cells-gru"},
    "H100": {"LSTM": "h100-cells-lstm", "GRU": "h100-cells-gru"},
}
# {what the record of the trial of a kernel calls a function: its label}.
TRIED = {
    "LN-LSTM kernel train": "kernel",
    "LN-LSTM scan train": "scan",
    "Flax LN-LSTM train": "Flax LN",
    "cuDNN LSTM train": "cuDNN plain",
}
# Experiments with a record of their optimiser step.
TRAINED = (
    "DRAW",
    "handwriting",
    "order-embeddings",
    "attentive reader",
    "skip-thoughts",
)
# {cell: name of its record}.
OTHER_CELLS = {
    "LSTM, RMS norm": "cells-lstm-rms",
    'LSTM, `norm_site="joint", cell_norm="carry"`': "cells-lstm-rnnt",
    "DreamerV2's GRU": "cells-dreamer",
    "DreamerV3's block GRU": "cells-dreamer-block",
}
MEASURED = ("time", "temporary memory")


def sections() -> dict[str, dict[str, str]]:
    """Return the tables of the pages, {page: {name: text}}."""
    return {
        "docs/performance.md": {"speed": speed(), "programs": programs()},
        "docs/benchmarks.md": {
            "milliseconds CPU": milliseconds("CPU"),
            "milliseconds H100": milliseconds("H100"),
            "other cells": other_cells(),
            "train H100": trained(),
            "kernel H200": trial(),
            "cycles v5e": compiled(),
        },
    }


def speed() -> str:
    """Return the means of our cell's ratios to the others, on a CPU and an H100."""
    rows = {}
    for cell in CELLS["CPU"]:
        names = [of_cell[cell] for of_cell in CELLS.values()]
        for label, name in COLUMNS.items():
            rows[f"{cell}: {name}"] = [
                (record, f"{what}, ours LN / {label}")
                for record, what in itertools.product(names, MEASURED)
            ]
    head = ("ours with LN, divided by", "time, CPU", "memory, CPU")
    return _ratios((*head, "time, H100", "memory, H100"), rows)


def other_cells() -> str:
    """Return our cells' ratios to the same cells written with Flax's norms."""
    rows = {}
    for cell, name in OTHER_CELLS.items():
        rows[cell] = [(name, f"{what}, ours LN / Flax LN") for what in MEASURED]
    return _ratios(("cell", "time", "memory"), rows)


def trained() -> str:
    """Return the ratios of optimiser steps to those of programs that use Flax."""
    rows = {}
    for experiment in TRAINED:
        name = f"h100-train-{experiment.lower().replace(' ', '-')}"
        norms = "layer_cell" if experiment == "DRAW" else "layer", "none"
        rows[experiment] = [
            (name, f"{what}, ours / direct, {norm}")
            for what, norm in itertools.product(MEASURED, norms)
        ]
    head = ("ours divided by direct", "time, LN", "time, no norm")
    return _ratios((*head, "memory, LN", "memory, no norm"), rows)


def _ratios(head, rows) -> str:
    """Return the table of {row: (record, key) of each of its ratios}."""
    lines, names = [], {}
    for label, keys in rows.items():
        cells = []
        for name, key in keys:
            ratio = records.kept(name)["ratios"].get(key)
            cells.append("" if ratio is None else f"{ratio:.2f}")
            names[name] = None
        if any(cells):
            lines.append((label, *cells))
    return _with_sources(head, lines, names)


def milliseconds(device: str) -> str:
    """Return the time of every cell, shape and function.

    Args:
      device: a key of `CELLS`.
    """
    found = {}
    for cell, name in CELLS[device].items():
        for shape, rows in records.kept(name)["details"].items():
            found[f"{cell}, {shape}"] = {of: row["ms"] for of, row in rows.items()}
    return _values(found, CELLS[device].values())


def programs() -> str:
    """Return steps a second and memory of whole programs."""
    found = {}
    for program, rows in records.kept("programs")["details"].items():
        speeds = {label: 1e3 / row["ms"] for label, row in rows.items()}
        memory = {label: row["temp_mb"] for label, row in rows.items()}
        found |= {f"{program}, steps a second": speeds, f"{program}, MB": memory}
    return _values(found, ["programs"])


def trial() -> str:
    """Return the times of the trial of a kernel for all steps."""
    name, found = "h200-kernel-trial", {}
    for shape, rows in records.kept(name)["details"]["steps"].items():
        times = found[shape] = {}
        for key, ms in rows["ms"].items():
            # The kernel was also tried with other numbers of registers.
            label = TRIED.get(key.partition(" registers ")[0], key)
            times[label] = min(ms, times.get(label, ms))
    return _values(found, [name], 2)


def compiled() -> str:
    """Return the million cycles of programs that were compiled for a v5e."""
    name, found = "compiled-v5e-cells", {}
    for about, rows in records.kept(name)["details"].items():
        cycles = {label: row["cycles"] / 1e6 for label, row in rows.items()}
        found[about.replace("lstm", "LSTM")] = cycles
    return _values(found, [name])


def _values(found, names, decimals=1) -> str:
    """Return the table of {row: {label: number}} for the labels of `COLUMNS`."""
    there = set().union(*found.values())
    labels = [label for label in COLUMNS if label in there]
    rows = []
    for about, values in found.items():
        cells = [f"{values[x]:.{decimals}f}" if x in values else "" for x in labels]
        rows.append((about, *cells))
    return _with_sources(["", *map(COLUMNS.get, labels)], rows, names)


def _with_sources(head, rows, names) -> str:
    """Return a table, and the line that names its records."""
    links, places = [], {}
    for name in names:
        record = records.kept(name)
        links.append(f"[{name}](benchmarks/{records.newest(name).name})")
        jax = f"jax {record['versions']['jax']}"
        places[f"{record['device']}, {jax}, commit {record['commit']}"] = None
    sources = f"{'; '.join(places)}: {', '.join(links)}"
    return f"{md.table(head, rows)}\n\n{sources}\n"
