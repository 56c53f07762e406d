"""Permutation-invariant MNIST classification (section 6.6, Figure 6)."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.batches import Plan, eval_batches, train_batches
from lnrepro.engine import evaluation
from lnrepro.engine.errors import DataError, UserError
from lnrepro.engine.experiment import Evaluation, Experiment
from lnrepro.linen import BatchNorm, LayerNorm

NORMS = ("none", "layer", "batch")


class MLP(nn.Module):
    """(B, D) -> logits (B, classes): ReLU layers of the widths `hidden`, then a linear map.

    `norm` = "layer" normalises the summed inputs of the hidden layers only (the scale of the logits carries the
    confidence, section 6.6); "batch" normalises every layer's, the logits' too; "none" none. A normaliser's bias is the
    layer's bias (eq. 5), so each unit has one.
    """

    config: ConfigDict

    @nn.compact
    def __call__(self, x, train: bool):
        c = self.config

        def normalised(h, norm):
            if norm == "layer":
                return LayerNorm(epsilon=c.layer_norm.eps)(h)
            bn = c.batch_norm
            return BatchNorm(
                use_running_average=not train,
                momentum=bn.momentum,
                epsilon=bn.eps,
                unbiased=bn.unbiased,
            )(h)

        for width in c.model.hidden:
            x = nn.Dense(width, use_bias=c.norm == "none")(x)
            x = nn.relu(x if c.norm == "none" else normalised(x, c.norm))
        x = nn.Dense(c.model.classes, use_bias=c.norm != "batch")(x)
        return normalised(x, "batch") if c.norm == "batch" else x


def make(config: ConfigDict) -> Experiment:
    """The experiment; metrics are nll (nats per case) and error (fraction of cases)."""
    if config.norm not in NORMS:
        raise UserError(
            f"config.norm = {config.norm!r}: choose one of {', '.join(NORMS)}"
        )
    model = MLP(config)

    def pixels(batch):
        image = batch["image"]
        return (
            image.reshape(image.shape[0], -1).astype(jnp.float32) / config.data.full_ink
        )

    def init(key):
        return model.init(key, jnp.zeros((1, config.data.features)), train=False)

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

    def batches(start_step: int):
        columns = _open(config, "train")
        plan = Plan(len(columns["label"]), config.batch_size, config.seed)
        return train_batches(columns, plan, start_step=start_step)

    def evaluate(vars, split):
        columns = _open(config, split)
        return Evaluation(mean(vars, eval_batches(columns, config.eval_batch_size)))

    return Experiment(init, loss, batches, evaluate)


def _open(config: ConfigDict, split: str) -> dict:
    """The split's columns, held against the sizes in the config. Raises DataError where they differ."""
    columns = data.open_config(config.data, split)
    features = math.prod(columns["image"].shape[1:])
    if features != config.data.features:
        raise DataError(
            f"config.data.features = {config.data.features}, but {config.data.name} has {features} pixels a case"
        )
    return columns
