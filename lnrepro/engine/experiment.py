"""The contract between an experiment and the engine: four functions and the lengths that stand in the config."""

import difflib
import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

from lnrepro.engine.errors import UserError

Vars = Mapping[str, Any]  # {"params": pytree, other collections such as "batch_stats"}
Batch = Mapping[str, Any]  # arrays with the batch axis first
Metrics = Mapping[str, jax.Array]  # scalars


class Experiment(NamedTuple):
    """What every module of `experiments` returns from `make(config)`.

    `make` and `init` touch no data: every size stands in the config, so that a model can be built, counted, exported and
    tested without its data set; the data is held against those sizes when it is opened.
    """

    init: Callable[[jax.Array], Vars]
    """(key) -> vars"""
    loss: Callable[[Vars, Batch, jax.Array], tuple[jax.Array, tuple[Vars, Metrics]]]
    """(vars, batch, key) -> (scalar, (new collections without "params", metrics)); means over the batch, not sums."""
    batches: Callable[[int], Iterator[Batch]]
    """(start_step) -> training batches from that step on; batch k is a function of (config.seed, k) alone."""
    evaluate: Callable[[Vars, str], Mapping[str, Any]]
    """(vars, split) -> {name: number, uint8 (H, W, 3) picture, or path-free array}; ordinary host code."""


def load(config: ConfigDict) -> Experiment:
    """The experiment that `config.experiment` names by dotted path, made from the config.

    Raises UserError if there is no such module or it exports no `make`.
    """
    name = config.experiment
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as e:  # a parent package is missing
        raise UserError(
            f"config.experiment = {name!r}: there is no module {e.name!r}; run from the root of the checkout"
        ) from None
    if spec is None:
        raise UserError(
            f"config.experiment = {name!r}: there is no such module{_suggestion(name)}"
        )
    module = importlib.import_module(name)
    if not hasattr(module, "make"):
        raise UserError(
            f"config.experiment = {name!r}: the module exports no make(config)"
        )
    return module.make(config)


def _suggestion(name: str) -> str:
    parent, _, leaf = name.rpartition(".")
    spec = importlib.util.find_spec(parent) if parent else None
    if spec is None or not spec.submodule_search_locations:
        return ""
    import pkgutil

    near = difflib.get_close_matches(
        leaf, [m.name for m in pkgutil.iter_modules(spec.submodule_search_locations)], 1
    )
    return f"; did you mean {parent}.{near[0]}?" if near else ""


def steps_per_epoch(config: ConfigDict) -> int:
    """Full batches in one pass over `config.data.train_examples`; the partial last batch is dropped."""
    if config.batch_size < 1:
        raise UserError(
            f"config.batch_size = {config.batch_size}: at least 1 is needed"
        )
    steps = (
        config.data.get("steps_per_epoch", 0)
        or config.data.train_examples // config.batch_size
    )
    if steps < 1:
        raise UserError(
            f"config.batch_size = {config.batch_size} is larger than config.data.train_examples = "
            f"{config.data.train_examples}"
        )
    return steps


def total_steps(config: ConfigDict) -> int:
    """`config.steps` if it is positive, else `config.epochs` passes over the data."""
    steps = config.steps or math.ceil(config.epochs * steps_per_epoch(config))
    if steps < 1:
        raise UserError(
            "config.steps and config.epochs give no training step; set one of them above 0"
        )
    return steps
