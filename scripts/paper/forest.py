"""The picture of all verdicts: how many of the other norm's steps a norm needs."""

import pathlib
from collections.abc import Sequence

from lnrepro.config import PROTOCOLS
from scripts.paper import plot
from scripts.paper.plot import plt
from scripts.paper.verdicts import Row

# For each protocol: text of the legend, colour, distance from the middle of its row.
DRAWN = (
    ("each norm at its own best learning rate", "C3", -0.15),
    ("all norms at one learning rate", "C0", 0.15),
)
TICKS = {share: f"{share} %" for share in (3, 10, 30, 100, 300, 1000)}
XLABEL = """share of the second norm's steps until the first is as good
(left of 100 %: the first is faster)"""


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
        ax.set(xscale="log", ylim=(len(rows) - 0.4, -0.6))
        ax.set_xticks(list(TICKS), list(TICKS.values()))
        ax.set_yticks(range(len(rows)), labels)
        fig.supxlabel(XLABEL, fontsize=9)
        ax.minorticks_off()
        ax.grid(axis="x", alpha=0.3)
        plot.save(fig, stem)


def _draw_row(ax, y, row):
    for protocol, (_, colour, shift) in zip(PROTOCOLS, DRAWN, strict=True):
        if verdict := row.verdicts.get(protocol):
            ends = 100 * verdict.low, 100 * verdict.high
            ax.plot(ends, [y + shift] * 2, color=colour, lw=1.8, alpha=0.7)
            ax.plot(100 * verdict.value, y + shift, "o", color=colour)
