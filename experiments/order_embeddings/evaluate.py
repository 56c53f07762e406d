"""Retrieval of captions and images.

Recalls are percent. Ranks count from 1. Ties count against the model. See
`retrieval`.

Shape letters: N images, K dimensions of the joint space.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

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
