"""The picture of all verdicts: how many of the other norm's steps a norm needs."""

import pathlib
from collections.abc import Sequence

import numpy as np

from lnrepro.config import PROTOCOLS
from scripts.paper import plot
from scripts.paper.plot import plt
from scripts.paper.verdicts import Row

# For each protocol: text of the legend, colour, distance from the middle of its row.
DRAWN = (
    ("each norm at its own best learning rate", "C3", -0.15),
    ("all norms at one learning rate", "C0", 0.15),
)
# The smallest share, where "never" stands, and the ticks.
LEFT, NEVER = 2.2, 420.0
TICKS = {3: "3 %", 10: "10 %", 30: "30 %", 100: "100 %", NEVER: "never"}
XLABEL = """share of the second norm's steps until the first has its best value
(left of 100 %: the first is faster; filled: significant after Holm's correction)"""


def draw(rows: Sequence[Row], stem: pathlib.Path) -> None:
    """Write STEM.png and STEM.svg, if there is a claim about speed.

    Args:
      rows: the verdicts.
      stem: the path without its suffix.
    """
    rows = [row for row in rows if row.claim.kind == "speed"]
    if not rows:
        return
    labels = []
    for row in rows:
        label = row.claim.comparison.replace(" against ", " vs ")
        labels.append(label.replace("layer norm", "LN").replace("batch norm", "BN"))
    with plt.rc_context(plot.STYLE | {"axes.grid": False, "font.size": 9}):
        size = 8.0, 0.235 * len(rows) + 1.3
        fig, ax = plt.subplots(figsize=size, layout="constrained")
        ax.axvline(100, color="0.4", lw=1)
        for y, row in enumerate(rows):
            _draw_row(ax, y, row)
        for text, colour, _ in DRAWN:
            ax.plot([], [], color=colour, marker="o", label=text)
        fig.legend(loc="outside upper center", ncols=2, frameon=False)
        ax.set(xscale="log", xlim=(LEFT, 1.25 * NEVER), ylim=(len(rows) - 0.4, -0.6))
        ax.set_xticks(list(TICKS), list(TICKS.values()))
        ax.set_yticks(range(len(rows)), labels)
        fig.supxlabel(XLABEL, fontsize=9)
        ax.minorticks_off()
        ax.grid(axis="x", alpha=0.3)
        plot.save(fig, stem)


def _draw_row(ax, y, row):
    for protocol, (_, colour, shift) in zip(PROTOCOLS, DRAWN, strict=True):
        if verdict := row.verdicts.get(protocol):
            ends = np.array([verdict.low, verdict.value, verdict.high])
            low, value, high = np.minimum(100 * ends, NEVER)
            ax.plot([low, high], [y + shift] * 2, color=colour, lw=1.8, alpha=0.7)
            marker = ">" if np.isinf(verdict.value) else "o"
            inside = colour if verdict.significant else "white"
            ax.plot(value, y + shift, marker, color=colour, mfc=inside, mew=1.3)
