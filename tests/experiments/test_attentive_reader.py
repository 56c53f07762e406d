"""The attentive reader against its equations in NumPy float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from experiments.attentive_reader import (
    data,
    evaluate,
    make,
    model,
    pictures,
    population,
    softmax,
)
from experiments.sets import open_set
from lnrepro.data.ragged import Ragged
from lnrepro.engine import experiment
from tests import oracle
from tests.experiments.small import config_of, random_params
from tests.refused import refused

SIZES = {
    "model.units": 5,
    "model.statistics_steps": 9,
    "model.dropout": 0.0,
    "data.vocabulary": 23,
    "data.entities": 6,
}


def small(norm="layer", **changes):
    return config_of("attentive_reader", norm=norm, **SIZES | changes)


def batch_of(lengths=(7, 4, 1), asked=(3, 5, 2), shape=(7, 5)):
    """Questions of these lengths, with words in the padding."""
    rng = np.random.RandomState(sum(lengths))
    made = {"answer": rng.randint(1, 7, len(lengths))}
    for name, n, width in zip(data.TEXTS, (lengths, asked), shape, strict=True):
        made[name] = rng.randint(1, 23, (len(n), width))
        made[f"{name}_length"] = np.array(n)
    return made


@functools.cache
def network(norm):
    """(reader, random float64 parameters, compiled read(params, batch, population))."""
    reader = model.Reader(small(norm))

    @jax.jit
    def read(params, batch, population=None):
        reading = reader.read(params, batch, population=population)
        return reader.scores(params, reading.readout), reading

    return reader, random_params(reader.init), read


def answers(norm, params, batch):
    """Logits [B, V] and attention [T, B]."""

    def text(name):
        """All h [T, B, H] of a text, 0 behind its end, and the last one of each row."""
        x, cell = params["embedding"][batch[name]], params[name]
        mask = np.arange(x.shape[1]) < batch[f"{name}_length"][:, None]
        weights, cell_norm = cell["lstm"] | cell, norm.removesuffix("_everywhere")
        weights.pop("lstm")
        _, last, h = oracle.run("lstm", cell_norm, weights, x, mask)
        return h.swapaxes(0, 1), last

    def affine(name, a, rows=None):
        p, a = params[name], a @ params[name]["w"]
        if norm == "layer_everywhere":
            a = oracle.layer_norm(a, p["gain"])
        elif norm == "batch_everywhere":
            rows = np.ones(a.shape[:-1], bool) if rows is None else rows
            a = oracle.batch_norm(a, rows, p["gain"])
        return a + p.get("bias", 0)

    (d, _), (_, u) = text("passage"), text("question")
    mask = np.arange(len(d))[:, None] < batch["passage_length"]
    m = params["similarity"]
    hidden = affine("attend_passage", d, mask) + affine("attend_question", u)
    hidden = hidden + ((d @ m) * (u @ m)).sum(-1, keepdims=True)
    weights = np.exp(np.tanh(hidden) @ params["attention"]) * mask
    attention = weights / weights.sum(0)
    r = (attention[..., None] * d).sum(0)
    mean = d.sum(0) / mask.sum(0)[:, None]
    g = affine("read_passage", r) + affine("read_question", u)
    g = np.tanh(g + affine("read_mean", mean))
    return g @ params["output"]["w"] + params["output"]["bias"], attention


@pytest.mark.parametrize(
    "norm",
    [
        "none",
        "layer",
        "layer_everywhere",
        "batch_everywhere",
        pytest.param("batch", marks=pytest.mark.slow),
    ],
)
def test_attention_and_answers_are_the_equations_in_float64(x64, norm):
    _, params, read = network(norm)
    batch = batch_of()
    logits, reading = read(params, batch)
    wanted, attention = answers(norm, params, batch)
    np.testing.assert_allclose(logits, wanted, rtol=1e-8)
    np.testing.assert_allclose(reading.attention, attention, rtol=1e-8)


def test_population_statistics_are_the_mean_of_those_of_batches(x64):
    reader, params, read = network("batch_everywhere")
    # No word of the first batch is alone, since the variance of one is 0.
    first, second = batch_of((7, 4, 7), (3, 5, 5)), batch_of((2, 6, 3), (4, 1, 1))
    update = jax.jit(population.update_population, static_argnums=2)
    logits, reading = read(params, first)
    # Those of one batch stand for its own.
    start = jax.tree.map(np.float64, reader.population())
    once = update(start, reading.statistics, 0.99)
    np.testing.assert_allclose(read(params, first, once)[0], logits, rtol=1e-8)
    seen = [reading.statistics, read(params, second)[1].statistics]
    twice = jax.device_get(update(once, seen[1], 0.99))
    a, b = (np.asarray(statistics["passage"].values["h"][0]) for statistics in seen)
    means, _ = population.filled(twice["passage"])["h"]
    # Both batches have 6 words. Only the first one has a 7th, and none has more.
    np.testing.assert_allclose(means[:6], (a[:6] + b[:6]) / 2, atol=1e-7)
    np.testing.assert_allclose(means[6:], np.repeat(a[6:7], 3, 0), atol=1e-7)
    # A question is then answered alike whatever the others of its batch are.
    alone = {name: values[:1] for name, values in first.items()}
    found = [read(params, batch, twice)[0][0] for batch in (alone, first)]
    np.testing.assert_allclose(*found, rtol=1e-6)
    # With 0.25, the old ones count no more than a quarter.
    moved = update(twice, seen[0], 0.25)
    means, _ = moved["passage"]["sites"]["h"]
    np.testing.assert_allclose(means[:6], (a[:6] * 7 + b[:6]) / 8, atol=1e-7)
    old, found = twice["read_mean"]["sites"], moved["read_mean"]["sites"]
    wanted = 0.25 * np.array(old) + 0.75 * np.array(seen[0]["read_mean"])
    np.testing.assert_allclose(found, wanted, atol=1e-7)


def test_answers_likelihood_has_a_floor_and_autodiffs_gradient(x64):
    rng = np.random.RandomState(0)
    scores, answer, weights = rng.randn(3, 9), np.array([1, 8, 2]), rng.randn(3)
    # The second answer is so improbable that the floor counts.
    scores[1, 8] -= 18

    def plain(scores):
        p = jax.nn.softmax(scores)[np.arange(3), answer]
        return weights @ jnp.log(p + 1e-8)

    def ours(scores):
        log_p, is_wrong = softmax.answered(scores, answer)
        return weights @ log_p, is_wrong

    (found, is_wrong), slope = jax.value_and_grad(ours, has_aux=True)(scores)
    wanted = jax.value_and_grad(plain)(scores)
    for a, b in zip((found, slope), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-15)
    np.testing.assert_array_equal(is_wrong, scores.argmax(1) != answer)


def test_entities_are_renamed_alike_everywhere():
    batch, permutation = batch_of(), np.array([3, 0, 5, 1, 4, 2])
    there = data.permute_entities(batch, jnp.asarray(permutation), small().data)
    renamed = np.arange(23)
    renamed[1:7] = 1 + permutation
    for name in (*data.TEXTS, "answer"):
        np.testing.assert_array_equal(there[name], renamed[batch[name]])


@pytest.mark.slow
def test_a_fresh_network_and_its_renaming_in_each_training_batch():
    exp, batch = make(small(**{"model.gain.layer": 0.1})), batch_of()
    vars, loss = jax.jit(exp.init)(jax.random.key(0)), jax.jit(exp.loss)
    a, b = (loss(vars, batch, jax.random.key(k))[0] for k in (0, 1))
    assert a != b
    lstm = jax.device_get(vars["params"]["question"]["lstm"])
    assert (lstm["gain_h"] == np.float32(0.1)).all()
    block = lstm["w_h"][:, :5]
    np.testing.assert_allclose(block.T @ block, 0.05**2 * np.eye(5), atol=1e-8)


def test_dropout_scales_what_is_kept():
    """At a rate of a quarter, keeping and dropping are not alike."""
    reader = model.Reader(small(**{"model.dropout": 0.25}))
    x = jnp.ones((200, 50))
    assert (reader._dropout(None, x) == 1).all()
    dropped = np.asarray(reader._dropout(jax.random.key(0), x))
    np.testing.assert_allclose(np.unique(dropped), [0, 4 / 3], rtol=1e-6)
    assert abs(dropped.mean() - 1) < 0.05


@pytest.fixture(scope="module")
def many():
    """300 questions, each with its number as the answer."""
    rng = np.random.RandomState(3)
    columns = {"answer": np.arange(300)}
    for name, longest in zip(data.TEXTS, (40, 12), strict=True):
        offsets = np.append(0, np.cumsum(rng.randint(1, longest + 1, 300)))
        columns[name] = Ragged(rng.randint(1, 23, offsets[-1]), offsets)
    return columns


GRID = small(
    **{
        "batch_size": 16,
        "data.passage_buckets": (10, 20, 30, 40),
        "data.question_buckets": (6, 12),
    }
)


def check_texts(batch, columns):
    """Check that a batch holds the texts of its questions, with 0 behind their ends."""
    for name in data.TEXTS:
        assert batch[name].shape[1] in GRID.data[f"{name}_buckets"]
        for text, i in zip(batch[name], batch["answer"], strict=True):
            words = columns[name][i]
            np.testing.assert_array_equal(text[: len(words)], words)
            assert not text[len(words) :].any()


def test_training_batches_are_tight_and_have_each_question_once(many):
    stream, seen, total = data.training_batches(GRID, many, 0), [], 0
    # An epoch is 18 batches of 16 different questions. The last 12 are left out.
    batches = [next(stream) for _ in range(18)]
    stream.close()
    for batch in batches:
        check_texts(batch, many)
        seen += batch["answer"].tolist()
        total += sum(batch[name].size for name in data.TEXTS)
    assert len(set(seen)) == 288
    words = sum(many[name].lengths[seen].sum() for name in data.TEXTS)
    assert words > 0.6 * total
    resumed = data.training_batches(GRID, many, 5)
    jax.tree.map(np.testing.assert_array_equal, next(resumed), batches[5])
    resumed.close()


def test_an_evaluation_counts_each_question_once(many):
    counted = []
    for batch in data.evaluation_batches(GRID, many, np.arange(20, 300), 16):
        check_texts(batch, many)
        counted += batch["answer"][batch["mask"] > 0].tolist()
    assert sorted(counted) == list(range(20, 300))


def test_what_needs_no_reading():
    passage = Ragged(np.array([1, 1, 2, 9, 2, 3, 3, 3, 4, 5]), np.array([0, 5, 9, 10]))
    question = Ragged(np.array([9, 1, 3, 9]), np.array([0, 2, 3, 4]))
    columns = {"passage": passage, "question": question, "answer": np.array([2, 4, 6])}
    # Passage 1: 1 and 2 tie. Passages 2 and 3: 3 and 5 are wrong. Without the entities
    # of the question, 2 and 4 are right and 5 is wrong.
    assert evaluate.baselines(columns, np.arange(3), 6) == {
        "frequency_error": pytest.approx((0.5 + 1 + 1) / 3),
        "frequency_error_not_asked": pytest.approx((0 + 0 + 1) / 3),
        "answer_missing": pytest.approx(1 / 3),
    }


def test_the_most_relevant_sentences_are_kept_and_long_texts_refused(tmp_path):
    changes = {"data.dir": str(tmp_path), "data.sentences": 1}
    changes |= {"data.passage_buckets": (4,)}
    config = config_of("attentive_reader", **changes)
    part, whole = data.open_split(config, "valid"), open_set(config).columns("valid")
    for i in range(20):
        kept = whole["passage"][i][whole["rank"][i] == 0]
        assert 0 < len(kept) < len(whole["passage"][i])
        np.testing.assert_array_equal(part["passage"][i], kept)
    with refused("config.data.passage_buckets = (4,), but news_stories needs at least"):
        experiment.with_sizes(config, check=True)


def test_pictures_mark_the_words_that_are_looked_at():
    words = ("<pad>", "@entity1", "who", "won", "@placeholder")
    batch = {
        "passage": np.array([[3, 1, 3, 0]]),
        "passage_length": np.array([3]),
        "question": np.array([[2, 4]]),
        "question_length": np.array([2]),
        "answer": np.array([1]),
    }
    read = np.array([[0.1, 0.8, 0.1, 0.0]]), np.array([1])
    image = pictures.draw([batch], words, lambda _: read, "caption")
    for colour in (pictures.ATTENTION_COLOUR, to_rgb(pictures.RIGHT_COLOUR)):
        marked = np.multiply(colour, 255).round()
        assert (image == marked).all(-1).sum() > 20
