"""What a config says about a run: its experiment, schedules, optimiser and devices."""

import pathlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from lnrepro import optional
from lnrepro.checks import check_ranges
from lnrepro.engine import artifacts, distribute, experiment, optim
from lnrepro.engine.distribute import Placement
from lnrepro.engine.train_step import State, make_init, make_step


class Results(NamedTuple):
    """Numbers of a run, and the artifacts that it wrote."""

    numbers: dict[str, float]
    paths: list[pathlib.Path]


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
        check_ranges(config)
        config = experiment.fill_sizes(config)
        self.config, self.folder = config, folder
        self.total_steps = experiment.total_steps(config)
        self.steps_per_epoch = experiment.steps_per_epoch(config)
        self.evals = experiment.evals(config)
        self.experiment = experiment.load(config)
        self.optimizer = optim.make(config.optimizer, self.total_steps)
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

    @property
    def title(self) -> str:
        """The experiment, its norm and its data in one line."""
        config = self.config
        return f"{config.experiment} norm={config.norm} data={config.data.name}"

    def initial(self) -> State:
        """Return the state before the first step, as NumPy arrays."""
        init = jax.jit(make_init(self.experiment, self.optimizer))
        return jax.tree.map(np.array, init(self._init_key))

    def shapes(self) -> State:
        """Return the shapes of the state; nothing is computed."""
        init = make_init(self.experiment, self.optimizer)
        return jax.eval_shape(init, self._init_key)

    def step(self) -> Callable:
        """Return `make_step` of this run."""
        return make_step(self.experiment, self.optimizer, self._step_key)

    def evaluate(self, vars: Any, names: Sequence[str]) -> Results:
        """Run evaluations and write their artifacts.

        Args:
          vars: what the experiment's functions take.
          names: names of `config.evals`.

        Returns:
          Results whose numbers are called EVAL/NAME.
        """
        numbers, paths = {}, []
        for name in names:
            try:
                evaluation = self.experiment.evaluate(vars, name)
            except ModuleNotFoundError as e:
                # Some evaluations need a package to draw their pictures.
                if not optional.can_do_without(e):
                    raise
                continue
            for scalar, value in evaluation.scalars.items():
                numbers[f"{name}/{scalar}"] = float(value)
            if jax.process_index() == 0:
                paths += artifacts.write(self.folder / "artifacts", evaluation)
        return Results(numbers, paths)
