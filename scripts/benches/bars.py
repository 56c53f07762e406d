"""The bars of docs/performance.md, from the records of docs/benchmarks.

They are the time of LSTMs by shape, divided by that of the LSTM that is written with
Flax's nn.LayerNorm.
"""

import numpy as np

from scripts.benches import records
from scripts.benches.tables import CELLS
from scripts.paper import ROOT, plot
from scripts.paper.plot import WIDTH_OF_BAR, Line, Panel
from scripts.paper.style import HEIGHT_OF_PANEL, LOOKS

SHAPES = ("handwriting", "draw", "reader", "order", "skip")
UNIT = "Flax LN"
# What is drawn: {name in a record: (label, colour, hatch)}.
BARS = {
    "ours LN": ("ours, layer norm", LOOKS["layer"][0], ""),
    "ours plain": ("ours, no norm", LOOKS["layer_everywhere"][0], "//"),
    "Flax plain": ("Flax, no norm", LOOKS["batch_everywhere"][0], ".."),
    "cuDNN plain": ("cuDNN, no norm", LOOKS["none"][0], ""),
}


def draw() -> None:
    """Draw a panel for each record."""
    panels = []
    for title, names in CELLS.items():
        record, lines = records.kept(names["LSTM"]), []
        rows = [record["details"][shape] for shape in SHAPES]
        for i, (key, (label, colour, hatch)) in enumerate(BARS.items()):
            shift = (i - (len(BARS) - 1) / 2) * WIDTH_OF_BAR
            places = np.arange(len(SHAPES)) + shift
            ratios = [
                row[key]["ms"] / row[UNIT]["ms"] if key in row else 0 for row in rows
            ]
            lines.append(Line(label, places, ratios, colour=colour, style=hatch))
        settings = {
            "title": f"{title} ({record['device']})",
            "ylim": (0, 1.2),
            "xticks": range(len(SHAPES)),
            "xticklabels": SHAPES,
            "ylabel": "time / Flax's with LN",
        }
        panels.append(Panel(lines, settings))
    height = HEIGHT_OF_PANEL * len(panels) + 0.3
    picture = ROOT / "docs/pictures/cells.png"
    plot.draw(panels, picture, None, columns=1, kind=plot.bars, height=height)
