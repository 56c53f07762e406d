"""The ConvNet experiment."""

import jax
import numpy as np
from ml_collections import ConfigDict

from experiments import classification
from experiments.classification import pixels
from experiments.sets import open_set
from lnrepro.data.batches import eval_batches
from lnrepro.engine.evaluation import split_eval
from lnrepro.engine.experiment import Evaluation, Experiment
from lnrepro.errors import UserError

from .evaluate import batch_moments, border_metrics, unit_statistics
from .model import ConvNet
from .pictures import statistics


def make(config: ConfigDict) -> Experiment:
    """Make the experiment, see `classification.make`.

    The evaluation "border" gives the numbers of `evaluate.border_metrics` and a picture
    of the units' statistics. The other evaluations are names of splits.
    """
    channels, strides = config.model.channels, config.model.strides
    if len(channels) != len(strides):
        raise UserError(
            f"config.model.channels = {channels} and config.model.strides = {strides}: "
            "both must have one entry for each convolution"
        )
    model = ConvNet(config)
    classify = classification.make(config, model)

    @jax.jit
    def moments(vars, batch):
        x = pixels(config, batch["image"])
        _, sown = model.apply(vars, x, train=False, mutable=["intermediates"])
        units = sown["intermediates"]
        return [
            batch_moments(inputs, normalised, batch["mask"])
            for inputs, normalised in zip(
                units["sums"], units["normalised"], strict=True
            )
        ]

    def evaluate_border(vars, split):
        columns = open_set(config).columns(split)
        # Every process of a multi-process run takes all images, because the maps are
        # small and are drawn once.
        examples = eval_batches(columns, config.eval_batch_size, process=(0, 1))
        # A list of the layers for each batch.
        parts = jax.device_get([moments(vars, batch) for batch in examples])
        layers = [
            unit_statistics(np.sum(layer, 0, dtype=np.float64), config.norm)
            for layer in zip(*parts, strict=True)
        ]
        images = len(columns["label"])
        title = f"norm: {config.norm}, data: {config.data.name}, {images} test images"
        picture = statistics(layers, title)
        return Evaluation(border_metrics(layers), {"statistics": picture})

    border = split_eval(config, "test", evaluate_border, None)
    return classify._replace(evals={**classify.evals, "border": border})
