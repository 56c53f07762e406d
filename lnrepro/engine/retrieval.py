"""Retrieval of images by captions and of captions by images: error matrices in pieces, ranks, recalls.

Caption c belongs to image c // P of the N images, P captions to each. Ranks count from 0 and ties count against us: of
things with equal errors the right one is taken to come last (an error that is NaN never beats another).
Letters: C = P N captions, K dimensions.
"""

from collections.abc import Callable

import jax
import numpy as np

RECALLS = (1, 5, 10)


def error_matrix(
    errors: Callable[[jax.Array, jax.Array], jax.Array],
    captions: np.ndarray,
    images: np.ndarray,
    rows: int = 250,
) -> np.ndarray:
    """errors((C, K), (N, K)) -> (C, N) float32, of `rows` captions at a time; small is good.

    Beside its arguments it holds the result and `rows` x N numbers: 0.7 GB for 25,000 captions, 5,000 images, K = 1,024.
    `errors` is compiled for these sizes; jit it where this is called often.
    """
    run, images = jax.jit(errors), jax.numpy.asarray(images)
    out = np.empty((len(captions), len(images)), np.float32)
    rows = min(rows, len(captions))
    for start in range(0, len(captions), rows):
        start = min(
            start, len(captions) - rows
        )  # the last piece overlaps: one shape, one program
        out[start : start + rows] = run(captions[start : start + rows], images)
    return out


def ranks(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors (C, N) -> rank of each caption's image (C,), and of each image's best caption (N,), both from 0.

    The rank of a caption's image: how many other images have no larger error. The rank of an image's best caption: how
    many captions of other images have no larger error than it. Raises ValueError unless C is a multiple of N.
    """
    count, images = errors.shape
    if not images or not count or count % images:
        raise ValueError(
            f"errors of {count} captions and {images} images: each image needs the same number of captions"
        )
    per = count // images
    of = np.arange(count) // per
    own = errors[np.arange(count), of]
    image_ranks = np.concatenate(
        [
            _no_larger(errors[i : i + 1000], own[i : i + 1000, None]).sum(1) - 1
            for i in range(0, count, 1000)
        ]
    )
    grouped = own.reshape(images, per)
    best = grouped.min(axis=1)
    caption_ranks = np.zeros(images, np.int64)
    for i in range(0, count, 1000):
        caption_ranks += _no_larger(errors[i : i + 1000], best).sum(0)
    return image_ranks, caption_ranks - _no_larger(grouped, best[:, None]).sum(1)


def scores(errors: np.ndarray) -> dict[str, float]:
    """Errors (C, N) -> image_r1, image_r5, image_r10 (percent), image_mean_rank, image_median_rank (from 1), and caption_....

    "image" is the retrieval of images by captions, "caption" that of captions by images. The median is rounded down.
    """
    made = {}
    for name, found in zip(("image", "caption"), ranks(errors), strict=True):
        made |= {f"{name}_r{k}": 100 * float(np.mean(found < k)) for k in RECALLS}
        made[f"{name}_mean_rank"] = float(found.mean()) + 1
        made[f"{name}_median_rank"] = float(np.floor(np.median(found))) + 1
    return made


def mean_over_folds(
    errors: Callable[[jax.Array, jax.Array], jax.Array],
    captions: np.ndarray,
    images: np.ndarray,
    fold: int,
) -> dict[str, float]:
    """`scores` of captions (P N, K) and images (N, K), averaged over folds of `fold` images each, in order.

    Raises ValueError if N is not a multiple of `fold`.
    """
    if fold < 1 or not len(images) or len(images) % fold:
        raise ValueError(f"{len(images)} images cannot be cut into folds of {fold}")
    per = len(captions) // len(images)
    run = jax.jit(errors)
    found = [
        scores(
            error_matrix(
                run, captions[per * i : per * (i + fold)], images[i : i + fold]
            )
        )
        for i in range(0, len(images), fold)
    ]
    return {name: float(np.mean([f[name] for f in found])) for name in found[0]}


def _no_larger(errors: np.ndarray, than: np.ndarray) -> np.ndarray:
    return ~(errors > than)
