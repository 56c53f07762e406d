"""Tables of the pages, from the kept records of benchmarks.

Each table ends with a line that names its records, so that no number stands without
machine, commit and versions.
"""

import re
from collections.abc import Iterator, Mapping

from scripts import markdown as md
from scripts.benches import records

# {label of a record: head of its column}. LN is layer norm.
COLUMNS = {
    "ours LN": "ours, LN",
    "ours plain": "ours, no norm",
    "Flax LN": "Flax, LN",
    "Flax plain": "Flax, no norm",
    "haiku plain": "Haiku, no norm",
    "torch plain": "torch, no norm",
    "cuDNN plain": "cuDNN, no norm",
}
# {cell: the record on a CPU, the record on an H100}.
CELLS = {
    "LSTM": ("cells-lstm", "h100-cells-lstm"),
    "GRU": ("cells-gru", "h100-cells-gru"),
}
# {experiment: the end of the name of its record}.
TRAINED = {
    "DRAW": "draw",
    "handwriting": "handwriting",
    "order-embeddings": "order-embeddings",
    "attentive reader": "attentive-reader",
    "skip-thoughts": "skip-thoughts",
}
# {cell: name of its record}.
OTHER_CELLS = {
    "LSTM, RMS norm": "cells-lstm-rms",
    'LSTM, `norm_site="joint", cell_norm="carry"`': "cells-lstm-rnnt",
    "DreamerV2's GRU": "cells-dreamer",
    "DreamerV3's block GRU": "cells-dreamer-block",
}


def sections() -> Iterator[tuple[str, str, str]]:
    """Yield the page in docs, the name and the text of each table."""
    yield "performance.md", "speed", speed()
    yield "performance.md", "programs", programs()
    page = "benchmarks.md"
    for place, name in enumerate(("CPU", "H100")):
        of_cell = {cell: names[place] for cell, names in CELLS.items()}
        yield page, f"milliseconds {name}", milliseconds(of_cell)
    yield page, "other cells", other_cells()
    yield page, "train H100", trained()
    yield page, "kernel H200", trial()
    yield page, "cycles v5e", compiled()


def speed() -> str:
    """Return the means of our cell's ratios to the others, on a CPU and an H100."""
    rows = []
    for cell, names in CELLS.items():
        kept = [records.kept(name) for name in names]
        for label in list(COLUMNS)[2:]:
            rows.append((f"{cell}: {COLUMNS[label]}", *_ratios(kept, label)))
    head = ("ours with LN, divided by", "time, CPU", "memory, CPU")
    head += ("time, H100", "memory, H100")
    names = [name for of_cell in CELLS.values() for name in of_cell]
    return _with_sources(head, [row for row in rows if any(row[1:])], names)


def _ratios(kept, label) -> list[str]:
    found = []
    for record in kept:
        for what in ("time", "temporary memory"):
            ratio = record["ratios"].get(f"{what}, ours LN / {label}")
            found.append("" if ratio is None else f"{ratio:.2f}")
    return found


def milliseconds(of_cell: Mapping[str, str]) -> str:
    """Return the time of every cell, shape and function.

    Args:
      of_cell: {cell: name of a record}.
    """
    found = {}
    for cell, name in of_cell.items():
        for shape, row in records.kept(name)["details"].items():
            times = {label: row[label]["ms"] for label in COLUMNS if label in row}
            found[f"{cell}, {shape}"] = times
    labels = [x for x in COLUMNS if any(x in times for times in found.values())]
    rows = []
    for about, times in found.items():
        cells = [f"{times[x]:.1f}" if x in times else "" for x in labels]
        rows.append((about, *cells))
    return _with_sources(["", *map(COLUMNS.get, labels)], rows, of_cell.values())


def other_cells() -> str:
    """Return our cells' ratios to the same cells written with Flax's norms."""
    rows = []
    for cell, name in OTHER_CELLS.items():
        ratios = records.kept(name)["ratios"]
        time = ratios["time, ours LN / Flax LN"]
        memory = ratios["temporary memory, ours LN / Flax LN"]
        rows.append((cell, f"{time:.2f}", f"{memory:.2f}"))
    return _with_sources(("cell", "time", "memory"), rows, OTHER_CELLS.values())


def trained() -> str:
    """Return the ratios of optimiser steps to those of programs that use Flax."""
    rows = []
    names = [f"h100-train-{name}" for name in TRAINED.values()]
    for experiment, name in zip(TRAINED, names, strict=True):
        ratios = records.kept(name)["ratios"]
        norm = "layer_cell" if experiment == "DRAW" else "layer"
        cells = []
        for what in ("time", "temporary memory"):
            for of in (norm, "none"):
                cells.append(f"{ratios[f'{what}, ours / direct, {of}']:.2f}")
        rows.append((experiment, *cells))
    head = ("ours divided by direct", "time, LN", "time, no norm")
    return _with_sources((*head, "memory, LN", "memory, no norm"), rows, names)


def programs() -> str:
    """Return steps a second and memory of whole programs."""
    record = records.kept("programs")
    labels = [label for label in COLUMNS if label in record["details"]["ppo"]]
    rows = []
    for program, of_label in record["details"].items():
        found = [of_label[label] for label in labels]
        speeds = [f"{1e3 / values['ms']:.1f}" for values in found]
        rows.append((f"{program}, steps a second", *speeds))
        memory = [f"{values['temp_mb']:.1f}" for values in found]
        rows.append((f"{program}, MB", *memory))
    return _with_sources(["", *map(COLUMNS.get, labels)], rows, ["programs"])


def trial() -> str:
    """Return the times of the trial of a kernel for all steps."""
    name = "h200-kernel-trial"
    columns = {
        "LN-LSTM kernel train": "kernel",
        "LN-LSTM scan train": "scan",
        "Flax LN-LSTM train": COLUMNS["Flax LN"],
        "cuDNN LSTM train": COLUMNS["cuDNN plain"],
    }
    rows = []
    for shape, found in records.kept(name)["details"]["steps"].items():
        cells = []
        for label in columns:
            # The kernel was also tried with other numbers of registers.
            with_registers = re.compile(rf"{label}( registers \d+)?")
            own = [
                ms for key, ms in found["ms"].items() if with_registers.fullmatch(key)
            ]
            cells.append(f"{min(own):.2f}" if own else "")
        rows.append((shape, *cells))
    return _with_sources(["", *columns.values()], rows, [name])


def compiled() -> str:
    """Return the million cycles of programs that were compiled for a v5e."""
    name = "compiled-v5e-cells"
    details = records.kept(name)["details"]
    labels = [label for label in COLUMNS if label in details["lstm, draw"]]
    rows = []
    for about, of_label in details.items():
        values = [f"{of_label[label]['cycles'] / 1e6:.1f}" for label in labels]
        rows.append((about.replace("lstm", "LSTM"), *values))
    return _with_sources(["", *map(COLUMNS.get, labels)], rows, [name])


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
