"""Pictures of lines with bands, as PNG and SVG."""

import collections
import contextlib
import pathlib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import EngFormatter

from scripts.paper.style import HEIGHT_OF_PANEL, STYLE, WIDTH

# Number of letters of the caption that fit into a line.
LETTERS = 150


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
    statistics: list[Callable] = [np.median, min, max]
    middle, low, high = (np.array([f(ys[x]) for x in xs]) for f in statistics)
    return Line(label, np.array(xs), middle, low, high, colour, style, points)


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


@contextlib.contextmanager
def figure(
    path: pathlib.Path,
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    grid: bool = True,
) -> Iterator[tuple[plt.Figure, Sequence[plt.Axes]]]:
    """Yield a new figure and its axes, and write it afterwards, see `save`.

    Args:
      path: that of the picture.
      size: width and height in inches.
      rows: rows of axes.
      columns: columns of axes.
      grid: whether there are lines at the ticks.
    """
    with plt.rc_context(STYLE | {"axes.grid": grid}):
        fig, axes = plt.subplots(
            rows, columns, figsize=size, squeeze=False, layout="constrained"
        )
        yield fig, axes.flatten()
        save(fig, path)


def draw(
    subplots: Sequence[Subplot], stem: pathlib.Path, caption: str = "", columns: int = 3
) -> None:
    """Write a picture of lines, see `save`.

    Args:
      subplots: its contents.
      stem: the path of the picture.
      caption: the text below it.
      columns: largest number of subplots in a row.
    """
    columns = min(columns, len(subplots))
    rows = -(-len(subplots) // columns)
    # One panel is as high as it is wide.
    size = (
        (0.7 * WIDTH, 0.6 * WIDTH)
        if columns == 1
        else (WIDTH, HEIGHT_OF_PANEL * rows + 1)
    )
    letters = LETTERS if columns > 1 else int(0.6 * LETTERS)
    with figure(stem, size, rows, columns) as (fig, axes):
        for ax, subplot in zip(axes, subplots, strict=False):
            _draw(ax, subplot)
        # The last row may have more places than subplots.
        for ax in axes[len(subplots) :]:
            ax.set_visible(False)
        by_label = {}
        for ax in axes[: len(subplots)]:
            handles, labels = ax.get_legend_handles_labels()
            by_label |= dict(zip(labels, handles, strict=True))
        _add_legend(fig, by_label)
        fig.supxlabel(textwrap.fill(caption, letters), fontsize=7)


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


def save(fig: plt.Figure, path: pathlib.Path) -> None:
    """Write a picture and close it.

    Args:
      fig: the picture.
      path: NAME.png; or NAME, which becomes NAME.png and NAME.svg.
    """
    fig.savefig(path.with_suffix(".png"))
    if not path.suffix:
        # Without a date, the same figure gives the same bytes.
        fig.savefig(path.with_suffix(".svg"), metadata={"Date": None})
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
        ax.xaxis.set_major_formatter(EngFormatter(sep=""))
