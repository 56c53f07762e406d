"""Tests of ranks and recalls against sorted lists, and of exact properties."""

import subprocess
import sys

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
    return first, second


CAPTIONS = {
    "1": np.arange(13),
    "5": np.repeat(np.arange(13), 5),
    "1 to 4": np.repeat(np.arange(13), [1, 4, 2, 3, 1, 1, 4, 2, 2, 3, 1, 4, 2]),
}


@pytest.mark.parametrize("levels", [2, 7, 10_000])
@pytest.mark.parametrize("captions", CAPTIONS)
def test_ranks_are_those_of_sorting(levels, captions):
    image_of = CAPTIONS[captions]
    errors = np.random.default_rng(levels).integers(0, levels, (len(image_of), 13))
    errors = errors.astype(np.float32)
    best, worst = (by_hand(errors, image_of, last) for last in (False, True))
    for i, found in enumerate(retrieval.ranks(errors, image_of)):
        np.testing.assert_array_equal(found.ranks, worst[i])
        np.testing.assert_array_equal(found.best, best[i])


PAIRS = np.array([0, 0, 1, 1])


def test_ties_are_counted_and_said():
    # Captions 1 and 2 of images 0 and 1 are the same text.
    errors = np.array([[0, 9], [5, 4], [5, 4], [9, 0]], np.float32)
    found = retrieval.scores(errors, PAIRS)
    assert (found["image_ties"], found["caption_ties"]) == (0, 0)
    errors = np.array([[9, 9], [5, 4], [5, 4], [9, 9]], np.float32)
    found = retrieval.scores(errors, PAIRS)
    assert (found["image_ties"], found["caption_ties"]) == (50, 100)
    assert (found["caption_r1"], found["caption_r1_ties_first"]) == (0, 100)


def test_identity_is_perfect_and_a_constant_is_worst():
    image_of = np.repeat(np.arange(20), 5)
    scores = retrieval.scores(1 - np.eye(20)[image_of], image_of)
    for name in ("image", "caption"):
        assert [scores[f"{name}_r{k}"] for k in (1, 5, 10)] == [100, 100, 100]
        assert scores[f"{name}_mean_rank"] == scores[f"{name}_median_rank"] == 1
    blind = retrieval.scores(np.ones((100, 20)), image_of)
    assert blind["image_mean_rank"] == 20
    assert blind["caption_mean_rank"] == 100 - 5 + 1
    assert blind["image_r10"] == blind["caption_r10"] == 0


def test_nan_never_wins():
    errors = 1 - np.eye(6)
    errors[2, 2] = np.nan
    for found in retrieval.ranks(errors, np.arange(6)):
        assert found.ranks.tolist() == [0, 0, 5, 0, 0, 0]


def test_matrix_in_pieces_is_the_matrix():
    rng = np.random.default_rng(0)
    captions, images = rng.random((35, 4), np.float32), rng.random((7, 4), np.float32)

    def errors(s, im):
        return jnp.sum(jnp.maximum(s[:, None] - im[None], 0) ** 2, -1)

    wanted = (np.maximum(captions[:, None] - images[None], 0) ** 2).sum(-1)
    for rows in (1, 8, 35, 100):
        np.testing.assert_allclose(
            retrieval.error_matrix(errors, captions, images, rows), wanted, rtol=1e-5
        )


def test_folds_are_averaged_in_order():
    rng = np.random.default_rng(1)
    captions, images = rng.random((60, 3), np.float32), rng.random((12, 3), np.float32)

    def distance(s, im):
        return jnp.sum((s[:, None] - im[None]) ** 2, -1)

    embeddings = retrieval.Embeddings(images, captions, np.repeat(np.arange(12), 5))
    found = retrieval.mean_over_folds(distance, embeddings, 4)
    # The recall sum is that of images.
    recall_sum = found.pop("image_recall_sum")
    assert recall_sum == sum(found[f"image_r{k}"] for k in (1, 5, 10))
    each = [
        retrieval.scores(
            retrieval.error_matrix(
                distance, captions[5 * i : 5 * i + 20], images[i : i + 4]
            ),
            np.repeat(np.arange(4), 5),
        )
        for i in (0, 4, 8)
    ]
    for name, value in found.items():
        assert value == pytest.approx(np.mean([e[name] for e in each]))


LARGE = """
import pathlib, re
import numpy as np
from experiments.order_embeddings.ranking import order_violations
from experiments.order_embeddings import retrieval
rng = np.random.default_rng(0)
captions = rng.random((25_000, 1024), np.float32)
images = rng.random((5_000, 1024), np.float32)
errors = retrieval.error_matrix(order_violations, captions, images)
retrieval.scores(errors, np.repeat(np.arange(5_000), 5))
status = pathlib.Path("/proc/self/status").read_text()
print(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1])
"""


@pytest.mark.slow
def test_all_5000_images_and_25000_captions_take_at_most_2_gib():
    # A process inherits ru_maxrss from the one that started it, and a pytest worker may
    # have grown large. Therefore the script reads VmHWM.
    done = subprocess.run(
        [sys.executable, "-c", LARGE], capture_output=True, text=True, check=True
    )
    kib = int(done.stdout)
    assert kib < 2 * 2**20
