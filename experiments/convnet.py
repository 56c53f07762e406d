"""Convolutional networks (section 6.7): the paper's remark, and its explanation by the units near the image border.

The paper gives no network, data or number: "layer normalization offers a speedup over the baseline model without
normalization, but batch normalization outperforms the other methods", because units whose receptive field lies near the
border "are rarely turned on and thus have very different statistics from the rest". This is a demonstration of our own
making, not a number to reproduce. The split "border" measures the explanation on the test images.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.batches import Plan, eval_batches, train_batches
from lnrepro.engine import evaluation
from lnrepro.engine.errors import DataError, UserError
from lnrepro.engine.experiment import Evaluation, Experiment
from lnrepro.linen import BatchNorm, LayerNorm

NORMS = ("none", "batch", "layer")
# Layer norm's statistics over: channels and positions of a case (the layer, as in 2016), or the channels at a position.
STATISTICS = {"layer": (-3, -2, -1), "position": (-1,)}


class ConvNet(nn.Module):
    """(B, height, width, 1) -> logits (B, classes): 3x3 convolutions with ReLU, then a linear map.

    Every convolution's summed inputs are normalised by `norm`; the logits are not. Batch norm's statistics are over
    cases and positions, one gain and bias per channel; layer norm's as `layer_norm.statistics` says, with a gain and
    bias per channel, or per unit with `layer_norm.gain_per_unit`. Sows "sums" and "normalised" of every convolution.
    """

    config: ConfigDict

    @nn.compact
    def __call__(self, x, train: bool):
        """(B, height, width, 1) -> (B, classes); `train` uses the batch's statistics and moves the running ones."""
        c = self.config
        for channels, stride in zip(c.model.channels, c.model.strides, strict=True):
            x = nn.Conv(channels, (3, 3), strides=stride, use_bias=c.norm == "none")(x)
            self.sow("intermediates", "sums", x)
            if c.norm == "batch":
                bn = c.batch_norm
                x = BatchNorm(
                    use_running_average=not train, momentum=bn.momentum, epsilon=bn.eps
                )(x)
            elif c.norm == "layer":
                axes = STATISTICS[c.layer_norm.statistics]
                per_unit = c.layer_norm.gain_per_unit
                x = LayerNorm(
                    epsilon=c.layer_norm.eps,
                    reduction_axes=axes,
                    feature_axes=axes if per_unit else -1,
                )(x)
            self.sow("intermediates", "normalised", x)
            x = nn.relu(x)
        return nn.Dense(c.model.classes)(x.reshape(x.shape[0], -1))


def make(config: ConfigDict) -> Experiment:
    """The experiment; metrics are nll (nats per case) and error (fraction of cases), and on "border" see `border`."""
    if config.norm not in NORMS:
        raise UserError(
            f"config.norm = {config.norm!r}: choose one of {', '.join(NORMS)}"
        )
    ln = config.layer_norm
    if ln.statistics not in STATISTICS:
        raise UserError(
            f"config.layer_norm.statistics = {ln.statistics!r}: choose one of {', '.join(STATISTICS)}"
        )
    if ln.gain_per_unit and ln.statistics != "layer":
        raise UserError(
            "config.layer_norm.gain_per_unit goes with config.layer_norm.statistics = 'layer' only"
        )
    if len(config.model.channels) != len(config.model.strides):
        raise UserError(
            f"config.model.channels = {config.model.channels} and config.model.strides = {config.model.strides} must "
            "have one entry for each convolution"
        )
    model = ConvNet(config)

    def pixels(batch):
        return batch["image"][..., None].astype(jnp.float32) / config.data.full_ink

    def init(key):
        return model.init(key, jnp.zeros((1, *config.data.image, 1)), train=False)

    def loss(vars, batch, key):
        del key
        logits, new = model.apply(
            vars, pixels(batch), train=True, mutable=["batch_stats"]
        )
        nll = evaluation.classification(logits, batch["label"])["nll"].mean()
        return nll, (new, {"nll": nll})

    def values(vars: Mapping, batch: Mapping) -> dict[str, jax.Array]:
        return evaluation.classification(
            model.apply(vars, pixels(batch), train=False), batch["label"]
        )

    mean = evaluation.mean_over_examples(values)

    @jax.jit
    def moments(vars, batch):
        """Per convolution, what `border` needs, summed over cases: arrays (height, width, channels)."""
        _, seen = model.apply(
            vars, pixels(batch), train=False, mutable=["intermediates"]
        )
        sums, normalised = (
            seen["intermediates"][name] for name in ("sums", "normalised")
        )
        case = batch["mask"][:, None, None, None]
        return [
            {
                name: (value * case).sum(0)
                for name, value in {
                    "count": jnp.ones_like(a),
                    "on": (z > 0).astype(a.dtype),
                    "sum": a,
                    "sum^2": a * a,
                    "z": z,
                    "z^2": z * z,
                }.items()
            }
            for a, z in zip(sums, normalised, strict=True)
        ]

    def batches(start_step: int):
        columns = _open(config, "train")
        plan = Plan(len(columns["label"]), config.batch_size, config.seed)
        return train_batches(columns, plan, start_step=start_step)

    def evaluate(vars, split):
        if split == "border":
            columns = _open(config, "test")
            # Every process of a multi-process run looks at all images: the maps are small and drawn once.
            parts = [
                moments(vars, batch)
                for batch in eval_batches(
                    columns, config.eval_batch_size, process=(0, 1)
                )
            ]
            total = jax.tree.map(
                lambda *sums: np.sum([np.asarray(s, np.float64) for s in sums], 0),
                *parts,
            )
            if config.norm == "none":  # there is no after
                total = [
                    {name: v for name, v in layer.items() if not name.startswith("z")}
                    for layer in total
                ]
            return border(
                total,
                f"norm: {config.norm}, data: {config.data.name}, {len(columns['label'])} test images",
            )
        columns = _open(config, split)
        return Evaluation(mean(vars, eval_batches(columns, config.eval_batch_size)))

    return Experiment(init, loss, batches, evaluate)


def ring(height: int, width: int) -> np.ndarray:
    """Which positions (height, width) lie near the border: an outer ring of a seventh of the side, at least one wide.

    On MNIST's 28 x 28 that is 4 pixels, the margin that its makers left blank around most digits.
    """
    row, column = (
        np.minimum(np.arange(n), np.arange(n)[::-1]) < max(1, n // 7)
        for n in (height, width)
    )
    return row[:, None] | column[None, :]


def border(moments: list[dict[str, np.ndarray]], title: str) -> Evaluation:
    """Statistics of units near the image border against the rest of their layer: numbers and a picture.

    Args:
        moments: for each convolution and each of its units (height, width, channels), sums over cases: "count", "on"
            (the ReLU is active), "sum" and "sum^2" of the summed inputs; "z" and "z^2" of the normalised ones, if any.
        title: stands over the picture.

    Returns:
        For convolution N (from 1) and WHERE = border | rest, means over the units there: "convN on WHERE" (fraction
        of cases in which a unit is active), "convN std WHERE" and "convN normalised std WHERE" (a unit's standard
        deviation over the cases, before and after the normaliser); "statistics", a picture (H, W, 3) of them as maps.
    """
    numbers, maps = {}, []
    for n, layer in enumerate(moments, 1):
        count = layer["count"]
        units = {"on": layer["on"] / count}
        for value, name in (("sum", "std"), ("z", "normalised std")):
            if value in layer:
                variance = layer[f"{value}^2"] / count - (layer[value] / count) ** 2
                units[name] = np.sqrt(
                    np.maximum(variance, 0.0)
                )  # sums of float32: rounding may fall below zero
        panels = {name: values.mean(-1) for name, values in units.items()}
        near = ring(*count.shape[:2])
        for name, values in panels.items():
            numbers[f"conv{n} {name} border"] = float(values[near].mean())
            numbers[f"conv{n} {name} rest"] = (
                float(values[~near].mean()) if (~near).any() else float("nan")
            )
        maps.append(panels)
    return Evaluation(numbers, {"statistics": _draw(maps, title)})


def _draw(maps: list[dict[str, np.ndarray]], title: str) -> np.ndarray:
    """One row of maps per convolution as a uint8 picture (H, W, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    labels = {
        "on": "fraction of cases a unit is on",
        "std": "std of its summed input",
        "normalised std": "std after the normaliser",
    }
    figure = Figure(
        figsize=(3 * len(maps[0]), 2.6 * len(maps) + 0.5), layout="constrained", dpi=100
    )
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(len(maps), len(maps[0]), squeeze=False)
    for n, (row, panels) in enumerate(zip(axes, maps, strict=True), 1):
        for ax, (name, values) in zip(row, panels.items(), strict=True):
            picture = ax.imshow(values, vmin=0.0)
            figure.colorbar(picture, ax=ax, shrink=0.85)
            ax.set(xticks=[], yticks=[])
            if n == 1:
                ax.set_title(labels[name], fontsize=10)
        row[0].set_ylabel(
            f"convolution {n}\n{values.shape[0]} x {values.shape[1]} positions"
        )
    figure.suptitle(title)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _open(config: ConfigDict, split: str) -> dict:
    """The split's columns, held against the sizes in the config. Raises DataError where they differ."""
    columns = data.open_config(config.data, split)
    if columns["image"].shape[1:] != tuple(config.data.image):
        raise DataError(
            f"config.data.image = {tuple(config.data.image)}, but the images of {config.data.name} are "
            f"{columns['image'].shape[1:]}"
        )
    return columns
