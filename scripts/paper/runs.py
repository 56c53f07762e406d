"""Run directories as the figures need them: found, read, and their curves grouped over seeds."""

import collections
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lnrepro.engine import metrics, seeds
from lnrepro.engine.errors import UserError
from scripts.paper.axes import Figure, Panel


class Run(NamedTuple):
    """A run directory: config.json, and the records of metrics.jsonl."""

    folder: pathlib.Path
    about: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved config as plain values."""
        return self.about["config"]

    @property
    def step(self) -> int:
        """The last step on record."""
        return self.records[-1]["step"] if self.records else 0

    def name_of(self, metric: str) -> str:
        """A metric's name in this run's records: generated stories have transfer tasks of their own, story_sick for sick."""
        own = f"story_{metric}"
        return own if any(own in record for record in self.records) else metric

    def values(self, metric: str) -> dict[int, list[tuple[Mapping[str, Any], float]]]:
        """{seed: [(record, value), ...]} of a metric; several seeds where the run trained several at once."""
        metric = self.name_of(metric.format(data=self.config["data"]["name"]))
        names = {self.config["seed"]: metric}
        if (n := self.config.get("seeds", 1)) > 1:
            names = {
                seed: seeds.name_of(metric, seed)
                for seed in range(self.config["seed"], self.config["seed"] + n)
            }
        return {
            seed: [(r, r[name]) for r in self.records if name in r]
            for seed, name in names.items()
        }


class Curve(NamedTuple):
    """One line of a panel: at each x the median over the seeds there, and the lowest and highest of them."""

    norm: str
    data: str
    seeds: tuple[int, ...]
    x: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    points: tuple[tuple[int, float, float], ...]  # (seed, x, y) as they were recorded
    note: str = (
        ""  # what tells its config from those of other curves of this norm and data set
    )


def find(paths: Iterable[pathlib.Path]) -> list[Run]:
    """All run directories at and below the given ones. Raises UserError if one of them holds none."""
    runs = []
    for path in paths:
        found = (
            sorted(p.parent for p in path.rglob("config.json")) if path.is_dir() else []
        )
        if not found:
            raise UserError(
                f"{path}: there is no run directory (with a config.json) at or below it"
            )
        runs += [
            _read(folder)
            for folder in found
            if folder not in {run.folder for run in runs}
        ]
    return runs


def _read(folder: pathlib.Path) -> Run:
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (
            about["config"]["experiment"],
            about["config"]["norm"],
            about["config"]["data"]["name"],
        )
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UserError(
            f"{folder / 'config.json'}: not a run's config ({type(e).__name__}); leave this folder out"
        ) from e
    file = folder / "metrics.jsonl"
    return Run(folder, about, metrics.read(file) if file.exists() else [])


def of_figure(runs: Iterable[Run], figure: Figure) -> list[Run]:
    """The runs that belong to a figure."""
    return [
        run
        for run in runs
        if run.config["experiment"] == figure.experiment
        and run.config["norm"] in figure.curves
    ]


# Fields of a config in which runs may differ and still share a curve.
_FREE = {
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
}
_FREE |= {
    "log_every",
    "eval_every",
    "save_every",
    "eval_batch_size",
    "eval_splits",
    "final_splits",
    "evals",
}


def settings(run: Run) -> dict[str, str]:
    """What a run's config says beside its seed and norm, flat: runs share a curve where all of it is equal."""
    found = {}

    def walk(at, value):
        if isinstance(value, Mapping):
            for key, inner in value.items():
                walk(f"{at}.{key}" if at else key, inner)
        else:
            found[at] = json.dumps(value)

    walk("", {k: v for k, v in run.config.items() if k not in _FREE})
    return found


def curves(
    runs: Iterable[Run], panel: Panel, metric: str, x: Callable, order: Sequence[str]
) -> list[Curve]:
    """A curve for every norm, in the given order, and every data set and setting among the runs of a panel."""
    groups = collections.defaultdict(list)
    for run in runs:
        if panel.where(run.config):
            groups[
                order.index(run.config["norm"]),
                run.config["data"]["name"],
                json.dumps(settings(run)),
            ].append(run)
    lines = []
    for (i, data, own), group in sorted(groups.items()):
        others = [
            json.loads(held)
            for n, d, held in groups
            if (n, d) == (i, data) and held != own
        ]
        different = {
            k: v
            for k, v in json.loads(own).items()
            if any(other.get(k) != v for other in others)
        }
        note = ", ".join(f"{k.rpartition('.')[2]} {v}" for k, v in different.items())
        if curve := _curve(order[i], data, group, panel, metric, x):
            lines.append(curve._replace(note=note))
    return lines


def _curve(norm, data, runs, panel, metric, x) -> Curve | None:
    at, points, found = collections.defaultdict(list), [], set()
    for run in runs:
        for seed, values in run.values(metric).items():
            for record, value in values:
                y = value * panel.factor
                at[x(record)].append(y)
                points.append((seed, x(record), y))
                found.add(seed)
    if not at:
        return None
    xs = sorted(at)
    columns = [[f(at[p]) for p in xs] for f in (np.median, np.min, np.max)]
    return Curve(
        norm,
        data,
        tuple(sorted(found)),
        np.array(xs),
        *map(np.array, columns),
        tuple(points),
    )
