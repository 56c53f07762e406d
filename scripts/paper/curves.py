"""Curves of a figure: runs grouped by norm, data and settings, over their seeds."""

import collections
import csv
import itertools
import pathlib
from collections.abc import Sequence

from scripts.paper import axes, plot, protocols
from scripts.paper.axes import Figure
from scripts.paper.claims import NORMS
from scripts.paper.plot import Line, Panel
from scripts.paper.records import RecordedRun, difference
from scripts.paper.style import LOOKS

# Styles of the second and further curves of one norm, with other data or settings.
STYLES = ("-", "--", "-.", (0, (1, 1)))


def of_figure(figure: Figure, runs: Sequence[RecordedRun]) -> list[Panel]:
    """Return the panels of a figure, with the medians and ranges over seeds.

    Where norms were trained under both protocols, each protocol has its panels. Where
    all data is the paper's and reaches a third of its x axis, the axes are the paper's
    with the ends of all curves, and its numbers are drawn.

    Args:
      figure: the figure.
      runs: its runs.
    """
    panels = []
    for protocol, own in protocols.by_protocol(runs).items():
        for panel in figure.panels:
            words = panel.title, protocol.replace("_", " ")
            panel = panel._replace(title=", ".join(filter(None, words)))
            lines = []
            for metric in panel.metrics:
                lines += _lines(own, figure, panel, metric)
            if not lines:
                continue
            settings = {
                "title": panel.title,
                "xlabel": f"{figure.x}s",
                "ylabel": panel.ylabel,
                "xscale": figure.xscale,
                "yscale": panel.yscale,
            }
            printed = {}
            if _reaches_the_papers_axes(figure, own, lines):
                shown = [*panel.ylim, *(line.y[-1] for line in lines)]
                settings |= {"xlim": figure.xlim, "ylim": (min(shown), max(shown))}
                printed = panel.printed
            panels.append(Panel(lines, settings, printed))
    return panels


def _reaches_the_papers_axes(figure, runs, lines):
    if _data(runs) != {figure.paper_data}:
        return False
    return max(line.x[-1] for line in lines) >= figure.xlim[1] / 3


def _lines(runs, figure, panel, metric) -> list[Line]:
    """Return a line for each norm, data set and setting."""
    lines = []
    # Legends name the data where it is not the paper's, or not one.
    expected = {figure.paper_data} if figure.paper_data else _data(runs)
    for norm in figure.norms:
        groups = collections.defaultdict(list)
        for run in runs:
            is_of_4 = run.batch_size == 4
            shown = run.norm == norm and panel.batch_of_4 in (None, is_of_4)
            if shown and (points := _points(run, figure, panel, metric)):
                groups[run.data, run.settings()] += points
        for place, (data, own) in enumerate(sorted(groups)):
            notes = [] if {data} == expected else [data]
            # The settings that distinguish a curve are those in which others of its
            # norm and data differ.
            notes.append(difference(own, [of for name, of in groups if name == data]))
            words = [NORMS.get(norm, norm)]
            # Elsewhere "layer norm" is enough.
            if norm == "layer_cell" and "layer" in figure.norms:
                words.append("of the cell")
            # A panel with two metrics says which one a curve has.
            if len(panel.metrics) > 1:
                words.append(metric.split("/")[0])
            if any(notes):
                words.append(f"({', '.join(filter(None, notes))})")
            colour, style = LOOKS.get(norm, (None, "-"))
            if place:
                style = STYLES[place % 4]
            # The second metric is dotted.
            if metric != panel.metrics[0]:
                style = ":"
            points = groups[data, own]
            lines.append(plot.median_line(" ".join(words), points, colour, style))
    return lines


def _data(runs):
    return {run.data for run in runs}


def _points(run, figure, panel, metric):
    """Return the rows of STEM.csv of a run."""
    title, name = panel.title or panel.ylabel, run.name_of(metric)
    own = title, name, run.norm, run.data, run.seed
    rows = []
    for record, value in run.values(metric):
        rows.append((*own, record[figure.x], value * panel.factor))
    return rows


def draw(
    figure: Figure, runs: Sequence[RecordedRun], stem: pathlib.Path
) -> list[pathlib.Path]:
    """Write STEM.png, STEM.svg and STEM.csv, the points, if there is a curve.

    Args:
      figure: the figure.
      runs: its runs.
      stem: the path without its suffix.

    Returns:
      The picture, in a list.
    """
    panels = of_figure(figure, runs)
    if not panels:
        return []
    picture = plot.draw(panels, stem, caption(figure, runs), figure.columns)
    with open(stem.with_suffix(".csv"), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        head = ("panel", "metric", "norm", "data", "seed", f"{figure.x}s", "value")
        writer.writerow(head)
        for panel in panels:
            for line in panel.lines:
                for *names, x, y in line.points:
                    # About as fine as a float32.
                    writer.writerow([*names, f"{x:.8g}", f"{y:.8g}"])
    return [picture]


def of_metric(metric: str, runs: Sequence[RecordedRun]) -> Figure:
    """Return a figure that is not the paper's, of one metric of some runs."""
    panel = axes.Panel(metric, (metric,), title=metric)
    return Figure(metric, "", (panel,), sorted({run.norm for run in runs}))


def caption(figure: Figure, runs: Sequence[RecordedRun]) -> str:
    """Return the text below a figure, which warns where the data is not the paper's.

    Args:
      figure: the figure.
      runs: its runs.
    """
    shown = list(itertools.chain(*protocols.by_protocol(runs).values()))
    # A run may be of both protocols.
    drawn = [run for run in runs if run in shown]
    sets = sorted(_data(drawn))
    longest = max(run.step for run in drawn)
    text = f"{figure.title}. Data: {', '.join(sets)}; up to {longest:,} steps."
    if len({run.seed for run in drawn}) > 1:
        text += " Lines: medians over seeds; bands: their range."
    if len(drawn) < len(runs):
        text += " Runs of neither protocol are not drawn."
    if diverged := sum(run.diverged for run in drawn):
        text += f" {diverged} runs diverged and end early."
    # Curves of other data, or of a mixture, are not comparable with the paper's.
    if figure.paper_data and sets != [figure.paper_data]:
        text += f" The paper's data is {figure.paper_data}: not to be compared with it."
    return text
