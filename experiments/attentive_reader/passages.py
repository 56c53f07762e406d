"""A split's questions as a config asks for them: which sentences, which questions, in which shapes of batches."""

from collections.abc import Iterator

import numpy as np
from ml_collections import ConfigDict

from lnrepro import data
from lnrepro.data.batches import Plan, eval_batches, train_batches
from lnrepro.data.ragged import Ragged
from lnrepro.engine.errors import DataError, UserError

Columns = dict[str, np.ndarray | Ragged]
TEXTS = ("passage", "question")


def check(config: ConfigDict) -> None:
    """Raises UserError for values of config.data that mean nothing."""
    spec = config.data
    if not 1 <= spec.entities < spec.vocabulary:
        raise UserError(
            f"config.data.entities = {spec.entities}: 1 to vocabulary - 1 = {spec.vocabulary - 1}"
        )
    if spec.sentences is not None and spec.sentences < 1:
        raise UserError(
            f"config.data.sentences = {spec.sentences}: at least 1, or None for all"
        )
    for name, choices in (
        ("unanswerable", ("keep", "drop")),
        ("too_long", ("refuse", "cut")),
    ):
        if spec[name] not in choices:
            raise UserError(
                f"config.data.{name} = {spec[name]!r}: choose {' or '.join(choices)}"
            )
    for name in TEXTS:
        grid = spec[f"{name}_buckets"]
        if not grid or list(grid) != sorted(set(grid)) or grid[0] < 1:
            raise UserError(
                f"config.data.{name}_buckets = {grid}: one or more lengths that ascend"
            )


def load(config: ConfigDict, split: str) -> Columns:
    """ "passage" and "question" (ragged ids) and "answer" (N,) of a split, `config.data.sentences` of each passage.

    config.data: sentences, the most relevant ones in their order (None: all); unanswerable, "keep" or "drop" the training
    questions whose answer is then not in the passage (others are never dropped); too_long, "refuse" or "cut" what does
    not fit the last bucket. Raises DataError where vocabulary or entities are not the config's.
    """
    spec = config.data
    stored, facts = (
        data.open_config(spec, split),
        data.facts(spec.name, spec.dir),
    )
    for name, size in (
        ("vocabulary", len(facts["words"])),
        ("entities", facts["entities"]),
    ):
        if spec[name] != size:
            raise DataError(
                f"config.data.{name} = {spec[name]}, but {spec.name} has {size}; set it to that"
            )
    columns = {name: stored[name] for name in (*TEXTS, "answer")}
    if spec.sentences is not None:
        columns["passage"] = _where(
            columns["passage"], stored["rank"].values < spec.sentences
        )
    if spec.unanswerable == "drop" and split == "train":
        columns = rows_of(columns, np.flatnonzero(answerable(columns)))
    for name in TEXTS:
        last, longest = spec[f"{name}_buckets"][-1], columns[name].lengths.max()
        if longest > last and spec.too_long == "refuse":
            raise UserError(
                f"{spec.name} ({split}): {(columns[name].lengths > last).sum()} {name}s are longer than {last} words, the last "
                f"of config.data.{name}_buckets (the longest has {longest}); add a bucket or set config.data.too_long=cut"
            )
        if longest > last:
            places = np.arange(len(columns[name].values)) - np.repeat(
                columns[name].offsets[:-1], columns[name].lengths
            )
            columns[name] = _where(columns[name], places < last)
    return columns


def answerable(columns: Columns) -> np.ndarray:
    """Whether the answer is in the passage, (N,) bool."""
    passage = columns["passage"]
    hit = np.flatnonzero(
        passage.values == np.repeat(columns["answer"], passage.lengths)
    )
    found = np.zeros(len(passage), bool)
    found[np.searchsorted(passage.offsets, hit, side="right") - 1] = True
    return found


def rows_of(columns: Columns, rows: np.ndarray) -> Columns:
    """Some rows of all columns, in the order given."""
    return {
        name: _rows(v, rows) if isinstance(v, Ragged) else v[rows]
        for name, v in columns.items()
    }


def _rows(column: Ragged, rows: np.ndarray) -> Ragged:
    offsets = np.concatenate([[0], np.cumsum(column.lengths[rows])])
    places = np.arange(offsets[-1]) + np.repeat(
        column.offsets[:-1][rows] - offsets[:-1], column.lengths[rows]
    )
    return Ragged(column.values[places], offsets)


def _where(column: Ragged, keep: np.ndarray) -> Ragged:
    """The values that `keep` (sum of t_i,) marks; every example must keep one."""
    offsets = np.concatenate([[0], np.cumsum(keep)])[column.offsets]
    return Ragged(column.values[keep], offsets)


class Shapes:
    """The few static shapes (T, S) into which a split's questions are batched: a grid of two ascending tuples of lengths."""

    def __init__(self, config: ConfigDict, columns: Columns):
        self.lengths = [columns[name].lengths for name in TEXTS]
        self.grid = [config.data[f"{name}_buckets"] for name in TEXTS]
        bucket = [
            np.searchsorted(grid, lengths)
            for grid, lengths in zip(self.grid, self.lengths, strict=True)
        ]
        self.code = (
            bucket[0] * len(self.grid[1]) + bucket[1]
        )  # passages of one bucket together, sorted by question

    def of(self, rows: np.ndarray) -> tuple[int, int]:
        """(T, S) of a batch of these rows."""
        longest = (lengths[rows].max() for lengths in self.lengths)
        return tuple(
            int(grid[np.searchsorted(grid, n)])
            for grid, n in zip(self.grid, longest, strict=True)
        )

    def pad(self) -> dict[str, int]:
        """What the pipeline pads to; `trimmed` cuts it down to a batch's own shape."""
        return {name: grid[-1] for name, grid in zip(TEXTS, self.grid, strict=True)}

    def plan(self, config: ConfigDict) -> Plan:
        """Batches of questions of like shape."""
        codes = tuple(range(len(self.grid[0]) * len(self.grid[1])))
        return Plan(
            len(self.code),
            config.batch_size,
            config.seed,
            lengths=self.code,
            buckets=codes,
        )

    def summary(self, plan: Plan) -> tuple[list[tuple[int, int]], float]:
        """The shapes in use in epoch 0, one compiled program each, and the fraction of padding among its tokens."""
        batches = [plan.rows(k) for k in range(plan.steps_per_epoch)]
        shapes = [self.of(rows) for rows in batches]
        used = sum(
            int(lengths[rows].sum()) for rows in batches for lengths in self.lengths
        )
        return sorted(set(shapes)), 1 - used / (
            plan.batch_size * sum(t + s for t, s in shapes)
        )


def training(
    config: ConfigDict, columns: Columns, start_step: int
) -> Iterator[dict[str, np.ndarray]]:
    """Endless batches from a step on: ids "passage" (B, T), "question" (B, S), their "_length" (B,), "answer" (B,)."""
    shapes = Shapes(config, columns)
    plan = shapes.plan(config)
    used, padding = shapes.summary(plan)
    print(
        f"{config.data.name}: batches of {len(used)} shapes (passage, question), {padding:.1%} padding: {used}"
    )
    return _training(columns, shapes, plan, start_step)


def _training(
    columns: Columns, shapes: Shapes, plan: Plan, step: int
) -> Iterator[dict[str, np.ndarray]]:
    with train_batches(columns, plan, start_step=step, pad=shapes.pad()) as stream:
        for k, batch in enumerate(stream, step):
            yield _trimmed(batch, shapes.of(plan.rows(k)))


def validation(config: ConfigDict, columns: Columns) -> Iterator[dict[str, np.ndarray]]:
    """Every question once, from short to long, with "mask" (B,); shapes as in training."""
    order = np.argsort(Shapes(config, columns).code, kind="stable")
    columns = rows_of(columns, order)
    shapes, size = Shapes(config, columns), config.eval_batch_size
    with eval_batches(columns, size, pad=shapes.pad()) as stream:
        for k, batch in enumerate(stream):
            yield _trimmed(
                batch, shapes.of(np.arange(k * size, min((k + 1) * size, len(order))))
            )


def _trimmed(
    batch: dict[str, np.ndarray], shape: tuple[int, int]
) -> dict[str, np.ndarray]:
    return batch | {
        name: batch[name][:, :length] for name, length in zip(TEXTS, shape, strict=True)
    }


def frequency_errors(columns: Columns, entities: int) -> dict[str, float]:
    """What needs no reading: the error of answering with the passage's most frequent entity, of all and of those that the
    question does not name (equal ones are drawn fairly), and the share of passages without the answer."""
    wrong = np.zeros(2)
    for passage, question, answer in zip(
        columns["passage"], columns["question"], columns["answer"], strict=True
    ):
        counts = np.bincount(passage[passage <= entities], minlength=entities + 1)
        counts[0] = 0
        for i, barred in enumerate(([], question[question <= entities])):
            left = counts.copy()
            left[barred] = 0
            best = np.flatnonzero(left == left.max()) if left.any() else []
            wrong[i] += 1 - (answer in best) / max(len(best), 1)
    share = wrong / len(columns["answer"])
    return {
        "frequency_error": share[0],
        "frequency_error_not_asked": share[1],
        "answer_missing": 1 - answerable(columns).mean(),
    }
