"""What a config says about a run: its experiments, schedules, optimiser and devices."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from lnrepro import optional
from lnrepro.checks import check_ranges
from lnrepro.engine import artifacts, distribute, experiment, optim, seeds
from lnrepro.engine.distribute import Placement
from lnrepro.engine.experiment import Evals, Experiment
from lnrepro.engine.train_step import Batches, State, make_init, make_step


class Run(NamedTuple):
    """A run, before anything of it is computed or written.

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

    config: ConfigDict
    folder: pathlib.Path
    seeds: range
    experiments: Sequence[Experiment]
    total_steps: int
    steps_per_epoch: int
    evals: Evals
    optimizer: optax.GradientTransformation
    placement: Placement

    @property
    def title(self) -> str:
        """The experiment, its norm and its data in one line."""
        config = self.config
        return f"{config.experiment} norm={config.norm} data={config.data.name}"


def prepare(config: ConfigDict, folder: pathlib.Path) -> Run:
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
    of_seeds = range(config.seed, config.seed + config.seeds)
    total_steps = experiment.total_steps(config)
    distribute.check_pallas(config.pallas, config.placement)
    return Run(
        config=config,
        folder=folder,
        seeds=of_seeds,
        experiments=[experiment.load(seeds.single(config, s)) for s in of_seeds],
        total_steps=total_steps,
        steps_per_epoch=experiment.steps_per_epoch(config),
        evals=experiment.evals(config),
        optimizer=optim.make(config.optimizer, total_steps),
        placement=distribute.make(
            config.placement,
            config.batch_size,
            config.seeds,
            config.mesh.model,
            config.mesh.shard,
        ),
    )


def _keys(seed: int) -> jax.Array:
    """Return the key of a seed's parameters and the key of its training."""
    return jax.random.split(jax.random.key(seed))


def make_state(run: Run) -> State:
    """Return the state before the first step, as NumPy arrays."""
    init = jax.jit(make_init(run.experiments[0], run.optimizer))
    # One seed after the other, with one compiled program.
    states = [jax.tree.map(np.array, init(_keys(seed)[0])) for seed in run.seeds]
    return seeds.stack(states)


def state_shapes(run: Run) -> State:
    """Return the shapes of the state of one seed; nothing is computed."""
    init = make_init(run.experiments[0], run.optimizer)
    return jax.eval_shape(init, jax.random.key(0))


def make_run_step(run: Run) -> Callable:
    """Return `make_step` of a run."""
    key = seeds.stack([_keys(seed)[1] for seed in run.seeds])
    return make_step(run.experiments[0], run.optimizer, key)


def open_batches(run: Run, start_step: int) -> Batches:
    """Return the training batches from `start_step` on, those of all seeds."""
    return seeds.stacked([exp.batches(start_step) for exp in run.experiments])


class Results(NamedTuple):
    """Numbers of a run, and the artifacts that it wrote."""

    numbers: dict[str, float]
    paths: list[pathlib.Path]


def run_evaluations(run: Run, vars: Any, names: Sequence[str]) -> Results:
    """Run evaluations and write their artifacts.

    Args:
      run: the run.
      vars: what the experiment's functions take, of all seeds.
      names: names of `config.evals`.

    Returns:
      Results whose numbers are called EVAL/NAME. Those of several seeds are as
      `seeds.spread` returns them.
    """
    of_seeds, paths = [], []
    parts = seeds.parts(vars, len(run.seeds))
    for exp, part, seed in zip(run.experiments, parts, run.seeds, strict=True):
        folder = run.folder / "artifacts"
        if len(run.seeds) > 1:
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
    return Results(seeds.spread(values, run.seeds), paths)
