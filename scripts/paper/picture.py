"""Figures and tables as pictures (PNG and SVG), and the points of a figure as CSV."""

import collections
import contextlib
import csv
import pathlib
import textwrap
from collections.abc import Sequence

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from scripts.paper import protocols
from scripts.paper.axes import Figure
from scripts.paper.curves import Curve, PanelCurves, curves
from scripts.paper.records import RecordedRun
from scripts.paper.tables import Table

STYLE = {
    "font.family": "serif",
    "mathtext.fontset": "cm",
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.25,
    # The same figure gives the same file.
    "svg.hashsalt": "lnrepro",
}
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
# Lines of the curves of one norm, which differ in their data or settings.
LINES = ("-", "--", "-.", (0, (1, 1)))
# Number of letters of the caption that fit below a panel.
LETTERS = 74


def curves_of(figure: Figure, runs: Sequence[RecordedRun]) -> list[PanelCurves]:
    """Return the panels of a figure with their curves.

    Where norms were trained under both protocols, each protocol has its panels.

    Args:
      figure: the figure.
      runs: its runs.
    """
    order = tuple(figure.legends)
    panels = []
    for protocol, own in protocols.by_protocol(runs).items():
        for panel in figure.panels:
            if protocol:
                words = filter(None, (panel.title, protocol))
                panel = panel._replace(title=", ".join(words))
            first, second = curves(own, panel, panel.metric, figure.x, order), []
            if panel.second:
                second = curves(own, panel, panel.second, figure.x, order)
            panels.append(PanelCurves(panel, first, second))
    return panels


def draw(
    figure: Figure, panels: Sequence[PanelCurves], caption: str, stem: pathlib.Path
) -> None:
    """Write a figure as STEM.png and STEM.svg.

    It has the paper's axes. They are widened where curves leave them, and the paper's
    range is then framed. Curves of other data, or that end early, have their own
    ranges.

    Args:
      figure: the figure.
      panels: its panels with their curves.
      caption: the text below it.
      stem: the path without its suffix.
    """
    with panels_of(len(panels), figure.columns, caption, stem) as axes:
        for ax, panel in zip(axes, panels, strict=False):
            _draw_panel(ax, figure, panel)


@contextlib.contextmanager
def panels_of(count: int, columns: int, caption: str, stem: pathlib.Path):
    """Write a picture of several panels as STEM.png and STEM.svg.

    Args:
      count: number of panels.
      columns: largest number of panels in a row.
      caption: the text below the picture.
      stem: the path without its suffix.

    Yields:
      The axes to draw into.
    """
    columns = min(columns, count)
    rows = -(-count // columns)
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            rows,
            columns,
            figsize=(4.6 * columns, 3.5 * rows),
            squeeze=False,
            layout="constrained",
        )
        yield axes.flat
        # The last row may have more places than panels.
        for ax in axes.flat[count:]:
            ax.set_visible(False)
        fig.supxlabel(textwrap.fill(caption, LETTERS * columns), fontsize=8)
        _save(fig, stem)


def _save(fig, stem, **options):
    fig.savefig(stem.with_suffix(".png"), dpi=150, **options)
    # Without a date, the same figure gives the same bytes.
    fig.savefig(stem.with_suffix(".svg"), dpi=150, metadata={"Date": None}, **options)
    plt.close(fig)


def _draw_panel(ax, figure, panel_curves):
    panel, first, second = panel_curves
    n_drawn = collections.Counter()
    for curve in first:
        line = LINES[n_drawn[curve.norm] % len(LINES)]
        n_drawn[curve.norm] += 1
        _draw_curve(ax, figure, curve, panel.metric if panel.second else "", line)
    for curve in second:
        _draw_curve(ax, figure, curve, panel.second, ":")
    ax.set(
        title=panel.title,
        xlabel=figure.xlabel,
        ylabel=panel.ylabel,
        xscale=figure.xscale,
        yscale=panel.yscale,
    )
    if on_the_papers_axes(figure, first):
        _draw_printed_numbers(ax, figure, panel)
        _set_limits(ax, figure, panel, [*first, *second])
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=7)


def _draw_curve(ax, figure, curve, metric, line):
    """Draw the median and the range; `metric` is named where a panel has two."""
    notes = [curve.note] if curve.note else []
    if curve.data != figure.paper_data:
        notes.insert(0, curve.data)
    words = [figure.legends[curve.norm]]
    if metric:
        words.append(metric.split("/")[0])
    if notes:
        words.append(f"({', '.join(notes)})")
    colour = COLOURS.get(curve.norm)
    (line_drawn,) = ax.plot(
        curve.x,
        curve.median,
        linestyle=line,
        color=colour,
        # With more points the markers would cover the line.
        marker="." if len(curve.x) < 30 else None,
        label=" ".join(words),
        lw=1.3,
    )
    # Norms of other experiments have the next colour of the cycle.
    colour = line_drawn.get_color()
    if len(curve.seeds) > 1:
        ax.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, lw=0)


def _draw_printed_numbers(ax, figure, panel):
    """Draw the numbers that the paper prints as horizontal lines."""
    if panel.original is not None:
        label = "Original (the paper's)"
        ax.axhline(panel.original, color="0.4", ls="--", lw=1, label=label)
    # The paper prints final values of the first panel only.
    if panel.metric == figure.panels[0].metric:
        for norm, value in figure.reported.items():
            label = f"{figure.curves[norm]}, the paper's end: {value}"
            ax.axhline(value, color=COLOURS[norm], ls="-.", lw=0.8, label=label)


def _set_limits(ax, figure, panel, lines):
    """Set the paper's ranges, widened where curves leave them, and frame the paper's.

    The y axis holds the last third of every curve. The first steps lie far outside the
    paper's range, and would leave little of the picture to it.
    """
    xs = np.concatenate([curve.x for curve in lines])
    ys = []
    for curve in lines:
        start = 2 * len(curve.x) // 3
        ys += [*curve.low[start:], *curve.high[start:]]
    ys = np.array(ys)
    xlim = _widened(figure.xlim, xs, figure.xscale)
    ylim = _widened(panel.ylim, ys, panel.yscale)
    ax.set(xlim=xlim, ylim=ylim)
    if (xlim, ylim) != (figure.xlim, panel.ylim):
        (x0, x1), (y0, y1) = figure.xlim, panel.ylim
        frame = plt.Rectangle(
            (x0, y0),
            x1 - x0,
            y1 - y0,
            fill=False,
            ec="0.6",
            ls=":",
            label="the paper's axes",
        )
        ax.add_patch(frame)


def on_the_papers_axes(figure: Figure, lines: Sequence[Curve]) -> bool:
    """Whether curves are of the paper's data and cover a third of its x axis.

    Args:
      figure: the figure.
      lines: the curves.
    """
    if not lines or any(curve.data != figure.paper_data for curve in lines):
        return False
    scale = np.log if figure.xscale == "log" else float
    low, high = map(scale, figure.xlim)
    # On a logarithmic axis, a third of its length is meant.
    end = max(curve.x[-1] for curve in lines)
    return scale(end) >= low + (high - low) / 3


def _widened(limits, values, scale) -> tuple[float, float]:
    """Return the limits, or wider ones that hold all values with a small margin."""
    low, high = limits
    if scale == "log":
        # A logarithmic axis cannot show the others.
        values = values[values > 0]
    if not len(values):
        return limits
    smallest, largest = float(values.min()), float(values.max())
    margin = 0.03 * (max(high, largest) - min(low, smallest))
    if smallest < low:
        low = smallest / 1.3 if scale == "log" else smallest - margin
    if largest > high:
        high = largest * 1.3 if scale == "log" else largest + margin
    return low, high


def write_points(
    figure: Figure, panels: Sequence[PanelCurves], path: pathlib.Path
) -> None:
    """Write every point of a figure as CSV.

    Args:
      figure: the figure.
      panels: its panels with their curves.
      path: the file.
    """
    head = ["panel", "metric", "norm", "data", "seed", figure.xlabel, "value"]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        for panel, first, second in panels:
            title = panel.title or panel.ylabel
            for metric, lines in ((panel.metric, first), (panel.second, second)):
                for curve in lines:
                    # `curve.data` may have a checksum behind the name of the set.
                    name = metric.format(data=curve.data.partition(" ")[0])
                    row = [title, name, curve.norm, curve.data]
                    row = [as_text(cell) for cell in row]
                    for seed, x, y in curve.points:
                        writer.writerow([*row, seed, f"{x:.8g}", f"{y:.8g}"])


def as_text(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@")) else cell


def draw_table(table: Table, stem: pathlib.Path) -> None:
    """Write a table as STEM.png and STEM.svg.

    Args:
      table: the table.
      stem: the path without its suffix.
    """
    columns = zip(table.head, *table.rows, strict=True)
    widths = np.array([max(len(cell) for cell in column) for column in columns])
    # Inches: so much for a letter, and so much for the margin of a column.
    width = 0.085 * widths.sum() + 0.25 * len(widths)
    height = 0.3 * (len(table.rows) + 2)
    with plt.rc_context(STYLE | {"axes.grid": False}):
        fig, ax = plt.subplots(figsize=(width, height))
        ax.axis("off")
        cells = ax.table(
            [list(row) for row in table.rows],
            colLabels=list(table.head),
            loc="center",
            cellLoc="center",
            colWidths=list(widths / widths.sum()),
        )
        cells.auto_set_font_size(False)
        cells.set_fontsize(8)
        cells.scale(1, 1.4)
        ax.set_title(f"Table {table.number}. {table.name}", fontsize=10)
        ax.text(
            0.5,
            -0.02,
            table.note,
            ha="center",
            va="top",
            fontsize=7,
            transform=ax.transAxes,
        )
        _save(fig, stem, bbox_inches="tight")
