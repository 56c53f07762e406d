"""A run: what is made of its config, and its evaluations."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from lnrepro import optional
from lnrepro.checks import check_ranges
from lnrepro.engine import (
    artifacts,
    distribute,
    experiment,
    memory,
    optim,
    run_config,
    seeds,
)
from lnrepro.engine.checkpoint import Checkpoint, Store
from lnrepro.engine.train_step import Batches, State, make_init, make_step


class Results(NamedTuple):
    """Numbers of a run, and the artifacts that it wrote."""

    numbers: dict[str, float]
    paths: list[pathlib.Path]


class Run:
    """A run: its config, its directory, and what is made of them."""

    def __init__(self, config: ConfigDict, folder: pathlib.Path, writing: bool = False):
        """Make the experiment, the optimiser and the placement; data is not touched.

        Args:
          config: the config.
          folder: the run directory.
          writing: whether checkpoints will be written.

        Raises:
          UserError: a config that cannot run.
        """
        check_ranges(config)
        self.config = config
        self.folder = folder
        self.total_steps = experiment.total_steps(config)
        self.steps_per_epoch = experiment.steps_per_epoch(config)
        self.evals = experiment.evals(config)
        self.seeds = range(config.seed, config.seed + config.seeds)
        self.experiments = [
            experiment.load(seeds.single(config, seed)) for seed in self.seeds
        ]
        self.placement = distribute.make(
            config.placement, config.batch_size, len(self.seeds), **config.mesh
        )
        distribute.check_pallas(config.pallas, config.placement)
        self.optimizer = optim.make(config.optimizer, self.total_steps)
        # For each seed, the key of its parameters and the key of its training.
        keys = [jax.random.split(jax.random.key(seed)) for seed in self.seeds]
        self.init_keys, self.step_keys = zip(*keys, strict=True)
        self.store = Store(folder / "checkpoints", writing)
        self.is_main = jax.process_index() == 0

    def initial(self) -> State:
        """Return the state before the first step, as NumPy arrays.

        Raises:
          UserError: it does not fit into the memory.
        """
        init = jax.jit(make_init(self.experiments[0], self.optimizer))
        # This computes shapes alone.
        shapes = init.eval_shape(self.init_keys[0])
        memory.check(len(self.seeds) * memory.size(shapes), self.config.mesh.model)
        # One seed after the other, with one compiled program.
        states = [jax.tree.map(np.array, init(key)) for key in self.init_keys]
        return seeds.stack(states)

    def restore(self, name: str, like: State, fingerprint: str) -> Checkpoint | None:
        """Read the newest checkpoint of this run that can be read.

        Args:
          name: "last" or "best".
          like: a state of the same structure.
          fingerprint: identity of the data.

        Raises:
          UserError: it is a checkpoint of another run.
        """
        saved = self.store.restore(name, like)
        if saved:
            path = self.store.folder / name / str(saved.step)
            run_config.check_checkpoint(path, saved.notes, self.config, fingerprint)
        return saved

    def best_or_last(self, fingerprint: str) -> Checkpoint | None:
        """Return the best checkpoint, or else the last one, and close the store."""
        try:
            like = self.initial()
            best = self.restore("best", like, fingerprint)
            return best or self.restore("last", like, fingerprint)
        finally:
            self.store.close()

    def step(self) -> Callable:
        """Return `make_step` of this run."""
        key = seeds.stack(self.step_keys)
        return make_step(self.experiments[0], self.optimizer, key)

    def batches(self, start_step: int) -> Batches:
        """Return the training batches from `start_step` on, those of all seeds."""
        streams = [exp.batches(start_step) for exp in self.experiments]
        return streams[0] if len(streams) == 1 else seeds.StackedBatches(streams)

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
                if self.is_main:
                    paths += artifacts.write(folder, evaluation)
            of_seeds.append(numbers)
        if len(of_seeds) == 1:
            return Results(of_seeds[0], paths)
        together = {name: [n[name] for n in of_seeds] for name in of_seeds[0]}
        return Results(seeds.spread(together, self.seeds), paths)

    def header(self, step: int) -> str:
        """Return the line that is printed when training starts after `step` steps."""
        config = self.config
        devices = f"{jax.device_count()} {jax.devices()[0].platform} device"
        if jax.device_count() > 1:
            devices += "s"
        which = f"seed={config.seed}"
        if len(self.seeds) > 1:
            which = f"seeds={self.seeds[0]}..{self.seeds[-1]}"
        start = f"resuming at step {step} of" if step else "training"
        return (
            f"{config.experiment} norm={config.norm} data={config.data.name} {which}: "
            f"{start} {self.total_steps} steps on {devices}, in {self.folder}"
        )
