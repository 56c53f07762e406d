"""The skip-thoughts experiment."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.sets import open_set
from lnrepro.data.batches import train_batches
from lnrepro.engine.experiment import Eval, Evaluation, Experiment, Metric

from . import evaluate as evaluations
from .encoding import Encoder, WordVectors, shared
from .model import SkipThoughts
from .triples import EqualLengths, Triples, vocabulary_of
from .word2vec import Word2Vec

TRAIN_METRICS = {"loss": Metric("nats per example"), "nll": Metric("nats per word")}
METRICS = TRAIN_METRICS | evaluations.PAIR_METRICS | evaluations.LABEL_METRICS


def make(config: ConfigDict) -> Experiment:
    """Make the experiment.

    The loss is a sum over words, as in the paper. Its gradient is what is clipped.

    Evaluations:
      the name of a transfer set: the metrics of its task with the frozen encoder.
      "baselines": the metrics of the same tasks for word counts and for an untrained
        encoder.
      "neighbours": a text of nearest sentences.
    """
    model = SkipThoughts(config)

    def init(key):
        return {"params": model.init(key)}

    def loss(vars, batch, key):
        del key
        total, words = model.loss(vars["params"], batch)
        return total, ({}, {"nll": total / jnp.maximum(words, 1)})

    def batches(start_step):
        books = Triples(open_set(config), config.model.vocabulary)
        plan = EqualLengths(
            books.by_length, config.batch_size, config.seed, config.data.buckets
        )
        return train_batches(books, plan, start_step=start_step, pad=books.pad)

    def encode_with(params):
        return encoder(config, params, open_set(config).facts, model)

    def transfer(name, vars):
        encode = encode_with(vars["params"])
        return Evaluation(evaluations.transfer(encode, name, config))

    def neighbours(vars):
        text = evaluations.neighbours(encode_with(vars["params"]), config)
        return Evaluation(files={"neighbours.txt": text})

    def baselines(vars):
        del vars
        untrained = encode_with(jax.jit(model.init)(jax.random.key(config.seed)))
        scalars = {}
        for name in sets:
            if config.evals[name] == "never":
                continue
            found = {
                "words": evaluations.bag_of_words(name, config),
                "untrained": evaluations.transfer(untrained, name, config),
            }
            for baseline, numbers in found.items():
                for metric, value in numbers.items():
                    scalars[f"{name}_{metric}_{baseline}"] = value
        return Evaluation(scalars)

    def check():
        if config.encoding.word2vec:
            facts = open_set(config).facts
            words = vocabulary_of(facts, config.model.vocabulary)
            shared(words, Word2Vec(config.encoding.word2vec))

    evals = {"baselines": Eval(baselines), "neighbours": Eval(neighbours, {})}
    sets = [name for name in config.evals if name not in evals]
    for name in sets:
        metrics = partial(evaluations.metrics_of, name, config)
        evals[name] = Eval(partial(transfer, name), metrics)
    return Experiment(init, loss, batches, evals, TRAIN_METRICS, check)


def encoder(
    config: ConfigDict,
    params: dict,
    facts: Mapping[str, Any],
    model: SkipThoughts,
) -> Encoder:
    """Make a function from sentences to vectors.

    Args:
      config: the config of the run; `encoding` gives the options.
      params: parameters of the model.
      facts: facts of the data set that it was trained on, which have its vocabulary.
      model: the model of `config`.

    Raises:
      DataError: the file of word vectors is missing or damaged.
    """
    options = config.encoding
    word2vec = Word2Vec(options.word2vec) if options.word2vec else None
    table = np.asarray(params["embedding"])
    words = WordVectors(table, vocabulary_of(facts, config.model.vocabulary), word2vec)
    return Encoder(model, params, words, options.lowercase, options.batch_size)
