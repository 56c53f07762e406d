"""The fields of all configs, and helpers for config files.

A config file states what differs from the defaults:

    PAPER = {"norm": "layer", "batch_size": 128, "epochs": 60.0, ...}
    SMOKE = {"steps": 4}
    VARIANTS = {"paper": (PAPER,), "smoke": (PAPER, SMOKE)}

    get_config = variants("experiments.mnist", VARIANTS, FIELDS)

FIELDS describes what the experiment adds to the fields below. Configs are locked, so
that a misspelt field is refused. Fields of `model`, `data` and `evals` need no
description.

None means not set. On the command line: `--config.steps=None`.
"""

import difflib
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ml_collections import ConfigDict, FieldReference

from lnrepro import defaults
from lnrepro.fields import BATCH, BELOW_1, COUNT, POSITIVE, SEED, Field

Choice = TypeVar("Choice")

# Groups to which each experiment adds fields of its own.
OPEN = ("model", "data", "evals")


class Panels:
    """Panels of curves.png, see `engine.artifacts.draw_curves`."""

    def __str__(self) -> str:
        return "panels (label, (metric, ...), 'linear' or 'log')"

    def __contains__(self, value: object) -> bool:
        return isinstance(value, tuple) and all(map(_is_panel, value))


def _is_panel(panel: object) -> bool:
    match panel:
        case (str(), tuple() as metrics, "linear" | "log", *unit):
            are_names = all(isinstance(name, str) for name in metrics)
            return are_names and all(n in COUNT for n in unit)
    return False


def _steps_alone(config: ConfigDict) -> bool:
    """Whether each step is a call: one that is cut at a save may round differently."""
    return config.steps_per_call == 1


# The fields of all configs. An experiment describes the values of "norm" that it has,
# and fields of its own.
FIELDS: Mapping[str, Field] = {
    "experiment": Field("", "dotted name of the module that has make(config)"),
    "norm": Field("layer", "name of the normalisation"),
    "seed": Field(0, "seed of parameters, batches and noise", allowed=SEED),
    "batch_size": Field(
        128, "examples in a training batch, over all devices", allowed=BATCH
    ),
    "steps": Field(None, "number of optimiser steps", type=int, allowed=COUNT),
    "epochs": Field(
        None,
        "number of passes over the training set, where steps is None",
        type=float,
        allowed=POSITIVE,
    ),
    "steps_per_call": Field(
        1, "optimiser steps in one call of the compiled program", allowed=COUNT
    ),
    "placement": Field(
        "jit", "jit, or pmap for statistics per device", allowed=("jit", "pmap")
    ),
    "kernels": Field(
        defaults.KERNELS,
        "recurrences as one kernel, see ScanOptions",
        allowed=("off", "auto", "on"),
    ),
    "data.name": Field("", "name of the data set, see scripts/prepare.py --list"),
    "data.dir": Field(
        None,
        "folder of prepared sets; None: LNREPRO_DATA or ~/.cache/lnrepro",
        type=str,
        may_change=True,
    ),
    "data.train_examples": Field(
        None,
        "size of the training set; None takes that of the data",
        type=int,
        allowed=COUNT,
        from_data=True,
    ),
    "model": Field({}, "sizes of the network"),
    "optimizer.name": Field(
        "adam",
        "adam, or kiros_adam without effective bias correction",
        allowed=("adam", "kiros_adam"),
    ),
    "optimizer.learning_rate": Field(1e-3, "the step size", allowed=POSITIVE),
    "optimizer.b1": Field(0.9, "decay rate of the first moment", allowed=BELOW_1),
    "optimizer.b2": Field(0.999, "decay rate of the second moment", allowed=BELOW_1),
    "optimizer.eps": Field(
        1e-8, "added to the root of the second moment", allowed=POSITIVE
    ),
    "optimizer.clip": Field(
        None,
        "largest norm of the gradient; None does not clip",
        type=float,
        allowed=POSITIVE,
    ),
    "optimizer.clip_mode": Field(
        "global",
        "global, per_tensor or attentive_reader, see engine.optim",
        allowed=("global", "per_tensor", "attentive_reader"),
    ),
    "optimizer.decay": Field(
        None,
        "cosine: the rate falls to zero over the run; None: constant",
        type=str,
        allowed=("cosine",),
    ),
    "log_every": Field(
        None,
        "steps between two records of training; None is an epoch",
        type=int,
        allowed=COUNT,
    ),
    "save_every": Field(
        None,
        "steps between two checkpoints; None is an epoch",
        type=int,
        allowed=COUNT,
        may_change=_steps_alone,
    ),
    "eval_batch_size": Field(
        100,
        "examples in a batch of an evaluation",
        allowed=BATCH,
        may_change=True,
    ),
    "evals": Field(
        {}, "when each evaluation runs: epoch, a number of steps, end or never"
    ),
    "best.metric": Field(
        None,
        "EVAL/NAME whose best checkpoint is kept; None keeps none",
        type=str,
    ),
    "best.mode": Field("min", "min or max", allowed=("min", "max")),
    "curves": Field(
        (),
        "panels of curves.png: (label, (metric, ...), linear or log)",
        allowed=Panels(),
        may_change=True,
    ),
}


class Expected(NamedTuple):
    """What a finished run of a default ends with, whatever the CPU and the seed.

    It is `EXPECTED` of a config file. `python -m lnrepro.main --check` compares.

    Attributes:
      metric: name of the number in results.json.
      limit: the largest number allowed; the smallest where large ones are better.
      seconds: time of the run on two idle cores.
      measured: lowest and highest number of the runs that set the limit.
      shuffled: the number of a run with shuffled data, outside of the limit.
      quarter: that of a run with a quarter of the steps, outside too.
    """

    metric: str
    limit: float
    seconds: int
    measured: tuple[float, float] | None = None
    shuffled: float | None = None
    quarter: float | None = None

    def holds(self, value: float, mode: str) -> bool:
        """Return whether a number is within the limit; NaN is not.

        Args:
          value: the number.
          mode: that of its `Metric`.
        """
        return value <= self.limit if mode == "min" else value >= self.limit

    def words(self, mode: str) -> str:
        """Return the limit of a metric of this mode in words, such as "at most 0.1"."""
        side = "at most" if mode == "min" else "at least"
        return f"{side} {self.limit:g}"


# A `:smoke` run, with a record, a save and an evaluation before its end.
SMOKE_STEPS = {"steps": 4, "log_every": 2, "save_every": 2}


def variants(
    experiment: str,
    changes: Mapping[str, Sequence[Mapping[str, Any]]],
    fields: Mapping[str, Field] | None = None,
) -> Callable[..., ConfigDict]:
    """Make `get_config` of a config file.

    Args:
      experiment: dotted name of the module that has `make`.
      changes: {variant: changes of the defaults, applied in their order}. Nested dicts
        change the fields they name and leave the others.
      fields: the fields that the experiment adds, or describes anew.

    Returns:
      (name of a variant, by default "") -> its config, locked. It raises ValueError
      where there is no such variant, or a change names a field that nobody describes.
    """
    known = {**FIELDS, **(fields or {})}

    def get_config(variant: str = "") -> ConfigDict:
        config = ConfigDict()
        for name, field in known.items():
            value: Any = field.default
            # A field that is None keeps its type, so that a flag can set it.
            if field.may_be_none:
                value = FieldReference(value, field_type=field.kind)
            for part in reversed(name.split(".")):
                value = {part: value}
            config.update(value)
        config.experiment = experiment
        for change in choose("variant", changes, variant):
            for name in flat(change):
                if name not in known and name.partition(".")[0] not in OPEN:
                    raise ValueError(no_field(name, known))
            config.update(change)
        return config.lock()

    return get_config


def no_field(name: str, known: Collection[str]) -> str:
    """Return a line about a field that does not exist, with the field that was meant.

    Args:
      name: dotted name of the field.
      known: dotted names of the fields that exist.
    """
    near = [field for field in known if field.endswith(f".{name}")]
    near = near or difflib.get_close_matches(name, known, 1, cutoff=0.7)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no field {name!r}{hint}"


def flat(config: ConfigDict | Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return {"optimizer.learning_rate": 0.001, ...}, the fields of a config.

    Args:
      config: the config, or nested dicts.
      prefix: what stands before each name.
    """
    found = {}
    for name, value in config.items():
        if isinstance(value, ConfigDict | Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def grid(fields: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of the values, as overrides of a config.

    >>> grid({"norm": ("none", "layer"), "seed": range(2)})[1]
    {'norm': 'none', 'seed': 1}
    """
    names, values = fields.keys(), itertools.product(*fields.values())
    return [dict(zip(names, combination, strict=True)) for combination in values]


def choose(kind: str, choices: Mapping[str, Choice], name: str) -> Choice:
    """Return choices[name].

    Args:
      kind: what is chosen, for the message.
      choices: by their names; "" is the default.
      name: which one.

    Raises:
      ValueError: there is no such choice.
    """
    if name not in choices:
        known = ", ".join(choice or "(none)" for choice in choices)
        raise ValueError(f"there is no {kind} {name!r}; there are {known}")
    return choices[name]
