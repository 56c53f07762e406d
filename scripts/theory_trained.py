"""The metric of section 5 while a network of experiments/mnist is trained.

    python scripts/theory_trained.py --out theory

It trains configs/mnist.py:paper for two epochs without a norm and with layer norm,
prints tables and draws trained.png.
"""

import functools
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.mnist.model import MLP
from lnrepro import data
from lnrepro.engine import config_file, train_step
from lnrepro.engine.command_line import Parser
from lnrepro.engine.experiment import total_steps
from lnrepro.errors import ended
from scripts.benches.steps import steps_of
from scripts.theory import folder

# {norm: its colour}, and the module whose output is the summed inputs of a hidden layer
# as its ReLU gets them.
COLOUR = {"none": "0.5", "layer": "C3"}
LAYER = {"none": "Dense", "layer": "LayerNorm"}
# Number of test images, and of random steps, over which the metric is averaged.
CASES, PROBES = 256, 4
# Number of measurements, at steps that grow geometrically: the first change most.
POINTS = 30


class Point(NamedTuple):
    """The metric at one step of training, for L hidden layers.

    It measures a step that moves every weight of a hidden layer by one learning rate,
    with random signs: one layer by itself, as in the paper's block-diagonal
    approximation. With Gaussian outputs of variance 1, ds^2 is half the squared change
    of the sums.

    Attributes:
      lengths: [L], mean ||w_i||.
      moved: [L], root mean square change of a unit's summed input.
    """

    lengths: np.ndarray
    moved: np.ndarray


def measure(config: ConfigDict, images: jax.Array, params: Mapping) -> Point:
    """Measure a network.

    Args:
      config: a config of experiments/mnist.
      images: [CASES, pixels], 0 to 1.
      params: the parameters of the network.
    """
    # The same random steps at every measurement, so that points can be compared.
    keys = jax.random.split(jax.random.key(0), PROBES)
    layers = range(len(config.model.hidden))
    kernels = [params[f"Dense_{l}"]["kernel"] for l in layers]

    def sums(l, kernel):
        """Return the summed inputs of a hidden layer as its ReLU gets them."""
        name = f"Dense_{l}"
        changed = {name: params[name] | {"kernel": kernel}}
        _, mutated = MLP(config).apply(
            {"params": params | changed},
            images,
            train=True,
            capture_intermediates=True,
            mutable=["intermediates"],
        )
        return mutated["intermediates"][f"{LAYER[config.norm]}_{l}"]["__call__"][0]

    def squared_changes(key):
        changes = []
        for l, k in enumerate(jax.random.split(key, len(layers))):
            kernel = kernels[l]
            signs = jax.random.rademacher(k, kernel.shape, kernel.dtype)
            step = config.optimizer.learning_rate * signs
            _, change = jax.jvp(functools.partial(sums, l), [kernel], [step])
            changes.append(jnp.mean(change**2))
        return jnp.stack(changes)

    changes = jax.lax.map(squared_changes, keys)
    lengths = [jnp.linalg.norm(kernel, axis=0).mean() for kernel in kernels]
    return Point(jnp.stack(lengths), jnp.sqrt(changes.mean(0)))


def train(config: ConfigDict) -> dict[int, Point]:
    """Train, and return {number of steps taken: what was measured there}.

    Keys and batches are those of the trainer.
    """
    columns = data.open_columns(config.data.name, "test", config.data.dir)
    images = columns["image"][:CASES]
    images = images.reshape(len(images), -1) / config.data.full_ink
    images = jnp.asarray(images, jnp.float32)
    init_key, step_key = jax.random.split(jax.random.key(config.seed))
    exp, init, step = steps_of(config, step_key)
    state, step = jax.jit(init)(init_key), jax.jit(step)
    measured = jax.jit(functools.partial(measure, config, images))
    points = {0: measured(state.params)}
    end = total_steps(config)
    stops = set(np.geomspace(1, end, POINTS).round().astype(int).tolist())
    stream = exp.batches(0)
    for number in range(1, end + 1):
        state, _ = step(state, train_step.take(stream, 1))
        if number in stops:
            points[number] = measured(state.params)
    train_step.close(stream)
    return jax.tree.map(np.asarray, points)


def draw(path: pathlib.Path, runs: dict[str, dict[int, Point]]) -> None:
    """Draw weight norm and effective learning rate over training.

    Args:
      path: the picture.
      runs: {norm: what `train` returned}.
    """
    from matplotlib.figure import Figure

    fig = Figure(figsize=(9, 4.1), layout="constrained")
    axes = fig.subplots(1, 2)
    for norm, points in runs.items():
        steps = np.array(list(points)) + 1
        # [N, L] of N measurements.
        fields = zip(axes, zip(*points.values(), strict=True), strict=True)
        for ax, values in fields:
            shares = np.stack(values) / values[0]
            for l, (share, line) in enumerate(zip(shares.T, ("-", "--"), strict=False)):
                label = f"norm {norm}, layer {l + 1}"
                ax.plot(steps, share, line, color=COLOUR[norm], label=label)
    axes[0].set(title="weight norm", ylabel="mean ||w|| / start")
    title = "effective learning rate of a layer"
    axes[1].set(title=title, ylabel="rms change of h per step / start")
    for ax in axes:
        ax.set(xlabel="optimiser steps + 1", xscale="log")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    fig.suptitle("A step moves every hidden weight by one learning rate, random signs")
    fig.savefig(path, dpi=110)


def main(argv: list[str]) -> None:
    """Train, print and draw.

    Raises:
      UserError: a wrong flag, or the data is not prepared.
      OSError: the picture cannot be written.
    """
    parser = Parser(description=__doc__)
    out = folder(parser, argv)
    runs = {}
    for norm in LAYER:
        flags = [f"--config.norm={norm}", "--config.epochs=2"]
        runs[norm] = train(config_file.read("configs/mnist.py:paper", flags))
        print(f"norm {norm}: step, mean ||w|| and effective rate / start, by layer")
        for number, point in runs[norm].items():
            rates = point.moved / runs[norm][0].moved
            print(number, point.lengths.round(3), rates.round(3))
    draw(out / "trained.png", runs)
    print(f"picture    {out / 'trained.png'}")


if __name__ == "__main__":
    ended(main, "this measurement")
