"""After which share of its steps layer norm has what another norm has, over time."""

import csv
import pathlib
from collections.abc import Sequence

import numpy as np

from scripts.paper import compare, picture
from scripts.paper.axes import Figure
from scripts.paper.verdicts import FEWEST_SEEDS, Row

# The largest share that is drawn.
TOP = 2.0


def caption(figure: Figure) -> str:
    """Return the text below the picture."""
    return (
        f"{figure.title}, {figure.name}: the share of the other norm's steps after "
        "which layer norm has what the other has at a step. Means over seeds, 95 % "
        "intervals. A line ends where it is never reached."
    )


def draw(figure: Figure, rows: Sequence[Row], stem: pathlib.Path) -> bool:
    """Write STEM.png, STEM.svg and STEM.csv.

    Args:
      figure: the figure.
      rows: its comparisons, `claims.of_figure`.
      stem: the path without its suffix.

    Returns:
      Whether there was anything to draw.
    """
    lines = [
        (row, protocol, compare.shares(pairs), _interval(pairs))
        for row in rows
        if row.claim.kind == "speed"
        for protocol, pairs in row.pairs.items()
    ]
    if not lines:
        return False
    panels = list(dict.fromkeys((line[0].claim.part, line[1]) for line in lines))
    with picture.panels_of(len(panels), 3, caption(figure), stem) as axes:
        for ax, (part, protocol) in zip(axes, panels, strict=False):
            ax.axhline(100, color="0.4", ls="--", lw=1)
            for line in lines:
                if (line[0].claim.part, line[1]) == (part, protocol):
                    _draw_line(ax, figure, *line)
            ax.set(
                title=f"{part}, {protocol}",
                xlabel="step of the other",
                ylabel="share of its steps, %",
                ylim=(0, 100 * TOP),
            )
            ax.locator_params(axis="x", nbins=6)
            ax.legend(fontsize=7)
    _write(lines, stem.with_suffix(".csv"))
    return True


def _interval(pairs):
    """Return the ends of the interval, or None of too few seeds."""
    if len(pairs.better) < FEWEST_SEEDS:
        return None
    return compare.interval(compare.shares, pairs)


def _draw_line(ax, figure, row, protocol, shares, interval):
    steps = row.pairs[protocol].steps
    norm = row.claim.baseline
    label = f"{row.claim.better} against {norm}, {row.data}"
    # A share that is infinite interrupts the line.
    drawn = np.where(np.isinf(shares), np.nan, 100 * shares)
    colour = picture.COLOURS.get(norm)
    ax.plot(steps, drawn, marker=".", color=colour, label=label, lw=1.3)
    if interval:
        low, high = (100 * np.minimum(ends, 10 * TOP) for ends in interval)
        ax.fill_between(steps, low, high, color=colour, alpha=0.15, lw=0)


def _write(lines, path):
    head = [
        "panel",
        "protocol",
        "norm",
        "other",
        "data",
        "step",
        "share",
        "low",
        "high",
    ]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        for row, protocol, shares, interval in lines:
            names = [row.claim.part, protocol, row.claim.better, row.claim.baseline]
            names = [picture.as_text(name) for name in (*names, row.data)]
            columns = [shares, *(interval or ())]
            for i, step in enumerate(row.pairs[protocol].steps):
                writer.writerow([*names, step, *(f"{c[i]:.4g}" for c in columns)])
