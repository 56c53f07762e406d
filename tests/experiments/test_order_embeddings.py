"""Order-embeddings against their equations in NumPy float64."""

import contextlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from configs import order_embeddings as config_file
from experiments.order_embeddings import (
    data,
    evaluate,
    make,
    model,
    ranking,
    retrieval,
)
from lnrepro.data import prepare
from lnrepro.engine import evaluation, experiment
from tests import oracle


def small(norm="layer", **sizes):
    config = config_file.get_config("smoke")
    config.norm = norm
    config.data.vocabulary = 9
    config.model.update({"features": 5, "words": 3, "units": 4} | sizes)
    return config


def oracle_caption(norm, params, words):
    """Return the state u after the words and the end token (eq. 23-28)."""
    gates, candidate = params["gru"]["gates"], params["gru"]["candidate"]
    gru = {
        name: np.concatenate([gates[name], candidate[name]], axis=-1) for name in gates
    }
    h = np.zeros(len(candidate["bias"]))
    for word in [*words, 0]:
        _, h = oracle.gru_step(gru, norm, None, h, params["words"][word])
    return h


def oracle_errors(config, params, images, captions):
    """Return the error of each caption (row) with each image (column)."""
    positive = config.model.similarity == "order"

    def unit(v):
        v = v / np.sqrt((v * v).sum())
        return np.abs(v) if positive else v

    s = [unit(oracle_caption(config.norm, params, words)) for words in captions]
    im = [unit(f @ params["image"]["w"] + params["image"]["bias"]) for f in images]

    def error(caption, image):
        if not positive:
            return 1 - float(caption @ image)
        return sum(max(0, a - b) ** 2 for a, b in zip(caption, image, strict=True))

    return np.array([[error(caption, image) for image in im] for caption in s])


def oracle_loss(config, error):
    total = 0.0
    for i in range(len(error)):
        for j in range(len(error)):
            if i != j:
                total += max(0, config.margin - error[i, j] + error[i, i])
                total += max(0, config.margin - error[i, j] + error[j, j])
    return total


def setting(config, seed=0, batch=5):
    """(random parameters, features, captions of 1 to 6 words) in float64."""
    rng = np.random.RandomState(seed)
    params = jax.jit(make(config).init)(jax.random.key(0))["params"]
    params = jax.tree.map(
        lambda a: np.asarray(a + 0.3 * rng.randn(*a.shape), np.float64), params
    )
    captions = [rng.randint(1, 9, n).tolist() for n in rng.randint(1, 7, batch)]
    return params, np.abs(rng.randn(batch, 5)), captions


def padded(captions, steps=8):
    tokens = np.zeros((len(captions), steps), np.int32)
    for row, words in zip(tokens, captions, strict=True):
        row[: len(words)] = words
    return tokens, np.array([len(words) + 1 for words in captions], np.int32)


@pytest.mark.parametrize(
    ("norm", "similarity"),
    [
        ("layer", "order"),
        pytest.param("none", "order", marks=pytest.mark.slow),
        pytest.param("layer", "cosine", marks=pytest.mark.slow),
    ],
)
def test_loss_and_gradients_are_the_formula_in_float64(x64, norm, similarity):
    config = small(norm, similarity=similarity)
    config.margin = 0.2
    params, images, captions = setting(config)
    tokens, length = padded(captions)
    batch = {"image": images, "tokens": (tokens,), "length": length}

    @jax.jit
    def loss(params):
        return make(config).loss({"params": params}, batch, None)

    value, (_, metrics) = loss(params)
    error = oracle_errors(config, params, images, captions)
    wanted = oracle_loss(config, error)
    np.testing.assert_allclose(value, wanted, rtol=1e-10)
    own = np.eye(len(error), dtype=bool)
    np.testing.assert_allclose(metrics["own_error"], error[own].mean(), rtol=1e-10)
    np.testing.assert_allclose(metrics["other_error"], error[~own].mean(), rtol=1e-10)
    assert value > 0
    only_loss = jax.jit(lambda params: loss(params)[0])
    check_grads(only_loss, (params,), order=1, modes=["rev"], eps=1e-6)


def test_order_violations_are_the_naive_ones_with_gradients(x64):
    rng = np.random.RandomState(0)
    captions, images, weights = rng.rand(7, 6), rng.rand(4, 6), rng.randn(7, 4)

    def naive(s, im):
        return jnp.sum(jnp.maximum(s[:, None] - im[None], 0) ** 2, -1)

    @jax.jit
    def of_all(captions, images):
        found, back = jax.vjp(ranking.order_violations, captions, images)
        wanted, naive_back = jax.vjp(naive, captions, images)
        # Those of the CPU and of the other platforms.
        others = ranking._gradients(captions, images, weights)
        return (found, back(weights), others), wanted, naive_back(weights)

    (found, *both), wanted, gradients = of_all(captions, images)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    for ours in both:
        for a, b in zip(ours, gradients, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_loss_and_its_gradient_hold_less_than_one_array_of_all_differences():
    """128 pairs in 256 dimensions: B x B x K would be 16.8 MB."""
    x = jnp.zeros((128, 256), jnp.float32)
    step = jax.value_and_grad(
        lambda s, im: ranking.ranking_loss(ranking.order_violations(s, im), 0.05),
        (0, 1),
    )
    needs = jax.jit(step).lower(x, x).compile().memory_analysis().temp_size_in_bytes
    assert needs < 128 * 128 * 256 * 4 / 8


@pytest.mark.slow
def test_a_batch_in_parts_has_the_same_loss_and_gradients():
    config = small()
    params, images, captions = setting(config, batch=9)
    params = jax.tree.map(jnp.float32, params)
    tokens, length = padded(captions, 12)
    whole = {"image": images, "tokens": (tokens,), "length": length}
    loss = jax.jit(
        jax.value_and_grad(lambda p, b: make(config).loss({"params": p}, b, None)[0])
    )
    one, other = loss(params, whole), loss(params, data.pack(whole, (2, 4, 5, 20)))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), one, other
    )


@pytest.fixture(scope="module")
def smoke():
    config = config_file.get_config("smoke")
    exp = make(config)
    return config, exp, jax.jit(exp.init)(jax.random.key(0))


def test_captions_of_an_image_are_drawn_alike():
    starts, draws = np.array([0, 2, 7]), np.random.default_rng(0).random(1000)
    drawn = data.choose_captions(starts, np.repeat([0, 1], 500), draws)
    counts = np.bincount(drawn, minlength=7)
    assert counts[:2].sum() == counts[2:].sum() == 500
    assert counts[:2].min() > 200
    assert counts[2:].min() > 70


def test_all_processes_embed_the_first_images_and_their_captions(smoke, monkeypatch):
    config, _, _ = smoke
    split = data.open_split(config, "valid")
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    found = evaluate.embed(
        evaluation.rows_of_examples(lambda vars, batch: batch["tokens"][0][:, :2]),
        evaluation.rows_of_examples(lambda vars, batch: batch["image"]),
        {},
        split,
        3,
        batch_size=4,
        buckets=config.buckets,
    )
    np.testing.assert_array_equal(found.images, split.columns["image"][:3])
    captions = np.arange(split.captions.starts[3])
    words, _ = split.captions.take(captions, 2)
    np.testing.assert_array_equal(found.captions, words)
    np.testing.assert_array_equal(found.image, split.captions.image[captions])


@pytest.mark.slow
def test_evaluation_scores_and_shows(smoke):
    _, exp, vars = smoke
    scores = exp.evals["valid"].run(vars).scalars
    assert scores["image_recall_sum"] == pytest.approx(
        sum(scores[f"image_r{k}"] for k in (1, 5, 10))
    )
    assert 1 <= scores["image_mean_rank"] <= 50
    final = exp.evals["final"].run(vars)
    picture = final.images["retrievals"]
    assert picture.dtype == np.uint8
    assert picture.shape[-1] == 3
    assert set(final.scalars) == set(scores)


@pytest.mark.slow
def test_own_captions_of_any_number_and_features_of_any_size(tmp_path):
    """Different numbers of captions train, are scored and drawn."""
    folder, rng = tmp_path / "raw", np.random.RandomState(0)
    (folder / "images/10crop").mkdir(parents=True)
    for stem, images in {"train": 40, "val": 10, "test": 11}.items():
        counts = rng.randint(1, 5, images)
        lines = [f"image {i} of {k}" for i, k in enumerate(counts) for _ in range(k)]
        numbers = np.repeat(np.arange(images), counts)
        (folder / f"{stem}.txt").write_text("\n".join(lines))
        (folder / f"{stem}_ids.txt").write_text("\n".join(map(str, numbers)))
        features = rng.rand(images, 12).astype(np.float32)
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        np.save(folder / f"images/10crop/{stem}.npy", features)
    prepare("coco_captions", folder, tmp_path, own_name="own")
    config = config_file.get_config("smoke")
    config.data.update({"name": "own", "dir": str(tmp_path)})
    config.batch_size = 8
    for name, field in experiment.fields("experiments.order_embeddings").items():
        if field.from_data:
            config.update_from_flattened_dict({name: None})
    config = experiment.with_sizes(config)
    assert config.model.features == 12
    assert config.evaluation.fold == 10
    exp = make(config)
    vars = exp.init(jax.random.key(0))
    with contextlib.closing(exp.batches(0)) as batches:
        assert np.isfinite(exp.loss(vars, next(batches), None)[0])
    scores = exp.evals["valid"].run(vars).scalars
    assert exp.evals["final"].run(vars).images["retrievals"].ndim == 3
    split, encoders = data.open_split(config, "valid"), model.Encoders(config)
    tokens, length = split.captions.take(np.arange(split.captions.starts[10]), 30)
    captions = encoders.captions(vars, {"tokens": (tokens,), "length": length})
    images = encoders.images(vars, {"image": split.columns["image"]})
    errors = np.asarray(ranking.order_violations(captions, images))
    wanted = retrieval.scores(errors, split.captions.image)
    assert scores["image_r1"] == wanted["image_r1"]
    assert scores["caption_mean_rank"] == wanted["caption_mean_rank"]


def test_initial_values_of_the_authors_code():
    config = small(features=30, units=20, words=10)
    p = jax.tree.map(np.asarray, jax.jit(make(config).init)(jax.random.key(0)))[
        "params"
    ]
    for part, blocks in (("gates", 2), ("candidate", 1)):
        g = p["gru"][part]
        assert 0.09 < np.abs(g["w_x"]).max() <= 0.1
        for block in np.split(g["w_h"], blocks, axis=1):
            np.testing.assert_allclose(block.T @ block, np.eye(20), atol=1e-5)
        assert (g["gain_x"] == 1).all()
        assert not g["bias_h"].any()
        assert not g["bias"].any()
    edge = (6 / 50) ** 0.5
    assert 0.9 * edge < np.abs(p["image"]["w"]).max() <= edge
    assert 0.09 < np.abs(p["words"]).max() <= 0.1


RESIDENT = """
import pathlib, re, sys
import numpy as np
from lnrepro.data.ragged import forget_pages
def resident():
    # Resident memory of mapped files in kB.
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"RssFile:\\s+(\\d+) kB", status)[1])
column = np.asarray(np.load(sys.argv[1], mmap_mode="r"))
rng, before, most = np.random.default_rng(0), resident(), 0
for _ in range(40):
    column[rng.integers(0, len(column), 128)].sum()
    if sys.argv[2] == "forget":
        forget_pages(column)
    # While a batch is read, the system may map many pages around each row.
    most = max(most, resident() - before)
print(most * 1024 / column.nbytes)
"""


@pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="resident memory is read from /proc"
)
def test_resident_memory_does_not_grow_with_the_feature_matrix(tmp_path):
    """Reading all of 64 MB of features leaves none of its pages in memory."""
    np.save(tmp_path / "x.npy", np.zeros((4096, 4096), np.float32))

    def share(how):
        command = [sys.executable, "-c", RESIDENT, str(tmp_path / "x.npy"), how]
        return float(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )

    assert share("keep") > 0.6
    assert share("forget") < 0.1
