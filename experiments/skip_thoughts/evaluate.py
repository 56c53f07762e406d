"""The transfer tasks of sentence vectors, and nearest sentences.

An encoder is a function `encode(sentences, end_token=...)` -> [N, H].

Shape letters: N sentences, H units.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments.sets import open_set
from lnrepro.data.batches import evenly_spaced
from lnrepro.data.readers.sentences import LABELLED_COLUMNS, PAIR_COLUMNS
from lnrepro.data.set_folder import SetFolder
from lnrepro.data.text import Vocabulary, as_texts
from lnrepro.engine.experiment import Metric, Metrics
from lnrepro.errors import DataError

from . import logistic_regression, relatedness
from .encoding import tokens_of

Encode = Callable[..., np.ndarray]
# The formats of sets of related pairs, and their splits. The other sets have labelled
# sentences.
PAIRS = ("sick", "story_sick")
PARTS = ("train", "trial", "test")
# `neighbours` takes this many sentences, shows this many of them, and the nearest of
# each.
CANDIDATES = 4000
QUERIES = 12
NEAREST = 4
# Shorter sentences are left out of `neighbours`.
MIN_WORDS = 3


# Metrics of the tasks of related pairs, and of labelled sentences.
PAIR_METRICS = {
    "pearson": Metric("correlation", "max"),
    "spearman": Metric("correlation", "max"),
    "mse": Metric("squared score"),
}
LABEL_METRICS = {
    "accuracy": Metric("%", "max"),
    "accuracy_std": Metric("%, over the folds"),
}


def metrics_of(name: str, config: ConfigDict) -> Metrics:
    """Return the metrics of a transfer set that can be evaluated.

    Raises:
      DataError: there is no such set, or it does not fit its task.
    """
    opened = open_set(config, name)
    options = config.transfer
    try:
        if opened.format in PAIRS:
            opened.check(PAIR_COLUMNS)
            return PAIR_METRICS
        opened.check(LABELLED_COLUMNS)
        _, labels = _labelled(opened)
        logistic_regression.folds(labels, options.folds, options.seed)
    except DataError as e:
        raise DataError(
            f"the set {name}: {e}; give it more sentences of both labels, 0 and 1, or "
            f"set config.evals.{name} to never"
        ) from None
    return LABEL_METRICS


def transfer(encode: Encode, name: str, config: ConfigDict) -> dict[str, float]:
    """Evaluate the task of a set on frozen vectors.

    Pairs are encoded with the end token and labelled sentences without, as in the code
    of Kiros et al. (2015).

    Args:
      encode: the encoder.
      name: the transfer set.
      config: the config of the run; `transfer` gives the options.

    Returns:
      {"pearson", "spearman", "mse"} for related pairs; {"accuracy", "accuracy_std"} in
      percent over the outer folds for labelled sentences.

    Raises:
      DataError: the labelled sentences do not fit the folds.
    """
    opened, options = open_set(config, name), config.transfer
    if opened.format in PAIRS:
        parts = {}
        for part in PARTS:
            a, b, scores = _related(opened, part)
            # One call for both sides, so that sentences of similar length share
            # batches.
            vectors = encode([*a, *b], end_token=True)
            parts[part] = (vectors[: len(a)], vectors[len(a) :], scores)
        return relatedness.fit_and_test(parts, options)
    texts, labels = _labelled(opened)
    vectors = encode(texts, end_token=False)
    accuracy = logistic_regression.nested_cross_validation(
        vectors, labels, options.folds, options.seed
    )
    return {
        "accuracy": float(accuracy.mean()),
        "accuracy_std": float(accuracy.std()),
    }


def bag_of_words(name: str, config: ConfigDict) -> dict[str, float]:
    """Evaluate the task of a set on word counts, scaled to length 1.

    This baseline knows neither the order of the words nor word vectors. The words are
    those of the set in lower case; for pairs, those of the training pairs.

    Args:
      name: the transfer set.
      config: the config of the run.

    Returns:
      The same metrics as `transfer`.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import normalize

    opened = open_set(config, name)
    pairs = opened.format in PAIRS
    if pairs:
        first, second, _ = _related(opened, "train")
        texts = [*first, *second]
    else:
        texts, _ = _labelled(opened)
    words = functools.partial(tokens_of, lowercase=True)
    # In the order in which they first occur.
    vocabulary = list(dict.fromkeys(itertools.chain.from_iterable(map(words, texts))))
    counter = CountVectorizer(analyzer=words, vocabulary=vocabulary, dtype=np.float32)

    def count(texts, *, end_token):
        del end_token
        # A text without a known word stays 0.
        counts = normalize(counter.transform(texts))
        return counts.toarray() if pairs else counts

    return transfer(count, name, config)


def _labelled(opened: SetFolder) -> tuple[list[str], np.ndarray]:
    columns: Any = opened.columns("sentences")
    return as_texts(columns["text"]), np.array(columns["label"])


def _related(opened: SetFolder, part: str) -> tuple[list[str], list[str], np.ndarray]:
    columns: Any = opened.columns(part)
    return as_texts(columns["a"]), as_texts(columns["b"]), np.array(columns["score"])


def neighbours(encode: Encode, config: ConfigDict) -> str:
    """Write some sentences of the books, each with the nearest others by cosine.

    Args:
      encode: the encoder.
      config: the config of the run.
    """
    opened = open_set(config)
    # All words of the books, also those that the model does not know.
    vocabulary = Vocabulary(opened.facts["words"])
    tokens = opened.columns("train")["tokens"]
    candidates = [
        " ".join(vocabulary.decode(tokens[i]))
        for i in evenly_spaced(len(tokens), CANDIDATES)
    ]
    texts = [
        text for text in dict.fromkeys(candidates) if len(text.split()) >= MIN_WORDS
    ]
    # The vectors have length 1, so a product is a cosine.
    vectors = encode(texts, end_token=False)
    lines = [f"nearest sentences, {config.norm}, data: {config.data.name}", ""]
    for i in evenly_spaced(len(texts), QUERIES):
        cosine = vectors @ vectors[i]
        order = np.argsort(-cosine, kind="stable")
        others = [j for j in order if j != i]
        lines.append(texts[i])
        lines += [f"    {cosine[j]:.3f}  {texts[j]}" for j in others[:NEAREST]]
        lines.append("")
    return "\n".join(lines)
