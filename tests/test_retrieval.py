"""Tests of ranks and recalls against sorted lists, and of exact properties."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from lnrepro.engine import retrieval


def by_hand(errors):
    """Compute ranks from 0 by sorting lists. Ties count against the model."""
    count, images = errors.shape
    per = count // images
    first, second = [], []
    for c in range(count):
        order = sorted(range(images), key=lambda n: (errors[c, n], n == c // per))
        first.append(order.index(c // per))
    for n in range(images):
        order = sorted(range(count), key=lambda c: (errors[c, n], c // per == n))
        second.append(next(i for i, c in enumerate(order) if c // per == n))
    return first, second


@pytest.mark.parametrize("levels", [2, 7, 10_000])
@pytest.mark.parametrize("per", [1, 5])
def test_ranks_are_those_of_sorting_with_ties_last(levels, per):
    errors = (
        np.random.default_rng(levels + per)
        .integers(0, levels, (per * 13, 13))
        .astype(np.float32)
    )
    found = retrieval.ranks(errors)
    for a, b in zip(found, by_hand(errors), strict=True):
        np.testing.assert_array_equal(a, b)


def test_identity_is_perfect_and_a_constant_is_worst():
    errors = 1 - np.repeat(np.eye(20), 5, axis=0)
    scores = retrieval.scores(errors)
    for name in ("image", "caption"):
        assert [scores[f"{name}_r{k}"] for k in (1, 5, 10)] == [100, 100, 100]
        assert scores[f"{name}_mean_rank"] == scores[f"{name}_median_rank"] == 1
    blind = retrieval.scores(np.ones((100, 20)))
    assert blind["image_mean_rank"] == 20
    assert blind["caption_mean_rank"] == 100 - 5 + 1
    assert blind["image_r10"] == blind["caption_r10"] == 0


def test_nan_never_wins():
    errors = 1 - np.eye(6)
    errors[2, 2] = np.nan
    image, caption = retrieval.ranks(errors)
    assert image.tolist() == caption.tolist() == [0, 0, 5, 0, 0, 0]


def test_median_rank_is_rounded_down():
    errors = np.ones((2, 2)) - np.eye(2)
    # The ranks are 1 and 0, so their median is 0.5.
    errors[0] = [1, 0]
    assert retrieval.scores(errors)["image_median_rank"] == 1


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

    found = retrieval.mean_over_folds(distance, captions, images, 4)
    each = [
        retrieval.scores(
            retrieval.error_matrix(
                distance, captions[5 * i : 5 * i + 20], images[i : i + 4]
            )
        )
        for i in (0, 4, 8)
    ]
    for name, value in found.items():
        assert value == pytest.approx(np.mean([e[name] for e in each]))
    with pytest.raises(ValueError, match="12 images cannot be cut into folds of 5"):
        retrieval.mean_over_folds(distance, captions, images, 5)


def test_captions_that_do_not_divide_over_images():
    with pytest.raises(ValueError, match="7 captions and 3 images"):
        retrieval.ranks(np.zeros((7, 3)))


LARGE = """
import pathlib, re
import numpy as np
from experiments.order_embeddings.ranking import order_violations
from lnrepro.engine import retrieval
rng = np.random.default_rng(0)
captions = rng.random((25_000, 1024), np.float32)
images = rng.random((5_000, 1024), np.float32)
retrieval.scores(retrieval.error_matrix(order_violations, captions, images))
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
