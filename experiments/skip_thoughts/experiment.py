"""The skip-thoughts experiment."""

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro.data.batches import train_batches
from lnrepro.data.official.word2vec import Word2Vec
from lnrepro.data.triples import EqualLengths
from lnrepro.engine.experiment import Evaluation, Experiment

from . import evaluate as evaluations
from .data import open_books, open_vocabulary
from .encoding import Encoder, WordVectors
from .model import SkipThoughts


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
        books = open_books(config)
        plan = EqualLengths(
            books.by_length, config.batch_size, config.seed, config.data.buckets
        )
        return train_batches(books, plan, start_step=start_step, pad=books.pad)

    def evaluate(vars, name):
        if name == "baselines":
            return Evaluation(evaluate_baselines())
        encode = encoder(config, vars["params"], model)
        if name == "neighbours":
            text = evaluations.neighbours(encode, config)
            return Evaluation(files={"neighbours.txt": text})
        return Evaluation(evaluations.transfer(encode, name, config))

    def evaluate_baselines():
        params = jax.jit(model.init)(jax.random.key(config.seed))
        untrained = encoder(config, params, model)
        scalars = {}
        for name in evaluations.transfer_sets(config):
            of_words = evaluations.bag_of_words(name, config)
            of_untrained = evaluations.transfer(untrained, name, config)
            for metric, value in of_words.items():
                scalars[f"{name}_{metric}_words"] = value
            for metric, value in of_untrained.items():
                scalars[f"{name}_{metric}_untrained"] = value
        return scalars

    return Experiment(init, loss, batches, evaluate)


def encoder(
    config: ConfigDict, params: dict, model: SkipThoughts | None = None
) -> Encoder:
    """Make a function from sentences to vectors.

    Args:
      config: the config of the run; `encoding` gives the options.
      params: parameters of the model.
      model: the model of `config`; None makes it.

    Raises:
      DataError: the vocabulary or the file of word vectors is missing.
    """
    options = config.encoding
    word2vec = Word2Vec(options.word2vec) if options.word2vec else None
    table = np.asarray(params["embedding"])
    words = WordVectors(table, open_vocabulary(config), word2vec)
    return Encoder(
        model or SkipThoughts(config),
        params,
        words,
        lowercase=options.lowercase,
        batch_size=options.batch_size,
    )
