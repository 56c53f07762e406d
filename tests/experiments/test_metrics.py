"""What experiments log, from networks that return known numbers."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import draw as draw_config
from configs import handwriting as handwriting_config
from configs import mnist as mnist_config
from configs import order_embeddings as order_config
from configs import skip_thoughts as skip_config
from experiments import (
    classification,
    draw,
    handwriting,
    order_embeddings,
    skip_thoughts,
)
from experiments.attentive_reader import evaluate as reader_evaluate
from experiments.draw import evaluate as draw_evaluate
from experiments.draw.bound import cross_entropy
from experiments.handwriting import experiment as handwriting_experiment
from experiments.handwriting.data import Lines
from experiments.handwriting.model import Network
from experiments.order_embeddings import experiment as order_experiment
from experiments.order_embeddings.model import Encoders
from experiments.skip_thoughts import evaluate as transfer
from experiments.skip_thoughts import logistic_regression, relatedness
from experiments.skip_thoughts.model import SkipThoughts

RNG = np.random.RandomState(0)


def test_pixels_are_scaled_by_the_full_ink_of_the_config():
    config = mnist_config.get_config("smoke")
    config.data.full_ink = 40.0
    image = np.array([[[0, 10], [20, 40]]], np.uint8)
    config.data.features = 4
    found = classification.pixels(config, image)
    np.testing.assert_array_equal(found, [[0, 0.25, 0.5, 1]])


def test_a_word_costs_the_loss_divided_by_the_number_of_words(monkeypatch):
    exp = skip_thoughts.make(skip_config.get_config("smoke"))
    for words, nll in ((4, 3), (0, 12)):
        result = jnp.float32(12), jnp.int32(words)
        monkeypatch.setattr(SkipThoughts, "loss", lambda *_, result=result: result)
        total, (_, metrics) = exp.loss({"params": {}}, {}, None)
        assert (total, metrics["nll"]) == (12, nll)


def test_nats_of_handwriting_a_line_a_step_and_in_the_datas_units(monkeypatch):
    strokes = [np.ones((n, 3), np.int32) for n in (2, 3, 7)]
    columns = {"strokes": strokes, "text": [np.ones(2, np.uint8)] * 3}
    facts = {"mean": [0.0, 0.0], "std": [2.0, 8.0], "symbols": []}
    lines = Lines(columns, facts)
    monkeypatch.setattr(handwriting_experiment, "open_lines", lambda *_: lines)
    # 3 nats a step, and 5 for each line.
    monkeypatch.setattr(
        Network, "nll", lambda self, params, batch: 3.0 * batch["steps_length"] + 5
    )
    config = handwriting_config.get_config("smoke")
    config.eval_batch_size = 2
    exp = handwriting.make(config)
    found = exp.evals["valid"].run({"params": {"w": np.zeros(1)}}).scalars
    assert found["nll"] == pytest.approx(3 * 4 + 5)
    assert found["nll_per_step"] == pytest.approx((3 * 12 + 3 * 5) / 12)
    assert found["nll_original"] == pytest.approx(17 + 4 * np.log(2 * 8))
    batch = {"steps_length": jnp.array([2, 3, 7])}
    loss, (_, metrics) = exp.loss({"params": {}}, batch, None)
    assert (loss, metrics["nll"]) == (17, 17)
    assert metrics["nll_per_step"] == pytest.approx(17 / 4)


def test_errors_of_matching_and_of_other_pairs(monkeypatch):
    error = RNG.rand(4, 4).astype(np.float32)
    errors = dict.fromkeys(order_experiment.ERRORS, lambda captions, images: error)
    monkeypatch.setattr(order_experiment, "ERRORS", errors)
    for name in ("captions", "images"):
        monkeypatch.setattr(Encoders, name, lambda *_: None)
    exp = order_embeddings.make(order_config.get_config("smoke"))
    _, (_, metrics) = exp.loss({"params": {}}, {}, None)
    others = error[~np.eye(4, dtype=bool)]
    np.testing.assert_allclose(metrics["own_error"], np.diag(error).mean(), rtol=1e-6)
    np.testing.assert_allclose(metrics["other_error"], others.mean(), rtol=1e-6)


def test_entity_errors_are_among_the_entities_of_the_passage(monkeypatch):
    """Words 1 to 3 are entities, 0 is padding."""
    scores = jnp.array([[9.0, 1, 8, 2, 9], [9, 3, 2, 1, 9], [0, 1, 2, 3, 9]])
    reader = types.SimpleNamespace(
        vocabulary=5,
        answered=lambda params, readout, answer: (jnp.zeros(3), answer > 2),
        scores=lambda params, readout: scores,
    )
    reading = types.SimpleNamespace(readout=None)
    monkeypatch.setattr(reader_evaluate, "read", lambda *_: reading)
    config = types.SimpleNamespace(data=types.SimpleNamespace(entities=3))
    batch = {
        "passage": jnp.array([[1, 3, 0, 4], [1, 2, 3, 4], [1, 2, 0, 0]]),
        "answer": jnp.array([3, 2, 2]),
    }
    found = reader_evaluate.metrics(reader, config, {"params": {}}, batch)
    assert found["entity_error"].tolist() == [0, 1, 0]
    assert found["error"].tolist() == [1, 0, 0]


def test_importance_weighting_is_the_mean_of_the_weights(monkeypatch):
    x = jnp.asarray(RNG.rand(3, 2, 2) < 0.5, jnp.float32)
    canvas = jnp.asarray(RNG.randn(3, 2, 2), jnp.float32)

    def noise(key, index, sizes, dtype):
        return jax.random.normal(key, (2, len(index)))

    def infer(params, x, noise):
        return canvas + noise[0, :, None, None], types.SimpleNamespace(log_ratio=noise)

    monkeypatch.setattr(draw_evaluate, "noise_of", noise)
    monkeypatch.setattr(draw_evaluate, "dtype_of", lambda params: None)
    network = types.SimpleNamespace(infer=infer, sizes=None)
    key, batch = jax.random.key(1), {"image": x, "index": jnp.arange(3)}
    found = draw_evaluate.nll(network, key, 5, {"params": {}}, batch)["nll_iw5"]
    weights = []
    for one in jax.random.split(key, 5):
        n = np.asarray(noise(one, range(3), None, None))
        nats = cross_entropy(canvas + n[0, :, None, None], x)
        weights.append(np.exp(n.sum(0) - np.asarray(nats)))
    np.testing.assert_allclose(found, -np.log(np.mean(weights, 0)), rtol=1e-5)


def test_the_estimate_is_named_after_the_number_of_samples():
    final = draw.make(draw_config.get_config("smoke")).evals["final"]
    assert final.metrics() == {"nll_iw2": ("nats per image", "min")}


def test_labelled_sentences_are_read_without_end_token_and_pairs_with(monkeypatch):
    read = []

    def encode(sentences, *, end_token):
        read.append((list(sentences), end_token))
        return np.arange(len(sentences), dtype=float)[:, None]

    config = skip_config.get_config("smoke")
    accuracy = logistic_regression.Result(np.array([80.0, 90.0]), np.ones(2))
    monkeypatch.setattr(
        logistic_regression, "nested_cross_validation", lambda *_: accuracy
    )
    monkeypatch.setattr(transfer, "is_pairs", lambda name, config: name == "sick")
    monkeypatch.setattr(transfer, "_labelled", lambda *_: (["a", "b"], np.ones(2)))
    found = transfer.transfer(encode, "mr", config)
    assert found == {"accuracy": 85.0, "accuracy_std": 5.0}
    parts = {}
    monkeypatch.setattr(transfer, "_related", lambda *_: (["c"], ["d"], np.ones(1)))
    monkeypatch.setattr(
        relatedness, "fit_and_test", lambda given, **_: parts.update(given)
    )
    transfer.transfer(encode, "sick", config)
    assert read == [(["a", "b"], False), *[(["c", "d"], True)] * 3]
    assert [float(u[0, 0]) for u, v, _ in parts.values()] == [0.0] * 3
    assert [float(v[0, 0]) for u, v, _ in parts.values()] == [1.0] * 3


def test_relatedness_stops_by_the_trial_pairs_and_is_tested_on_the_test_pairs(
    monkeypatch,
):
    pairs = np.ones((4, 2)), np.ones((4, 2)), np.ones(4)
    of_block = {"trial": [0.1, 0.5, 0.3, 0.9], "test": [0.8, 0.2, 0.9, 0.7]}
    parts = {part: tuple(a.copy() for a in pairs) for part in ("train", *of_block)}

    def train_block(params, state, x, y, epochs):
        return (params if isinstance(params, int) else 0) + 1, state

    def test(params, given):
        (part,) = [name for name in of_block if given is parts[name]]
        return {"pearson": of_block[part][params - 1]}

    monkeypatch.setattr(relatedness, "_train_block", train_block)
    monkeypatch.setattr(relatedness, "_test", test)
    # The third block is worse on the trial pairs: the second is kept.
    assert relatedness.fit_and_test(parts) == {"pearson": 0.2}
