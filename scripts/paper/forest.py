"""The picture of all verdicts: how many of the other norm's steps a norm needs."""

import pathlib
from collections.abc import Sequence

import numpy as np

from lnrepro.config import PROTOCOLS
from scripts.paper import plot
from scripts.paper.plot import plt
from scripts.paper.verdicts import Row

TUNED, SAME = PROTOCOLS
# {protocol: (text of the legend, colour, distance from the middle of its row)}.
DRAWN = {
    TUNED: ("each norm at its own best learning rate", "C3", 0.15),
    SAME: ("all norms at one learning rate", "C0", -0.15),
}
# In the forest plot: the smallest share, where "never" stands, and the ticks.
LEFT, NEVER = 2.2, 420.0
TICKS = {3: "3 %", 10: "10 %", 30: "30 %", 100: "100 %", NEVER: "never"}


def draw(rows: Sequence[Row], stem: pathlib.Path) -> bool:
    """Write STEM.png and STEM.svg: the share of every claim about speed.

    Args:
      rows: the verdicts.
      stem: the path without its suffix.

    Returns:
      Whether there was anything to draw.
    """
    rows = [row for row in rows if row.claim.kind == "speed"]
    # The rows from top to bottom, with a heading of each part above.
    lines: list[tuple[str, Row | None]] = []
    for row in rows:
        heading = f"{row.claim.part}: {row.claim.experiment.replace('_', ' ')}"
        if row.data != row.claim.experiment:
            heading += f" ({row.data})"
        if (heading, None) not in lines:
            lines.append((heading, None))
        lines.append((_label(row.claim), row))
    if not rows:
        return False
    with plt.rc_context(plot.STYLE | {"axes.grid": False}):
        size = 8.0, 0.235 * len(lines) + 1.5
        fig, ax = plt.subplots(figsize=size, layout="constrained")
        places = range(len(lines), 0, -1)
        ax.set_yticks(places, [label for label, _ in lines], fontsize=9)
        for y, tick, (_, row) in zip(places, ax.get_yticklabels(), lines, strict=True):
            if row:
                _draw_row(ax, y, row)
            else:
                tick.set_fontweight("bold")
        ax.axvline(100, color="0.4", lw=1)
        ax.set(xscale="log", xlim=(LEFT, 1.25 * NEVER), ylim=(0.3, len(lines) + 0.7))
        text = "share of the second norm's steps until the first has its best value\n"
        text += "(left of 100 %: the first is faster)"
        ax.set_xlabel(text, fontsize=9)
        ax.set_xticks(list(TICKS), list(TICKS.values()), fontsize=9)
        ax.minorticks_off()
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", alpha=0.3)
        for text, colour, _ in DRAWN.values():
            ax.plot([], [], color=colour, marker="o", label=text)
        for text, inside in (("", "0.3"), ("not ", "white")):
            label = f"{'hollow' if text else 'filled'}: {text}significant (Holm)"
            ax.plot([], [], "o", color="0.3", mfc=inside, label=label)
        fig.legend(loc="outside upper center", ncols=2, fontsize=9, frameon=False)
        plot.save(fig, stem)
    return True


def _label(claim):
    """Return such as "LN vs no norm, test error"."""
    label = f"{' vs '.join(claim.names)}, {claim.quantity}"
    return label.replace("layer norm", "LN").replace("batch norm", "BN")


def _draw_row(ax, y, row):
    for protocol, verdict in row.verdicts.items():
        _, colour, shift = DRAWN[protocol]
        ends = np.array([verdict.low, verdict.value, verdict.high])
        low, value, high = np.minimum(100 * ends, NEVER)
        ax.plot([low, high], [y + shift] * 2, color=colour, lw=1.8, alpha=0.7)
        marker = ">" if np.isinf(verdict.value) else "o"
        inside = colour if verdict.significant else "white"
        ax.plot(value, y + shift, marker, color=colour, mfc=inside, mew=1.3)
