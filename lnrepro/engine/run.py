"""What a config says about a run: its experiment, schedules, optimiser and devices."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from lnrepro import data, optional
from lnrepro.engine import (
    artifacts,
    distribute,
    experiment,
    optim,
    run_config,
    workdir,
)
from lnrepro.engine.artifacts import Results
from lnrepro.engine.distribute import Placement
from lnrepro.engine.experiment import Evaluation, Metric
from lnrepro.engine.train_step import State, make_init, make_step
from lnrepro.errors import UserError


class Run:
    """What a config says about a run. Nothing is computed or written yet.

    Attributes:
      config: the config, whose sizes are all set.
      folder: the run directory.
      experiment: the experiment.
      optimizer: the optimiser.
      total_steps: number of optimiser steps.
      steps_per_epoch: number of batches in a pass over the training set.
      evals: the schedules of the evaluations.
    """

    def __init__(self, config: ConfigDict, folder: pathlib.Path):
        """Make the experiment and the optimiser.

        Data is touched only where the config leaves a size open.

        Args:
          config: the config.
          folder: the run directory.

        Raises:
          UserError: a config that cannot run.
        """
        config = run_config.resolved(config)
        about = workdir.read_about(folder)
        there = about["config"] if about else {}
        kernels = there.get("kernels"), config.kernels
        if kernels == run_config.WITHOUT_KERNELS:
            config.kernels = "off"
        self.config, self.folder = config, folder
        self.total_steps = experiment.total_steps(config)
        self.steps_per_epoch = experiment.steps_per_epoch(config)
        self.evals = experiment.schedules(config)
        self.experiment = experiment.load(config)
        self.optimizer = optim.make(config, self.total_steps)
        # The keys of the parameters and of the training.
        self._init_key, self._step_key = jax.random.split(jax.random.key(config.seed))

    @cached_property
    def placement(self) -> Placement:
        """How state and batches are placed on the devices.

        Raises:
          UserError: the config does not fit the devices.
        """
        config = self.config
        distribute.check_kernels(config.kernels, config.placement)
        return distribute.make(config.placement, config.batch_size)

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:
        """What is known of the numbers, see `experiment.known_metrics`."""
        return experiment.known_metrics(self.config, self.experiment)

    @property
    def title(self) -> str:
        """The experiment, its norm and its data in one line."""
        config = self.config
        return f"{config.experiment} norm={config.norm} data={config.data.name}"

    def data_identity(self) -> tuple[str, Mapping[str, Any]]:
        """Return the fingerprint and the facts of the data set."""
        spec = self.config.data
        prepared = data.open_set(spec.name, spec.get("dir"))
        return prepared.fingerprint, prepared.facts

    def initial(self) -> State:
        """Return the state before the first step, as NumPy arrays.

        Raises:
          UserError: an array cannot be saved, such as a typed key of JAX.
        """
        init = jax.jit(make_init(self.experiment, self.optimizer))
        return jax.tree.map_with_path(_on_host, init(self._init_key))

    def shapes(self) -> State:
        """Return the shapes of the state; nothing is computed."""
        init = make_init(self.experiment, self.optimizer)
        return jax.eval_shape(init, self._init_key)

    def step(self) -> Callable:
        """Return `make_step` of this run."""
        return make_step(self.experiment, self.optimizer, self._step_key)

    def evaluate(self, vars: Any, names: Sequence[str]) -> dict[str, Evaluation]:
        """Run evaluations; nothing is written.

        Args:
          vars: what the experiment's functions take.
          names: names of `config.evals`.

        Returns:
          What each of them found.
        """
        found = {}
        for name in names:
            try:
                found[name] = self.experiment.evals[name].run(vars)
            except ModuleNotFoundError as e:
                # Some evaluations need a package to draw their pictures.
                if not optional.can_do_without(e):
                    raise
        return found

    def write(self, evaluations: Mapping[str, Evaluation]) -> Results:
        """Write what evaluations show; process 0 alone does.

        Raises:
          OSError: the disk failed.
        """
        results = Results(numbers_of(evaluations), [], {})
        if jax.process_index() == 0:
            for evaluation in evaluations.values():
                results.add(artifacts.write(self.folder / "artifacts", evaluation))
        return results


def _on_host(path, x):
    """Return an array as one of NumPy that Orbax can save."""
    name = f"{jax.tree_util.keystr(path)} of the state"
    # Orbax's threads wait for minutes after it has refused one.
    if not x.size:
        raise UserError(f"{name} has no elements, which a checkpoint cannot hold")
    try:
        return np.array(x)
    except TypeError as e:
        raise UserError(f"{name}: {e}") from None


def numbers_of(evaluations: Mapping[str, Evaluation]) -> dict[str, float]:
    """Return the numbers of evaluations, called EVAL/NAME."""
    numbers = {}
    for name, evaluation in evaluations.items():
        for scalar, value in evaluation.scalars.items():
            numbers[f"{name}/{scalar}"] = float(value)
    return numbers
