"""The DRAW experiment."""

from functools import partial

import jax
from ml_collections import ConfigDict

from experiments.sets import open_set
from lnrepro.checks import check_at_least
from lnrepro.data.batches import eval_batches, evenly_spaced, train_batches
from lnrepro.data.plan import Plan
from lnrepro.engine.evaluation import mean_over_examples, scalars_of_splits
from lnrepro.engine.experiment import Evaluation, Experiment

from . import evaluate as evaluations
from . import pictures
from .bound import terms
from .data import pixels
from .model import Draw, dtype_of

UNIT = "nats per image"


def make(config: ConfigDict) -> Experiment:
    """Make the experiment.

    Metrics are nats per image. Their names end in the name of the data set, because
    they compare within one data set only. The evaluation "final" estimates -log p(x)
    on the test images and draws pictures. The other evaluations are names of splits.
    """
    check_at_least(config, 1, "importance_samples")
    check_at_least(config, 1, "importance_examples", or_none=True)
    draw = Draw(config)
    key = jax.random.key(config.evaluation_seed)
    samples = config.importance_samples
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
        reconstruction, kl = terms(draw, vars["params"], x, noise)
        # L = L_x + L_z, the bound of Gregor et al. on -log p(x), averaged over the
        # images.
        reconstruction, kl = reconstruction.mean(), kl.mean()
        bound = reconstruction + kl
        return bound, ({}, {"bound": bound, "reconstruction": reconstruction, "kl": kl})

    def batches(start_step):
        columns = open_set(config).columns("train")
        plan = Plan(len(columns["image"]), config.batch_size, config.seed)
        return train_batches(columns, plan, start_step=start_step)

    def evaluate(vars, name):
        if name == "final":
            return evaluate_final(vars)
        columns = open_set(config).columns(name)
        examples = eval_batches(columns, config.eval_batch_size)
        return Evaluation(with_data_name(mean_bounds(vars, examples)))

    def evaluate_final(vars):
        images = open_set(config).columns("test")["image"]
        # The estimate takes `importance_samples` passes over each image, so it may be
        # of a part.
        selected = images[evenly_spaced(len(images), config.importance_examples)]
        examples = eval_batches({"image": selected}, config.eval_batch_size)
        scalars = with_data_name(mean_nll(vars, examples))
        shown = images[evenly_spaced(len(images), pictures.EXAMPLES)]
        drawn = pictures.draw_all(draw, vars["params"], shown, key)
        return Evaluation(scalars, drawn, captions=pictures.CAPTIONS)

    def with_data_name(metrics):
        return {name_with_data(name): value for name, value in metrics.items()}

    def name_with_data(name):
        return f"{name}_{config.data.name}"

    # Metrics of training are called without the name of the data, numbers of
    # evaluations with it.
    names = ["bound", "reconstruction", "kl", f"nll_iw{samples}"]
    units = dict.fromkeys(["loss", *names, *map(name_with_data, names)], UNIT)
    *of_split, of_final = map(name_with_data, names)
    scalars = scalars_of_splits(config, of_split, {"final": (of_final,)})
    return Experiment(init, loss, batches, evaluate, units, scalars)
