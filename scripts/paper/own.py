"""Curves that are not the paper's: of a metric, and of an experiment of one's own."""

import collections
import difflib
import json
import re
from collections.abc import Sequence

from lnrepro.engine import experiment as experiments
from lnrepro.engine import seeds
from lnrepro.errors import UserError
from scripts.paper import compare, verdicts
from scripts.paper.axes import FIGURES, Figure, Panel
from scripts.paper.claims import Claim
from scripts.paper.records import RecordedRun, settings

# The norm that the others are compared with.
BASELINE = "none"
HEAD = (
    "settings",
    "norm",
    "seeds",
    "end",
    f"steps to {BASELINE}'s best",
    f"end minus {BASELINE}'s",
)


def with_metric(runs: Sequence[RecordedRun], metric: str) -> list[RecordedRun]:
    """Return the runs that have recorded a metric.

    Args:
      runs: the runs.
      metric: its name in metrics.jsonl.

    Raises:
      UserError: none has.
    """
    names = {name for run in runs for record in run.records for name in record}
    if metric not in names:
        near = difflib.get_close_matches(metric, names, 1, 0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(f"no run has recorded the metric {metric!r}{hint}")
    return [run for run in runs if any(metric in record for record in run.records)]


def of_experiments(runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """Return the runs with `config.curves` of each experiment that has no figure.

    Args:
      runs: the runs.

    Returns:
      {name of the experiment: its runs}.
    """
    papers = {figure.experiment for figure in FIGURES.values()}
    found = {}
    for run in runs:
        name = str(run.config.experiment)
        if name not in papers and run.config.get("curves"):
            found.setdefault(name, []).append(run)
    return {name: found[name] for name in sorted(found)}


def figure_of_curves(experiment: str, runs: Sequence[RecordedRun]) -> Figure:
    """Return a figure with a panel for each metric that `config.curves` names.

    Args:
      experiment: name of the experiment.
      runs: its runs.

    Raises:
      UserError: `config.curves` of a run is not understood.
    """
    panels = {}
    for run in runs:
        experiments.metrics_of(run.config.curves)
        for label, metrics, scale, *_ in run.config.curves:
            # Seeds are drawn as a band.
            for metric in metrics:
                if not seeds.is_of_one_seed(metric):
                    panels.setdefault(metric, (label, scale))
    return _figure(
        experiment,
        runs,
        [
            Panel(ylabel=label, metric=metric, ylim=(0, 1), title=metric, yscale=scale)
            for metric, (label, scale) in panels.items()
        ],
    )


def figure(metric: str, runs: Sequence[RecordedRun]) -> Figure:
    """Return a figure with a panel for each experiment.

    Args:
      metric: name of the metric.
      runs: the runs that have recorded it.
    """
    names = sorted({run.config.experiment for run in runs})
    return _figure(metric, runs, [_panel(metric, name) for name in names])


def _figure(name, runs, panels):
    norms = sorted({run.config.norm for run in runs})
    return Figure(
        number=0,
        name=name,
        experiment="",
        # No data is the paper's, so that its axes and numbers are never drawn.
        paper_data="",
        config="",
        panels=tuple(panels),
        curves={norm: norm for norm in norms},
        xlabel="step",
        xlim=(0, 1),
        x=_step,
    )


def table(metric: str, runs: Sequence[RecordedRun], best: str) -> list[tuple[str, ...]]:
    """Return the end of each norm, beside that of `BASELINE` at the same settings.

    Only finished runs count. An end is the mean and the standard deviation over seeds
    of the last tenth of the evaluations.

    Args:
      metric: name of the metric.
      runs: the runs that have recorded it.
      best: whether the "min" or the "max" of it is better.

    Returns:
      Rows of cells, in the order of `HEAD`.
    """
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        if run.finished:
            own = {"experiment": str(run.config.experiment), "data": run.data}
            own |= {"steps": run.length} | settings(run)
            groups[json.dumps(own)][run.config.norm].append(run)
    of_groups = [json.loads(key) for key in groups]
    rows = []
    for own, of_norm in zip(of_groups, groups.values(), strict=True):
        # The settings in which the groups differ.
        differing = [
            f"{name.rpartition('.')[2]} {value}"
            for name, value in own.items()
            if any(other.get(name) != value for other in of_groups)
        ]
        curves = {n: verdicts.by_seed(of, metric) for n, of in of_norm.items()}
        baseline = curves.get(BASELINE, {})
        for norm in sorted(curves, key=lambda norm: (norm != BASELINE, norm)):
            cells = _beside(metric, best, curves[norm], norm, baseline)
            rows.append((", ".join(differing), norm, *cells))
    return sorted(rows, key=lambda row: row[0])


def _beside(metric, best, curves, norm, baseline):
    """Return the cells of a norm after its name."""
    sign = 1 if best == "min" else -1
    ends = compare.of_seeds(verdicts.paired(curves, curves, sign).better)
    spread = f" +- {ends.std(ddof=1):.3g}" if len(ends) > 1 else ""
    cells = [str(len(ends)), f"{ends.mean():.4g}{spread}"]
    if norm == BASELINE or not curves.keys() & baseline.keys():
        return *cells, "", ""
    pairs = verdicts.paired(curves, baseline, sign)
    for kind in verdicts.KINDS:
        claim = Claim("", "", norm, BASELINE, metric, best, kind, "")
        cells.append(verdicts.numbers(claim, pairs) if len(pairs.steps) else "")
    return tuple(cells)


def caption(name: str, runs: Sequence[RecordedRun]) -> str:
    """Return the text below the figure.

    Args:
      name: name of the metric or of the experiment.
      runs: the runs that are drawn.
    """
    sets = ", ".join(sorted({run.data for run in runs}))
    return f"{name}: median and range over seeds. Data: {sets}."


def file_name(name: str) -> str:
    """Return the name of the files without suffix: valid_error for valid/error."""
    return re.sub(r"\W+", "_", name)


def _panel(metric: str, experiment: str) -> Panel:
    def where(config):
        return config.experiment == experiment

    title = experiment.rpartition(".")[2]
    return Panel(ylabel=metric, metric=metric, ylim=(0, 1), title=title, where=where)


def _step(record):
    return record["step"]
