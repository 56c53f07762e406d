"""Pictures of lines with bands, as PNG and SVG."""

import pathlib
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

# The same figure gives the same file.
STYLE = {"axes.grid": True, "grid.alpha": 0.25, "svg.hashsalt": "lnrepro"}
# Norms that no figure shows together may have one colour.
COLOURS = {
    "none": "C0",
    "layer": "C3",
    "layer_cell": "C3",
    "batch": "C2",
    "batch_everywhere": "C1",
    "weight": "C4",
    "layer_everywhere": "C4",
    "rms": "C5",
}
# Number of letters of the caption that fit below a panel.
LETTERS = 80


class Line(NamedTuple):
    """A line over N values of x, with a band.

    Attributes:
      label: text of the legend.
      x: [N].
      y: [N].
      low: [N], lower edge of the band.
      high: [N], upper edge of the band.
      colour: the colour; None takes the next one of Matplotlib's.
      style: the line style.
      points: rows about the values that it summarises.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    colour: str | None
    style: Any = "-"
    points: Sequence[tuple] = ()


class Subplot(NamedTuple):
    """The contents of a pair of axes.

    Attributes:
      lines: the lines.
      settings: what `Axes.set` takes: title, xlabel, ylim and others.
      printed: {legend: y} of horizontal lines.
    """

    lines: Sequence[Line]
    settings: Mapping[str, Any]
    printed: Mapping[str, float]


def draw(
    subplots: Sequence[Subplot], stem: pathlib.Path, caption: str = "", columns: int = 3
) -> None:
    """Write a picture as STEM.png and STEM.svg.

    Args:
      subplots: its contents.
      stem: the path without its suffix.
      caption: the text below it.
      columns: largest number of subplots in a row.
    """
    columns = min(columns, len(subplots))
    rows = -(-len(subplots) // columns)
    size = 4.6 * columns, 3.5 * rows
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            rows, columns, figsize=size, squeeze=False, layout="constrained"
        )
        for ax, subplot in zip(axes.flat, subplots, strict=False):
            _draw(ax, subplot)
        # The last row may have more places than subplots.
        for ax in axes.flat[len(subplots) :]:
            ax.set_visible(False)
        fig.supxlabel(textwrap.fill(caption, LETTERS * columns), fontsize=8)
        save(fig, stem)


def save(fig: plt.Figure, stem: pathlib.Path) -> None:
    """Write a picture as STEM.png and STEM.svg, and close it."""
    fig.savefig(stem.with_suffix(".png"), dpi=150)
    # Without a date, the same figure gives the same bytes.
    fig.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
    plt.close(fig)


def _draw(ax, subplot):
    for line in subplot.lines:
        # With more points the markers would cover the line.
        marker = "." if len(line.x) < 30 else None
        style = {"color": line.colour, "ls": line.style, "marker": marker}
        (drawn,) = ax.plot(line.x, line.y, label=line.label, **style)
        band = {"color": drawn.get_color(), "alpha": 0.15, "lw": 0}
        ax.fill_between(line.x, line.low, line.high, **band)
    for (label, y), style in zip(subplot.printed.items(), ("--", ":"), strict=False):
        ax.axhline(y, color="0.4", ls=style, lw=1, label=label)
    ax.set(**subplot.settings)
    if ax.get_xscale() == "linear":
        # Long numbers would overlap.
        ax.locator_params(axis="x", nbins=6)
        ax.xaxis.set_major_formatter("{x:,g}")
    if subplot.lines:
        ax.legend(fontsize=7)
