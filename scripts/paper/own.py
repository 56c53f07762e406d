"""Curves of a metric of any experiment, which are not the paper's."""

import difflib
import re
from collections.abc import Sequence

from lnrepro.engine.errors import UserError
from scripts.paper.axes import Figure, Panel
from scripts.paper.records import RecordedRun


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


def figure(metric: str, runs: Sequence[RecordedRun]) -> Figure:
    """Return a figure with a panel for each experiment.

    Args:
      metric: name of the metric.
      runs: the runs that have recorded it.
    """
    experiments = sorted({run.config.experiment for run in runs})
    norms = sorted({run.config.norm for run in runs})
    return Figure(
        number=0,
        name=metric,
        experiment="",
        # No data is the paper's, so that its axes and numbers are never drawn.
        paper_data="",
        config="",
        panels=tuple(_panel(metric, experiment) for experiment in experiments),
        curves={norm: norm for norm in norms},
        xlabel="step",
        xlim=(0, 1),
        x=_step,
    )


def caption(metric: str, runs: Sequence[RecordedRun]) -> str:
    """Return the text below the figure.

    Args:
      metric: name of the metric.
      runs: the runs that have recorded it.
    """
    sets = ", ".join(sorted({run.data for run in runs}))
    return f"{metric}: median and range over seeds. Data: {sets}."


def file_name(metric: str) -> str:
    """Return the name of the files without suffix: valid_error for valid/error."""
    return re.sub(r"\W+", "_", metric)


def _panel(metric: str, experiment: str) -> Panel:
    def where(config):
        return config.experiment == experiment

    title = experiment.rpartition(".")[2]
    return Panel(ylabel=metric, metric=metric, ylim=(0, 1), title=title, where=where)


def _step(record):
    return record["step"]
