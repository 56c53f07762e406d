"""The order-embeddings experiment."""

from functools import partial

import jax
from ml_collections import ConfigDict

from experiments.sets import open_set
from lnrepro.engine import evaluation
from lnrepro.engine.experiment import Evaluation, Experiment, Metric

from . import retrieval
from .data import open_split, training_batches
from .evaluate import Embedder
from .model import Encoders
from .pictures import retrievals
from .ranking import ERRORS, matching_errors, ranking_loss

TRAIN_METRICS = {"loss": Metric(), "own_error": Metric(), "other_error": Metric()}
RECALL = Metric("% of queries", "max")
RANK = Metric("rank, from 1")
SCORES = {
    "r1": RECALL,
    "r5": RECALL,
    "r10": RECALL,
    "r1_ties_first": RECALL,
    "ties": Metric("% of queries"),
    "mean_rank": RANK,
    "median_rank": RANK,
}
EVAL_METRICS = {f"image_{score}": metric for score, metric in SCORES.items()}
EVAL_METRICS |= {f"caption_{score}": metric for score, metric in SCORES.items()}
EVAL_METRICS["image_recall_sum"] = Metric("R@1 + R@5 + R@10, in %", "max")
METRICS = TRAIN_METRICS | EVAL_METRICS


def make(config: ConfigDict) -> Experiment:
    """Make the experiment.

    Metrics: own_error and other_error, the mean errors of pairs that match and of those
    that do not; and the scores of `retrieval.mean_over_folds`.

    Evaluations: "valid" is one fold, the first `config.evaluation.fold` images. "test"
    is the mean over `config.evaluation.folds` folds. "final" is "test" with a picture
    of what was retrieved.
    """
    encoders = Encoders(config)
    errors = ERRORS[config.model.similarity]
    packed = config.packed and jax.device_count() == 1
    embedder = Embedder(config, encoders)

    def init(key):
        return {"params": encoders.init(key)}

    def loss(vars, batch, key):
        del key
        error = errors(encoders.captions(vars, batch), encoders.images(vars, batch))
        count = len(error)
        own = matching_errors(error).mean()
        # The mean over the pairs that do not match, from the mean over all.
        other = (error.mean() - own / count) * count / max(count - 1, 1)
        metrics = {"own_error": own, "other_error": other}
        # The loss is a sum over the batch, as in the authors' code: the clipping of
        # gradients depends on its scale.
        return ranking_loss(error, config.margin), ({}, metrics)

    def batches(start_step):
        split = open_split(config, "train")
        return training_batches(config, split, start_step, packed)

    def evaluate(vars, name, drawn=False):
        split = open_split(config, name)
        fold = config.evaluation.fold
        folds = 1 if name == "valid" else config.evaluation.folds
        images = embedder.images(vars, split.columns["image"][: fold * folds])
        captions = embedder.captions(vars, split.captions, len(images))
        scores = retrieval.mean_over_folds(
            errors, captions, images, split.captions.image, fold
        )
        if not drawn:
            return Evaluation(scores)
        # The picture shows one fold, whose error matrix fits into the memory.
        captions = captions[: split.captions.starts[fold]]
        matrix = retrieval.error_matrix(errors, captions, images[:fold])
        facts = open_set(config).facts
        picture = retrievals(matrix, split, facts, config.data.name)
        return Evaluation(scores, {"retrievals": picture})

    evals = evaluation.split_evals(config, evaluate, EVAL_METRICS)
    draw = partial(evaluate, drawn=True)
    evals["final"] = evaluation.split_eval(config, "test", draw, EVAL_METRICS)
    return Experiment(init, loss, batches, evals, TRAIN_METRICS)
