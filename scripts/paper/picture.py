"""Figures and tables as pictures (PNG and SVG), and the points of a figure as CSV."""

import csv
import pathlib
import textwrap
from collections.abc import Sequence

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from scripts.paper.axes import Figure, Panel
from scripts.paper.runs import Curve, Run, curves
from scripts.paper.tables import Table

STYLE = {
    "font.family": "serif",
    "mathtext.fontset": "cm",
    "font.size": 10,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "svg.hashsalt": "lnrepro",  # the same file for the same figure
}
COLOURS = {
    "none": "C0",
    "layer": "C3",
    "layer_cell": "C3",
    "batch": "C2",
    "batch_everywhere": "C1",
    "weight": "C4",
}


def drawn(
    figure: Figure, runs: Sequence[Run]
) -> list[tuple[Panel, list[Curve], list[Curve]]]:
    """For every panel its curves, and those of its second metric."""
    order = tuple(figure.curves)
    return [
        (
            panel,
            curves(runs, panel, panel.metric, figure.x, order),
            curves(runs, panel, panel.second, figure.x, order) if panel.second else [],
        )
        for panel in figure.panels
    ]


def draw(
    figure: Figure,
    panels: Sequence[tuple[Panel, list[Curve], list[Curve]]],
    caption: str,
    stem: pathlib.Path,
) -> None:
    """Write STEM.png and STEM.svg on the paper's axes, widened where the curves lie outside (the paper's range is framed
    then); curves of other data, or that end early on the paper's axes, get ranges of their own."""
    rows = -(-len(panels) // figure.columns)
    columns = min(figure.columns, len(panels))
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            rows,
            columns,
            figsize=(4.6 * columns, 3.5 * rows),
            squeeze=False,
            layout="constrained",
        )
        for ax, (panel, firsts, seconds) in zip(axes.flat, panels, strict=False):
            _panel(ax, figure, panel, firsts, seconds)
        for ax in axes.flat[len(panels) :]:
            ax.set_visible(False)
        fig.supxlabel(
            textwrap.fill(caption, 74 * columns), fontsize=8
        )  # so many letters fit under a panel
        for suffix in (".png", ".svg"):
            fig.savefig(
                stem.with_suffix(suffix),
                dpi=150,
                metadata={"Date": None} if suffix == ".svg" else None,
            )
        plt.close(fig)


def _panel(
    ax, figure: Figure, panel: Panel, firsts: list[Curve], seconds: list[Curve]
) -> None:
    for metric, lines, dash in (
        (panel.metric, firsts, "-"),
        (panel.second, seconds, ":"),
    ):
        split = metric.split("/")[0] if panel.second else ""
        for curve in lines:
            aside = ", ".join(
                filter(
                    None,
                    (curve.data if curve.data != figure.paper_data else "", curve.note),
                )
            )
            words = [figure.curves[curve.norm], split, f"({aside})" if aside else ""]
            marker = "." if len(curve.x) < 30 else None
            colour = COLOURS[curve.norm]
            ax.plot(
                curve.x,
                curve.median,
                dash,
                color=colour,
                marker=marker,
                label=" ".join(filter(None, words)),
                lw=1.3,
            )
            if len(curve.seeds) > 1:
                ax.fill_between(
                    curve.x, curve.low, curve.high, color=colour, alpha=0.15, lw=0
                )
    ax.set(
        title=panel.title,
        xlabel=figure.xlabel,
        ylabel=panel.ylabel,
        xscale=figure.xscale,
        yscale=panel.yscale,
    )
    if on_the_papers_axes(figure, firsts):
        if panel.original is not None:
            ax.axhline(
                panel.original,
                color="0.4",
                ls="--",
                lw=1,
                label="Original (the paper's)",
            )
        for norm, value in (
            figure.reported if panel is figure.panels[0] else {}
        ).items():
            words = f"{figure.curves[norm]}, the paper's end: {value}"
            ax.axhline(value, color=COLOURS[norm], ls="-.", lw=0.8, label=words)
        lines = [*firsts, *seconds]
        xs = [
            v for curve in lines for v in curve.x if figure.xscale == "linear" or v > 0
        ]
        ys = [v for curve in lines for v in (*curve.low, *curve.high)]
        limits = (
            _widened(figure.xlim, xs, figure.xscale),
            _widened(panel.ylim, ys, panel.yscale),
        )
        ax.set(xlim=limits[0], ylim=limits[1])
        if limits != (figure.xlim, panel.ylim):
            (x0, x1), (y0, y1) = figure.xlim, panel.ylim
            ax.add_patch(
                plt.Rectangle(
                    (x0, y0),
                    x1 - x0,
                    y1 - y0,
                    fill=False,
                    ec="0.6",
                    ls=":",
                    label="the paper's axes",
                )
            )
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=7)


def on_the_papers_axes(figure: Figure, lines: Sequence[Curve]) -> bool:
    """Whether curves are of the paper's data and go over a third of its x axis; else they get a range of their own."""
    if not lines or any(curve.data != figure.paper_data for curve in lines):
        return False
    scale = np.log if figure.xscale == "log" else float
    low, high = map(scale, figure.xlim)
    return scale(max(curve.x[-1] for curve in lines)) >= low + (high - low) / 3


def _widened(
    limits: tuple[float, float], values: Sequence[float], scale: str
) -> tuple[float, float]:
    """The paper's limits, or wider ones that hold all values; along a linear axis with a small margin."""
    low, high = limits
    inside = [v for v in values if scale == "linear" or v > 0]
    if not inside or (min(inside) >= low and max(inside) <= high):
        return limits
    margin = (
        0.03 * (max(high, *inside) - min(low, *inside)) if scale == "linear" else 0.0
    )
    if min(inside) < low:
        low = min(inside) - margin if scale == "linear" else min(inside) / 1.3
    if max(inside) > high:
        high = max(inside) + margin if scale == "linear" else max(inside) * 1.3
    return low, high


def points(
    figure: Figure,
    panels: Sequence[tuple[Panel, list[Curve], list[Curve]]],
    path: pathlib.Path,
) -> None:
    """Every point of a figure: panel, metric, norm, data set, seed, x, y."""
    with open(path, "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f)
        writer.writerow(
            ["panel", "metric", "norm", "data", "seed", figure.xlabel, "value"]
        )
        for panel, firsts, seconds in panels:
            for metric, lines in ((panel.metric, firsts), (panel.second, seconds)):
                for curve in lines:
                    for seed, x, y in curve.points:
                        row = [
                            panel.title or panel.ylabel,
                            metric.format(data=curve.data),
                            curve.norm,
                            curve.data,
                            seed,
                        ]
                        writer.writerow([*row, f"{x:.8g}", f"{y:.8g}"])


def draw_table(table: Table, stem: pathlib.Path) -> None:
    """Write STEM.png and STEM.svg."""
    with plt.rc_context(STYLE | {"axes.grid": False}):
        widths = [
            max(len(str(row[i])) for row in (table.head, *table.rows))
            for i in range(len(table.head))
        ]
        fig, ax = plt.subplots(
            figsize=(
                0.085 * sum(widths) + 0.25 * len(widths),
                0.3 * (len(table.rows) + 2),
            )
        )
        ax.axis("off")
        cells = ax.table(
            [list(row) for row in table.rows],
            colLabels=list(table.head),
            loc="center",
            cellLoc="center",
            colWidths=[w / sum(widths) for w in widths],
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
        for suffix in (".png", ".svg"):
            fig.savefig(
                stem.with_suffix(suffix),
                dpi=150,
                bbox_inches="tight",
                metadata={"Date": None} if suffix == ".svg" else None,
            )
        plt.close(fig)
