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
from lnrepro.engine.experiment import check_data_sizes
from lnrepro.errors import DataError, UserError
from tests.oracle import sigmoid

NORMS = model.NORMS
EPS = 1e-5


def small(norm="layer", **sizes):
    config = config_file.get_config("smoke")
    config.norm = norm
    config.model.update({"units": 5, "statistics_steps": 9, "dropout": 0.0} | sizes)
    config.data.update({"vocabulary": 23, "entities": 6})
    return config


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


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
    rng = np.random.RandomState(0)
    params = jax.tree.map(
        lambda a: np.asarray(a) + 0.2 * rng.randn(*a.shape),
        reader.init(jax.random.key(0)),
    )

    @jax.jit
    def read(params, batch, population=None):
        reading = reader.read(params, batch, population=population)
        return reader.scores(params, reading.readout), reading

    return reader, params, read


# The oracle computes with lists of vectors, one case at a time. Batch norm's statistics
# are computed step by step over the rows that have not ended.


def standard(a, mean, var):
    return (a - mean) / np.sqrt(var + EPS)


def over_rows(rows, statistics=None):
    """Normalise vectors by feature with their own, or the given, statistics."""
    mean, var = statistics or (np.mean(rows, 0), np.var(rows, 0))
    return [standard(a, mean, var) for a in rows]


def oracle_lstm(norm, p, h0, sequences, population=None):
    """Compute all h of every sequence (eq. 17-22, or Cooijmans et al.)."""
    c = [np.zeros_like(h0) for _ in sequences]
    h = [h0 for _ in sequences]
    out = [[] for _ in sequences]
    for t in range(max(map(len, sequences))):
        alive = [b for b, s in enumerate(sequences) if t < len(s)]
        px, ph = (
            [sequences[b][t] @ p["w_x"] for b in alive],
            [h[b] @ p["w_h"] for b in alive],
        )
        at = {k: [s[t] for s in v] for k, v in population.items()} if population else {}
        if norm.startswith("layer"):
            px = [
                standard(a, a.mean(), a.var()) * p["gain_x"] + p["bias_x"] for a in px
            ]
            ph = [
                standard(a, a.mean(), a.var()) * p["gain_h"] + p["bias_h"] for a in ph
            ]
        elif norm.startswith("batch"):
            px = [a * p["gain_x"] for a in over_rows(px, at.get("x"))]
            ph = [a * p["gain_h"] for a in over_rows(ph, at.get("h"))]
        gates = [np.split(a + b + p["bias"], 4) for a, b in zip(px, ph, strict=True)]
        for b, (f, i, _, g) in zip(alive, gates, strict=True):
            c[b] = sigmoid(f) * c[b] + sigmoid(i) * np.tanh(g)
        shown = [c[b] for b in alive]
        if norm.startswith("layer"):
            shown = [
                standard(a, a.mean(), a.var()) * p["gain_c"] + p["bias_c"]
                for a in shown
            ]
        elif norm.startswith("batch"):
            shown = [
                a * p["gain_c"] + p["bias_c"] for a in over_rows(shown, at.get("c"))
            ]
        for b, (_, _, o, _), a in zip(alive, gates, shown, strict=True):
            h[b] = sigmoid(o) * np.tanh(a)
            out[b].append(h[b])
    return out


def oracle(norm, params, batch, population=None):
    """Compute (logits, attention) of every case."""
    texts = {
        name: [
            list(params["embedding"][row[:n]])
            for row, n in zip(batch[name], batch[f"{name}_length"], strict=True)
        ]
        for name in ("passage", "question")
    }
    encoded = {}
    for name, sequences in texts.items():
        # One list of outputs for each direction, in the order of the text.
        encoded[name] = []
        for k, p in enumerate(params[name]):
            turned = [s[::-1] for s in sequences] if k else sequences
            stats = population[name][k]["sites"] if population else None
            hs = oracle_lstm(norm, p["lstm"], p["h0"], turned, stats)
            encoded[name].append([h[::-1] for h in hs] if k else hs)
    cases = range(len(batch["answer"]))
    d = [
        [
            np.concatenate(hs)
            for hs in zip(*(way[b] for way in encoded["passage"]), strict=True)
        ]
        for b in cases
    ]
    u = [
        np.concatenate(
            [way[b][0 if k else -1] for k, way in enumerate(encoded["question"])]
        )
        for b in cases
    ]

    def apply(name, rows):
        p, rows = params[name], [a @ params[name]["w"] for a in rows]
        if norm == "batch_everywhere":
            rows = [
                a * p["gain"]
                for a in over_rows(rows, population and population[name]["sites"])
            ]
        elif norm == "layer_everywhere":
            rows = [standard(a, a.mean(), a.var()) * p["gain"] for a in rows]
        return [a + p.get("bias", 0) for a in rows]

    flat = iter(apply("attend_passage", [a for case in d for a in case]))
    asked, m = apply("attend_question", u), params["similarity"]
    attention, r = [], []
    for b in cases:
        scores = []
        for step in d[b]:
            s = sum((step @ m)[k] * (u[b] @ m)[k] for k in range(m.shape[1]))
            scores.append(params["attention"] @ np.tanh(next(flat) + asked[b] + s))
        e = np.exp(np.array(scores) - max(scores))
        attention.append(e / e.sum())
        r.append(sum(a * step for a, step in zip(attention[b], d[b], strict=True)))
    parts = zip(
        apply("read_passage", r),
        apply("read_question", u),
        apply("read_mean", [np.mean(c, 0) for c in d]),
        strict=True,
    )
    g = [np.tanh(sum(p)) for p in parts]
    return [a @ params["output"]["w"] + params["output"]["bias"] for a in g], attention


def population_of(reader, seed=1):
    """Draw random population statistics of the reader's shapes."""
    rng = np.random.RandomState(seed)

    def fill(p):
        sites = jax.tree.map(
            lambda a: jnp.asarray(rng.rand(*a.shape) + 0.2), p["sites"]
        )
        return {"sites": sites, "count": jnp.ones_like(p["count"])}

    return {
        n: tuple(map(fill, p)) if isinstance(p, tuple) else fill(p)
        for n, p in reader.population().items()
    }


@pytest.mark.parametrize(
    ("norm", "known", "both"),
    [
        ("none", 0, 0),
        ("layer", 0, 1),
        ("layer_everywhere", 0, 0),
        ("batch_everywhere", 0, 0),
        ("batch_everywhere", 1, 0),
        pytest.param("batch", 0, 0, marks=pytest.mark.slow),
        pytest.param("batch", 1, 1, marks=pytest.mark.slow),
    ],
)
def test_attention_and_answers_are_the_brute_force_in_float64(x64, norm, known, both):
    reader, params, read = network(norm, bidirectional=bool(both))
    population, batch = population_of(reader) if known else None, batch_of()
    logits, reading = read(params, batch, population)
    wanted, attention = oracle(
        norm, params, batch, jax.tree.map(np.asarray, population)
    )
    np.testing.assert_allclose(logits, wanted, rtol=1e-8)
    for b, a in enumerate(attention):
        np.testing.assert_allclose(reading.attention[: len(a), b], a, rtol=1e-8)
        assert not reading.attention[len(a) :, b].any()


def standardised(x):
    """Normalise over all axes but the last."""
    axes = tuple(range(x.ndim - 1))
    return (x - x.mean(axes)) / np.sqrt(x.var(axes) + 1e-5)


def authors_lstm(p, h0, x, lengths):
    """Compute all h [T, B, H] as `bnlstm_layer` of the code state 94f7398 does."""
    c, h, out = np.zeros_like(h0), h0, []
    for t, x_t in enumerate(x):
        mask = (t < lengths)[:, None]
        a = standardised(h @ p["w_h"]) * p["gain_h"]
        a = a + standardised(x_t @ p["w_x"]) * p["gain_x"] + p["bias"]
        f, i, o, g = np.split(a, 4, -1)
        c = np.where(mask, sigmoid(f) * c + sigmoid(i) * np.tanh(g), c)
        shown = standardised(c) * p["gain_c"] + p["bias_c"]
        h = np.where(mask, sigmoid(o) * np.tanh(shown), h)
        out.append(h)
    return np.stack(out)


def authors_logits(norm, params, batch):
    """Compute the logits [B, V] with batch norm over all rows, padding included."""

    def encode(name):
        (p,), lengths = params[name], batch[f"{name}_length"]
        h0 = np.tile(p["h0"], (len(lengths), 1))
        return authors_lstm(p["lstm"], h0, params["embedding"][batch[name].T], lengths)

    def affine(name, rows):
        p, y = params[name], rows @ params[name]["w"]
        if norm == "batch_everywhere":
            y = standardised(y) * p["gain"]
        return y + p.get("bias", 0)

    d, u, lengths = encode("passage"), encode("question")[-1], batch["passage_length"]
    mask = (np.arange(len(d))[:, None] < lengths)[..., None]
    m = params["similarity"]
    similarity = ((d * mask @ m) * (u @ m)).sum(-1, keepdims=True)
    hidden = affine("attend_passage", d) + affine("attend_question", u) + similarity
    weights = np.exp(np.tanh(hidden) @ params["attention"])[..., None] * mask
    r = (d * weights / weights.sum(0)).sum(0)
    mean = (d * mask).sum(0) / mask.sum(0)
    g = affine("read_passage", r) + affine("read_question", u)
    g = np.tanh(g + affine("read_mean", mean))
    return g @ params["output"]["w"] + params["output"]["bias"]


@pytest.mark.parametrize(
    "norm", ["batch_everywhere", pytest.param("batch", marks=pytest.mark.slow)]
)
def test_batch_norm_over_all_rows_is_that_of_the_authors_code(x64, norm):
    reader, params, read = network(norm, batch_norm_rows="all")
    # That code pads to one word more than the longest text has.
    batch = padded(batch_of(), 8, 6)
    logits, reading = read(params, batch)
    wanted = authors_logits(norm, jax.tree.map(np.asarray, params), batch)
    np.testing.assert_allclose(logits, wanted, rtol=1e-8)
    other_rows, _ = network(norm)[2](params, batch)
    assert np.abs(logits - other_rows).max() > 1e-3
    # The last step has no word, so that population statistics leave it out.
    moved = population.update_population(reader.population(), reading.statistics, 0.9)
    assert moved["passage"][0]["count"].tolist() == [1] * 7 + [0] * 2


def test_the_published_curves_were_evaluated_with_the_statistics_of_each_batch():
    found = {
        variant: config_file.get_config(variant).model.evaluation_statistics
        for variant in config_file.VARIANTS
    }
    assert {variant for variant, how in found.items() if how == "batch"} == {"paper"}


def test_all_rows_without_batch_norm_change_nothing(x64):
    batch, params = padded(batch_of(), 8, 6), network("layer")[1]
    for rows in ("words", "all"):
        logits, _ = network("layer", batch_norm_rows=rows)[2](params, batch)
        np.testing.assert_array_equal(logits, network("layer")[2](params, batch)[0])


# Exact properties


def padded(batch, passage, question):
    """Pad the texts of a batch with zeros to these lengths."""
    lengths = {"passage": passage, "question": question}
    return batch | {
        n: np.pad(batch[n], ((0, 0), (0, t - batch[n].shape[1])))
        for n, t in lengths.items()
    }


@pytest.mark.parametrize(
    "norm",
    ["batch_everywhere", pytest.param("layer_everywhere", marks=pytest.mark.slow)],
)
def test_what_stands_in_the_padding_changes_nothing(x64, norm):
    _, params, read = network(norm)
    clean = padded(batch_of((5, 4, 1), (3, 2, 2)), 7, 5)
    other = dict(clean)
    for name in ("passage", "question"):
        padding = np.arange(clean[name].shape[1]) >= clean[f"{name}_length"][:, None]
        other[name] = np.where(padding, 13, clean[name])
        assert (other[name] != clean[name]).any()
    (_, a), (_, b) = read(params, clean), read(params, other)
    np.testing.assert_array_equal(a.readout, b.readout)
    np.testing.assert_array_equal(a.attention, b.attention)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["batch_everywhere", "layer_everywhere"])
def test_how_much_padding_there_is_changes_nothing(x64, norm):
    _, params, read = network(norm)
    (_, a), (_, b) = read(params, batch_of()), read(params, padded(batch_of(), 11, 8))
    np.testing.assert_allclose(a.readout, b.readout, rtol=1e-12)
    np.testing.assert_allclose(a.attention, b.attention[:7], rtol=1e-12)
    assert not b.attention[7:].any()


def test_masked_softmax_is_softmax_of_what_is_there():
    scores = np.random.RandomState(0).randn(6, 4).astype(np.float32) * 30
    lengths = np.array([6, 3, 1, 0])
    mask = np.arange(6)[:, None] < lengths
    masked = jax.jit(softmax.masked_softmax)
    for rubbish in (0, np.nan, np.inf, 1e30):
        a = masked(np.where(mask, scores, np.float32(rubbish)), mask)
        for b, n in enumerate(lengths):
            e = np.exp(scores[:n, b].astype(float) - scores[:n, b].max(initial=0))
            np.testing.assert_allclose(a[:n, b], e / e.sum(), rtol=1e-5, atol=1e-30)
        assert not np.asarray(a)[~mask].any()
    grad = jax.jit(jax.grad(lambda s: (softmax.masked_softmax(s, mask) ** 2).sum()))(
        np.where(mask, scores, np.nan)
    )
    assert np.isfinite(np.asarray(grad)[mask]).all()


def test_statistics_by_time_step_are_those_of_the_rows_that_are_there(x64):
    reader, params, read = network("batch_everywhere")
    first, second = batch_of(), padded(batch_of((2, 6, 3), (4, 1, 1), seed=1), 7, 5)
    seen = [read(params, b)[1].statistics for b in (first, second)]
    for batch, what in zip((first, second), seen, strict=True):
        (stats, alive), lengths = what["passage"][0], batch["passage_length"]
        p = jax.tree.map(np.asarray, params["passage"][0]["lstm"])
        for t in range(max(lengths)):
            rows = [
                params["embedding"][ids[t]] @ p["w_x"]
                for ids, n in zip(batch["passage"], lengths, strict=True)
                if t < n
            ]
            np.testing.assert_allclose(stats["x"][0][t], np.mean(rows, 0), atol=1e-12)
            np.testing.assert_allclose(stats["x"][1][t], np.var(rows, 0), atol=1e-12)
        assert alive.tolist() == [t < max(lengths) for t in range(7)]
    moved, update = reader.population(), jax.jit(population.update_population)
    for what in seen:
        moved = update(moved, what, reader.sizes.momentum)
    filled = population.filled(moved["passage"][0])
    a, b = (what["passage"][0][0]["h"][0] for what in seen)
    means = filled["h"][0]
    # Both batches have 6 words. Only the first one has a 7th, and none has more.
    np.testing.assert_allclose(means[:6], (a[:6] + b[:6]) / 2, atol=1e-7)
    np.testing.assert_allclose(means[6:], np.repeat(a[6:7], 3, 0), atol=1e-7)
    means = [what["attend_passage"][0] for what in seen]
    np.testing.assert_allclose(
        moved["attend_passage"]["sites"][0], sum(means) / 2, atol=1e-7
    )


def test_running_average_after_many_batches(x64):
    _, params, read = network("batch_everywhere")
    reader = model.Reader(small("batch_everywhere"))
    seen = read(params, batch_of())[1].statistics
    moved, wanted = reader.population(), 0.0
    update = jax.jit(population.update_population)
    for k in range(1, 9):
        scaled = jax.tree.map(lambda a, k=k: a * k if a.dtype != bool else a, seen)
        moved = update(moved, scaled, 0.75)
        rate = min((k - 1) / k, 0.75)
        wanted = rate * wanted + (1 - rate) * k
    ratio = moved["passage"][0]["sites"]["c"][1][0] / seen["passage"][0][0]["c"][1][0]
    np.testing.assert_allclose(ratio, wanted, rtol=1e-4)


def test_training_uses_the_momentum_of_the_config():
    # With momentum 0 the statistics are those of the last batch alone.
    experiment = make(small("batch", momentum=0.0))
    vars, key = experiment.init(jax.random.key(0)), jax.random.key(1)
    first, second = batch_of(), batch_of(seed=1)

    @jax.jit
    def after(batch_stats, batch):
        return experiment.loss({**vars, "batch_stats": batch_stats}, batch, key)[1][0]

    fresh = vars["batch_stats"]
    once = after(fresh, second)["batch_stats"]
    twice = after(after(fresh, first)["batch_stats"], second)["batch_stats"]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6),
        once["question"][0]["sites"],
        twice["question"][0]["sites"],
    )


@pytest.mark.parametrize(
    "norm",
    ["batch_everywhere", pytest.param("layer_everywhere", marks=pytest.mark.slow)],
)
def test_evaluation_does_not_depend_on_the_batch(x64, norm):
    reader, params, read = network(norm)
    batch = batch_of()
    population = population_of(reader) if norm == "batch_everywhere" else None
    together = read(params, batch, population)[1].readout
    company = batch_of((2, 7, 3), (4, 1, 5), seed=1)
    for b in range(3):
        among = {
            k: np.concatenate([v[b : b + 1], company[k][1:]]) for k, v in batch.items()
        }
        np.testing.assert_allclose(
            together[b], read(params, among, population)[1].readout[0], rtol=1e-11
        )
    if population:
        # With the statistics of the batch it does depend on the batch.
        again = batch | {
            name: batch[name][[0, 1, 1]]
            for name in ("passage", "passage_length", "question", "question_length")
        }
        own = [read(params, b)[1].readout[:2] for b in (batch, again)]
        assert jnp.abs(own[0] - own[1]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("norm", "rows"),
    [
        ("layer_everywhere", "words"),
        ("batch_everywhere", "words"),
        ("batch_everywhere", "all"),
    ],
)
def test_gradients_are_central_differences(x64, norm, rows):
    reader, params, _ = network(norm, batch_norm_rows=rows)
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
    g, w, bias = rng.randn(3, 4), rng.randn(4, 9), rng.randn(9)
    answer = np.array([1, 8, 2])
    # The second answer is so probable or improbable that the floor counts.
    g[1] *= 30
    weights = rng.randn(3)

    def plain(g, w, bias):
        p = jnp.exp(g @ w + bias) / jnp.exp(g @ w + bias).sum(1, keepdims=True)
        return weights @ jnp.log(p[jnp.arange(3), answer] + 1e-8)

    def ours(g, w, bias):
        return weights @ softmax.answered(g, w, bias, answer)[0]

    found, wanted = (
        jax.jit(jax.value_and_grad(f, (0, 1, 2)))(g, w, bias) for f in (ours, plain)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-15),
        found,
        wanted,
    )
    wrong = softmax.answered(g, w, bias, answer)[1]
    np.testing.assert_array_equal(wrong, (g @ w + bias).argmax(1) != answer)
    impossible = softmax.answered(
        g[:1], np.zeros((4, 2)), np.array([0.0, 1e3]), np.array([0])
    )[0]
    np.testing.assert_allclose(impossible, np.log(1e-8))


@pytest.mark.slow
def test_renaming_entities_alike_everywhere_renames_the_rows_of_the_network(x64):
    config, batch = small("none"), batch_of()
    _, params, read = network("none")
    permutation = jnp.array([3, 0, 5, 1, 4, 2])
    there = data.permute_entities(batch, permutation, config.data)
    for name in ("passage", "question"):
        other = batch[name] > config.data.entities
        np.testing.assert_array_equal(there[name][other], batch[name][other])
        assert (there[name][~other] != batch[name][~other]).any()
    # Row i of a table moves to row ids[i].
    ids = jnp.arange(23).at[1:7].set(1 + permutation)
    moved = params | {
        "embedding": jnp.asarray(params["embedding"]).at[ids].set(params["embedding"])
    }
    moved["output"] = jax.tree.map(
        lambda a: jnp.asarray(a).at[..., ids].set(a), params["output"]
    )
    scores = [read(p, b)[0] for p, b in ((params, batch), (moved, there))]
    np.testing.assert_allclose(scores[0], scores[1][:, ids], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("permute", "same"), [("training", False), ("never", True)])
def test_each_training_batch_has_its_own_renaming(permute, same):
    config = small("none")
    config.permute_entities = permute
    exp, batch = make(config), batch_of()
    vars, loss = exp.init(jax.random.key(0)), jax.jit(exp.loss)
    a, b = (loss(vars, batch, jax.random.key(k))[0] for k in (0, 1))
    assert (a == b) == same


@pytest.mark.slow
def test_dropout_scales_in_training_or_at_test(x64):
    _, params, plain = network("none")
    at_test, _, scaled = network("none", dropout=0.5, dropout_scaling="test")
    batch, halved = batch_of(), params | {"embedding": params["embedding"] / 2}
    np.testing.assert_allclose(
        scaled(params, batch)[1].readout,
        plain(halved, batch)[1].readout / 2,
        rtol=1e-12,
    )
    reader = model.Reader(small("none", dropout=0.5))
    x, key = jnp.ones((200, 50)), jax.random.key(0)
    assert (reader._dropout(None, x) == 1).all()
    assert set(np.unique(reader._dropout(key, x))) == {0, 2}
    assert set(np.unique(at_test._dropout(key, x))) == {0, 1}
    assert abs(reader._dropout(key, x).mean() - 1) < 0.05


@pytest.mark.parametrize(
    ("norm", "more"),
    [
        ("none", 0),
        ("layer", 8640),
        ("layer_everywhere", 9840),
        ("batch", 4800),
        ("batch_everywhere", 6000),
    ],
)
def test_parameter_counts_of_the_paper(norm, more):
    config = config_file.get_config("paper")
    config.norm = norm
    shapes = jax.eval_shape(make(config).init, jax.random.key(0))["params"]
    words = sum(
        a.size
        for name in ("embedding", "output")
        for a in jax.tree.leaves(shapes[name])
    )
    assert sum(a.size for a in jax.tree.leaves(shapes)) == 32_934_550 + more
    assert sum(a.size for a in jax.tree.leaves(shapes)) - words == 1_270_320 + more


@pytest.mark.slow
def test_gains_start_where_the_config_says():
    reader = model.Reader(small("layer", gain={"layer": 0.1, "batch": 0.3}))
    lstm = jax.jit(reader.init)(jax.random.key(0))["question"][0]["lstm"]
    assert {
        float(v) for k in ("gain_x", "gain_h", "gain_c") for v in np.asarray(lstm[k])
    } == {float(np.float32(0.1))}
    block = np.asarray(lstm["w_h"][:, :5])
    np.testing.assert_allclose(block.T @ block, 0.05**2 * np.eye(5), atol=1e-8)


# Batches


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


def test_training_batches_have_few_tight_shapes_and_each_question_once(many):
    config = grid_config()
    shapes = data.Shapes(config, many)
    plan = shapes.plan(config)
    used, padding = shapes.usage(plan)
    assert len(used) <= 8
    exact = many["passage"].lengths.sum() + many["question"].lengths.sum()
    assert 0 < padding < 0.4
    stream, seen, real = data.training_batches(config, many, 0), [], 0
    batches = [next(stream) for _ in range(plan.steps_per_epoch)]
    stream.close()
    for b in batches:
        assert (b["passage"].shape[1], b["question"].shape[1]) in used
        for name in data.TEXTS:
            assert b[f"{name}_length"].max() <= b[name].shape[1]
            assert not b[name][
                np.arange(b[name].shape[1]) >= b[f"{name}_length"][:, None]
            ].any()
        real += b["passage_length"].sum() + b["question_length"].sum()
        seen += [question_of(b, i) for i in range(len(b["answer"]))]
    # An epoch is 18 batches of 16 different questions. The last 12 are left out.
    assert len(seen) == 288
    there = collections.Counter(question_of(many, i) for i in range(300))
    assert collections.Counter(seen) <= there
    assert len(there) > 290, "few questions are the same as another"
    total = sum(b["passage"].size + b["question"].size for b in batches)
    np.testing.assert_allclose(padding, 1 - real / total)
    assert real <= exact
    resumed = data.training_batches(config, many, 5)
    jax.tree.map(np.testing.assert_array_equal, next(resumed), batches[5])
    resumed.close()


def test_validation_counts_each_question_once(many):
    counted = []
    for b in data.evaluation_batches(grid_config(), many):
        counted += b["answer"][b["mask"] > 0].tolist()
        assert b["passage_length"].max() <= b["passage"].shape[1] <= 40
    assert sorted(counted) == sorted(many["answer"].tolist())


def test_rows_and_selected_words():
    columns = columns_of((3, 2, 4), (1, 1, 1))
    some = data.select(columns, np.array([2, 0]))
    np.testing.assert_array_equal(some["passage"][0], columns["passage"][2])
    np.testing.assert_array_equal(some["passage"][1], columns["passage"][0])
    kept = data._keep(columns["passage"], np.array([1, 0, 1, 0, 1, 0, 0, 0, 1], bool))
    assert kept.lengths.tolist() == [2, 1, 1]
    np.testing.assert_array_equal(kept[0], columns["passage"][0][[0, 2]])
    np.testing.assert_array_equal(kept[2], columns["passage"][2][3:])


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


# What users see


@pytest.mark.slow
def test_default_data_end_to_end(tmp_path):
    config = config_file.get_config("smoke")
    config.data.dir = str(tmp_path)
    exp = make(config)
    vars = jax.jit(exp.init)(jax.random.key(0))
    batches = exp.batches(0)
    value, (new, _) = jax.jit(exp.loss)(vars, next(batches), jax.random.key(1))
    batches.close()
    assert new == {}
    np.testing.assert_allclose(value, np.log(config.data.vocabulary), rtol=0.1)
    numbers = exp.evaluate(vars, "valid").scalars
    assert numbers["error"] >= numbers["entity_error"] > 0.5
    assert numbers["frequency_error"] > 0.7
    assert numbers["answer_missing"] == 0
    shown = exp.evaluate(vars, "attention")
    assert shown.images["attention"].dtype == np.uint8
    assert shown.files["attention.html"].count("<hr>") == pictures.EXAMPLES
    for change, message in (
        (
            {"data.vocabulary": 99},
            "config.data.vocabulary = 99, but news_stories has 159; pass",
        ),
        (
            {"data.passage_buckets": (20, 40)},
            r"config.data.passage_buckets = \(20, 40\), but news_stories needs at "
            r"least 7\d; pass",
        ),
    ):
        wrong = config.copy_and_resolve_references()
        wrong.update_from_flattened_dict(change)
        with pytest.raises((UserError, DataError), match=message):
            check_data_sizes(wrong)
    config.data.update(
        {
            "passage_buckets": (20, 40),
            "too_long": "cut",
            "unanswerable": "drop",
            "sentences": 2,
        }
    )
    columns = data.open_split(config, "train")
    assert columns["passage"].lengths.max() <= 40
    assert len(columns["answer"]) < 4000
    # Only training questions are dropped.
    assert len(data.open_split(config, "valid")["answer"]) == 400


def test_pictures_mark_the_words_that_are_looked_at():
    example = pictures.Example(
        passage=["<a>", "@entity1", "won"],
        attention=np.array([0.1, 0.8, 0.1]),
        question=["who", "@placeholder"],
        best_word="@entity1",
        answer="@entity1",
    )
    text = pictures.html_page([example], "a & b")
    assert "&lt;a&gt;" in text
    assert "<h1>a &amp; b</h1>" in text
    assert 'title="0.8000" style="background:rgb(255, 150, 40)">@entity1<' in text
    image = pictures.draw([example], "caption")
    strong = (image == pictures.ATTENTION_COLOUR).all(-1)
    assert strong.sum() > 500
    faint = (image == np.array(example.backgrounds()[0])).all(-1)
    assert (
        np.nonzero(faint)[1].min()
        < np.nonzero(strong)[1].min()
        < np.nonzero(faint)[1].max()
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"norm": "weight"},
            "config.norm = 'weight': choose one of none, layer, layer_everywhere, "
            "batch, batch_everywhere",
        ),
        ({"model.units": 0}, "config.model.units = 0: at least 1"),
        ({"model.dropout": 1.0}, "config.model.dropout = 1.0: it must lie in"),
        (
            {"model.dropout_scaling": "both"},
            "config.model.dropout_scaling = 'both': choose one of train, test",
        ),
        (
            {
                "norm": "batch",
                "model.batch_norm_rows": "all",
                "model.bidirectional": True,
            },
            "config.model.batch_norm_rows = 'all' is for one direction",
        ),
        (
            {"model.evaluation_statistics": "none"},
            "evaluation_statistics = 'none': choose one of population, batch",
        ),
        (
            {"permute_entities": "sometimes"},
            "config.permute_entities = 'sometimes': choose one of",
        ),
        (
            {"data.entities": 23},
            "config.data.entities = 23: give 1 to vocabulary - 1 = 22",
        ),
        ({"data.sentences": -1}, "config.data.sentences = -1"),
        (
            {"data.unanswerable": "lose"},
            "config.data.unanswerable = 'lose': choose one of keep, drop",
        ),
        (
            {"data.too_long": "drop"},
            "config.data.too_long = 'drop': choose one of refuse, cut",
        ),
        (
            {"data.passage_buckets": (100, 50)},
            "config.data.passage_buckets = .* that ascend",
        ),
    ],
)
def test_bad_fields_are_one_line(change, message):
    config = small()
    config.update_from_flattened_dict(change)
    with pytest.raises(UserError, match=message) as e:
        make(config)
    assert "\n" not in str(e.value)
