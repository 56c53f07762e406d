"""Classification of images, which MNIST, the ConvNets and the pixel sequences share.

Shape letters: B batch, N images, H height, W width, K classes.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from experiments.sets import evaluation_batches, open_set, training_batches
from lnrepro.data.reader import INDEX, ColumnSpec
from lnrepro.engine import evaluation
from lnrepro.engine.experiment import Evaluation, Experiment, Metric
from lnrepro.fields import Size

NLL = Metric("nats per image")
TRAIN_METRICS = {"loss": NLL, "nll": NLL}
EVAL_METRICS = {"nll": NLL, "error": Metric("fraction")}
METRICS = TRAIN_METRICS | EVAL_METRICS


def sizes(config: ConfigDict) -> dict[str, Size]:
    """Return what the data set says about fields of the config.

    `config.data.features` is the number of pixels of an image, and `config.data.image`
    its height and width. A config has one of the two.

    Raises:
      DataError: the set is missing, or has no images with class numbers.
    """
    opened = open_set(config)
    opened.check({"image": ColumnSpec(low=0, ragged=False), "label": INDEX})
    images = opened.columns("train")["image"]
    labels = [opened.columns(split)["label"] for split in opened.splits]
    ink, classes = float(images.max()), int(np.concatenate(labels).max()) + 1
    found = {
        "data.train_examples": Size(len(images)),
        "data.full_ink": Size(ink, least=ink),
        "model.classes": Size(classes, least=classes),
    }
    if "image" in config.data:
        found["data.image"] = Size(images.shape[1:])
    else:
        found["data.features"] = Size(math.prod(images.shape[1:]))
    return found


def image_shape(config: ConfigDict) -> tuple[int, ...]:
    """Return the shape in which a network takes an image: (H, W), or its pixels."""
    spec = config.data
    return tuple(spec.image) if "image" in spec else (spec.features,)


def pixels(config: ConfigDict, image: jax.Array) -> jax.Array:
    """Return images [B, ...] as numbers from 0 to 1, [B, *image_shape]."""
    image = image.reshape(len(image), *image_shape(config)).astype(jnp.float32)
    return image / config.data.full_ink


def make(config: ConfigDict, network: nn.Module) -> Experiment:
    """Make an experiment that classifies images.

    Metrics: nll (nats per image) and error (fraction of images). Every evaluation is
    the name of a split of the data set.

    Args:
      config: the config.
      network: computes logits [B, K] of pixels [B, *image_shape]; `train` says whether
        to update the running statistics of batch norm.
    """

    def init(key):
        # Parameters depend on the shape of an image and not on its pixels.
        return network.init(key, jnp.zeros((1, *image_shape(config))), train=False)

    def loss(vars, batch, key):
        del key
        x = pixels(config, batch["image"])
        # `batch_stats` is empty without batch norm.
        logits, new = network.apply(vars, x, train=True, mutable=["batch_stats"])
        nll = evaluation.classification(logits, batch["label"])["nll"].mean()
        return nll, (new, {"nll": nll})

    def metrics(vars, batch) -> dict[str, jax.Array]:
        x = pixels(config, batch["image"])
        logits = network.apply(vars, x, train=False)
        return evaluation.classification(logits, batch["label"])

    mean_metrics = evaluation.mean_over_examples(metrics)

    def evaluate(vars, split):
        # Every image of the split counts once.
        return Evaluation(mean_metrics(vars, evaluation_batches(config, split)))

    batches = functools.partial(training_batches, config)
    evals = evaluation.split_evals(config, evaluate, EVAL_METRICS)
    return Experiment(init, loss, batches, evals, TRAIN_METRICS)
