"""Curves of a figure: runs grouped by norm, data and settings, over their seeds."""

import collections
import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from scripts.paper.axes import Panel
from scripts.paper.records import RecordedRun, settings


class Curve(NamedTuple):
    """A line of a panel, over N values of x.

    Attributes:
      norm: config.norm of its runs.
      data: their data set.
      seeds: their seeds.
      x: [N].
      median: [N], the median over the seeds at x.
      low: [N], the lowest value at x.
      high: [N], the highest value at x.
      points: (seed, x, y) of each record.
      note: the settings that distinguish it from other curves of its norm and data.
    """

    norm: str
    data: str
    seeds: tuple[int, ...]
    x: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    points: tuple[tuple[int, float, float], ...]
    note: str = ""


class PanelCurves(NamedTuple):
    """A panel with its curves, and those of its second metric."""

    panel: Panel
    curves: list[Curve]
    second: list[Curve]


def curves(
    runs: Iterable[RecordedRun],
    panel: Panel,
    metric: str,
    x: Callable,
    order: Sequence[str],
) -> list[Curve]:
    """Make the curves of a panel: one for each norm, data set and setting.

    Args:
      runs: the runs of the figure.
      panel: the panel.
      metric: the name of the metric.
      x: record -> x.
      order: the norms, in the order of the legend.
    """
    # A curve joins the runs that share norm, data and settings.
    groups = collections.defaultdict(list)
    for run in runs:
        if panel.where(run.config):
            position = order.index(run.config.norm)
            # Settings as text can be the key of a dict.
            own = json.dumps(settings(run))
            groups[position, run.data, own].append(run)
    lines = []
    for position, data, own in sorted(groups):
        # The settings that distinguish a curve are those in which others of its norm
        # and data differ.
        others = [s for p, d, s in groups if (p, d) == (position, data) and s != own]
        curve = _curve(groups[position, data, own], panel, metric, x)
        if curve:
            lines.append(curve._replace(note=_difference(own, others)))
    return lines


def _difference(own, others):
    """Return the settings that differ from those of the others; all are JSON."""
    others = [json.loads(other) for other in others]
    words = []
    for name, value in json.loads(own).items():
        if any(other.get(name) != value for other in others):
            words.append(f"{name.rpartition('.')[2]} {value}")
    return ", ".join(words)


def _curve(runs, panel, metric, x):
    # Values of all seeds by x. The median at x is over the seeds that have a record
    # there.
    ys, points = collections.defaultdict(list), []
    for run in runs:
        for seed, values in run.values(metric).items():
            for record, value in values:
                at, y = x(record), value * panel.factor
                ys[at].append(y)
                points.append((seed, at, y))
    if not points:
        return None
    xs = sorted(ys)
    config = runs[0].config
    return Curve(
        config.norm,
        runs[0].data,
        tuple(sorted({seed for seed, _, _ in points})),
        np.array(xs),
        np.array([np.median(ys[at]) for at in xs]),
        np.array([min(ys[at]) for at in xs]),
        np.array([max(ys[at]) for at in xs]),
        tuple(points),
    )
