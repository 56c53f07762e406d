"""Defaults and helpers for config files.

A config file states what differs from `base`:

    OWN = {"margin": 0.05}
    PAPER = {"norm": "layer", "batch_size": 128, "epochs": 60.0, ...}
    SMOKE = {"steps": 4}
    VARIANTS = {"paper": (PAPER,), "smoke": (PAPER, SMOKE)}

    def get_config(variant=""):
        return variants("experiments.mnist", VARIANTS, variant, OWN)

Configs are locked, so that a misspelt field is refused. OWN declares fields that only
this experiment has. Fields of `model`, `data` and `evals` need no declaration.

None means not set. On the command line: `--config.steps=None`.
"""

import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ml_collections import ConfigDict, FieldReference
from ml_collections.config_dict import placeholder

from lnrepro import defaults

Choice = TypeVar("Choice")

# How norms are compared at a small size: each with its own best learning rate, or all
# with one.
PROTOCOLS = ("tuned", "same_rate")
# The one rate of "same_rate": Adam's default. The text of the paper gives no rate. Its
# code has this one for order-embeddings. It has 8e-5 for the reader, over 800,000
# steps, and 2e-4 for skip-thoughts, over 1,000,000. Small runs have a hundredth of
# these steps, and would not leave chance with such rates.
SAME_RATE = 1e-3

# Groups to which each experiment adds fields of its own.
OPEN = ("model", "data", "evals")

# What the fields mean, for people and for `lnrepro.main --help --config=FILE`. A config
# file has a HELP of its own for the fields that it adds.
HELP = {
    "experiment": "dotted name of the module that has make(config)",
    "norm": "name of the normalisation",
    "seed": "seed of parameters, batches and noise",
    "batch_size": "examples in a training batch, over all devices",
    "steps": "number of optimiser steps",
    "epochs": "number of passes over the training set, where steps is None",
    "steps_per_call": "optimiser steps in one call of the compiled program",
    "placement": "jit, or pmap for statistics per device",
    "kernels": "auto, off or on: recurrences as one kernel, see ScanOptions",
    "data.name": "name of the data set, see scripts/prepare.py --list",
    "data.dir": "folder of prepared sets; None: LNREPRO_DATA or ~/.cache/lnrepro",
    "data.train_examples": "size of the training set; None takes that of the data",
    "model": "sizes of the network",
    "optimizer.name": "adam, or kiros_adam without effective bias correction",
    "optimizer.learning_rate": "the step size",
    "optimizer.b1": "decay rate of the first moment",
    "optimizer.b2": "decay rate of the second moment",
    "optimizer.eps": "added to the root of the second moment",
    "optimizer.clip": "largest norm of the gradient; None does not clip",
    "optimizer.clip_mode": "global, per_tensor or attentive_reader, see engine.optim",
    "optimizer.decay": "cosine: the rate falls to zero over the run; None: constant",
    "log_every": "steps between two records of training; None is an epoch",
    "save_every": "steps between two checkpoints; None is an epoch",
    "eval_batch_size": "examples in a batch of an evaluation",
    "evals": "when each evaluation runs: epoch, a number of steps, end or never",
    "best.metric": "EVAL/NAME whose best checkpoint is kept; None keeps none",
    "best.mode": "min or max",
    "curves": "panels of curves.png: (label, (metric, ...), linear or log)",
}


class Expected(NamedTuple):
    """What a finished run of a default ends with, whatever the CPU and the seed.

    It is `EXPECTED` of a config file. `python -m lnrepro.main --check` compares.

    Attributes:
      metric: name of the number in results.json.
      mode: min where the limit is the largest number allowed, max where the smallest.
      limit: the limit.
      seconds: time of the run on two idle cores.
      measured: lowest and highest number of the runs that set the limit.
      shuffled: the number of a run with shuffled data, outside of the limit.
      quarter: that of a run with a quarter of the steps, outside too.
    """

    metric: str
    mode: str
    limit: float
    seconds: int
    measured: tuple[float, float] | None = None
    shuffled: float | None = None
    quarter: float | None = None

    def holds(self, value: float) -> bool:
        """Return whether a number is within the limit; NaN is not."""
        return value <= self.limit if self.mode == "min" else value >= self.limit

    @property
    def words(self) -> str:
        """The limit in words, such as "at most 0.1"."""
        side = "at most" if self.mode == "min" else "at least"
        return f"{side} {self.limit:g}"


def base(experiment: str, own: Mapping[str, Any] | None = None) -> ConfigDict:
    """Return the fields that every run has, with their defaults.

    Args:
      experiment: dotted name of the module that has `make`.
      own: fields that other experiments do not have, with their values.

    Returns:
      A config. It is locked, except for the groups of OPEN. HELP says what its fields
      mean.
    """
    config = ConfigDict(
        {
            "experiment": experiment,
            "norm": "layer",
            "seed": 0,
            "batch_size": 128,
            "steps": placeholder(int),
            "epochs": placeholder(float),
            "steps_per_call": 1,
            "placement": "jit",
            "kernels": defaults.KERNELS,
            "data": {"name": "", "dir": placeholder(str), "train_examples": 0},
            "model": {},
            "optimizer": adam(),
            "log_every": placeholder(int),
            "save_every": placeholder(int),
            "eval_batch_size": 100,
            "evals": {},
            "best": {"metric": placeholder(str), "mode": "min"},
            "curves": (),
        }
    )
    update(config, own or {})
    config.lock()
    for group in OPEN:
        config[group].unlock()
    return config


def adam(learning_rate: float = 1e-3, **changes: Any) -> dict[str, Any]:
    """Return the fields of `config.optimizer` for Adam with optax's defaults.

    Args:
      learning_rate: the step size.
      **changes: other values of the fields below.

    Returns:
      The fields. HELP says what they mean.
    """
    fields = {
        "name": "adam",
        "learning_rate": learning_rate,
        "b1": 0.9,
        "b2": 0.999,
        "eps": 1e-8,
        "clip": placeholder(float),
        "clip_mode": "global",
        "decay": placeholder(str),
    }
    return fields | changes


def variants(
    experiment: str,
    changes: Mapping[str, Sequence[Mapping[str, Any]]],
    variant: str,
    own: Mapping[str, Any] | None = None,
) -> ConfigDict:
    """Return the config of a variant, locked.

    Args:
      experiment: dotted name of the module that has `make`.
      changes: {variant: changes of `base`, applied in their order}. Nested dicts change
        the fields they name and leave the others.
      variant: name of the variant, "" for the default.
      own: fields that other experiments do not have, with their values.

    Raises:
      ValueError: there is no such variant, or a change names a field that nothing
        declares.
    """
    config = base(experiment, own)
    for change in choose("variant", changes, variant):
        update(config, change)
    # `lock` alone passes over the groups of a config that is locked.
    config.unlock()
    return config.lock()


def update(config: ConfigDict, change: Mapping[str, Any], group: str = "") -> None:
    """Set the fields that `change` names, nested ones too.

    Args:
      config: the config, or a group of its fields. Where it is unlocked, new fields are
        added.
      change: {field: value}.
      group: what stands before the names of the fields, such as "optimizer.".

    Raises:
      ValueError: a locked config has no such field.
    """
    for name, value in change.items():
        if name not in config and config.is_locked:
            raise ValueError(no_field(group + name, fields(config, group)))
        if isinstance(value, Mapping):
            if name not in config:
                config[name] = ConfigDict()
            update(config[name], value, f"{group}{name}.")
        elif isinstance(value, FieldReference):
            # A placeholder of its own for each config: they keep the value.
            config[name] = placeholder(value.get_type())
        elif value is None and config.get(name) is not None:
            # The field keeps its type, so that a flag can set it again.
            config[name] = placeholder(type(config[name]))
        else:
            config[name] = value


def no_field(name: str, known: Collection[str]) -> str:
    """Return a line about a field that does not exist, with the field that was meant.

    Args:
      name: dotted name of the field.
      known: dotted names of the fields that exist.
    """
    group, _, last = name.rpartition(".")
    near = [field for field in known if field.endswith(f".{name}")]
    alike = []
    for field in known:
        its_group, _, its_last = field.rpartition(".")
        # Such as lr for learning_rate.
        if its_group == group and last == re.sub("([a-z])[a-z]*_?", r"\1", its_last):
            near.append(field)
        # Long groups are alike whatever the names in them.
        if difflib.get_close_matches(last, [its_last]):
            alike.append(field)
    near = near or difflib.get_close_matches(name, alike, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no field {name!r}{hint}"


def fields(config: ConfigDict | Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return {"optimizer.learning_rate": 0.001, ...}, the fields of a config.

    Args:
      config: the config, or nested dicts.
      prefix: what stands before each name.
    """
    found = {}
    for name, value in config.items():
        if isinstance(value, ConfigDict | Mapping):
            found |= fields(value, f"{prefix}{name}.")
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


def figure_sweeps(
    norms: Iterable[str], seeds: int, rates: Sequence[float]
) -> dict[str, list[dict[str, Any]]]:
    """Return the sweep of a figure, and one over learning rates.

    Args:
      norms: the norms that are compared.
      seeds: number of seeds of each norm.
      rates: the learning rates that each norm is tried with.

    Returns:
      {"": seeds 0, 1, ... of each norm; "learning_rate": each norm at each rate}.
    """
    return {
        "": grid({"norm": norms, "seed": range(seeds)}),
        "learning_rate": grid({"norm": norms, "optimizer.learning_rate": rates}),
    }


def small_sweeps(
    variant: str,
    best_rates: Mapping[str, float],
    rates: Sequence[float],
    seeds: Sequence[int] = (100,),
    **length: float,
) -> dict[str, list[dict[str, Any]]]:
    """Return the sweeps that answer the paper's question at a small size.

    Args:
      variant: name of the variant.
      best_rates: {norm: its best learning rate}, for the norms that are compared.
      rates: the learning rates that each norm is tried with.
      seeds: seeds of the tries, which no other run uses.
      **length: `steps` or `epochs` of a try, mostly a third of those of the variant.

    Returns:
      {VARIANT_rates: the tries; VARIANT: seeds 0 to 4 of each norm with its best rate,
      the protocol "tuned"; VARIANT_same_rate: those with `SAME_RATE`}.
    """
    tries = {"norm": best_rates, "optimizer.learning_rate": rates, "seed": seeds}
    tries |= {name: (value,) for name, value in length.items()}
    return {
        f"{variant}_rates": grid(tries),
        variant: _five_seeds(best_rates),
        f"{variant}_same_rate": _five_seeds(dict.fromkeys(best_rates, SAME_RATE)),
    }


def _five_seeds(rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return seeds 0 to 4 of each norm with its learning rate."""
    runs = []
    for norm, rate in rates.items():
        runs += grid(
            {"norm": (norm,), "optimizer.learning_rate": (rate,), "seed": range(5)}
        )
    return runs


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
        there = ", ".join(choice or "(none)" for choice in choices)
        raise ValueError(f"there is no {kind} {name!r}; there are {there}")
    return choices[name]
