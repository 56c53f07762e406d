"""Retrieval of captions and images, and Table 2.

Recalls are percent. Ranks count from 1. Ties count against the model. See
`retrieval`.

Shape letters: N images, K dimensions of the joint space.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments.paper_results import (
    COMPARABLE_DATA,
    TABLE_2,
    TABLE_2_COLUMNS,
    TABLE_2_DATA,
)
from lnrepro.data.ragged import forget_pages

from . import retrieval
from .data import Buckets, Split, caption_batches, image_batches


class Embeddings(NamedTuple):
    """The first images of a split and their captions in the joint space.

    Attributes:
      images: [N, K].
      captions: [C, K].
      image: row of the image of each caption [C].
    """

    images: np.ndarray
    captions: np.ndarray
    image: np.ndarray


def embed(
    embed_captions: Callable,
    embed_images: Callable,
    vars: Mapping,
    split: Split,
    count: int,
    *,
    batch_size: int,
    buckets: Buckets,
) -> Embeddings:
    """Embed the first images of a split and their captions.

    Args:
      embed_captions: `rows_of_examples` of `Encoders.captions`.
      embed_images: `rows_of_examples` of `Encoders.images`.
      vars: {"params"}.
      split: the split.
      count: number of images.
      batch_size: images or captions in a batch.
      buckets: the numbers of steps.
    """
    batches = image_batches(split, count, batch_size)
    images = embed_images(vars, batches, count)
    # The features of the images are not read again.
    forget_pages(split.columns["image"])
    batches = caption_batches(split, count, batch_size, buckets)
    captions = int(split.captions.starts[count])
    embedded = embed_captions(vars, batches, captions)
    return Embeddings(images, embedded, split.captions.image[:captions])


def retrieval_scores(
    errors: Callable, embeddings: Embeddings, fold: int
) -> dict[str, float]:
    """Compute recalls and ranks, means over folds of `fold` images.

    "image_recall_sum" is the sum of the recalls of images.

    Args:
      errors: the error function of `ranking.ERRORS`.
      embeddings: the images and captions.
      fold: images in a fold.
    """
    scores = retrieval.mean_over_folds(
        errors,
        embeddings.captions,
        embeddings.images,
        fold,
        image_of=embeddings.image,
    )
    # The authors keep the model whose sum of image recalls is largest.
    recalls = [scores[f"image_r{k}"] for k in retrieval.RECALLS]
    return scores | {"image_recall_sum": sum(recalls)}


def table_2(config: ConfigDict, scores: Mapping[str, float]) -> str:
    """Write Table 2 in Markdown: the paper's rows, and that of a run.

    Args:
      config: the config of the run.
      scores: its scores.
    """
    name = config.data.name
    data = COMPARABLE_DATA.get(name, f"{name}: not to be compared")
    data += "; {folds} x {fold} images".format(**config.evaluation)
    head, rows = table_2_rows([(config, "this run", data, scores)])
    lines = [head, ["---"] * len(head), *rows]
    note = (
        "The paper: mean over 5 folds of 1,000 images. "
        f"{scores['caption_ties']:.2f} % of the queries for a caption and "
        f"{scores['image_ties']:.2f} % of those for an image have ties, which count "
        "against the model."
    )
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", note, ""])


def table_2_rows(
    runs: Iterable[tuple[ConfigDict, str, str, Mapping[str, float]]],
) -> tuple[list[str], list[list[str]]]:
    """Return the head of Table 2, and its rows: the paper's, and one for each run.

    Args:
      runs: (config, name, data, scores).
    """
    head = ["model", "data"]
    for way in ("caption", "image"):
        head += [f"{way} {name}" for name in ("R@1", "R@5", "R@10", "mean r")]
    rows = []
    for name, scores in TABLE_2.items():
        rows.append([name, TABLE_2_DATA, *map(_one_decimal, scores)])
    for config, name, data, scores in runs:
        # The names of Table 2.
        model = {"order": "OE", "cosine": "Sym"}[config.model.similarity]
        norm = " + LN" if config.norm == "layer" else ""
        own = [_one_decimal(scores[column]) for column in TABLE_2_COLUMNS]
        rows.append([f"{model}{norm} ({name})", data, *own])
    return head, rows


def _one_decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
