"""The experiment of the attentive reader."""

import functools

import jax
from ml_collections import ConfigDict

from experiments.sets import open_set
from lnrepro.data.batches import evenly_spaced
from lnrepro.engine import evaluation
from lnrepro.engine.experiment import Evaluation, Experiment, Metric

from . import evaluate as evaluations
from . import pictures
from .data import (
    evaluation_batches,
    open_split,
    permute_entities,
    training_batches,
)
from .model import Reader
from .population import update_population
from .softmax import answered

NLL = Metric("nats per question")
ERROR = Metric("fraction")
TRAIN_METRICS = {"loss": NLL, "nll": NLL, "error": ERROR}
EVAL_METRICS = {
    "nll": NLL,
    "error": ERROR,
    "entity_error": Metric("fraction, among the entities of the passage"),
    **evaluations.BASELINES,
}
METRICS = TRAIN_METRICS | EVAL_METRICS


def make(config: ConfigDict) -> Experiment:
    """Make the experiment.

    Metrics: those of `evaluate.metrics`, and of `evaluate.baselines`, which need no
    reading. The evaluation "attention" gives pictures of validation passages. The other
    evaluations are names of splits.
    """
    spec = config.data
    reader = Reader(config)

    def init(key):
        vars = {"params": reader.init(key)}
        if reader.batch:
            vars["batch_stats"] = reader.population()
        return vars

    def loss(vars, batch, key):
        # Entities are renamed anew for each batch, so that the network cannot learn
        # facts about one of them.
        dropout_key, permutation_key = jax.random.split(key)
        permutation = jax.random.permutation(permutation_key, spec.entities)
        batch = permute_entities(batch, permutation, spec)
        params = vars["params"]
        reading = reader.read(params, batch, key=dropout_key)
        scores = reader.scores(params, reading.readout)
        log_p, is_wrong = answered(scores, batch["answer"])
        # The loss is -log(p + 1e-8), as in the authors' code.
        nll = -log_p.mean()
        new = {}
        if reader.batch:
            new["batch_stats"] = update_population(
                vars["batch_stats"], reading.statistics, reader.sizes.momentum
            )
        return nll, (new, {"nll": nll, "error": is_wrong.mean()})

    metrics = functools.partial(evaluations.metrics, reader, config)
    mean_metrics = evaluation.mean_over_examples(metrics)

    @jax.jit
    def attention_and_choice(vars, batch):
        reading = evaluations.read(reader, config, vars, batch)
        scores = reader.scores(vars["params"], reading.readout)
        return reading.attention.T, scores.argmax(-1)

    @functools.cache
    def questions(split):
        columns = open_split(config, split)
        rows = evenly_spaced(len(columns["answer"]), config.evaluation_questions)
        return columns, rows, evaluations.baselines(columns, rows, spec.entities)

    def batches(start_step):
        return training_batches(config, open_split(config, "train"), start_step)

    def evaluate(vars, split):
        columns, rows, baselines = questions(split)
        examples = evaluation_batches(config, columns, rows, config.eval_batch_size)
        return Evaluation(mean_metrics(vars, examples) | baselines)

    def evaluate_attention(vars, split):
        columns, rows, _ = questions(split)
        # Neighbouring questions may be about one story.
        shown = rows[evenly_spaced(len(rows), pictures.EXAMPLES)]
        examples = evaluation_batches(config, columns, shown, len(shown))
        words = open_set(config).facts["words"]
        read = functools.partial(attention_and_choice, vars)
        caption = f"{spec.name} ({split}), norm {config.norm}"
        picture = pictures.draw(examples, words, read, caption)
        return Evaluation(images={"attention": picture})

    evals = evaluation.split_evals(config, evaluate, EVAL_METRICS)
    # The pictures show questions of the evaluation during training.
    attention = evaluation.split_eval(config, "valid", evaluate_attention, {})
    evals["attention"] = attention
    return Experiment(init, loss, batches, evals, TRAIN_METRICS)
