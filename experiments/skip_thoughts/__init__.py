"""Skip-thought vectors and the five transfer tasks (section 6.3, Figure 3, Table 3), with and without layer normalisation.

`config.norm`: "none" or "layer" (LN-GRUs in the encoder and in both decoders).
"""

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.batches import train_batches
from lnrepro.data.official.word2vec import Word2Vec
from lnrepro.data.triples import STEPS, EqualLengths, Triples, words_of
from lnrepro.engine.errors import DataError
from lnrepro.engine.experiment import Evaluation, Experiment

from . import neighbours, transfer
from .encoding import Encoder, WordVectors
from .model import SkipThoughts


def make(config: ConfigDict) -> Experiment:
    """The experiment; its loss is the paper's sum over words, not a mean, for it is the sum that is clipped.

    evaluate's splits: a transfer set's name gives its task's numbers with the frozen encoder; "neighbours" the text of
    nearest sentences; "baselines" what words without order, and an untrained encoder, give on the transfer sets of `config.evals`.
    """
    net, where = SkipThoughts(config), config.data.dir

    def init(key):
        return {"params": net.init(key)}

    def loss(vars, batch, key):
        total, words = net.loss(vars["params"], batch)
        return total, ({}, {"nll": total / jnp.maximum(words, 1)})

    def batches(start_step: int):
        books = open_books(config)
        plan = EqualLengths(
            books.by_length, config.batch_size, config.seed, config.data.buckets
        )
        return train_batches(books, plan, start_step=start_step, pad=books.pad)

    def evaluate(vars, split):
        if split == "neighbours":
            columns, words = (
                data.open_columns(config.data.name, "train", where),
                data.facts(config.data.name, where)["words"],
            )
            vocabulary = words_of(config.data.name, len(words) + 2, where)
            title = f"nearest sentences, {config.norm}, data: {config.data.name}"
            encode = encoder(config, vars["params"], net)
            text = neighbours.text(encode, columns["tokens"], vocabulary, title)
            return Evaluation(files={"neighbours.txt": text})
        if split != "baselines":
            encode = encoder(config, vars["params"], net)
            return Evaluation(transfer.evaluate(encode, split, config))
        untrained = encoder(config, jax.jit(net.init)(jax.random.key(config.seed)), net)
        numbers = {}
        for name in transfer_sets(config):
            found = {
                "words": transfer.bag_of_words(name, config),
                "untrained": transfer.evaluate(untrained, name, config),
            }
            numbers |= {
                f"{name}_{metric}_{by}": v
                for by, values in found.items()
                for metric, v in values.items()
            }
        return Evaluation(numbers)

    return Experiment(init, loss, batches, evaluate)


def transfer_sets(config: ConfigDict) -> list[str]:
    """Return the data sets among `config.evals`."""
    return [name for name in config.evals if name not in ("neighbours", "baselines")]


def open_books(config: ConfigDict) -> Triples:
    """The config's books, held against its sizes. Raises DataError where they do not fit."""
    books = Triples.open(config.data.name, config.model.vocabulary, config.data.dir)
    if len(books.tokens) != config.data.train_examples:
        raise DataError(
            f"config.data.train_examples = {config.data.train_examples}, but {config.data.name} has "
            f"{len(books.tokens)} sentences"
        )
    return books


def encoder(
    config: ConfigDict, params: dict, net: SkipThoughts | None = None
) -> Encoder:
    """`encode(sentences, end_token=...) -> (N, H)` with a run's parameters, as `config.encoding` has it."""
    vocabulary = words_of(config.data.name, config.model.vocabulary, config.data.dir)
    options = config.encoding
    word2vec = Word2Vec(options.word2vec) if options.word2vec else None
    words = WordVectors(np.asarray(params["embedding"]), vocabulary, word2vec)
    return Encoder(
        net or SkipThoughts(config),
        params,
        words,
        lowercase=options.lowercase,
        batch_size=options.batch_size,
    )


__all__ = ["STEPS", "encoder", "make", "open_books"]
