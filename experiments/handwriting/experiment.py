"""The handwriting experiment."""

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro.data.batches import eval_batches, evenly_spaced, train_batches
from lnrepro.data.plan import Plan
from lnrepro.engine import evaluation
from lnrepro.engine.experiment import Evaluation, Experiment, Metric

from . import pictures
from .data import open_lines
from .model import Network

NLL = Metric("nats per line")
PER_STEP = Metric("nats per pen position")
TRAIN_METRICS = {"loss": NLL, "nll": NLL, "nll_per_step": PER_STEP}
EVAL_METRICS = {
    "nll": NLL,
    "nll_original": Metric("nats per line, in the data's coordinates"),
    "nll_per_step": PER_STEP,
}
METRICS = TRAIN_METRICS | EVAL_METRICS


def make(config: ConfigDict) -> Experiment:
    """Make the experiment.

    Metrics: nll (nats per line of at most `config.model.steps` steps, in normalised
    offsets, the unit of Figure 5), nll_per_step, and nll_original (nats per line in the
    coordinates of the data). The evaluation "final" gives the pictures. The other
    evaluations are names of splits.
    """
    network = Network(config)
    padded_to = {"steps": config.model.steps, "text": config.model.characters}

    def init(key):
        return {"params": network.init(key)}

    def loss(vars, batch, key):
        del key
        nll = network.nll(vars["params"], batch).mean()
        # Nats per step of the whole batch, not the mean over lines: long lines count
        # more, as in their sum.
        steps = jnp.maximum(batch["steps_length"].mean(), 1)
        return nll, ({}, {"nll": nll, "nll_per_step": nll / steps})

    def metrics(vars, batch):
        steps = batch["steps_length"].astype(jnp.float32)
        return {"nll": network.nll(vars["params"], batch), "steps": steps}

    mean_metrics = evaluation.mean_over_examples(metrics)

    def batches(start_step):
        lines = open_lines(config, "train")
        plan = Plan(len(lines), config.batch_size, config.seed)
        return train_batches(lines, plan, start_step=start_step, pad=padded_to)

    def evaluate(vars, split):
        lines = open_lines(config, split)
        rows = evenly_spaced(len(lines), config.eval_examples)
        batches = eval_batches(lines, config.eval_batch_size, order=rows, pad=padded_to)
        means = mean_metrics(vars, batches)
        nll, steps = means["nll"], means["steps"]
        # The Jacobian of the normalisation adds log sigma_x + log sigma_y for every
        # step. The quotient of the means is that of the sums, over all lines.
        original = nll + steps * float(np.log(lines.std).sum())
        scalars = {"nll": nll, "nll_original": original, "nll_per_step": nll / steps}
        return Evaluation(scalars)

    def draw(vars, split):
        lines = open_lines(config, split)
        return pictures.draw_all(network, vars["params"], lines, config)

    evals = evaluation.split_evals(config, evaluate, EVAL_METRICS)
    evals["final"] = evaluation.split_eval(config, "valid", draw, {})
    return Experiment(init, loss, batches, evals, TRAIN_METRICS)
