"""DRAW on binarised MNIST (section 6.4, Figure 4): an image drawn in glimpses, with no, weight or layer normalisation.

`config.norm`: "none", "weight" (every kernel), "layer_cell" (LN on the LSTMs' cells, eq. 29-31, the paper's curve) or
"layer" (LN at all three sites, eq. 20-22).
"""

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.batches import (
    Plan,
    eval_batches,
    evenly_spaced,
    train_batches,
)
from lnrepro.engine import evaluation
from lnrepro.engine.errors import DataError, UserError
from lnrepro.engine.experiment import Evaluation, Experiment

from . import pictures
from .model import Draw, cross_entropy, importance_weighted, noise_of


def make(config: ConfigDict) -> Experiment:
    """The experiment; bounds are nats per image, their names end in the data set's, for they compare within one only.

    evaluate's splits: those of the data set give bound = reconstruction + kl with one draw of z per image; "final"
    gives the importance-weighted estimate of log p(x) on the test images, and the pictures.
    """
    draw, name = Draw(config), config.data.name
    if config.importance_samples < 1:
        raise UserError(
            f"config.importance_samples = {config.importance_samples}: at least 1 is needed"
        )
    key = jax.random.key(config.evaluation_seed)

    def init(key):
        return {"params": draw.init(key)}

    def loss(vars, batch, key):
        x = _pixels(batch)
        noise = jax.random.normal(
            key, (draw.sizes.glimpses, len(x), draw.sizes.latents)
        )
        canvas, seen = draw.infer(vars["params"], x, noise)
        reconstruction, kl = cross_entropy(canvas, x).mean(), seen.kl.sum(0).mean()
        bound = reconstruction + kl
        return bound, ({}, {"bound": bound, "reconstruction": reconstruction, "kl": kl})

    def bounds(vars, batch):
        x = _pixels(batch)
        canvas, seen = draw.infer(
            vars["params"], x, noise_of(key, batch["index"], draw.sizes)
        )
        reconstruction, kl = cross_entropy(canvas, x), seen.kl.sum(0)
        return {
            "bound": reconstruction + kl,
            "reconstruction": reconstruction,
            "kl": kl,
        }

    def log_likelihood(vars, batch):
        estimate = importance_weighted(
            draw,
            vars["params"],
            _pixels(batch),
            batch["index"],
            key,
            config.importance_samples,
        )
        return {f"log_likelihood_iw{config.importance_samples}": estimate}

    mean_bounds, mean_log_likelihood = (
        evaluation.mean_over_examples(f) for f in (bounds, log_likelihood)
    )

    def batches(start_step: int):
        columns = _open(config, "train")
        return train_batches(
            columns,
            Plan(len(columns["image"]), config.batch_size, config.seed),
            start_step=start_step,
        )

    def named(numbers):
        return {f"{metric}_{name}": value for metric, value in numbers.items()}

    def evaluate(vars, split):
        if split != "final":
            batches = eval_batches(_open(config, split), config.eval_batch_size)
            return Evaluation(named(mean_bounds(vars, batches)))
        columns = _open(config, "test")
        some = _spread(columns, config.importance_examples)
        numbers = mean_log_likelihood(vars, eval_batches(some, config.eval_batch_size))
        examples = _spread(columns, pictures.EXAMPLES)["image"]
        images = pictures.all_of(draw, vars["params"], examples, key)
        return Evaluation(named(numbers), images)

    return Experiment(init, loss, batches, evaluate)


def _spread(columns: dict[str, np.ndarray], count: int | None) -> dict[str, np.ndarray]:
    """Return `count` examples, evenly spaced; None returns all."""
    rows = evenly_spaced(len(columns["image"]), count)
    return {name: column[rows] for name, column in columns.items()}


def _pixels(batch) -> jax.Array:
    return batch["image"].astype(jnp.float32)


def _open(config: ConfigDict, split: str) -> dict[str, np.ndarray]:
    """The split's columns, held against the sizes in the config. Raises DataError where they differ."""
    columns = data.open_config(config.data, split)
    side, (_, *shape) = config.model.image_size, columns["image"].shape
    if shape != [side, side]:
        raise DataError(
            f"config.model.image_size = {side}, but {config.data.name} has images of {' x '.join(map(str, shape))}"
        )
    return columns
