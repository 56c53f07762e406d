"""The MNIST experiment."""

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.data.batches import Plan, eval_batches
from lnrepro.engine import evaluation
from lnrepro.engine.checks import check_at_least, check_choice
from lnrepro.engine.experiment import Evaluation, Experiment
from lnrepro.engine.resident import train_batches

from .data import open_split, pixels
from .model import MLP, NORMS

UNITS = {"loss": "nats per image", "nll": "nats per image", "error": "fraction"}


def make(config: ConfigDict) -> Experiment:
    """Make the experiment.

    Metrics: nll (nats per image) and error (fraction of images). Every evaluation is
    the name of a split of the data set.
    """
    check_choice(config, "norm", NORMS)
    check_at_least(config, 1, "model.hidden", "model.classes", "data.features")
    model = MLP(config)

    def init(key):
        return model.init(key, jnp.zeros((1, config.data.features)), train=False)

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

    def batches(start_step):
        columns = open_split(config, "train")
        plan = Plan(len(columns["label"]), config.batch_size, config.seed)
        return train_batches(columns, plan, start_step=start_step)

    def evaluate(vars, split):
        columns = open_split(config, split)
        examples = eval_batches(columns, config.eval_batch_size)
        return Evaluation(mean_metrics(vars, examples))

    scalars = evaluation.scalars_of_splits(config, ("nll", "error"))
    return Experiment(init, loss, batches, evaluate, UNITS, scalars)
