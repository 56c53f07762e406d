"""The contract between an experiment and the engine."""

import difflib
import importlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import jax
import numpy as np
from ml_collections import ConfigDict

from lnrepro.checks import AT_LEAST_1, Size, check_range, check_sizes
from lnrepro.errors import UserError

# {"params": pytree, and other collections such as "batch_stats"}
Vars = Mapping[str, Any]
# Arrays whose first axis is the batch.
Batch = Mapping[str, Any]
# Scalars.
Metrics = Mapping[str, jax.Array]


class Undrawn(NamedTuple):
    """Stands for a picture that could not be drawn, see `drawn`."""

    reason: str


def drawn(draw: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that draws a picture, without which a run goes on.

    matplotlib obeys settings of the user that may not work here, such as MPLBACKEND of
    a notebook, or text.usetex without LaTeX.

    Args:
      draw: draws with matplotlib, and computes nothing of the model.
      *arguments: those of `draw`.

    Returns:
      What it returns, or an Undrawn.

    Raises:
      OSError: the disk failed.
      ModuleNotFoundError: a package is missing.
    """
    try:
        return draw(*arguments)
    # A file of a font or of LaTeX.
    except FileNotFoundError as e:
        return Undrawn(f"{e.strerror}: {e.filename}")
    except (OSError, MemoryError, ModuleNotFoundError):
        raise
    except Exception as e:
        lines = str(e).strip().splitlines() or [""]
        return Undrawn(f"{type(e).__name__}: {lines[0][:200]}")


class Evaluation(NamedTuple):
    """Result of an evaluation.

    Attributes:
      scalars: {name: number}, which are logged.
      images: {name: uint8 [H, W, 3], written as a PNG, or [frames, H, W, 3], written as
        an animated GIF, or an Undrawn}.
      files: {file name: text}, such as an .html or .svg file.
      captions: {name of an image: the text above it in the file}.
    """

    scalars: Mapping[str, float] = {}
    images: Mapping[str, np.ndarray | Undrawn] = {}
    files: Mapping[str, str] = {}
    captions: Mapping[str, str] = {}


class Experiment(NamedTuple):
    """An experiment, as `make(config)` of every module in `experiments` returns it.

    `make` and `init` do not touch data: every size stands in the config. A model can
    then be built, counted and tested without its data set. Before training, sizes that
    are None are filled by `fill_sizes`, and the others are checked.

    Attributes:
      init: (key) -> vars.
      loss: (vars, batch, key) -> (scalar, (new collections without "params", metrics)).
        Metrics are means over the batch.
      batches: (start_step) -> training batches from that step on. Batch k depends on
        (config.seed, k) alone.
      evaluate: (vars, name) -> Evaluation. The names are those of `config.evals`.
      units: {name of a scalar or a metric: its unit}, for those who read the numbers.
      scalars: (name of an evaluation) -> the names of its scalars, or None where they
        are not known before. It raises UserError where there is no such evaluation, so
        that a wrong name in the config is refused before training. It may touch data,
        see `evaluation.scalars_of_splits`.
      check: checks what evaluations will read, such as files that the config names. It
        is called before anything is written, and raises UserError.
      evaluates_alone: whether the numbers of an example do not depend on the others in
        its batch, so that `config.eval_batch_size` may change when a run goes on.
    """

    init: Callable[[jax.Array], Vars]
    loss: Callable[[Vars, Batch, jax.Array], tuple[jax.Array, tuple[Vars, Metrics]]]
    batches: Callable[[int], Iterator[Batch]]
    evaluate: Callable[[Vars, str], Evaluation]
    units: Mapping[str, str] = {}
    scalars: Callable[[str], Collection[str] | None] | None = None
    check: Callable[[], None] | None = None
    evaluates_alone: bool = True

    def unit(self, name: str) -> str:
        """Return the unit of a number such as "valid/nll"; "" where none is stated."""
        return self.units.get(name.rpartition("/")[2], "")


class ExperimentModule(Protocol):
    """What `config.experiment` names: a module such as experiments.mnist."""

    @property
    def make(self) -> Callable[[ConfigDict], Experiment]:
        """(config) -> the experiment."""
        ...


@runtime_checkable
class SizedModule(ExperimentModule, Protocol):
    """A module of an experiment whose data determines fields of its config."""

    @property
    def SIZES(self) -> Sequence[str]:
        """Dotted names of these fields, which may be None."""
        ...

    @property
    def sizes(self) -> Callable[[ConfigDict], Mapping[str, Size]]:
        """(config) -> what the data set says about fields, those of SIZES and more."""
        ...


class UseModule(Protocol):
    """EXPERIMENT.use: how a trained network is used."""

    @property
    def Model(self) -> type:
        """What `lnrepro.load` returns, a LoadedRun."""
        ...


class Evals(NamedTuple):
    """The schedules of `config.evals`.

    Attributes:
      every: {name: steps between two evaluations}; each also runs after the last step.
      at_end: names of the evaluations that run once, after training.
    """

    every: dict[str, int]
    at_end: tuple[str, ...]


def load(config: ConfigDict) -> Experiment:
    """Make the experiment that `config.experiment` names.

    Raises:
      UserError: there is no such module, or it has no `make`.
    """
    return _module(config).make(config)


def load_uses(config: ConfigDict) -> UseModule | None:
    """Import the module `use` of the experiment, which has a class `Model`.

    Returns:
      The module, or None where the experiment has none.

    Raises:
      UserError: there is no module of this experiment.
    """
    _module(config)
    name = f"{config.experiment}.use"
    try:
        return cast(UseModule, importlib.import_module(name))
    except ModuleNotFoundError as e:
        if e.name != name:
            raise
        return None


def size_fields(config: ConfigDict) -> Sequence[str]:
    """Return the fields of a config that the data set determines."""
    module = _module(config)
    return module.SIZES if isinstance(module, SizedModule) else ()


def fill_sizes(config: ConfigDict) -> ConfigDict:
    """Replace the sizes that are None by what the data set says, and name the data.

    The module of the experiment names the sizes in SIZES, and has `sizes(config)`. The
    data is touched only if one of them is None. In `best.metric` and `curves`,
    "{data.name}" stands for the name of the data set.

    Raises:
      UserError: the data set is missing.
    """
    changes, module = {}, _module(config)
    if isinstance(module, SizedModule):
        unset = [name for name in module.SIZES if attrgetter(name)(config) is None]
        # The config states all sizes mostly, and then the data is opened once, by the
        # checks.
        sizes = module.sizes(config) if unset else {}
        changes = {name: sizes[name].value for name in unset if name in sizes}
    for name in ("best.metric", "curves"):
        value = attrgetter(name)(config)
        if "{data.name}" in str(value):
            changes[name] = _with_name(value, config.data.name)
    if not changes:
        return config
    filled = config.copy_and_resolve_references()
    filled.update_from_flattened_dict(changes)
    return filled


def _with_name(value: Any, name: str) -> Any:
    """Put the name of the data set into a text, or into those of a tuple."""
    if isinstance(value, str):
        return value.replace("{data.name}", name)
    if isinstance(value, list | tuple):
        return tuple(_with_name(inner, name) for inner in value)
    return value


def check_data_sizes(config: ConfigDict) -> None:
    """Check the sizes in a config against the data set.

    Raises:
      UserError: some do not fit, which are named; or the data set is missing.
    """
    module = _module(config)
    if isinstance(module, SizedModule):
        check_sizes(config, module.sizes(config))


def _module(config: ConfigDict) -> ExperimentModule:
    """Import the module of the experiment."""
    name = str(config.experiment)
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        raise UserError(
            f"config.experiment = {name!r}: give the dotted name of a module, such as "
            "experiments.mnist"
        )
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as e:
        # A module that it imports is another matter.
        if not f"{name}.".startswith(f"{e.name}."):
            raise
        raise UserError(
            f"config.experiment = {name!r}: there is no such module; run from the root "
            "of the checkout"
        ) from None
    if not hasattr(module, "make"):
        raise UserError(
            f"config.experiment = {name!r}: the module exports no make(config)"
        )
    return cast(ExperimentModule, module)


def steps_per_epoch(config: ConfigDict) -> int:
    """Return the number of full batches in one pass over the training set.

    Raises:
      UserError: a batch size that does not fit the training set.
    """
    size, examples = config.batch_size, config.data.train_examples
    check_range("batch_size", size)
    check_range("data.train_examples", examples)
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
        # Rounded up, so that the last epoch is not cut short.
        steps = math.ceil((config.epochs or 0) * steps_per_epoch(config))
    if not AT_LEAST_1.holds(steps):
        raise UserError(
            f"config.steps = {config.steps} and config.epochs = {config.epochs} give "
            f"{steps} steps: {AT_LEAST_1.words}"
        )
    return steps


def evals(config: ConfigDict) -> Evals:
    """Read the schedules of `config.evals`.

    Raises:
      UserError: a schedule that is none, or `config.best.metric` of an evaluation that
        does not run during training.
    """
    every, at_end = {}, []
    for name, schedule in config.evals.items():
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
    metric = config.best.metric
    if metric and metric.partition("/")[0] not in every:
        raise UserError(
            f"config.best.metric = {metric!r}: config.evals has no such evaluation "
            f"during training, only {', '.join(every) or 'none'}"
        )
    return Evals(every, tuple(at_end))


def check_names(config: ConfigDict, exp: Experiment) -> None:
    """Check what `evals`, `best.metric` and `curves` name, as far as it is known.

    Names that are known before training are checked now: a wrong one would be noticed
    after hours.

    Args:
      config: the config.
      exp: its experiment.

    Raises:
      UserError: `curves` has the wrong form, or an evaluation or a number is unknown.
    """
    # The names of the numbers of each evaluation, None where they are not known.
    known: dict[str, Collection[str] | None] = dict.fromkeys(config.evals)
    for name, schedule in config.evals.items():
        if exp.scalars and schedule != "never":
            try:
                known[name] = exp.scalars(name)
            except UserError as e:
                raise UserError(f"config.evals.{name}: {e}") from None
    named = [("config.curves", metric) for metric in metrics_of(config.curves)]
    if config.best.metric:
        named.append(("config.best.metric", config.best.metric))
    for field, metric in named:
        name = metric.partition("/")[0]
        # The names of training metrics are known when the first step is taken.
        if name == "train":
            continue
        check_measured(field, name, list(known))
        scalars = known[name]
        if scalars is not None:
            check_measured(field, metric, [f"{name}/{scalar}" for scalar in scalars])


def check_train_metrics(curves: Any, metrics: Iterable[str]) -> None:
    """Check the training metrics that `config.curves` names.

    Args:
      curves: `config.curves`.
      metrics: the names of the metrics of a step.

    Raises:
      UserError: a metric is not measured.
    """
    measured = [f"train/{name}" for name in metrics]
    for metric in metrics_of(curves):
        if metric.startswith("train/"):
            check_measured("config.curves", metric, measured)


def check_measured(field: str, metric: str, measured: Sequence[str]) -> None:
    """Raise UserError where a field names something that is not measured.

    Args:
      field: the field of the config.
      metric: what it names.
      measured: what there is.
    """
    if metric not in measured:
        near = difflib.get_close_matches(metric, measured, 1)
        hint = (
            f"did you mean {near[0]}?" if near else f"there are {', '.join(measured)}"
        )
        raise UserError(f"{field} names {metric!r}, which is not measured; {hint}")


def metrics_of(curves: Any) -> list[str]:
    """Return the metrics that `config.curves` names.

    Raises:
      UserError: it does not have the form that `lnrepro.config.HELP` describes.
    """
    names = []
    for panel in curves:
        match panel:
            case [_, list() | tuple() as metrics, "linear" | "log", *_]:
                names += metrics
            case _:
                raise UserError(
                    f"config.curves: {panel!r} is no panel; a panel is (label, "
                    "(metric, ...), 'linear' or 'log')"
                )
    return names
