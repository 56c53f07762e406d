"""The five transfer tasks on any sentence vectors: a function `encode(sentences, end_token=...) -> (N, H)` and a data set."""

import collections
from collections.abc import Callable

import numpy as np
import scipy.sparse
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.official import sentences

from . import classify, relate
from .encoding import tokens_of

Encode = Callable[..., np.ndarray]
PARTS = ("train", "trial", "test")


def is_pairs(name: str) -> bool:
    """Whether a set holds related pairs; else it holds labelled sentences. Raises DataError for an unknown name."""
    return issubclass(data.builder_class(name), sentences.Pairs)


def evaluate(encode: Encode, name: str, config: ConfigDict) -> dict[str, float]:
    """{"pearson", "spearman", "mse"} or {"accuracy", "accuracy_std"} (%, over the outer folds) of a set.

    Pairs are encoded with the end token, labelled sentences without, as in the authors' code.
    """
    where, options = config.data.dir, config.transfer
    if is_pairs(name):
        parts = {}
        for part in PARTS:
            a, b, scores = sentences.related(name, part, where)
            both = encode([*a, *b], end_token=True)
            parts[part] = (both[: len(a)], both[len(a) :], scores)
        return _relatedness(parts, options)
    texts, labels = sentences.labelled(name, where)
    return _scores(encode(texts, end_token=False), labels, options)


def _relatedness(parts, options) -> dict[str, float]:
    return relate.relatedness(
        parts,
        epochs=options.sick_epochs,
        batch=options.sick_batch,
        blocks=options.sick_blocks,
        seed=options.seed,
    )


def _scores(x, labels, options) -> dict[str, float]:
    accuracies, _ = classify.nested(x, labels, options.folds, options.seed)
    return {
        "accuracy": float(accuracies.mean()),
        "accuracy_std": float(accuracies.std()),
    }


def bag_of_words(name: str, config: ConfigDict) -> dict[str, float]:
    """As `evaluate`, of word counts scaled to length 1: what the same heads make of words without order or vectors.

    The words are those of the set itself, of pairs those of the training pairs, in lower case.
    """
    where, options = config.data.dir, config.transfer
    if is_pairs(name):
        found = {part: sentences.related(name, part, where) for part in PARTS}
        words = _words([*found["train"][0], *found["train"][1]])
        parts = {
            part: (_counts(a, words).toarray(), _counts(b, words).toarray(), scores)
            for part, (a, b, scores) in found.items()
        }
        return _relatedness(parts, options)
    texts, labels = sentences.labelled(name, where)
    return _scores(_counts(texts, _words(texts)), labels, options)


def _words(texts: list[str]) -> dict[str, int]:
    seen = collections.Counter(
        token for text in texts for token in tokens_of(text, True)
    )
    return {word: i for i, word in enumerate(seen)}


def _counts(texts: list[str], words: dict[str, int]) -> scipy.sparse.csr_array:
    """(N, words) float32 counts, rows of length 1."""
    rows, columns = [], []
    for i, text in enumerate(texts):
        known = [words[token] for token in tokens_of(text, True) if token in words]
        rows += [i] * len(known)
        columns += known
    ones = np.ones(len(rows), np.float32)
    x = scipy.sparse.csr_array(
        (ones, (rows, columns)), shape=(len(texts), max(len(words), 1))
    )
    lengths = np.sqrt(np.asarray(x.power(2).sum(axis=1)).ravel())
    return scipy.sparse.csr_array(
        scipy.sparse.diags_array(1 / np.maximum(lengths, 1e-12)) @ x, dtype=np.float32
    )
