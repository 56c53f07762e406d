"""Questions about passages, in batches of few shapes.

Shape letters: N questions, B batch, T words of the longest passage of a batch, S words
of its longest question.
"""

import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.sets import open_set
from lnrepro.data.batches import eval_batches, train_batches
from lnrepro.data.plan import Plan
from lnrepro.data.ragged import Ragged
from lnrepro.data.readers.cnn import FIRST_ENTITY
from lnrepro.fields import Size

# "passage" and "question", ragged word numbers, and "answer" [N].
Columns = dict[str, np.ndarray | Ragged]
Batch = dict[str, np.ndarray]
TEXTS = ("passage", "question")


def sizes(config: ConfigDict) -> dict[str, Size]:
    """Return what the data set says about fields of the config.

    Raises:
      DataError: the set is missing.
    """
    opened = open_set(config)
    facts, examples = opened.facts, opened.splits
    found = {
        "data.train_examples": Size(examples["train"]),
        "data.vocabulary": Size(len(facts["words"])),
        "data.entities": Size(facts["entities"]),
    }
    names = [name for name in examples if name == "train" or name in config.evals]
    splits = [open_split(config, name) for name in names]
    for name in TEXTS:
        lengths = np.concatenate([columns[name].lengths for columns in splits])
        buckets = suitable_buckets(lengths)
        found[f"data.{name}_buckets"] = Size(buckets, least=buckets[-1])
    return found


def suitable_buckets(lengths: np.ndarray) -> tuple[int, ...]:
    """Return a few lengths to pad to: quantiles of `lengths`, the longest one last."""
    quantiles = np.quantile(lengths, (0.25, 0.5, 0.75, 0.9, 0.98), method="higher")
    rounded = (-(-quantiles // 8) * 8).astype(int).tolist()
    longest = int(lengths.max())
    return tuple(sorted({n for n in rounded if n < longest} | {longest}))


def open_split(config: ConfigDict, split: str) -> Columns:
    """Open the questions of a split.

    `config.data.sentences` is the number of sentences that are kept of each passage:
    the most relevant ones, in their order. None keeps all.

    Raises:
      DataError: the set is missing.
    """
    stored = open_set(config).columns(split)
    columns = {name: stored[name] for name in (*TEXTS, "answer")}
    if config.data.sentences is not None:
        # "rank" holds for each word how relevant its sentence is, 0 for the most
        # relevant one.
        is_kept = stored["rank"].values < config.data.sentences
        # The number of kept values before each old offset is the new offset.
        kept_before = np.concatenate([[0], np.cumsum(is_kept)])
        passage = stored["passage"]
        offsets = kept_before[passage.offsets]
        columns["passage"] = Ragged(passage.values[is_kept], offsets)
    return columns


def permute_entities(batch: dict, permutation: jax.Array, spec: ConfigDict) -> dict:
    """Rename the entities of passages, questions and answers alike.

    Args:
      batch: "passage", "question" and "answer", numbers of words.
      permutation: entity k becomes `permutation[k]`; one entry for each entity.
      spec: `config.data`.
    """
    entities = slice(FIRST_ENTITY, FIRST_ENTITY + spec.entities)
    # A table from old to new word numbers. Words that are no entities keep theirs.
    numbers = jnp.arange(spec.vocabulary)
    numbers = numbers.at[entities].set(FIRST_ENTITY + permutation)
    renamed = {name: numbers[batch[name]] for name in (*TEXTS, "answer")}
    return batch | renamed


class Shapes:
    """The shapes (T, S) of batches: two ascending tuples of lengths make a grid."""

    def __init__(self, config: ConfigDict, columns: Columns):
        """Find the bucket of every question.

        Args:
          config: `data.passage_buckets` and `data.question_buckets` are the grid.
          columns: the questions.
        """
        self.lengths = {name: columns[name].lengths for name in TEXTS}
        self.grid = {name: config.data[f"{name}_buckets"] for name in TEXTS}
        passage, question = (
            np.searchsorted(self.grid[name], self.lengths[name]) for name in TEXTS
        )
        # Number of the bucket [N], sorted by passage and then by question.
        self.bucket = passage * len(self.grid["question"]) + question

    def cut(self, batch: Batch, rows: np.ndarray) -> Batch:
        """Cut the padding down to the shape (T, S) of a batch of these rows."""
        texts = {}
        for name, buckets in self.grid.items():
            longest = self.lengths[name][rows].max()
            steps = buckets[np.searchsorted(buckets, longest)]
            texts[name] = batch[name][:, :steps]
        return batch | texts

    def largest(self) -> dict[str, int]:
        """Return the largest (T, S) by the name of the text."""
        return {name: buckets[-1] for name, buckets in self.grid.items()}

    def plan(self, config: ConfigDict) -> Plan:
        """Return the plan of batches of questions from the same bucket."""
        # `Plan` sorts by bucket length. Here the number of the bucket takes its place,
        # which groups questions in the same way.
        buckets = tuple(range(math.prod(map(len, self.grid.values()))))
        return Plan(
            len(self.bucket),
            config.batch_size,
            config.seed,
            lengths=self.bucket,
            buckets=buckets,
        )


def training_batches(
    config: ConfigDict, columns: Columns, start_step: int
) -> Iterator[Batch]:
    """Yield endless batches.

    A batch has "passage" [B, T], "question" [B, S], "answer", "passage_length" and
    "question_length" [B].

    Args:
      config: the config of the run.
      columns: the training set.
      start_step: number of the first batch.
    """
    shapes = Shapes(config, columns)
    plan = shapes.plan(config)
    pad = shapes.largest()
    with train_batches(columns, plan, start_step=start_step, pad=pad) as stream:
        # The stream pads to the largest shape. The shape of a batch follows from its
        # rows of all processes.
        for step, batch in enumerate(stream, start_step):
            yield shapes.cut(batch, plan.rows(step))


def evaluation_batches(
    config: ConfigDict, columns: Columns, rows: np.ndarray, batch_size: int
) -> Iterator[Batch]:
    """Yield some questions once, from short to long, with a "mask" [B].

    The shapes are those of training.

    Args:
      config: the config of the run.
      columns: the questions.
      rows: those that are taken.
      batch_size: number of questions in a batch.
    """
    # Sorted by bucket, so that a batch has questions of similar lengths.
    shapes = Shapes(config, columns)
    order = rows[np.argsort(shapes.bucket[rows], kind="stable")]
    pad = shapes.largest()
    with eval_batches(columns, batch_size, order=order, pad=pad) as stream:
        for k, batch in enumerate(stream):
            # The rows of all processes.
            of_batch = order[k * batch_size : (k + 1) * batch_size]
            yield shapes.cut(batch, of_batch)
