"""Order-embeddings against their equations in NumPy float64."""

import contextlib
import os
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from experiments.order_embeddings import (
    data,
    evaluate,
    make,
    model,
    ranking,
)
from lnrepro.data import prepare
from lnrepro.engine import experiment
from lnrepro.fields import Size
from tests import oracle
from tests.data.reading import write
from tests.data.test_captions import as_text, npy
from tests.experiments.small import config_of, random_params

SIZES = {
    "data.vocabulary": 9,
    "model.features": 5,
    "model.words": 3,
    "model.units": 4,
    "margin": 0.2,
}


def oracle_errors(config, params, batch):
    """Return the error of each caption (row) with each image (column)."""
    positive = config.model.similarity == "order"
    parts = params["gru"]["gates"], params["gru"]["candidate"]
    gru = {
        name: np.concatenate([part[name] for part in parts], -1) for name in parts[0]
    }

    def unit(v):
        v = v / np.sqrt((v * v).sum())
        return np.abs(v) if positive else v

    def caption(words):
        """The state after the words and the end token (eq. 23-28)."""
        h = np.zeros(config.model.units)
        for word in words:
            _, h = oracle.gru_step(gru, config.norm, None, h, params["words"][word])
        return unit(h)

    def error(caption, image):
        if not positive:
            return 1 - float(caption @ image)
        return sum(max(0, a - b) ** 2 for a, b in zip(caption, image, strict=True))

    image = params["image"]
    images = [unit(f @ image["w"] + image["bias"]) for f in batch["image"]]
    tokens = zip(batch["tokens"][0], batch["length"], strict=True)
    captions = [caption(words[:n]) for words, n in tokens]
    return np.array([[error(s, im) for im in images] for s in captions])


def setting(norm="layer", similarity="order", rows=5, steps=8):
    """(config, random parameters, a batch of captions of 1 to 6 words) in float64."""
    changes = {"norm": norm, "model.similarity": similarity}
    config = config_of("order_embeddings", **SIZES, **changes)
    rng = np.random.RandomState(0)
    length = rng.randint(2, 8, rows)
    tokens = rng.randint(1, 9, (rows, steps))
    # The last step of a caption is the end token. Behind it is any word.
    tokens[np.arange(rows), length - 1] = 0
    batch = {"image": rng.rand(rows, 5), "tokens": (tokens,), "length": length}
    return config, random_params(model.Encoders(config).init), batch


@pytest.mark.parametrize(
    ("norm", "similarity"),
    [
        ("layer", "order"),
        pytest.param("none", "order", marks=pytest.mark.slow),
        pytest.param("layer", "cosine", marks=pytest.mark.slow),
    ],
)
def test_loss_and_gradients_are_the_formula_in_float64(x64, norm, similarity):
    """Of a batch in parts: the order of its pairs changes no sum."""
    config, params, whole = setting(norm, similarity)
    batch = data.pack(whole, (4, 20))

    @jax.jit
    def loss(params):
        value, (_, metrics) = make(config).loss({"params": params}, batch, None)
        return value, metrics

    value, metrics = loss(params)
    error = oracle_errors(config, params, whole)
    matching, is_own = np.diag(error), np.eye(len(error), dtype=bool)
    wanted = 0.0
    for own in (matching[:, None], matching[None]):
        wanted += np.maximum(0, config.margin - error + own)[~is_own].sum()
    assert wanted > 0
    np.testing.assert_allclose(value, wanted, rtol=1e-10)
    np.testing.assert_allclose(metrics["own_error"], matching.mean(), rtol=1e-10)
    others = error[~is_own].mean()
    np.testing.assert_allclose(metrics["other_error"], others, rtol=1e-10)
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
        gradients = naive_back(weights)
        return (found, *back(weights), *others), (wanted, *gradients, *gradients)

    for a, b in zip(*of_all(captions, images), strict=True):
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


def test_the_parts_of_a_batch_hold_all_words():
    _, _, whole = setting(rows=9, steps=12)
    batch = data.pack(whole, (2, 4, 5, 20))
    assert [part.shape[1] for part in batch["tokens"]] == [2, 2, 1, 7]
    assert len(batch["tokens"][-1]) < 9
    order = np.argsort(-whole["length"], kind="stable")
    for i, row in enumerate(order):
        words = np.concatenate([part[i] for part in batch["tokens"] if i < len(part)])
        n = batch["length"][i]
        np.testing.assert_array_equal(words[:n], whole["tokens"][0][row, :n])


def test_captions_of_an_image_are_drawn_alike():
    starts, draws = np.array([0, 2, 7]), np.random.default_rng(0).random(1000)
    drawn = data.choose_captions(starts, np.repeat([0, 1], 500), draws)
    shares = np.bincount(drawn, minlength=7) / 500
    np.testing.assert_allclose(shares, [1 / 2] * 2 + [1 / 5] * 5, atol=0.06)
    assert shares[:2].sum() == 1


def test_all_processes_embed_the_first_images_and_their_captions(monkeypatch):
    config = config_of("order_embeddings", eval_batch_size=2)
    columns, captions = data.open_split(config, "valid")
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    encoders = types.SimpleNamespace(
        captions=lambda vars, batch: batch["tokens"][0][:, :2],
        images=lambda vars, batch: batch["image"],
    )
    embedder, first = evaluate.Embedder(config, encoders), columns["image"][:3]
    np.testing.assert_array_equal(embedder.images({}, first), first)
    found = embedder.captions({}, captions, 3)
    rows = np.arange(captions.starts[3])
    np.testing.assert_array_equal(found, captions.take(rows, 2)[0])


def test_folds_fit_the_smaller_split(monkeypatch):
    opened = types.SimpleNamespace(
        splits={"train": 9, "valid": 7, "test": 23},
        columns=lambda split: {"image": np.zeros((9, 5))},
        facts={"words": ["a"]},
    )
    monkeypatch.setattr(data, "open_set", lambda config: opened)
    found = data.sizes(config_of("order_embeddings", **{"evaluation.fold": None}))
    assert found["evaluation.fold"] == Size(7, least=1, most=7)
    assert found["evaluation.folds"] == Size(3, least=1, most=3)


@pytest.mark.slow
def test_own_captions_of_any_number_and_features_of_any_size(tmp_path):
    """Different numbers of captions train, are scored and drawn."""
    rng, files = np.random.RandomState(0), {}
    for stem, images in {"train": 40, "val": 10, "test": 11}.items():
        numbers = np.repeat(np.arange(images), rng.randint(1, 5, images))
        lines = [f"image {i} of {k}" for k, i in enumerate(numbers)]
        features = rng.rand(images, 12).astype(np.float32)
        files |= {f"{stem}.txt": as_text(lines), f"{stem}_ids.txt": as_text(numbers)}
        files[f"images/10crop/{stem}.npy"] = npy(features)
    raw = write(tmp_path / "raw", files)
    prepare("coco_captions", raw, tmp_path, own_name="own")
    known = experiment.fields("experiments.order_embeddings").items()
    changes = dict.fromkeys(name for name, field in known if field.from_data)
    changes |= {"data.name": "own", "data.dir": str(tmp_path), "batch_size": 8}
    config = experiment.with_sizes(config_of("order_embeddings", **changes))
    assert (config.model.features, config.evaluation.fold) == (12, 10)
    exp = make(config)
    vars = exp.init(jax.random.key(0))
    with contextlib.closing(exp.batches(0)) as batches:
        assert np.isfinite(exp.loss(vars, next(batches), None)[0])
    final = exp.evals["final"].run(vars)
    assert final.scalars.keys() == exp.evals["valid"].run(vars).scalars.keys()
    assert final.images["retrievals"].shape[-1] == 3


def test_initial_values_of_the_authors_code():
    sizes = SIZES | {"model.features": 30, "model.units": 20, "model.words": 10}
    encoders = model.Encoders(config_of("order_embeddings", **sizes))
    p = jax.device_get(jax.jit(encoders.init)(jax.random.key(0)))
    gates, candidate = p["gru"]["gates"], p["gru"]["candidate"]
    edge = (6 / 50) ** 0.5
    kernels = p["words"], gates["w_x"], candidate["w_x"], p["image"]["w"] / edge / 10
    for drawn in kernels:
        assert 0.09 < drawn.max() <= 0.1
        assert -0.1 <= drawn.min() < -0.09
    for block in (*np.split(gates["w_h"], 2, axis=1), candidate["w_h"]):
        np.testing.assert_allclose(block.T @ block, np.eye(20), atol=1e-5)


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
