"""Images with captions, as batches of one caption per image.

Shape letters: B batch, T steps of the longest caption of a batch.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments.fields.order_embeddings import FIELDS
from experiments.sets import open_set
from lnrepro.data.batches import eval_batches, train_batches
from lnrepro.data.plan import Plan, draws_of
from lnrepro.data.ragged import forget_pages
from lnrepro.fields import Size

from .captions import Captions

# Images of a fold, and number of folds, in Table 2.
FOLD = FIELDS["evaluation.fold"].default
FOLDS = FIELDS["evaluation.folds"].default


class Split(NamedTuple):
    """A split.

    Attributes:
      columns: "image" [N, D], and the other columns of the data set.
      captions: the captions.
    """

    columns: dict[str, np.ndarray]
    captions: Captions


def open_split(config: ConfigDict, split: str) -> Split:
    """Open a split.

    Raises:
      DataError: the set is missing.
    """
    opened = open_set(config)
    columns, words = opened.columns(split), number_of_words(opened.facts)
    return Split(columns, Captions(columns, words, config.buckets[-1]))


def number_of_words(facts: Mapping[str, Any]) -> int:
    """Return the number of words of a data set, with <eos> and <unk>."""
    return 2 + len(facts["words"])


def sizes(config: ConfigDict) -> dict[str, Size]:
    """Return what the data set says about fields of the config.

    Raises:
      DataError: the set is missing.
    """
    opened = open_set(config)
    images = opened.splits
    words = number_of_words(opened.facts)
    features = opened.columns("train")["image"].shape[1]
    # Of "valid" one fold is evaluated, and of the test set several.
    most = min(images["valid"], images["test"])
    fold = config.evaluation.fold or min(FOLD, most)
    folds = max(1, images["test"] // fold)
    return {
        "data.train_examples": Size(images["train"]),
        "data.vocabulary": Size(words, least=words),
        "model.features": Size(features),
        "evaluation.fold": Size(min(FOLD, most), least=1, most=most),
        "evaluation.folds": Size(min(FOLDS, folds), least=1, most=folds),
    }


def steps_for(buckets: Sequence[int], length: int) -> int:
    """Return the smallest number of steps among `buckets` that holds `length`."""
    return buckets[np.searchsorted(buckets, length)]


def training_batches(
    config: ConfigDict, split: Split, start_step: int, packed: bool
) -> Iterator[dict]:
    """Yield batches of "image" [B, D], "tokens" ([B, T], ...) and "length" [B].

    Each image comes with one of its captions, drawn anew in every epoch.

    Args:
      config: the config of the run.
      split: the training set.
      start_step: number of the first batch.
      packed: cut the tokens by `pack`.
    """
    columns, captions = split
    plan = Plan(len(columns["image"]), config.batch_size, config.seed)

    def add_captions(rows, draws):
        forget_pages(columns["image"])
        numbers = choose_captions(captions.starts, rows["row"], draws)
        tokens, length = captions.take(numbers, config.buckets[-1])
        return {"image": rows["image"], "tokens": tokens, "length": length}

    # The row numbers travel with the images, since the transform needs them.
    examples = {"image": columns["image"], "row": np.arange(plan.size)}
    stream = train_batches(
        examples, plan, start_step=start_step, transform=add_captions
    )
    with stream:
        for step, batch in enumerate(stream, start_step):
            # The longest caption over all processes decides the number of steps.
            rows, draws = plan.rows(step), draws_of(plan, step)
            numbers = choose_captions(captions.starts, rows, draws)
            steps = steps_for(config.buckets, captions.lengths[numbers].max())
            batch["tokens"] = (batch["tokens"][:, :steps],)
            yield pack(batch, config.buckets) if packed else batch


def choose_captions(
    starts: np.ndarray, images: np.ndarray, draws: np.ndarray
) -> np.ndarray:
    """Choose one of the captions of each image.

    Args:
      starts: number of the first caption of each image, and of all captions [N + 1].
      images: [B], rows of the images.
      draws: [B], uniform numbers in [0, 1).

    Returns:
      Numbers of the captions [B].
    """
    # Captions starts[i] to starts[i + 1] - 1 belong to image i.
    counts = starts[images + 1] - starts[images]
    return starts[images] + (counts * draws).astype(np.int64)


def pack(batch: dict, buckets: Sequence[int]) -> dict:
    """Sort a batch by length, and cut its tokens in time.

    The pairs are sorted from the longest caption to the shortest. The tokens are cut at
    `buckets`. Each part has only the rows whose captions have not ended, rounded up to
    a quarter of the batch, so that there are few shapes. The loss does not depend on
    the order of the pairs. On average, a third of the steps is saved.

    With several devices, parts of a batch would hold different rows, so this is for
    one.

    Args:
      batch: "image", "length" and "tokens", a tuple of one array [B, T].
      buckets: numbers of steps.

    Returns:
      The batch with "tokens" ([B, T_0], [b_1, T_1], ...), T_0 + T_1 + ... = T.
    """
    order = np.argsort(-batch["length"], kind="stable")
    (tokens,) = batch["tokens"]
    tokens, length = tokens[order], batch["length"][order]
    rows, steps = tokens.shape
    # Rounded up.
    quarter = -(-rows // 4)
    cuts = (0, *(cut for cut in buckets if cut < steps), steps)
    parts = []
    for start, end in itertools.pairwise(cuts):
        # Rows are sorted by length, so those that have not ended at `start` come first.
        alive = int((length > start).sum())
        kept = min(rows, -(-alive // quarter) * quarter)
        parts.append(tokens[:kept, start:end])
    return batch | {
        "image": batch["image"][order],
        "length": length,
        "tokens": tuple(parts),
    }


def caption_batches(
    captions: Captions, count: int, batch_size: int, buckets: Sequence[int]
) -> Iterator[dict]:
    """Yield batches of the captions of the first `count` images, for evaluation.

    Captions of similar length share a batch. Every process gets all of them.

    Args:
      captions: the captions.
      count: number of images.
      batch_size: captions in a batch.
      buckets: the numbers of steps to which captions are padded.
    """
    lengths = captions.lengths[: captions.starts[count]]
    # By the number of steps that they need.
    order = np.argsort(np.searchsorted(buckets, lengths), kind="stable")
    rows = eval_batches({}, batch_size, order=order, process=(0, 1))
    for batch in rows:
        steps = steps_for(buckets, lengths[batch["index"]].max())
        tokens, length = captions.take(batch["index"], steps)
        yield batch | {"tokens": (tokens,), "length": length}
