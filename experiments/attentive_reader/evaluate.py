"""Metrics of every question, and baselines that do not read.

Shape letters: B batch, T words of the longest passage, V vocabulary.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from lnrepro.data.readers.cnn import FIRST_ENTITY
from lnrepro.engine.experiment import Metric

from .data import Columns
from .model import Reader, Reading
from .softmax import answered


def read(reader: Reader, config: ConfigDict, vars: Mapping, batch: Mapping) -> Reading:
    """Read a batch at test time.

    Batch norm takes the population statistics, or with
    `config.model.evaluation_statistics` = "batch" those of the batch, as in the code of
    Cooijmans et al.
    """
    population = vars.get("batch_stats")
    if config.model.evaluation_statistics == "batch":
        population = None
    return reader.read(vars["params"], batch, population=population)


def metrics(
    reader: Reader, config: ConfigDict, vars: Mapping, batch: Mapping
) -> dict[str, jax.Array]:
    """Compute the metrics of each question.

    Returns:
      nll: -log(p(answer) + 1e-8) in nats, [B].
      error: whether another word of the vocabulary has a larger score, [B].
      entity_error: the same among the entities of the passage, [B].
    """
    spec, answer = config.data, batch["answer"]
    readout = read(reader, config, vars, batch).readout
    scores = reader.scores(vars["params"], readout)
    log_p, is_wrong = answered(scores, answer)
    rows = jnp.arange(len(answer))[:, None]
    # Padding marks column 0, which is no entity.
    is_present = jnp.zeros(scores.shape, bool).at[rows, batch["passage"]].set(True)
    word = jnp.arange(reader.vocabulary)
    is_entity = (word >= FIRST_ENTITY) & (word < FIRST_ENTITY + spec.entities)
    best = jnp.where(is_present & is_entity, scores, -jnp.inf).argmax(-1)
    return {
        "nll": -log_p,
        "error": is_wrong.astype(jnp.float32),
        "entity_error": (best != answer).astype(jnp.float32),
    }


# Numbers of `baselines`.
BASELINES = dict.fromkeys(
    ("frequency_error", "frequency_error_not_asked", "answer_missing"),
    Metric("fraction"),
)


def baselines(columns: Columns, rows: np.ndarray, entities: int) -> dict[str, float]:
    """Compute the errors of answers that need no reading.

    Args:
      columns: the questions.
      rows: those that count.
      entities: number of entities, whose words are 1 to `entities`.

    Returns:
      frequency_error: error of the most frequent entity of the passage. Of several, one
        is drawn.
      frequency_error_not_asked: the same without the entities of the question.
      answer_missing: share of the passages without the answer.
    """
    wrong = wrong_not_asked = 0.0
    found = 0
    for row in rows:
        passage, question = columns["passage"][row], columns["question"][row]
        answer = columns["answer"][row]
        found += answer in passage
        # Word 0 stands for padding and is no entity.
        counts = np.bincount(passage[passage <= entities], minlength=entities + 1)
        counts[0] = 0
        wrong += _chance_of_error(counts, answer)
        counts[question[question <= entities]] = 0
        wrong_not_asked += _chance_of_error(counts, answer)
    return {
        "frequency_error": wrong / len(rows),
        "frequency_error_not_asked": wrong_not_asked / len(rows),
        "answer_missing": 1 - found / len(rows),
    }


def _chance_of_error(counts: np.ndarray, answer: int) -> float:
    """Return the chance that a word with the largest count is not the answer."""
    if not counts.any():
        return 1.0
    # One of them is drawn, each with the same probability.
    most_frequent = np.flatnonzero(counts == counts.max())
    return 1 - (answer in most_frequent) / len(most_frequent)
