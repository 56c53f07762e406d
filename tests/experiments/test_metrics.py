"""What experiments log, from networks that return known numbers."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import handwriting, skip_thoughts
from experiments.attentive_reader import evaluate as reader_evaluate
from experiments.handwriting import experiment as handwriting_experiment
from experiments.handwriting.data import Lines
from experiments.handwriting.model import Network
from experiments.sets import open_set
from experiments.skip_thoughts import evaluate as transfer
from experiments.skip_thoughts import logistic_regression, relatedness
from experiments.skip_thoughts.model import SkipThoughts
from lnrepro.data.text import as_texts
from tests.experiments.small import config_of


def test_a_word_costs_the_loss_divided_by_the_number_of_words(monkeypatch):
    exp = skip_thoughts.make(config_of("skip_thoughts"))
    for words, nll in ((4, 3), (0, 12)):
        result = jnp.float32(12), jnp.int32(words)
        monkeypatch.setattr(SkipThoughts, "loss", lambda *_, result=result: result)
        total, (_, metrics) = exp.loss({"params": {}}, {}, None)
        assert (total, metrics["nll"]) == (12, nll)


def test_nats_of_handwriting_a_line_a_step_and_in_the_datas_units(monkeypatch):
    # The second line is not among three of them.
    strokes = [np.ones((n, 3), np.int32) for n in (2, 5, 3, 7)]
    columns = {"strokes": strokes, "text": [np.ones(2, np.uint8)] * 4}
    lines = Lines(columns, {"mean": [0.0, 0.0], "std": [2.0, 8.0]})
    monkeypatch.setattr(handwriting_experiment, "open_lines", lambda *_: lines)

    def nll(self, params, batch):
        """3 nats a step, and 5 for each line."""
        return 3.0 * batch["steps_length"] + 5

    monkeypatch.setattr(Network, "nll", nll)
    exp = handwriting.make(config_of("handwriting", eval_batch_size=2, eval_examples=3))
    found = exp.evals["valid"].run({"params": {"w": np.zeros(1)}}).scalars
    assert found == {
        "nll": pytest.approx(3 * 4 + 5),
        "nll_per_step": pytest.approx((3 * 12 + 3 * 5) / 12),
        "nll_original": pytest.approx(17 + 4 * np.log(2 * 8)),
    }
    batch = {"steps_length": jnp.array([2, 3, 7])}
    loss, (_, metrics) = exp.loss({"params": {}}, batch, None)
    assert (loss, metrics["nll"]) == (17, 17)
    assert metrics["nll_per_step"] == pytest.approx(17 / 4)


def test_entity_errors_are_among_the_entities_of_the_passage(monkeypatch):
    """Words 1 to 3 are entities, 0 is padding."""
    scores = jnp.array([[9.0, 1, 8, 2, 9], [9, 3, 2, 1, 9], [0, 1, 9, 3, 2]])
    reader = types.SimpleNamespace(vocabulary=5, scores=lambda *_: scores)
    reading = types.SimpleNamespace(readout=None)
    monkeypatch.setattr(reader_evaluate, "read", lambda *_: reading)
    config = config_of("attentive_reader", **{"data.entities": 3})
    batch = {
        "passage": jnp.array([[1, 3, 0, 4], [1, 2, 3, 4], [1, 2, 0, 0]]),
        "answer": jnp.array([3, 2, 2]),
    }
    found = reader_evaluate.metrics(reader, config, {"params": {}}, batch)
    wanted = -jax.nn.log_softmax(scores)[np.arange(3), batch["answer"]]
    np.testing.assert_allclose(found["nll"], wanted, atol=3e-5)
    assert found["error"].tolist() == [1, 1, 0]
    assert found["entity_error"].tolist() == [0, 1, 0]


def test_labelled_sentences_are_read_without_end_token_and_pairs_with(monkeypatch):
    config, read, given = config_of("skip_thoughts"), [], {}

    def encode(sentences, *, end_token):
        read.append((list(sentences), end_token))
        return np.arange(len(sentences))[:, None]

    def accuracies(x, labels, folds, seed):
        return np.array([80.0, 90.0])

    def fit_and_test(parts, options):
        given.update(parts)

    monkeypatch.setattr(logistic_regression, "nested_cross_validation", accuracies)
    monkeypatch.setattr(relatedness, "fit_and_test", fit_and_test)
    found = transfer.transfer(encode, "story_mr", config)
    assert found == {"accuracy": 85.0, "accuracy_std": 5.0}
    transfer.transfer(encode, "story_sick", config)
    columns = open_set(config, "story_sick").columns("trial")
    pairs = [*as_texts(columns["a"]), *as_texts(columns["b"])]
    assert [end_token for _, end_token in read] == [False, True, True, True]
    assert read[2][0] == pairs
    u, v, scores = given["trial"]
    np.testing.assert_array_equal(scores, columns["score"])
    assert [*u[:, 0], *v[:, 0]] == list(range(2 * len(scores)))


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
    options = config_of("skip_thoughts", **{"transfer.sick_blocks": 50}).transfer
    assert relatedness.fit_and_test(parts, options) == {"pearson": 0.2}
