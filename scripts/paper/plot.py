"""Pictures, as PNG and SVG.

Every picture has panels, and every panel has lines: values with a range. They are drawn
as curves, as shares or as bars.
"""

import collections
import pathlib
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import EngFormatter

from scripts.paper.style import HEIGHT_OF_PANEL, STYLE, WIDTH

# Number of letters of the caption that fit into a line.
LETTERS = 150
# Four bars fit beside each other.
WIDTH_OF_BAR = 0.2


class Line(NamedTuple):
    """N values with a range, at N places.

    Attributes:
      label: text of the legend.
      x: [N].
      y: [N].
      low: [N], lower end of the range.
      high: [N], upper end of the range.
      colour: the colour; None takes the next one of Matplotlib's.
      style: the line style, or the hatch of bars.
      points: rows about the values that it summarises.
    """

    label: str
    x: Sequence[float] = ()
    y: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: str | None = None
    style: Any = "-"
    points: Sequence[tuple] = ()


def median_line(
    label: str, points: Sequence[tuple], colour: str | None, style: Any = "-"
) -> Line:
    """Return the line of the medians over seeds, with their range as its band.

    Args:
      label: text of the legend.
      points: rows that end with x and y. The median at x is over those that have it.
      colour: see `Line`.
      style: the line style.
    """
    ys = collections.defaultdict(list)
    for *_, x, y in points:
        ys[x].append(y)
    xs = sorted(ys)
    middle = [np.median(ys[x]) for x in xs]
    low, high = ([f(ys[x]) for x in xs] for f in (min, max))
    return Line(label, xs, middle, low, high, colour, style, points)


class Panel(NamedTuple):
    """The contents of a pair of axes.

    Attributes:
      lines: the lines.
      settings: what `Axes.set` takes: title, xlabel, ylim and others.
      printed: {legend: y} of horizontal lines beside curves.
      notes: {row: (text, colour)} on the right of shares.
      titles: the rows of shares that are titles.
    """

    lines: Sequence[Line]
    settings: Mapping[str, Any]
    printed: Mapping[str, float] = {}
    notes: Mapping[int, tuple[str, str]] = {}
    titles: Collection[int] = ()


def curves(ax: plt.Axes, panel: Panel) -> None:
    """Draw lines with bands, and numbers that are printed somewhere."""
    for line in panel.lines:
        # With more points the markers would cover the line.
        marker = "." if len(line.x) < 30 else None
        style = {"color": line.colour, "ls": line.style, "marker": marker}
        (drawn,) = ax.plot(line.x, line.y, label=line.label, **style)
        band = {"color": drawn.get_color(), "alpha": 0.15, "lw": 0}
        ax.fill_between(line.x, line.low, line.high, **band)
    for (label, y), style in zip(panel.printed.items(), ("--", ":"), strict=False):
        ax.axhline(y, color="0.4", ls=style, lw=1, label=label)
    ax.set(**panel.settings)
    if ax.get_xscale() == "linear":
        # Long numbers would overlap.
        ax.locator_params(axis="x", nbins=6)
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))


def shares(ax: plt.Axes, panel: Panel) -> None:
    """Draw a point and an interval in a row, x, for each value, in percent."""
    ax.axvline(100, color="0.4", lw=1)
    for line in panel.lines:
        ends, style = [line.low, line.high], {"color": line.colour}
        ax.plot(ends, [line.x, line.x], lw=1.8, alpha=0.7, **style)
        style |= {"marker": "o", "ms": 4 if panel.notes else None, "ls": line.style}
        ax.plot(line.y, line.x, label=line.label, **style)
    ax.set(**panel.settings)
    for y in panel.titles:
        ax.get_yticklabels()[y].set_fontweight("bold")
    for y, (text, colour) in panel.notes.items():
        # Beside the axes, in a column of its own.
        where = {"xy": (1.01, y), "xycoords": ("axes fraction", "data")}
        ax.annotate(text, **where, va="center", color=colour)
    ax.minorticks_off()
    ax.grid(visible=False)
    ax.grid(axis="x", alpha=0.3)


def bars(ax: plt.Axes, panel: Panel) -> None:
    """Draw bars beside a line at 1."""
    for line in panel.lines:
        style = {"color": line.colour, "hatch": line.style, "edgecolor": "white"}
        ax.bar(line.x, line.y, WIDTH_OF_BAR, label=line.label, linewidth=0, **style)
    ax.axhline(1, color="black", linewidth=0.8, linestyle="--")
    ax.set(**panel.settings)
    ax.grid(axis="x", visible=False)


def draw(
    panels: Sequence[Panel],
    path: pathlib.Path,
    caption: str | None = "",
    columns: int = 3,
    kind: Callable[[plt.Axes, Panel], None] = curves,
    height: float | None = None,
    fontsize: int = 7,
) -> pathlib.Path:
    """Write a picture, see `save`, and return its path.

    Args:
      panels: its contents.
      path: that of the picture.
      caption: the text below it; None leaves no room for it.
      columns: largest number of panels in a row.
      kind: how panels are drawn: `curves`, `shares` or `bars`.
      height: that of the picture in inches; None: that of panels with curves.
      fontsize: that of the caption, in points.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    size, letters = (WIDTH, height or HEIGHT_OF_PANEL * rows + 1), LETTERS
    if columns == 1 and not height:
        # One panel is as high as it is wide.
        size, letters = (0.7 * WIDTH, 0.6 * WIDTH), int(0.6 * LETTERS)
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            rows, columns, figsize=size, squeeze=False, layout="constrained"
        )
        by_label = {}
        for ax, panel in zip(axes.flat, panels, strict=False):
            kind(ax, panel)
            handles, labels = ax.get_legend_handles_labels()
            by_label |= dict(zip(labels, handles, strict=True))
        # The last row may have more places than panels.
        for ax in axes.flat[len(panels) :]:
            ax.set_visible(False)
        _add_legend(fig, by_label)
        if caption is not None:
            text = textwrap.fill(caption, letters, replace_whitespace=False)
            fig.supxlabel(text, fontsize=fontsize)
        return save(fig, path)


def _add_legend(fig, by_label):
    """Draw {label: line} above the panels, with as many columns as fit."""
    for columns in range(len(by_label), 0, -1):
        legend = fig.legend(
            by_label.values(),
            by_label.keys(),
            loc="outside upper center",
            ncols=columns,
        )
        if columns == 1 or legend.get_window_extent().width <= fig.bbox.width:
            return
        legend.remove()


def save(fig: plt.Figure, path: pathlib.Path) -> pathlib.Path:
    """Write a picture and close it.

    Args:
      fig: the picture.
      path: NAME.png; or NAME, which becomes NAME.png and NAME.svg.

    Returns:
      NAME.png.
    """
    picture = path.with_suffix(".png")
    fig.savefig(picture)
    if not path.suffix:
        # Without a date, the same figure gives the same bytes.
        fig.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(fig)
    return picture
