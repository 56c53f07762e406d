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
Range = tuple[float, float]


class Line(NamedTuple):
    """A line over N values of x, with a band.

    Attributes:
      label: text of the legend.
      x: [N].
      y: [N].
      low: [N], lower edge of the band.
      high: [N], upper edge of the band.
      colour: None takes the next one of Matplotlib's.
      style: the line style.
      points: rows about the values that it summarises.
    """

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    colour: str | None = None
    style: Any = "-"
    points: Sequence[tuple] = ()


class Subplot(NamedTuple):
    """The contents of a pair of axes.

    Attributes:
      lines: the lines.
      labels: what `Axes.set` takes: title, xlabel, yscale and others.
      printed: {legend: y} of horizontal lines.
      frame: ranges of x and y that are framed; the axes then hold them and the last
        third of every line. The first steps would leave little of the picture to it.
    """

    lines: Sequence[Line]
    labels: Mapping[str, Any]
    printed: Mapping[str, float] = {}
    frame: tuple[Range, Range] | None = None


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
        style = {"ls": line.style, "marker": "." if len(line.x) < 30 else None}
        (drawn,) = ax.plot(line.x, line.y, color=line.colour, label=line.label, **style)
        band = {"color": drawn.get_color(), "alpha": 0.15, "lw": 0}
        ax.fill_between(line.x, line.low, line.high, **band)
    for (label, y), style in zip(subplot.printed.items(), ("--", ":"), strict=False):
        ax.axhline(y, color="0.4", ls=style, lw=1, label=label)
    ax.set(**subplot.labels)
    if ax.get_xscale() == "linear":
        # Long numbers would overlap.
        ax.locator_params(axis="x", nbins=6)
        ax.xaxis.set_major_formatter("{x:,g}")
    if subplot.frame:
        _draw_frame(ax, subplot.lines, *subplot.frame)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=7)


def _draw_frame(ax, lines, xlim, ylim):
    """Frame the paper's ranges, and set limits that hold them."""
    xs = [x for line in lines for x in line.x]
    ys = []
    for line in lines:
        last = slice(2 * len(line.x) // 3, None)
        ys += [*line.low[last], *line.high[last]]
    if ax.get_yscale() == "log":
        # A logarithmic axis cannot show the others.
        ys = [y for y in ys if y > 0]
    ax.set_xlim(min(xlim[0], *xs), max(xlim[1], *xs))
    ax.set_ylim(min(ylim[0], *ys), max(ylim[1], *ys))
    (left, right), (low, high) = xlim, ylim
    corners = [left, right, right, left, left], [low, low, high, high, low]
    ax.plot(*corners, ls=":", color="0.6", lw=1, label="the paper's axes")
