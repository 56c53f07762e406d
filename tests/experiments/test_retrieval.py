"""Tests of recalls and ranks against sorted lists, and of exact properties."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.order_embeddings import retrieval


def by_hand(errors, image_of, right_is_last):
    """Compute ranks from 0 by sorting lists."""
    captions, images = (range(n) for n in errors.shape)
    first, second = [], []

    def place(c, n):
        return errors[c, n], (n == image_of[c]) == right_is_last

    for c in captions:
        found = sorted(images, key=lambda n, c=c: place(c, n))
        first.append(found.index(image_of[c]))
    for n in images:
        found = sorted(captions, key=lambda c, n=n: place(c, n))
        second.append([image_of[c] for c in found].index(n))
    return np.array(first), np.array(second)


CAPTIONS = {
    "1": np.arange(12),
    "5": np.repeat(np.arange(12), 5),
    "1 to 4": np.repeat(np.arange(12), [1, 4, 2, 3, 1, 1, 4, 2, 2, 3, 1, 4]),
}


@pytest.mark.parametrize("levels", [2, 7, 10_000])
@pytest.mark.parametrize("captions", CAPTIONS)
def test_scores_are_those_of_sorting(levels, captions):
    image_of = CAPTIONS[captions]
    errors = np.random.default_rng(levels).integers(0, levels, (len(image_of), 12))
    errors = errors.astype(np.float32)
    best, worst = (by_hand(errors, image_of, last) for last in (False, True))
    scores = retrieval.scores(errors, image_of)
    for i, name in enumerate(("image", "caption")):
        for k in (1, 5, 10):
            assert scores[f"{name}_r{k}"] == 100 * np.mean(worst[i] < k)
        assert scores[f"{name}_r1_ties_first"] == 100 * np.mean(best[i] == 0)
        assert scores[f"{name}_ties"] == 100 * np.mean(best[i] != worst[i])
        assert scores[f"{name}_mean_rank"] == np.mean(worst[i]) + 1
        assert scores[f"{name}_median_rank"] == np.median(worst[i]) // 1 + 1


def test_nan_never_wins():
    errors = 1 - np.eye(6)
    errors[2, 2] = np.nan
    # The ranks are 0, 0, 5, 0, 0 and 0.
    found = retrieval.scores(errors, np.arange(6))
    for way in ("image", "caption"):
        assert found[f"{way}_r5"] == 100 * np.mean([1, 1, 0, 1, 1, 1])
        assert found[f"{way}_mean_rank"] == np.mean([0, 0, 5, 0, 0, 0]) + 1


RNG = np.random.default_rng(0)
POINTS = RNG.random((60, 4), np.float32), RNG.random((12, 4), np.float32)


def distance(captions, images):
    return jnp.sum((captions[:, None] - images[None]) ** 2, -1)


def test_matrix_in_pieces_is_the_matrix():
    captions, images = POINTS
    wanted = ((captions[:, None] - images[None]) ** 2).sum(-1)
    for rows in (1, 8, 60, 100):
        found = retrieval.error_matrix(distance, captions, images, rows)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_folds_are_averaged_in_order():
    captions, images = POINTS
    found = retrieval.mean_over_folds(distance, *POINTS, CAPTIONS["5"], 4)
    # The recall sum is that of images.
    recall_sum = found.pop("image_recall_sum")
    assert recall_sum == sum(found[f"image_r{k}"] for k in (1, 5, 10))
    each = []
    for i in (0, 4, 8):
        errors = distance(captions[5 * i : 5 * i + 20], images[i : i + 4])
        each.append(retrieval.scores(np.asarray(errors), CAPTIONS["5"][:20]))
    for name, value in found.items():
        assert value == pytest.approx(np.mean([scores[name] for scores in each]))
