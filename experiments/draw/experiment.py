"""The DRAW experiment."""

from functools import partial

import jax
from ml_collections import ConfigDict

from experiments.sets import evaluation_batches, open_set, training_batches
from lnrepro.data.batches import eval_batches, evenly_spaced
from lnrepro.engine.evaluation import mean_over_examples, split_eval, split_evals
from lnrepro.engine.experiment import Evaluation, Experiment, Metric

from . import evaluate as evaluations
from . import pictures
from .data import pixels
from .model import Draw, dtype_of

NATS = Metric("nats per image")
EVAL_METRICS = {"bound": NATS, "reconstruction": NATS, "kl": NATS}
TRAIN_METRICS = {"loss": NATS} | EVAL_METRICS
METRICS = TRAIN_METRICS


def make(config: ConfigDict) -> Experiment:
    """Make the experiment.

    The evaluation "final" estimates -log p(x) on the test images and draws pictures.
    The other evaluations are names of splits.
    """
    draw = Draw(config)
    key = jax.random.key(config.evaluation_seed)
    samples = config.importance_samples
    name_of_nll = f"nll_iw{samples}"
    mean_bounds = mean_over_examples(partial(evaluations.bounds, draw, key))
    mean_nll = mean_over_examples(partial(evaluations.nll, draw, key, samples))

    def init(key):
        return {"params": draw.init(key)}

    def loss(vars, batch, key):
        x = pixels(batch)
        # The noise is drawn before the scan, so that its backward pass replays the same
        # numbers.
        shape = (draw.sizes.glimpses, len(x), draw.sizes.latents)
        noise = jax.random.normal(key, shape, dtype_of(vars["params"]))
        of_bound = evaluations.terms(draw, vars["params"], x, noise)
        # L = L_x + L_z, the bound of Gregor et al. on -log p(x), averaged over the
        # images.
        means = {name: term.mean() for name, term in of_bound.items()}
        bound = means["reconstruction"] + means["kl"]
        return bound, ({}, {"bound": bound, **means})

    def evaluate(vars, split):
        return Evaluation(mean_bounds(vars, evaluation_batches(config, split)))

    def evaluate_final(vars, split):
        images = open_set(config).columns(split)["image"]
        # The estimate takes `importance_samples` passes over each image, so it may be
        # of a part.
        selected = images[evenly_spaced(len(images), config.importance_examples)]
        examples = eval_batches({"image": selected}, config.eval_batch_size)
        scalars = {name_of_nll: mean_nll(vars, examples)["nll"]}
        shown = images[evenly_spaced(len(images), pictures.EXAMPLES)]
        drawn = pictures.draw_all(draw, vars["params"], shown, key)
        return Evaluation(scalars, drawn, pictures.TEXTS)

    batches = partial(training_batches, config)
    evals = split_evals(config, evaluate, EVAL_METRICS)
    evals["final"] = split_eval(config, "test", evaluate_final, {name_of_nll: NATS})
    return Experiment(init, loss, batches, evals, TRAIN_METRICS)
