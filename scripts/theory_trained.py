"""The metric of section 5 while a network of experiments/mnist is trained.

    python scripts/theory_trained.py --out theory

It trains configs/mnist.py:paper for two epochs without a norm and with layer norm,
prints tables and draws trained.png.
"""

import contextlib
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from experiments.mnist.model import MLP
from lnrepro import data, theory
from lnrepro.engine import config_file, experiment, optim
from lnrepro.engine.command_line import Parser
from lnrepro.errors import ended
from scripts.theory import add_out

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

    It measures a step that moves every weight of the hidden layers by one learning
    rate, with random signs.

    Attributes:
      lengths: [L], mean ||w_i||.
      moved: [L], root mean square change of a unit's summed input.
    """

    lengths: Any
    moved: Any


def measure(config: ConfigDict, images: jax.Array, params: Any) -> Point:
    """Measure a network.

    Args:
      config: a config of experiments/mnist.
      images: [CASES, pixels], 0 to 1.
      params: the parameters of the network.
    """
    names = [f"Dense_{l}" for l in range(len(config.model.hidden))]
    kernels = [params[name]["kernel"] for name in names]

    def sums(l, kernel):
        """Return the summed inputs of a hidden layer as its ReLU gets them."""
        changed = {names[l]: params[names[l]] | {"kernel": kernel}}
        _, mutated = MLP(config).apply(
            {"params": params | changed},
            images,
            train=True,
            capture_intermediates=True,
            mutable=["intermediates"],
        )
        return mutated["intermediates"][f"{LAYER[config.norm]}_{l}"]["__call__"][0]

    def probe(key):
        changes = []
        for l, k in enumerate(jax.random.split(key, len(names))):
            kernel = kernels[l]
            # Every weight moves by one learning rate, up or down.
            signs = jax.random.rademacher(k, kernel.shape, kernel.dtype)
            step = config.optimizer.learning_rate * signs

            # One layer by itself, as in the paper's block-diagonal approximation. With
            # Gaussian outputs of variance 1, ds^2 is half the squared change of the
            # sums.
            def layer(kernel, _, l=l):
                return sums(l, kernel)

            ds2 = theory.metric(layer, kernel, images, theory.gaussian(), step)
            changes.append(2 * ds2 / kernel.shape[1])
        return jnp.stack(changes)

    # The same random steps at every measurement, so that points can be compared.
    changes = jax.lax.map(probe, jax.random.split(jax.random.key(0), PROBES))
    lengths = [jnp.linalg.norm(kernel, axis=0).mean() for kernel in kernels]
    return Point(jnp.stack(lengths), jnp.sqrt(changes.mean(0)))


def train(config: ConfigDict) -> dict[int, Point]:
    """Train, and return {number of steps taken: what was measured there}.

    Keys and batches are those of the trainer.
    """
    exp, end = experiment.load(config), experiment.total_steps(config)
    optimizer = optim.make(config.optimizer, end)
    columns = data.open_columns(config.data.name, "test", config.data.dir)
    images = columns["image"][:CASES]
    images = images.reshape(len(images), -1) / config.data.full_ink
    images = jnp.asarray(images, jnp.float32)
    init_key, step_key = jax.random.split(jax.random.key(config.seed))
    params = jax.jit(exp.init)(init_key)["params"]
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, batch, number):
        key = jax.random.fold_in(step_key, number)

        def loss(params):
            return exp.loss({"params": params}, batch, key)[0]

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    measured = jax.jit(lambda params: measure(config, images, params))
    points = {0: measured(params)}
    stops = set(np.geomspace(1, end, POINTS).round().astype(int).tolist())
    with contextlib.closing(exp.batches(0)) as batches:
        for number in range(end):
            params, state = step(params, state, next(batches), number)
            if number + 1 in stops:
                points[number + 1] = measured(params)
    return jax.tree.map(np.asarray, points)


def draw(path: pathlib.Path, runs: dict[str, dict[int, Point]]) -> None:
    """Draw weight norm and effective learning rate over training.

    Args:
      path: the picture.
      runs: {norm: what `train` returned}.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    fig, axes = pyplot.subplots(1, 2, figsize=(9, 4.1), layout="constrained")
    for norm, points in runs.items():
        steps = np.array(list(points)) + 1
        for l in range(len(points[0].moved)):
            style = {"color": COLOUR[norm], "linestyle": ("-", "--", ":")[l % 3]}
            style["label"] = f"norm {norm}, layer {l + 1}"
            for ax, field in zip(axes, Point._fields, strict=True):
                values = np.array([getattr(p, field)[l] for p in points.values()])
                ax.plot(steps, values / values[0], **style)
    axes[0].set(title="weight norm", ylabel="mean ||w|| / start")
    axes[1].set(
        title="effective learning rate of a layer",
        ylabel="rms change of h per step / start",
    )
    for ax in axes:
        ax.set(xlabel="optimiser steps + 1", xscale="log")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    fig.suptitle("A step moves every hidden weight by one learning rate, random signs")
    fig.savefig(path, dpi=110)
    pyplot.close(fig)


def main(argv: list[str]) -> None:
    """Train, print and draw.

    Raises:
      UserError: a wrong flag, or the data is not prepared.
      OSError: the picture cannot be written.
    """
    parser = Parser(description=__doc__)
    add_out(parser)
    parser.add_argument("--config", default="configs/mnist.py:paper")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    runs = {}
    for norm in LAYER:
        flags = [f"--config.norm={norm}", "--config.epochs=2"]
        runs[norm] = train(config_file.read(args.config, flags))
        print(f"norm {norm}: step, mean ||w|| and effective rate / start, by layer")
        for number, point in runs[norm].items():
            rates = point.moved / runs[norm][0].moved
            print(number, point.lengths.round(3), rates.round(3))
    draw(args.out / "trained.png", runs)
    print(f"picture    {args.out / 'trained.png'}")


if __name__ == "__main__":
    ended(main, "this measurement")
