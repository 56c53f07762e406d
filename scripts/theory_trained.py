"""The metric of section 5 in nets that experiments/mnist.py has trained: `python scripts/theory.py --workdir RUN ...`.

A run keeps only its last checkpoints. To see the whole way, it is trained again from its config up to its newest
checkpoint (batches and keys are functions of the seed), and the distance of the two ends is printed. With --no_replay
only the start and the checkpoints are measured.
"""

import contextlib
import json
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot
from ml_collections import ConfigDict
from rich.console import Console
from rich.table import Table

from experiments.mnist import MLP
from lnrepro import data, theory
from lnrepro.engine import train
from lnrepro.engine.errors import UserError

COLOUR = {"none": "0.5", "batch": "C0", "layer": "C3"}
# The module whose output is a hidden layer's summed inputs as its ReLU sees them.
LAYER = {"none": "Dense", "batch": "BatchNorm", "layer": "LayerNorm"}


class Point(NamedTuple):
    """One moment of training; a step moves every weight of the hidden layers by one learning rate, signs at random."""

    step: int
    lengths: np.ndarray  # (L,) mean ||w_i|| of each hidden layer
    moved: np.ndarray  # (L,) root mean square change of a unit's summed input, as its ReLU sees it, in one step
    predicted: (
        np.ndarray
    )  # () the same step's length sqrt(2 ds^2) in the space of the net's predictions


class Trained:
    """A run directory of experiments/mnist.py: its states, and what the metric says about its hidden layers."""

    CASES, PROBES = 256, 4

    def __init__(self, folder: pathlib.Path):
        path = folder / "config.json"
        if not path.is_file():
            raise UserError(
                f"--workdir {folder}: there is no {path}; give the directory of a run"
            )
        try:
            self.config = ConfigDict(
                _tuples(json.loads(path.read_text(encoding="utf-8"))["config"])
            )
            name = self.config.experiment
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                f"{path} is not a run's config.json; give the directory of a run"
            ) from None
        if name != "experiments.mnist":
            raise UserError(
                f"--workdir {folder} is a run of {name}; only runs of experiments.mnist can be measured"
            )
        self.folder, self.norm, self.mlp = folder, self.config.norm, MLP(self.config)
        self.run = train.Run(self.config, folder)
        self.start = self.run.initial()
        try:
            saved = [
                self.run.store.restore(name, self.start) for name in ("best", "last")
            ]
        finally:
            self.run.store.close()
        self.states = {s.step: s.state for s in saved if s}
        if not self.states:
            raise UserError(f"--workdir {folder} has no checkpoint yet; train it first")
        self.images = self._images()
        self.measure = jax.jit(self._measure)

    def _images(self):
        image = data.open_columns(self.config.data.name, "test", self.config.data.dir)[
            "image"
        ][: self.CASES]
        return jnp.asarray(
            image.reshape(len(image), -1) / self.config.data.full_ink, jnp.float32
        )

    def _measure(self, vars):
        hidden = len(self.config.model.hidden)
        kernels = {
            f"Dense_{l}": vars["params"][f"Dense_{l}"]["kernel"] for l in range(hidden)
        }

        def net(some, x):
            """Logits, and the summed inputs of each hidden layer, with `some` of the kernels replaced."""
            params = vars["params"] | {
                name: vars["params"][name] | {"kernel": kernel}
                for name, kernel in some.items()
            }
            logits, seen = self.mlp.apply(
                {**vars, "params": params},
                x,
                train=True,  # batch norm by the statistics of these images, as in training
                capture_intermediates=True,
                mutable=["intermediates", "batch_stats"],
            )
            return logits, [
                seen["intermediates"][f"{LAYER[self.norm]}_{l}"]["__call__"][0]
                for l in range(hidden)
            ]

        def probe(key):
            keys = jax.random.split(key, hidden)
            steps = {
                name: self.config.optimizer.learning_rate
                * jax.random.rademacher(k, kernel.shape, kernel.dtype)
                for k, (name, kernel) in zip(keys, kernels.items(), strict=True)
            }

            def squared(
                l, name
            ):  # one layer by itself, as in the paper's block-diagonal approximation
                def layer(kernel, x):
                    return net({name: kernel}, x)[1][l]

                ds2 = theory.metric(
                    layer, kernels[name], self.images, theory.gaussian(), steps[name]
                )
                return 2 * ds2 / kernels[name].shape[1]

            whole = theory.metric(
                lambda k, x: net(k, x)[0],
                kernels,
                self.images,
                theory.categorical,
                steps,
            )
            return jnp.stack(
                [squared(l, name) for l, name in enumerate(kernels)]
            ), 2 * whole

        layers, whole = jax.lax.map(
            probe, jax.random.split(jax.random.key(0), self.PROBES)
        )
        lengths = jnp.stack(
            [jnp.linalg.norm(k, axis=0).mean() for k in kernels.values()]
        )
        return lengths, jnp.sqrt(layers.mean(0)), jnp.sqrt(whole.mean())

    def at(self, state: train.State) -> Point:
        """What the metric says about one state."""
        return Point(
            int(state.step), *(np.asarray(v) for v in self.measure(state.vars))
        )

    def kept(self) -> list[Point]:
        """The start and the checkpoints."""
        return [
            self.at(self.start),
            *(self.at(self.states[step]) for step in sorted(self.states)),
        ]

    def replayed(self, console: Console, points: int = 30) -> list[Point]:
        """The way from the start to the newest checkpoint, at steps that grow by a factor; training runs again."""
        run, end = self.run, max(self.states)
        stops = np.unique(np.geomspace(1, end, points).round().astype(int)).tolist()
        console.print(
            f"{self.folder}: training {end} steps again to measure on the way"
        )
        state, step, way = run.placement.place(self.start), 0, [self.at(self.start)]
        compiled = run.placement.compile(run.step(), state)
        with contextlib.closing(run.batches(0)) as batches:
            for stop in stops:
                while step < stop:
                    n = min(self.config.steps_per_call, stop - step)
                    state, _ = compiled(
                        state, run.placement.batch(train.take(batches, n))
                    )
                    step += n
                way.append(self.at(state))
        ends = [
            np.concatenate([np.ravel(p) for p in jax.tree.leaves(s.params)])
            for s in (state, self.states[end])
        ]
        relative = np.linalg.norm(ends[0] - ends[1]) / np.linalg.norm(ends[1])
        console.print(
            f"{self.folder}: its end is {relative:.1e} (relative) from the checkpoint of step {end}"
        )
        return way


def _tuples(value):
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def show(
    console: Console, path: pathlib.Path, runs: list[Trained], replay: bool
) -> None:
    """Print and draw weight norm and effective learning rate over training for each run."""
    ways = [run.replayed(console) if replay else run.kept() for run in runs]
    for run, way in zip(runs, ways, strict=True):
        table = Table(
            title=f"{run.folder}: norm {run.norm}, data {run.config.data.name}, seed {run.config.seed}"
        )
        for column in (
            "step",
            "||w||, by layer",
            "change of h",
            "change / start",
            "predictions",
        ):
            table.add_column(column)
        for point in [*way[: -1 : max(1, len(way) // 7)], way[-1]]:
            cells = (point.lengths, point.moved, point.moved / way[0].moved)
            words = (" ".join(f"{v:.3g}" for v in values) for values in cells)
            table.add_row(str(point.step), *words, f"{point.predicted:.3g}")
        console.print(table)

    fig, axes = pyplot.subplots(1, 3, figsize=(13, 4.1), layout="constrained")
    for run, way in zip(runs, ways, strict=True):
        steps, first = [point.step + 1 for point in way], way[0]
        for l in range(len(first.lengths)):
            style = {"color": COLOUR[run.norm], "linestyle": ("-", "--", ":")[l % 3]}
            style["label"] = f"norm {run.norm}, layer {l + 1}"
            axes[0].plot(
                steps, [point.lengths[l] / first.lengths[l] for point in way], **style
            )
            axes[1].plot(
                steps, [point.moved[l] / first.moved[l] for point in way], **style
            )
        axes[2].plot(
            steps,
            [point.predicted for point in way],
            color=COLOUR[run.norm],
            label=f"norm {run.norm}",
        )
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
        f"experiments/mnist.py on {names}: a step moves every hidden weight by one learning rate, random signs"
    )
    fig.savefig(path, dpi=110)
    pyplot.close(fig)
