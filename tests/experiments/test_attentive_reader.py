"""The attentive reader against its equations in NumPy float64."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from configs import attentive_reader as config_file
from experiments.attentive_reader import (
    data,
    evaluate,
    make,
    model,
    pictures,
    population,
    softmax,
)
from lnrepro.data.ragged import Ragged
from lnrepro.engine import experiment
from tests import oracle
from tests.functional.programs import drawn
from tests.oracle import sigmoid
from tests.refused import refused

EPS = 1e-5


def small(norm="layer", **sizes):
    config = config_file.get_config("smoke")
    config.norm = norm
    config.model.update({"units": 5, "statistics_steps": 9, "dropout": 0.0} | sizes)
    config.data.update({"vocabulary": 23, "entities": 6})
    return config


def batch_of(lengths=(7, 4, 1), asked=(3, 5, 2), seed=0):
    """Make a batch of questions of these lengths, with words in the padding."""
    rng = np.random.RandomState(seed)
    made = {"answer": rng.randint(1, 7, len(lengths)).astype(np.int32)}
    for name, n in (("passage", lengths), ("question", asked)):
        made[name] = rng.randint(1, 23, (len(n), max(n))).astype(np.int32)
        made[f"{name}_length"] = np.array(n, np.int32)
    return made


@functools.cache
def network(norm, **sizes):
    """(reader, random float64 parameters, compiled read(params, batch, population))."""
    reader = model.Reader(small(norm, **sizes))
    shapes = jax.eval_shape(reader.init, jax.random.key(0))
    params = jax.tree.map(np.float64, drawn(shapes))

    @jax.jit
    def read(params, batch, population=None):
        reading = reader.read(params, batch, population=population)
        return reader.scores(params, reading.readout), reading

    return reader, params, read


def encode(norm, p, x, lengths, known=None):
    """All h [T, B, H] of a text (eq. 17-22, or Cooijmans et al.).

    Where a text has ended, its last h stays.
    """
    lstm, out = p["lstm"], []

    def normalise(site, a, t, rows):
        if known is None:
            return oracle.normalise(lstm, norm, site, a, rows)
        mean, var = known[site]
        a = (a - mean[t]) / np.sqrt(var[t] + EPS) * lstm[f"gain_{site}"]
        return a + lstm.get(f"bias_{site}", 0)

    h = np.tile(p["h0"], (len(lengths), 1))
    c = np.zeros_like(h)
    for t, x_t in enumerate(x):
        rows = t < lengths
        mask = rows[:, None]
        a = normalise("x", x_t @ lstm["w_x"], t, rows)
        a = a + normalise("h", h @ lstm["w_h"], t, rows) + lstm["bias"]
        f, i, o, g = np.split(a, 4, -1)
        c = np.where(mask, sigmoid(f) * c + sigmoid(i) * np.tanh(g), c)
        shown = normalise("c", c, t, rows)
        h = np.where(mask, sigmoid(o) * np.tanh(shown), h)
        out.append(h)
    return np.stack(out)


def answers(norm, params, batch, population=None):
    """Logits [B, V] and attention [T, B]."""

    def text(name):
        x, lengths = params["embedding"][batch[name].T], batch[f"{name}_length"]
        known = population[name]["sites"] if population else None
        cell_norm = norm.removesuffix("_everywhere")
        return encode(cell_norm, params[name], x, lengths, known)

    def affine(name, a, rows=None):
        p, a = params[name], a @ params[name]["w"]
        if norm == "layer_everywhere":
            a = oracle.layer_norm(a, p["gain"])
        elif norm == "batch_everywhere" and population:
            mean, var = population[name]["sites"]
            a = (a - mean) / np.sqrt(var + EPS) * p["gain"]
        elif norm == "batch_everywhere":
            rows = np.ones(a.shape[:-1], bool) if rows is None else rows
            a = oracle.batch_norm(a, rows, p["gain"])
        return a + p.get("bias", 0)

    d, u = text("passage"), text("question")[-1]
    mask = np.arange(len(d))[:, None] < batch["passage_length"]
    m, words = params["similarity"], d * mask[..., None]
    hidden = affine("attend_passage", d, mask) + affine("attend_question", u)
    hidden = hidden + ((words @ m) * (u @ m)).sum(-1, keepdims=True)
    weights = np.exp(np.tanh(hidden) @ params["attention"]) * mask
    attention = weights / weights.sum(0)
    r = (attention[..., None] * words).sum(0)
    mean = words.sum(0) / mask.sum(0)[:, None]
    g = affine("read_passage", r) + affine("read_question", u)
    g = np.tanh(g + affine("read_mean", mean))
    return g @ params["output"]["w"] + params["output"]["bias"], attention


def population_of(reader, seed=1):
    """Draw random population statistics of the reader's shapes."""
    rng = np.random.RandomState(seed)

    def fill(p):
        sites = jax.tree.map(
            lambda a: jnp.asarray(rng.rand(*a.shape) + 0.2), p["sites"]
        )
        return {"sites": sites, "count": jnp.ones_like(p["count"])}

    return {name: fill(p) for name, p in reader.population().items()}


@pytest.mark.parametrize(
    ("norm", "known"),
    [
        ("none", 0),
        ("layer", 0),
        ("layer_everywhere", 0),
        ("batch_everywhere", 0),
        ("batch_everywhere", 1),
        pytest.param("batch", 0, marks=pytest.mark.slow),
        pytest.param("batch", 1, marks=pytest.mark.slow),
    ],
)
def test_attention_and_answers_are_the_equations_in_float64(x64, norm, known):
    reader, params, read = network(norm)
    population, batch = population_of(reader) if known else None, batch_of()
    logits, reading = read(params, batch, population)
    wanted, attention = answers(norm, params, batch, population)
    np.testing.assert_allclose(logits, wanted, rtol=1e-8)
    np.testing.assert_allclose(reading.attention, attention, rtol=1e-8)


def padded(batch, passage, question):
    """Pad the texts of a batch with zeros to these lengths."""
    lengths = {"passage": passage, "question": question}
    return batch | {
        n: np.pad(batch[n], ((0, 0), (0, t - batch[n].shape[1])))
        for n, t in lengths.items()
    }


def test_masked_softmax_is_softmax_of_what_is_there():
    scores = np.random.RandomState(0).randn(6, 4).astype(np.float32) * 30
    lengths = np.array([6, 3, 1, 0])
    mask = np.arange(6)[:, None] < lengths
    wanted = np.exp(np.where(mask, scores.astype(float), -np.inf))
    wanted = wanted / np.maximum(wanted.sum(0), 1e-300)
    masked = jax.jit(softmax.masked_softmax)
    for rubbish in (0, np.nan, np.inf, 1e30):
        found = masked(np.where(mask, scores, np.float32(rubbish)), mask)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-30)
    grad = jax.jit(jax.grad(lambda s: (softmax.masked_softmax(s, mask) ** 2).sum()))
    assert np.isfinite(np.asarray(grad(np.where(mask, scores, np.nan)))[mask]).all()


def test_statistics_by_time_step_are_those_of_the_rows_that_are_there(x64):
    reader, params, read = network("batch_everywhere")
    first, second = batch_of(), padded(batch_of((2, 6, 3), (4, 1, 1), seed=1), 7, 5)
    seen = jax.device_get([read(params, b)[1].statistics for b in (first, second)])
    w_x = params["passage"]["lstm"]["w_x"]
    for batch, statistics in zip((first, second), seen, strict=True):
        (values, alive), lengths = statistics["passage"], batch["passage_length"]
        x = params["embedding"][batch["passage"]] @ w_x
        for t in range(max(lengths)):
            rows = x[t < lengths, t]
            np.testing.assert_allclose(values["x"][0][t], rows.mean(0), atol=1e-12)
            np.testing.assert_allclose(values["x"][1][t], rows.var(0), atol=1e-12)
        assert alive.tolist() == [t < max(lengths) for t in range(7)]
    update = jax.jit(population.update_population, static_argnums=2)
    moved = reader.population()
    for statistics in seen:
        moved = update(moved, statistics, reader.sizes.momentum)
    moved = jax.device_get(moved)
    a, b = (statistics["passage"].values["h"][0] for statistics in seen)
    means, _ = population.filled(moved["passage"])["h"]
    # Both batches have 6 words. Only the first one has a 7th, and none has more.
    np.testing.assert_allclose(means[:6], (a[:6] + b[:6]) / 2, atol=1e-7)
    np.testing.assert_allclose(means[6:], np.repeat(a[6:7], 3, 0), atol=1e-7)
    mean, _ = moved["attend_passage"]["sites"]
    wanted = sum(statistics["attend_passage"][0] for statistics in seen) / 2
    np.testing.assert_allclose(mean, wanted, atol=1e-7)


def test_statistics_are_a_mean_and_then_a_running_average(x64):
    moved = {"read_mean": population.fresh_map(2)}
    wanted = 0.0
    for k in range(1, 9):
        seen = {"read_mean": (np.full(2, 3.0 * k), np.full(2, float(k)))}
        moved = population.update_population(moved, seen, 0.75)
        rate = min((k - 1) / k, 0.75)
        wanted = rate * wanted + (1 - rate) * k
    mean, var = moved["read_mean"]["sites"]
    np.testing.assert_allclose(mean, 3 * wanted, rtol=1e-6)
    np.testing.assert_allclose(var, wanted, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["layer_everywhere", "batch_everywhere"])
def test_gradients_are_central_differences(x64, norm):
    reader, params, _ = network(norm)
    batch = batch_of()

    @jax.jit
    def loss(params):
        return -reader.answered(
            params, reader.read(params, batch).readout, batch["answer"]
        )[0].mean()

    check_grads(loss, (params,), order=1, modes=["rev"], eps=1e-6)
    grads = jax.jit(jax.grad(loss))(params)
    assert all(jnp.any(g != 0) for g in jax.tree.leaves(grads))


def test_answers_likelihood_has_a_floor_and_autodiffs_gradients(x64):
    rng = np.random.RandomState(0)
    arrays = g, w, bias = rng.randn(3, 4), rng.randn(4, 9), rng.randn(9)
    answer, weights = np.array([1, 8, 2]), rng.randn(3)
    # The second answer is so probable or improbable that the floor counts.
    g[1] *= 30

    def plain(g, w, bias):
        p = jax.nn.softmax(g @ w + bias)[np.arange(3), answer]
        return weights @ jnp.log(p + 1e-8)

    def ours(g, w, bias):
        return weights @ softmax.answered(g, w, bias, answer)[0]

    found, wanted = (
        jax.tree.leaves(jax.jit(jax.value_and_grad(f, (0, 1, 2)))(*arrays))
        for f in (ours, plain)
    )
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-15)
    _, is_wrong = jax.jit(softmax.answered)(g, w, bias, answer)
    np.testing.assert_array_equal(is_wrong, (g @ w + bias).argmax(1) != answer)


def test_entities_are_renamed_alike_everywhere():
    batch, permutation = batch_of(), np.array([3, 0, 5, 1, 4, 2])
    spec = small().data
    there = data.permute_entities(batch, jnp.asarray(permutation), spec)
    for name in ("passage", "question", "answer"):
        words = batch[name]
        is_entity = (words >= 1) & (words <= 6)
        renamed = 1 + permutation[np.clip(words - 1, 0, 5)]
        np.testing.assert_array_equal(there[name], np.where(is_entity, renamed, words))


@pytest.mark.slow
def test_each_training_batch_has_its_own_renaming():
    exp, batch = make(small("none")), batch_of()
    vars, loss = exp.init(jax.random.key(0)), jax.jit(exp.loss)
    a, b = (loss(vars, batch, jax.random.key(k))[0] for k in (0, 1))
    assert a != b


def test_dropout_scales_what_is_kept():
    """At a rate of a quarter, keeping and dropping are not alike."""
    reader = model.Reader(small("none", dropout=0.25))
    x, key = jnp.ones((200, 50)), jax.random.key(0)
    assert (reader._dropout(None, x) == 1).all()
    dropped = np.asarray(reader._dropout(key, x))
    np.testing.assert_allclose(np.unique(dropped), [0, 4 / 3], rtol=1e-6)
    assert abs(dropped.mean() - 1) < 0.05


@pytest.mark.slow
def test_gains_start_where_the_config_says():
    reader = model.Reader(small("layer", gain={"layer": 0.1, "batch": 0.3}))
    lstm = jax.jit(reader.init)(jax.random.key(0))["question"]["lstm"]
    assert {
        float(v) for k in ("gain_x", "gain_h", "gain_c") for v in np.asarray(lstm[k])
    } == {float(np.float32(0.1))}
    block = np.asarray(lstm["w_h"][:, :5])
    np.testing.assert_allclose(block.T @ block, 0.05**2 * np.eye(5), atol=1e-8)


def columns_of(lengths, asked, seed=0):
    rng = np.random.RandomState(seed)

    def ragged(n):
        return Ragged(
            rng.randint(1, 23, sum(n)).astype(np.int32),
            np.concatenate([[0], np.cumsum(n)]),
        )

    return {
        "passage": ragged(lengths),
        "question": ragged(asked),
        "answer": rng.randint(1, 7, len(lengths)).astype(np.int32),
    }


@pytest.fixture(scope="module")
def many():
    rng = np.random.RandomState(3)
    return columns_of(rng.randint(1, 41, 300), rng.randint(1, 13, 300))


def grid_config(**fields):
    config = small()
    config.batch_size = config.eval_batch_size = 16
    config.data.update(
        {"passage_buckets": (10, 20, 30, 40), "question_buckets": (6, 12)} | fields
    )
    return config


def question_of(columns, i):
    """The words of question i of columns or of a batch, and its answer."""
    texts = []
    for name in data.TEXTS:
        text = columns[name][i]
        if f"{name}_length" in columns:
            text = text[: columns[f"{name}_length"][i]]
        texts.append(tuple(text.tolist()))
    return (*texts, int(columns["answer"][i]))


def test_training_batches_are_tight_and_have_each_question_once(many):
    config = grid_config()
    steps = data.Shapes(config, many).plan(config).steps_per_epoch
    stream, seen = data.training_batches(config, many, 0), []
    batches = [next(stream) for _ in range(steps)]
    stream.close()
    assert len({(b["passage"].shape, b["question"].shape) for b in batches}) <= 8
    for b in batches:
        for name in data.TEXTS:
            is_word = np.arange(b[name].shape[1]) < b[f"{name}_length"][:, None]
            assert not b[name][~is_word].any()
        seen += [question_of(b, i) for i in range(len(b["answer"]))]
    words = sum(len(passage) + len(question) for passage, question, _ in seen)
    total = sum(b["passage"].size + b["question"].size for b in batches)
    assert words > 0.6 * total
    # An epoch is 18 batches of 16 different questions. The last 12 are left out.
    assert len(seen) == 288
    there = collections.Counter(question_of(many, i) for i in range(300))
    assert collections.Counter(seen) <= there
    resumed = data.training_batches(config, many, 5)
    jax.tree.map(np.testing.assert_array_equal, next(resumed), batches[5])
    resumed.close()


def test_validation_counts_each_question_once(many):
    counted = []
    for b in data.evaluation_batches(grid_config(), many):
        counted += b["answer"][b["mask"] > 0].tolist()
        assert b["passage_length"].max() <= b["passage"].shape[1] <= 40
    assert sorted(counted) == sorted(many["answer"].tolist())


def test_what_needs_no_reading():
    passage = Ragged(np.array([1, 1, 2, 9, 2, 3, 3, 3, 4, 5]), np.array([0, 5, 9, 10]))
    question = Ragged(np.array([9, 1, 3, 9]), np.array([0, 2, 3, 4]))
    columns = {"passage": passage, "question": question, "answer": np.array([2, 4, 6])}
    known = evaluate.baselines(columns, 6)
    # Passage 1: 1 and 2 tie. Passages 2 and 3: 3 and 5 are wrong. Without the entities
    # of the question, 2 and 4 are right and 5 is wrong.
    np.testing.assert_allclose(known["frequency_error"], (0.5 + 1 + 1) / 3)
    np.testing.assert_allclose(known["frequency_error_not_asked"], (0 + 0 + 1) / 3)
    np.testing.assert_allclose(known["answer_missing"], 1 / 3)


def test_the_most_relevant_sentences_are_kept_and_long_texts_refused(tmp_path):
    config = config_file.get_config("smoke")
    config.data.update({"dir": str(tmp_path), "sentences": 2})
    whole = data.open_split(config, "valid")["passage"]
    config.data.sentences = 1
    part = data.open_split(config, "valid")["passage"]
    assert (part.lengths > 0).all()
    assert (part.lengths < whole.lengths).all()
    config.data.passage_buckets = (4,)
    with refused("config.data.passage_buckets = (4,), but news_stories needs at least"):
        experiment.with_sizes(config, check=True)


def test_pictures_mark_the_words_that_are_looked_at():
    example = pictures.Example(
        passage=["<a>", "@entity1", "won"],
        attention=np.array([0.1, 0.8, 0.1]),
        question=["who", "@placeholder"],
        best_word="@entity1",
        answer="@entity1",
    )
    image = pictures.draw([example], "caption")
    colour = np.multiply(pictures.ATTENTION_COLOUR, 255)
    assert (image == colour).all(-1).sum() > 500
