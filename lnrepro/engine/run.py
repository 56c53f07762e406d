"""What a config says about a run: its experiment, schedules, optimiser and devices."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from lnrepro.data import open_set
from lnrepro.data.set_folder import SetFolder
from lnrepro.data.stream import Stream
from lnrepro.engine import (
    distribute,
    experiment,
    optim,
    peers,
    run_config,
    schedule,
    workdir,
)
from lnrepro.engine.distribute import Placement
from lnrepro.engine.experiment import Evaluation, Metric
from lnrepro.engine.train_step import State, make_step


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
        there = workdir.read_about(folder) or {"config": {}}
        kernels = there["config"].get("kernels"), config.kernels
        if kernels == run_config.WITHOUT_KERNELS:
            config.kernels = "off"
        self.config, self.folder = config, folder
        self.total_steps = experiment.total_steps(config)
        self.steps_per_epoch = experiment.steps_per_epoch(config)
        self.evals = schedule.schedules(config)
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
        """What is known of the numbers, see `schedule.known_metrics`."""
        return schedule.known_metrics(self.config, self.experiment)

    @cached_property
    def data(self) -> SetFolder:
        """The data set, for its fingerprint and its facts."""
        return open_set(self.config.data.name, self.config.data.dir)

    @property
    def identity(self) -> dict[str, Any]:
        """What a run directory and its checkpoints say about their run."""
        config = run_config.as_json(self.config)
        identity = {"config": config, "fingerprint": self.data.fingerprint}
        # With pmap, each device has statistics and noise of its own.
        if self.config.placement == "pmap":
            identity["devices"] = jax.device_count()
        return identity

    def check(self) -> None:
        """Check the config, the data and the devices, before anything is written.

        Raises:
          UserError: the run cannot be trained.
        """
        workdir.check_no_export(self.folder)
        _ = self.data
        experiment.with_sizes(self.config, check=True)
        schedule.check_names(self.config, self.metrics)
        if self.experiment.check:
            self.experiment.check()
        # Devices that do not fit and a model that cannot be built must not leave a
        # config.json.
        _ = self.placement, self.shapes()
        peers.agree("data", {"the data": self.data.fingerprint})

    def _init(self, key):
        """Return the state before the first step; it may be traced."""
        # Parameters get gradients, other collections do not.
        collections = dict(self.experiment.init(key))
        params = collections.pop("params")
        step: Any = np.zeros([], np.int32)
        return State(step, params, collections, self.optimizer.init(params))

    def initial(self) -> State:
        """Return the state before the first step, as NumPy arrays."""
        return jax.tree.map(np.array, jax.jit(self._init)(self._init_key))

    def shapes(self) -> State:
        """Return the shapes of the state; nothing is computed."""
        return jax.eval_shape(self._init, self._init_key)

    def batches(self, start_step: int) -> Stream:
        """Return the training batches from a step on; close them after use."""
        found = self.experiment.batches(start_step)
        if isinstance(found, Stream):
            return found
        # Blocks of one batch.
        return Stream([batch] for batch in found)

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
        return {name: self.experiment.evals[name].run(vars) for name in names}


def numbers_of(evaluations: Mapping[str, Evaluation]) -> dict[str, float]:
    """Return the numbers of evaluations, called EVAL/NAME."""
    numbers = {}
    for name, evaluation in evaluations.items():
        for scalar, value in evaluation.scalars.items():
            numbers[f"{name}/{scalar}"] = float(value)
    return numbers
