"""The metric of section 5 in trained networks of experiments/mnist.

`python scripts/theory.py --workdir RUN ...` uses this module.

A run keeps only its newest checkpoints. To measure during training, the network is
trained again from its config up to the newest checkpoint: batches and keys depend on
the seed alone. The distance between the two end states is printed. With --no_replay
only the initial state and the checkpoints are measured.
"""

import contextlib
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot
from rich.console import Console
from rich.table import Table

from experiments.mnist.model import MLP
from lnrepro import data, theory
from lnrepro.engine import loaded_run, train_step
from lnrepro.engine.run import Run
from lnrepro.errors import UserError

COLOUR = {"none": "0.5", "batch": "C0", "layer": "C3"}
# The module whose output is the summed inputs of a hidden layer as its ReLU gets them.
LAYER = {"none": "Dense", "batch": "BatchNorm", "layer": "LayerNorm"}
# Number of test images, and of random steps, over which the metric is averaged.
CASES = 256
PROBES = 4


class Point(NamedTuple):
    """The metric at one step of training, for L hidden layers.

    It measures a step that moves every weight of the hidden layers by one learning
    rate, with random signs.

    Attributes:
      step: number of optimiser steps taken.
      lengths: [L], mean ||w_i||.
      moved: [L], root mean square change of a unit's summed input.
      predicted: [], length sqrt(2 ds^2) of the step in the space of predictions.
    """

    step: int
    lengths: np.ndarray
    moved: np.ndarray
    predicted: np.ndarray


class Trained:
    """A run of experiments/mnist, and the metric of its hidden layers."""

    def __init__(self, folder: pathlib.Path):
        """Open the run and read its checkpoints.

        Args:
          folder: the run directory.

        Raises:
          UserError: there is no such run, or it has no checkpoint, or several seeds.
        """
        loaded = loaded_run.load(folder, "experiments.mnist")
        n_seeds = loaded.config.get("seeds", 1)
        if n_seeds > 1:
            raise UserError(
                f"{folder} has {n_seeds} seeds in one run; give a run with "
                "--config.seeds=1"
            )
        self.folder, self.config = folder, loaded.config
        self.run = Run(self.config, folder)
        self.norm = self.config.norm
        self.mlp = MLP(self.config)
        self.initial = self.run.initial()
        # Both checkpoints may be of the same step, and one of them may be missing.
        saved = [loaded.checkpoint(name) for name in ("best", "last")]
        self.states = {s.step: s.state for s in saved if s}
        if not self.states:
            raise UserError(f"{folder} has no checkpoint yet; train it first")
        self.images = self._images()
        self.measure = jax.jit(self._measure)

    def _images(self):
        settings = self.config.data
        columns = data.open_columns(settings.name, "test", settings.dir)
        images = columns["image"][:CASES]
        flat = images.reshape(len(images), -1)
        return jnp.asarray(flat / settings.full_ink, jnp.float32)

    def _apply(self, vars, kernels):
        """Apply the network to the images, with some kernels replaced.

        Returns:
          The logits, and the summed inputs of each hidden layer.
        """
        params = dict(vars["params"])
        for name, kernel in kernels.items():
            params[name] = params[name] | {"kernel": kernel}
        # As in training, batch norm uses the statistics of these images.
        logits, mutated = self.mlp.apply(
            {**vars, "params": params},
            self.images,
            train=True,
            capture_intermediates=True,
            mutable=["intermediates", "batch_stats"],
        )
        outputs = mutated["intermediates"]
        layers = range(len(self.config.model.hidden))
        return logits, [
            outputs[f"{LAYER[self.norm]}_{l}"]["__call__"][0] for l in layers
        ]

    def _measure(self, vars):
        """Return lengths, moved and predicted of a `Point`."""
        names = [f"Dense_{l}" for l in range(len(self.config.model.hidden))]
        kernels = {name: vars["params"][name]["kernel"] for name in names}

        def random_step(key):
            steps = {}
            for name, k in zip(names, jax.random.split(key, len(names)), strict=True):
                kernel = kernels[name]
                # Every weight moves by one learning rate, up or down.
                signs = jax.random.rademacher(k, kernel.shape, kernel.dtype)
                steps[name] = self.config.optimizer.learning_rate * signs
            return steps

        def squared_change(l, step):
            # One layer by itself, as in the paper's block-diagonal approximation.
            def layer(kernel, _):
                return self._apply(vars, {names[l]: kernel})[1][l]

            kernel = kernels[names[l]]
            # With Gaussian outputs of variance 1, ds^2 is half the squared change of
            # the sums.
            ds2 = theory.metric(layer, kernel, self.images, theory.gaussian(), step)
            return 2 * ds2 / kernel.shape[1]

        def probe(key):
            steps = random_step(key)
            changes = [squared_change(l, steps[name]) for l, name in enumerate(names)]

            def predictions(kernels, _):
                return self._apply(vars, kernels)[0]

            ds2 = theory.metric(
                predictions, kernels, self.images, theory.categorical, steps
            )
            return jnp.stack(changes), 2 * ds2

        # The same random steps at every measurement, so that points can be compared.
        keys = jax.random.split(jax.random.key(0), PROBES)
        changes, predicted = jax.lax.map(probe, keys)
        norms = [jnp.linalg.norm(k, axis=0).mean() for k in kernels.values()]
        return jnp.stack(norms), jnp.sqrt(changes.mean(0)), jnp.sqrt(predicted.mean())

    def at(self, state: train_step.State) -> Point:
        """Measure one state."""
        return Point(int(state.step), *map(np.asarray, self.measure(state.vars)))

    def kept(self) -> list[Point]:
        """Measure the initial state and the checkpoints."""
        states = [self.states[step] for step in sorted(self.states)]
        return [self.at(state) for state in (self.initial, *states)]

    def replayed(self, console: Console, points: int = 30) -> list[Point]:
        """Train up to the newest checkpoint again, and measure on the way.

        Args:
          console: where progress is printed.
          points: number of measurements, at steps that grow geometrically.
        """
        run, end = self.run, max(self.states)
        # The first steps change most, so they are measured more often.
        stops = np.unique(np.geomspace(1, end, points).round().astype(int)).tolist()
        console.print(
            f"{self.folder}: training {end} steps again to measure on the way"
        )
        state, step = run.placement.place(self.initial), 0
        measured = [self.at(self.initial)]
        compiled = run.placement.compile(run.step(), state)
        with contextlib.closing(run.batches(0)) as batches:
            for stop in stops:
                while step < stop:
                    # A call ends at the next measurement.
                    n = min(self.config.steps_per_call, stop - step)
                    batch = run.placement.batch(train_step.take(batches, n))
                    state, _ = compiled(state, batch)
                    step += n
                measured.append(self.at(state))
        here, there = _flat(state.params), _flat(self.states[end].params)
        relative = np.linalg.norm(here - there) / np.linalg.norm(there)
        console.print(
            f"{self.folder}: its end is {relative:.1e} (relative) from the checkpoint "
            f"of step {end}"
        )
        return measured


def _flat(params: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def show(
    console: Console, path: pathlib.Path, runs: list[Trained], replay: bool
) -> None:
    """Print and draw weight norm and effective learning rate over training.

    Args:
      console: where the tables are printed.
      path: the picture.
      runs: the runs.
      replay: whether the runs are trained again, to measure on the way.
    """
    measured = [run.replayed(console) if replay else run.kept() for run in runs]
    for run, points in zip(runs, measured, strict=True):
        console.print(_table(run, points))
    fig, axes = pyplot.subplots(1, 3, figsize=(13, 4.1), layout="constrained")
    for run, points in zip(runs, measured, strict=True):
        _plot(axes, run, points)
    axes[0].set(title="weight norm", ylabel="mean ||w|| / start")
    axes[1].set(
        title="effective learning rate of a layer",
        ylabel="rms change of h per step / start",
    )
    axes[2].set(
        title="step in the space of predictions",
        ylabel="sqrt(2 ds²), whole net",
        yscale="log",
    )
    for ax in axes:
        ax.set(xlabel="optimiser steps + 1", xscale="log")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    names = ", ".join(sorted({run.config.data.name for run in runs}))
    fig.suptitle(
        f"experiments/mnist on {names}: a step moves every hidden weight by one "
        "learning rate, random signs"
    )
    fig.savefig(path, dpi=110)
    pyplot.close(fig)


def _table(run, points):
    config = run.config
    title = f"{run.folder}: norm {run.norm}, data {config.data.name}"
    table = Table(
        "step",
        "||w||, by layer",
        "change of h",
        "change / start",
        "predictions",
        title=f"{title}, seed {config.seed}",
    )
    # About eight rows, the last point among them.
    shown = [*points[: -1 : max(1, len(points) // 7)], points[-1]]
    for point in shown:
        row = [str(point.step)]
        for values in (point.lengths, point.moved, point.moved / points[0].moved):
            row.append(" ".join(f"{v:.3g}" for v in values))
        table.add_row(*row, f"{point.predicted:.3g}")
    return table


def _plot(axes, run, points):
    steps = [point.step + 1 for point in points]
    lengths = np.array([point.lengths for point in points])
    moved = np.array([point.moved for point in points])
    colour = COLOUR[run.norm]
    for l in range(lengths.shape[1]):
        style = {
            "color": colour,
            "linestyle": ("-", "--", ":")[l % 3],
            "label": f"norm {run.norm}, layer {l + 1}",
        }
        axes[0].plot(steps, lengths[:, l] / lengths[0, l], **style)
        axes[1].plot(steps, moved[:, l] / moved[0, l], **style)
    predicted = [point.predicted for point in points]
    axes[2].plot(steps, predicted, color=colour, label=f"norm {run.norm}")
