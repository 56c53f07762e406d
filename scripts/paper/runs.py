"""Runs as the figures need them: their records, and curves grouped over seeds."""

import collections
import json
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments.paper_results import FINGERPRINTS
from lnrepro.engine import metrics, runs, seeds
from lnrepro.engine.errors import UserError
from lnrepro.engine.workdir import SET_ASIDE
from scripts.paper.axes import Figure, Panel, Record


class Run(NamedTuple):
    """A run directory.

    Attributes:
      folder: the run directory.
      about: the contents of config.json.
      config: the config.
      records: the records of metrics.jsonl.
      data: what the data set is called in figures: its name, with the checksum of the
        examples where other data has the same name.
    """

    folder: pathlib.Path
    about: Mapping[str, Any]
    config: ConfigDict
    records: Sequence[Record]
    data: str

    @property
    def step(self) -> int:
        """The last step on record."""
        return self.records[-1]["step"] if self.records else 0

    def name_of(self, metric: str) -> str:
        """Return the name of a metric in this run's records.

        The transfer tasks of generated stories have names of their own: story_sick for
        sick.
        """
        own = f"story_{metric}"
        return own if any(own in record for record in self.records) else metric

    def values(self, metric: str) -> dict[int, list[tuple[Record, float]]]:
        """Return {seed: [(record, value), ...]} of a metric."""
        metric = self.name_of(metric.format(data=self.config.data.name))
        first, count = self.config.seed, self.config.get("seeds", 1)
        # Several seeds of one run have a name each, and their mean has the plain name.
        names = {first: metric}
        if count > 1:
            for seed in range(first, first + count):
                names[seed] = seeds.name_of(metric, seed)
        values = {}
        for seed, name in names.items():
            values[seed] = [(r, r[name]) for r in self.records if name in r]
        return values


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


def find(paths: Iterable[pathlib.Path]) -> list[Run]:
    """Read all run directories at and below the given ones.

    A folder that cannot be read is named on stderr and left out, as is a run that
    repeats another one's config and seed. The folders without-checkpoint-N, where the
    trainer keeps the records of runs that were started again, are left out.

    Raises:
      UserError: there is none that can be read at or below one of the paths.
    """
    found = {}
    for path in paths:
        folders = []
        for file in sorted(path.rglob("config.json")):
            names = file.parent.relative_to(path).parts
            if not any(name.startswith(SET_ASIDE) for name in names):
                folders.append(file.parent)
        for folder in folders:
            if folder not in found:
                try:
                    found[folder] = _read(folder)
                except (UserError, OSError) as e:
                    print(f"left out: {e}", file=sys.stderr)
        if not any(folder in found for folder in folders):
            raise UserError(
                f"{path}: there is no run directory (with a config.json) at or below it"
            )
    return _without_repeats(_with_distinct_data(list(found.values())))


def _without_repeats(found: list[Run]) -> list[Run]:
    """Leave out runs with the data, config and seeds of another; the longest stays."""
    kept: dict[str, Run] = {}
    for run in found:
        config = run.config
        own = [
            run.data,
            config.norm,
            config.seed,
            config.get("seeds", 1),
            settings(run),
        ]
        other = kept.setdefault(json.dumps(own), run)
        if other is run:
            continue
        less, more = sorted((other, run), key=lambda r: r.step)
        kept[json.dumps(own)] = more
        print(
            f"left out: {less.folder}: the config and the seed of {more.folder}",
            file=sys.stderr,
        )
    return list(kept.values())


def _read(folder):
    loaded = runs.load(folder)
    file = folder / "metrics.jsonl"
    records = metrics.read(file) if file.exists() else []
    return Run(folder, loaded.about, loaded.config, records, loaded.config.data.name)


def _with_distinct_data(found: list[Run]) -> list[Run]:
    """Give different data of the same name different names, by their checksums.

    Only data with the official fingerprint, where that is known, keeps the plain name.
    """
    fingerprints = collections.defaultdict(set)
    for run in found:
        fingerprints[run.data].add(run.about["data"]["fingerprint"])
    named = []
    for run in found:
        fingerprint = run.about["data"]["fingerprint"]
        official = FINGERPRINTS.get(run.data)
        is_ambiguous = len(fingerprints[run.data]) > 1
        # Where no official fingerprint is known, the name alone is enough for a single
        # set of data.
        if fingerprint != official and (official or is_ambiguous):
            checksum = fingerprint.rpartition("/")[2]
            run = run._replace(data=f"{run.data} {checksum[:8]}")
        named.append(run)
    return named


def of_figure(runs: Iterable[Run], figure: Figure) -> list[Run]:
    """Return the runs that belong to a figure."""
    chosen = []
    for run in runs:
        config = run.config
        if config.experiment == figure.experiment and config.norm in figure.legends:
            chosen.append(run)
    return chosen


# Fields of a config in which runs may differ and still share a curve. Only records of
# version 0.1 have eval_every, eval_splits and final_splits.
_FREE_FIELDS = {
    "seed",
    "seeds",
    "norm",
    "steps",
    "epochs",
    "steps_per_call",
    "placement",
    "mesh",
    "best",
    "curves",
    "evals",
    "log_every",
    "eval_every",
    "save_every",
    "eval_batch_size",
    "eval_splits",
    "final_splits",
}


def settings(run: Run) -> dict[str, str]:
    """Return the fields of a run's config, as {dotted name: JSON}.

    Runs share a curve where all of them are equal. Fields such as the seed and the norm
    are left out.
    """
    found = {}

    def walk(prefix, fields):
        for name, value in fields.items():
            if isinstance(value, Mapping):
                walk(f"{prefix}{name}.", value)
            else:
                found[prefix + name] = json.dumps(value)

    config = run.about["config"]
    walk("", {name: config[name] for name in config if name not in _FREE_FIELDS})
    return found


def curves(
    runs: Iterable[Run], panel: Panel, metric: str, x: Callable, order: Sequence[str]
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
