"""The bars of docs/performance.md, from the records of docs/benchmarks.

They are the time of LSTMs by shape, divided by that of the LSTM that is written with
Flax's nn.LayerNorm.
"""

import pathlib

from scripts.benches import records
from scripts.paper import plot
from scripts.paper.style import HEIGHT_OF_PANEL, LOOKS, WIDTH

PICTURE = pathlib.Path(__file__).resolve().parents[2] / "docs/pictures/cells.png"
# {title of a panel: name of a record}.
RECORDS = {"CPU": "cells-lstm", "H100": "h100-cells-lstm"}
SHAPES = ("handwriting", "draw", "reader", "order", "skip")
UNIT = "Flax LN"
# What is drawn: {name in a record: (label, colour, hatch)}.
BARS = {
    "ours LN": ("ours, layer norm", LOOKS["layer"][0], ""),
    "ours plain": ("ours, no norm", LOOKS["layer_everywhere"][0], "//"),
    "Flax plain": ("Flax, no norm", LOOKS["batch_everywhere"][0], ".."),
    "cuDNN plain": ("cuDNN, no norm", LOOKS["none"][0], ""),
}


def draw(path: pathlib.Path) -> None:
    """Draw a panel for each record.

    Args:
      path: the PNG file.
    """
    size = (WIDTH, HEIGHT_OF_PANEL * len(RECORDS) + 0.3)
    with plot.figure(path, size, len(RECORDS)) as (fig, panels):
        for ax, (title, name) in zip(panels, RECORDS.items(), strict=True):
            record = records.kept(name)
            rows = record["details"]
            width = 0.8 / len(BARS)
            for i, (key, (label, colour, hatch)) in enumerate(BARS.items()):
                ratios = [
                    rows[s][key]["ms"] / rows[s][UNIT]["ms"] if key in rows[s] else 0
                    for s in SHAPES
                ]
                places = [
                    k + (i - (len(BARS) - 1) / 2) * width for k in range(len(SHAPES))
                ]
                look = {"color": colour, "hatch": hatch, "edgecolor": "white"}
                ax.bar(places, ratios, width, label=label, linewidth=0, **look)
            ax.axhline(1, color="black", linewidth=0.8, linestyle="--")
            ax.set(title=f"{title} ({record['device']})", ylim=(0, 1.2))
            ax.set_xticks(range(len(SHAPES)), SHAPES)
            ax.set_ylabel("time / Flax's with LN")
            ax.grid(axis="x", visible=False)
        handles, labels = panels[-1].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=len(BARS))
