"""The ConvNet experiment."""

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.data.batches import Plan, eval_batches
from lnrepro.engine import evaluation
from lnrepro.engine.checks import check_at_least, check_choice
from lnrepro.engine.errors import UserError
from lnrepro.engine.experiment import Evaluation, Experiment
from lnrepro.engine.resident import train_batches

from .data import open_split, pixels
from .evaluate import add, batch_moments, border_metrics, unit_statistics
from .model import NORMS, STATISTICS, ConvNet
from .pictures import statistics

UNITS = {"loss": "nats per image", "nll": "nats per image", "error": "fraction"}


def make(config: ConfigDict) -> Experiment:
    """Make the experiment.

    Metrics: nll (nats per image) and error (fraction of images). The evaluation
    "border" gives the numbers of `evaluate.border_metrics` and a picture of the units'
    statistics. The other evaluations are names of splits.
    """
    _check(config)
    model = ConvNet(config)

    def init(key):
        return model.init(key, jnp.zeros((1, *config.data.image, 1)), train=False)

    def loss(vars, batch, key):
        del key
        x = pixels(config, batch)
        logits, new = model.apply(vars, x, train=True, mutable=["batch_stats"])
        nll = evaluation.classification(logits, batch["label"])["nll"].mean()
        return nll, (new, {"nll": nll})

    def metrics(vars, batch) -> dict[str, jax.Array]:
        logits = model.apply(vars, pixels(config, batch), train=False)
        return evaluation.classification(logits, batch["label"])

    mean_metrics = evaluation.mean_over_examples(metrics)

    @jax.jit
    def moments(vars, batch):
        x = pixels(config, batch)
        _, sown = model.apply(vars, x, train=False, mutable=["intermediates"])
        units = sown["intermediates"]
        return [
            batch_moments(inputs, normalised, batch["mask"])
            for inputs, normalised in zip(
                units["sums"], units["normalised"], strict=True
            )
        ]

    def batches(start_step):
        columns = open_split(config, "train")
        plan = Plan(len(columns["label"]), config.batch_size, config.seed)
        return train_batches(columns, plan, start_step=start_step)

    def evaluate(vars, name):
        if name == "border":
            return evaluate_border(vars)
        columns = open_split(config, name)
        examples = eval_batches(columns, config.eval_batch_size)
        return Evaluation(mean_metrics(vars, examples))

    def evaluate_border(vars):
        columns = open_split(config, "test")
        # Every process of a multi-process run takes all images, because the maps are
        # small and are drawn once.
        examples = eval_batches(columns, config.eval_batch_size, process=(0, 1))
        total = add(moments(vars, batch) for batch in examples)
        layers = [unit_statistics(layer, config.norm) for layer in total]
        images = len(columns["label"])
        title = f"norm: {config.norm}, data: {config.data.name}, {images} test images"
        picture = statistics(layers, title)
        return Evaluation(border_metrics(layers), {"statistics": picture})

    scalars = evaluation.scalars_of_splits(config, ("nll", "error"), {"border": None})
    return Experiment(init, loss, batches, evaluate, UNITS, scalars)


def _check(config: ConfigDict) -> None:
    check_choice(config, "norm", NORMS)
    check_choice(config, "layer_norm.statistics", STATISTICS)
    if config.layer_norm.gain_per_unit and config.layer_norm.statistics != "layer":
        raise UserError(
            "config.layer_norm.gain_per_unit = True: this needs "
            "config.layer_norm.statistics = 'layer'"
        )
    sizes = ("model.channels", "model.strides", "model.classes", "data.image")
    check_at_least(config, 1, *sizes)
    channels, strides = config.model.channels, config.model.strides
    if len(channels) != len(strides):
        raise UserError(
            f"config.model.channels = {channels} and config.model.strides = {strides}: "
            "both must have one entry for each convolution"
        )
