"""The contract between an experiment and the engine, and how long a config trains."""

import importlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from lnrepro import config as configs
from lnrepro.errors import DataError, UserError
from lnrepro.fields import COUNT, Field

# {"params": pytree, and other collections such as "batch_stats"}
Vars = Mapping[str, Any]
# Arrays whose first axis is the batch.
Batch = Mapping[str, Any]
# {name: number}, the training metrics of a batch.
Scalars = Mapping[str, jax.Array]


class Evaluation(NamedTuple):
    """Result of an evaluation.

    Attributes:
      scalars: {name: number}, which are logged.
      images: {name: uint8 [H, W, 3], written as a PNG, or [frames, H, W, 3], written as
        an animated GIF}.
      files: {file name: text}; report.html shows .txt and .svg files.
    """

    scalars: Mapping[str, float] = {}
    images: Mapping[str, np.ndarray] = {}
    files: Mapping[str, str] = {}


class Metric(NamedTuple):
    """What is known of a number whatever its value.

    Attributes:
      unit: its unit; "" for none.
      mode: "min" where small values are better, "max" where large ones are.
    """

    unit: str = ""
    mode: str = "min"


Metrics = Mapping[str, Metric]


class Eval(NamedTuple):
    """An evaluation.

    Attributes:
      run: (vars) -> Evaluation.
      metrics: {name of a scalar: Metric}, or a function that returns them and may open
        the data. It raises UserError where the evaluation cannot run, so that a wrong
        name in the config is refused before training. None: they are not known before,
        and a config cannot name them.
    """

    run: Callable[[Vars], Evaluation]
    metrics: Metrics | Callable[[], Metrics | None] | None = None


class Experiment(NamedTuple):
    """An experiment, as `make(config)` of every module in `experiments` returns it.

    `make` and `init` do not touch data: every size stands in the config. A model can
    then be built, counted and tested without its data set. Before training, sizes that
    are None are filled by `with_sizes`, and the others are checked.

    Attributes:
      init: (key) -> vars.
      loss: (vars, batch, key) -> (scalar, (new collections without "params", metrics)).
        Metrics are means over the batch.
      batches: (start_step) -> training batches from that step on, without an end. Batch
        k depends on (config.seed, k) alone.
      evals: {name: Eval}, those that `config.evals` may name.
      metrics: {name: Metric} of what `loss` returns, and of "loss".
      check: checks what evaluations will read, such as files that the config names. It
        is called before anything is written, and raises UserError.
    """

    init: Callable[[jax.Array], Vars]
    loss: Callable[[Vars, Batch, jax.Array], tuple[jax.Array, tuple[Vars, Scalars]]]
    batches: Callable[[int], Iterator[Batch]]
    evals: Mapping[str, Eval] = {}
    metrics: Mapping[str, Metric] = {}
    check: Callable[[], None] | None = None


def load(config: ConfigDict) -> Experiment:
    """Make the experiment that `config.experiment` names.

    Raises:
      UserError: there is no such module, or it has no `make`.
    """
    return _module(config.experiment).make(config)


def load_uses(config: ConfigDict) -> Any:
    """Import the module `use` of the experiment.

    Returns:
      The module, whose class `Model` is a LoadedRun, or None where there is none.

    Raises:
      UserError: there is no module of this experiment.
    """
    _module(config.experiment)
    name = f"{config.experiment}.use"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name != name:
            raise
        return None


def fields(name: str) -> dict[str, Field]:
    """Return the fields of all configs, and those of an experiment.

    Args:
      name: dotted name of its module, which describes its own fields in FIELDS.
    """
    return {**configs.FIELDS, **getattr(_module(name), "FIELDS", {})}


def with_sizes(config: ConfigDict, check: bool = False) -> ConfigDict:
    """Return a config with what the data set says in place of the sizes that are None.

    Sizes are the fields that are `from_data`. The module of the experiment may have
    `sizes(config)`, which returns a `Size` for each of them. The data is opened only if
    one of them is None, or to check. Then the others are compared with it.

    Args:
      config: the config.
      check: whether to open the data in any case.

    Raises:
      DataError: the data set is missing, or sizes do not fit it, which are named.
    """
    module, stated = _module(config.experiment), configs.flat(config)
    known = fields(config.experiment)
    sizes = [stated.get(name, 0) for name in known if known[name].from_data]
    if not hasattr(module, "sizes") or not (check or None in sizes):
        return config
    filled, wrong = config.copy_and_resolve_references(), []
    for name, size in module.sizes(config).items():
        if stated[name] is None:
            filled.update_from_flattened_dict({name: size.value})
        elif problem := size.problem(stated[name]):
            there = f"but {config.data.name} {problem}"
            wrong.append(f"config.{name} = {stated[name]}, {there}")
    if wrong:
        raise DataError(f"{'; '.join(wrong)}; None takes what the data has")
    return filled


def _module(name: str) -> Any:
    """Import the module of an experiment."""
    problem = "give the dotted name of a module, such as experiments.mnist"
    if re.fullmatch(r"\w+(\.\w+)*", str(name)):
        try:
            module = importlib.import_module(str(name))
        except ModuleNotFoundError as e:
            # A module that it imports is another matter.
            if not f"{name}.".startswith(f"{e.name}."):
                raise
            problem = "there is no such module; run from the root of the checkout"
        else:
            if hasattr(module, "make"):
                return module
            problem = "the module exports no make(config)"
    raise UserError(f"config.experiment = {name!r}: {problem}")


def steps_per_epoch(config: ConfigDict) -> int:
    """Return the number of full batches in one pass over the training set.

    Raises:
      UserError: a batch is larger than the training set.
    """
    size, examples = config.batch_size, config.data.train_examples
    if size > examples:
        raise UserError(
            f"config.batch_size = {size} is larger than config.data.train_examples = "
            f"{examples}"
        )
    return examples // size


def total_steps(config: ConfigDict) -> int:
    """Return `config.steps`, or the steps of `config.epochs` where it is None.

    Raises:
      UserError: neither gives a training step.
    """
    steps = config.steps
    if steps is None:
        # Rounded up, so that the last epoch is not cut short. The number is that which
        # the config states: 1.1 in binary is a little more.
        epochs = Fraction(str(config.epochs or 0))
        steps = math.ceil(epochs * steps_per_epoch(config))
    if steps not in COUNT:
        raise UserError(
            f"config.steps = {config.steps} and config.epochs = {config.epochs} give "
            f"{steps} steps: {COUNT} is needed"
        )
    return steps
