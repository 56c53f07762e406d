"""Retrieval of images by captions and of captions by images.

Caption c belongs to image c // P: each of the N images has P captions. Ranks count from
0. Ties count against the model: among equal errors the right one comes last. An error
that is NaN is never the smaller one.

Shape letters: N images, P captions of an image, C = P N captions, K dimensions.
"""

from collections.abc import Callable

import jax
import numpy as np

RECALLS = (1, 5, 10)
# Rows of the error matrix that are compared at once.
CHUNK = 1000

Errors = Callable[[jax.Array, jax.Array], jax.Array]


def error_matrix(
    errors: Errors, captions: np.ndarray, images: np.ndarray, rows: int = 250
) -> np.ndarray:
    """Compute the errors of all pairs.

    Beside its arguments it needs memory for the result and for `rows` x N numbers: 0.7
    GB for 25,000 captions, 5,000 images and K = 1,024.

    Args:
      errors: ([C, K], [N, K]) -> [C, N]; small is good. It is compiled here; pass a
        compiled function where this is called often.
      captions: [C, K].
      images: [N, K].
      rows: number of captions at a time.

    Returns:
      [C, N] float32.
    """
    run, images = jax.jit(errors), jax.numpy.asarray(images)
    matrix = np.empty((len(captions), len(images)), np.float32)
    rows = min(rows, len(captions))
    for start in range(0, len(captions), rows):
        # The last piece overlaps the one before, so that one compiled program is
        # enough.
        start = min(start, len(captions) - rows)
        matrix[start : start + rows] = run(captions[start : start + rows], images)
    return matrix


def ranks(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the rank of the right answer to every query.

    Args:
      errors: [C, N].

    Returns:
      ([C], [N]). For each caption, the number of other images whose error is not larger
      than its own image's. For each image, the number of captions of other images whose
      error is not larger than that of its best caption.

    Raises:
      ValueError: C is not a multiple of N.
    """
    count, images = errors.shape
    if not images or not count or count % images:
        raise ValueError(
            f"errors of {count} captions and {images} images: each image needs the "
            "same number of captions"
        )
    captions_per_image = count // images
    # The error of each caption with its own image, [C].
    own_image = np.arange(count) // captions_per_image
    own = errors[np.arange(count), own_image]
    by_image = own.reshape(images, captions_per_image)
    # Caption retrieval counts the best of an image's own captions.
    best = by_image.min(axis=1)

    image_ranks = []
    caption_ranks = np.zeros(images, np.int64)
    # Chunks bound the memory of a comparison, which makes [CHUNK, N] booleans.
    for start in range(0, count, CHUNK):
        chunk = errors[start : start + CHUNK]
        own_errors = own[start : start + CHUNK, None]
        # The caption's own image is among those counted.
        image_ranks.append(_not_larger(chunk, own_errors).sum(axis=1) - 1)
        caption_ranks += _not_larger(chunk, best).sum(axis=0)
    # The image's own captions are among those counted.
    caption_ranks -= _not_larger(by_image, best[:, None]).sum(axis=1)
    return np.concatenate(image_ranks), caption_ranks


def scores(errors: np.ndarray) -> dict[str, float]:
    """Compute recalls and mean and median ranks.

    Args:
      errors: [C, N].

    Returns:
      image_r1, image_r5, image_r10 in percent, image_mean_rank and image_median_rank
      counted from 1, of the retrieval of images by captions; and caption_..., of
      captions by images. The median is rounded down.
    """
    found = {}
    # Ranks count from 0 here, so a recall at k counts ranks below k, and 1 is added to
    # the mean and to the median, as in the code of order-embeddings.
    for name, found_ranks in zip(("image", "caption"), ranks(errors), strict=True):
        for k in RECALLS:
            found[f"{name}_r{k}"] = 100 * float(np.mean(found_ranks < k))
        found[f"{name}_mean_rank"] = float(found_ranks.mean()) + 1
        found[f"{name}_median_rank"] = float(np.floor(np.median(found_ranks))) + 1
    return found


def mean_over_folds(
    errors: Errors, captions: np.ndarray, images: np.ndarray, fold: int
) -> dict[str, float]:
    """Average `scores` over folds.

    Args:
      errors: as in `error_matrix`.
      captions: [C, K].
      images: [N, K].
      fold: number of images in a fold. The folds are taken in order.

    Raises:
      ValueError: N is not a multiple of `fold`.
    """
    if fold < 1 or not len(images) or len(images) % fold:
        raise ValueError(f"{len(images)} images cannot be cut into folds of {fold}")
    captions_per_image = len(captions) // len(images)
    run = jax.jit(errors)
    of_folds = []
    for start in range(0, len(images), fold):
        # Captions are in the order of their images, so a fold of images has a slice of
        # captions.
        first = captions_per_image * start
        some_captions = captions[first : first + captions_per_image * fold]
        matrix = error_matrix(run, some_captions, images[start : start + fold])
        of_folds.append(scores(matrix))
    return {
        name: float(np.mean([found[name] for found in of_folds]))
        for name in of_folds[0]
    }


def _not_larger(errors, than):
    # Not the same as errors <= than, which is False for NaN.
    return ~(errors > than)
