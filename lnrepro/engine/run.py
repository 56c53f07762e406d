"""What a config says about a run: its experiments, schedules, optimiser and devices."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from lnrepro import optional
from lnrepro.checks import check_ranges
from lnrepro.engine import artifacts, distribute, experiment, optim, seeds
from lnrepro.engine.train_step import Batches, State, make_init, make_step


class Results(NamedTuple):
    """Numbers of a run, and the artifacts that it wrote."""

    numbers: dict[str, float]
    paths: list[pathlib.Path]


class Run:
    """What a config says about a run. Nothing is computed or written yet.

    Attributes:
      config: the config, whose sizes are all set.
      folder: the run directory.
      seeds: the seeds that are trained together.
      experiments: the experiment of each seed.
      total_steps: number of optimiser steps.
      steps_per_epoch: number of batches in a pass over the training set.
      evals: the schedules of the evaluations.
      optimizer: the optimiser.
      placement: how state and batches are placed on the devices.
    """

    def __init__(self, config: ConfigDict, folder: pathlib.Path):
        """Make the experiment, the optimiser and the placement.

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
        self.seeds = range(config.seed, config.seed + config.seeds)
        self.experiments = [
            experiment.load(seeds.single(config, seed)) for seed in self.seeds
        ]
        self.optimizer = optim.make(config.optimizer, self.total_steps)
        distribute.check_pallas(config.pallas, config.placement)
        self.placement = distribute.make(
            config.placement, config.batch_size, len(self.seeds), **config.mesh
        )
        # For each seed, the key of its parameters and the key of its training.
        keys = [jax.random.split(jax.random.key(seed)) for seed in self.seeds]
        self._init_keys, self._step_keys = zip(*keys, strict=True)

    @property
    def title(self) -> str:
        """The experiment, its norm and its data in one line."""
        config = self.config
        return f"{config.experiment} norm={config.norm} data={config.data.name}"

    def initial(self) -> State:
        """Return the state before the first step, as NumPy arrays."""
        init = jax.jit(make_init(self.experiments[0], self.optimizer))
        # One seed after the other, with one compiled program.
        states = [jax.tree.map(np.array, init(key)) for key in self._init_keys]
        return seeds.stack(states)

    def shapes(self) -> State:
        """Return the shapes of the state of one seed; nothing is computed."""
        init = make_init(self.experiments[0], self.optimizer)
        return jax.eval_shape(init, self._init_keys[0])

    def step(self) -> Callable:
        """Return `make_step` of this run."""
        key = seeds.stack(self._step_keys)
        return make_step(self.experiments[0], self.optimizer, key)

    def batches(self, start_step: int) -> Batches:
        """Return the training batches from `start_step` on, those of all seeds."""
        return seeds.stacked([exp.batches(start_step) for exp in self.experiments])

    def evaluate(self, vars: Any, names: Sequence[str]) -> Results:
        """Run evaluations and write their artifacts.

        Args:
          vars: what the experiment's functions take, of all seeds.
          names: names of `config.evals`.

        Returns:
          Results whose numbers are called EVAL/NAME. Those of several seeds are as
          `seeds.spread` returns them.
        """
        of_seeds, paths = [], []
        parts = seeds.parts(vars, len(self.seeds))
        for exp, part, seed in zip(self.experiments, parts, self.seeds, strict=True):
            folder = self.folder / "artifacts"
            if len(self.seeds) > 1:
                folder = folder / f"seed{seed}"
            numbers = {}
            for name in names:
                try:
                    evaluation = exp.evaluate(part, name)
                except ModuleNotFoundError as e:
                    # Some evaluations need a package to draw their pictures.
                    if not optional.can_do_without(e):
                        raise
                    continue
                for scalar, value in evaluation.scalars.items():
                    numbers[f"{name}/{scalar}"] = float(value)
                if jax.process_index() == 0:
                    paths += artifacts.write(folder, evaluation)
            of_seeds.append(numbers)
        if len(of_seeds) == 1:
            return Results(of_seeds[0], paths)
        named = dict.fromkeys(name for numbers in of_seeds for name in numbers)
        values = {name: [numbers.get(name) for numbers in of_seeds] for name in named}
        return Results(seeds.spread(values, self.seeds), paths)
