"""What a config evaluates when, and the numbers that it names."""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from lnrepro.engine.experiment import Experiment, Metric, steps_per_epoch
from lnrepro.errors import UserError


class Schedules(NamedTuple):
    """When the evaluations of `config.evals` run.

    Attributes:
      every: {name: steps between two evaluations}; each also runs after the last step.
      at_end: names of the evaluations that run once, after training.
    """

    every: dict[str, int]
    at_end: tuple[str, ...]


def schedules(config: ConfigDict) -> Schedules:
    """Read `config.evals`.

    Raises:
      UserError: a name or a schedule that is none.
    """
    every, at_end = {}, []
    for name, schedule in config.evals.items():
        # Numbers are called EVALUATION/NAME, and those of training train/NAME.
        if name == "train" or "/" in name:
            raise UserError(
                f"config.evals: an evaluation cannot be called {name!r}: train is the "
                "name of the training metrics, and a name has no /"
            )
        if schedule == "epoch":
            every[name] = steps_per_epoch(config)
        elif schedule == "end":
            at_end.append(name)
        # Ten digits are more steps than a run can have.
        elif re.fullmatch(r"0*[1-9][0-9]{0,9}", str(schedule)):
            every[name] = int(schedule)
        elif schedule != "never":
            raise UserError(
                f"config.evals.{name} = {schedule!r}: give a number of steps, epoch, "
                "end or never"
            )
    return Schedules(every, tuple(at_end))


def known_metrics(config: ConfigDict, exp: Experiment) -> dict[str, Metric]:
    """Return {"train/NAME" or "EVALUATION/NAME": Metric} of the numbers of a run.

    Raises:
      UserError: there is no evaluation of a name in `config.evals`, or it cannot run.
    """
    metrics: dict[str, Any] = {"train": exp.metrics}
    for name, schedule in config.evals.items():
        if schedule != "never":
            check_measured("config.evals", name, exp.evals)
            metrics[name] = exp.evals[name].metrics
    # Every experiment has a loss.
    known = {"train/loss": Metric()}
    for evaluation, own in metrics.items():
        try:
            found: Any = own() if callable(own) else own
        except UserError as e:
            raise UserError(f"config.evals.{evaluation}: {e}") from None
        for name, metric in (found or {}).items():
            known[f"{evaluation}/{name}"] = metric
    return known


def check_names(config: ConfigDict, known: Mapping[str, Metric]) -> None:
    """Check what `best` and `curves` say about numbers.

    A mistake would be noticed after hours.

    Args:
      config: the config.
      known: see `known_metrics`.

    Raises:
      UserError: there is no such number, `best.metric` is not measured during training,
        or `best.mode` is not that of the number.
    """
    for _, metrics, *_ in config.curves:
        for name in metrics:
            if config.evals.get(name.partition("/")[0]) != "never":
                check_measured("config.curves", name, known)
    best = config.best
    if best.metric:
        every = schedules(config).every
        during = [name for name in known if name.partition("/")[0] in every]
        check_measured("config.best.metric (of training)", best.metric, during)
        right = known[best.metric].mode
        if best.mode != right:
            raise UserError(
                f"config.best.mode = {best.mode}: {best.metric} has {right}"
            )


def check_measured(field: str, metric: str, measured: Collection[str]) -> None:
    """Raise UserError where a field names something that is not measured.

    Args:
      field: the field of the config.
      metric: what it names.
      measured: what the experiment declares.
    """
    if metric not in measured:
        raise UserError(
            f"{field} names {metric!r}, which the experiment lacks; there are "
            f"{', '.join(measured) or 'none'}"
        )
