"""Transfer tasks: folds, logistic regression beside scikit-learn, SICK, encoders."""

import jax
import numpy as np
import pytest
import scipy.sparse
from ml_collections import ConfigDict
from scipy.stats import pearsonr, rankdata, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from configs import skip_thoughts as config_file
from experiments.skip_thoughts import (
    encoding,
    evaluate,
    logistic_regression,
    make,
    model,
    relatedness,
)
from lnrepro import data
from lnrepro.data.reader import Content, Reader
from lnrepro.data.readers.sentences import columns_of_labelled
from lnrepro.data.text import Vocabulary
from lnrepro.engine import experiment
from lnrepro.errors import UserError
from tests import oracle
from tests.refused import refused

WORDS = Vocabulary(("the", "cat", "sat", "did", "n't", "."))


def problem(n=300, d=12, seed=0):
    """Rows of length 1 whose labels a line explains in part."""
    rng = np.random.RandomState(seed)
    x = rng.randn(n, d) + 1
    y = (x @ rng.randn(d) + 1.5 * rng.randn(n) > 0.5).astype(int)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


# -- nested cross-validation


@pytest.mark.parametrize("c", [1.0, 256.0])
@pytest.mark.parametrize("sparse", [False, True])
def test_minimisers_are_liblinears(c, sparse):
    x, y = problem()
    train = logistic_regression.folds(len(y), 4, 1234).train[:, :4]
    with_one = np.concatenate([x, np.ones((len(x), 1), np.float32)], 1)
    rows = scipy.sparse.csr_array(with_one) if sparse else with_one
    w = logistic_regression.solve(
        rows, y > 0, train, c, np.zeros((13, 4), np.float32), tolerance=1e-6
    )
    for k in range(4):
        reference = LogisticRegression(
            C=c, solver="liblinear", tol=1e-8, max_iter=1000
        ).fit(x[train[:, k]], y[train[:, k]])
        wanted = np.append(reference.coef_[0], reference.intercept_)
        np.testing.assert_allclose(w[:, k], wanted, atol=2e-3 * np.abs(wanted).max())


def test_nested_accuracies_are_scikit_learns():
    x, y = problem(240, 6)
    found, chosen = logistic_regression.nested_cross_validation(x, y, 4, 7)
    order = np.arange(len(y))
    np.random.RandomState(7).shuffle(order)
    x, y = x[order], y[order]
    for i, (train, test) in enumerate(KFold(4).split(x)):

        def fit(c, rows, x=x, y=y):
            return LogisticRegression(C=c, solver="liblinear").fit(x[rows], y[rows])

        means = [
            np.mean(
                [
                    fit(c, train[a]).score(x[train[b]], y[train[b]])
                    for a, b in KFold(4).split(train)
                ]
            )
            for c in logistic_regression.GRID
        ]
        assert chosen[i] == logistic_regression.GRID[int(np.argmax(means))]
        np.testing.assert_allclose(
            found[i], 100 * fit(chosen[i], train).score(x[test], y[test]), atol=1e-4
        )


# -- SICK


def test_target_and_its_inverse():
    np.testing.assert_allclose(
        relatedness.target([3.6, 5.0, 1.0]),
        [[0, 0, 0.4, 0.6, 0], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]],
    )
    scores = np.linspace(1, 5, 41)
    distributions = relatedness.target(scores)
    assert distributions.min() >= 0
    np.testing.assert_allclose(distributions.sum(1), 1)
    np.testing.assert_allclose(relatedness.expected(distributions), scores)


def test_features_are_differences_and_products():
    u, v = np.array([[1.0, -2.0, 3.0]]), np.array([[4.0, 1.0, 0.5]])
    found = relatedness.features(u, v)
    np.testing.assert_array_equal(found, [[3, 3, 2.5, 4, -2, 1.5]])


def test_relatedness_learns_what_the_vectors_show_and_nothing_from_noise():
    rng = np.random.RandomState(0)

    def pairs(n, shown):
        u, scores = rng.randn(n, 6), rng.uniform(1, 5, n)
        apart = (5 - scores)[:, None] * rng.choice([-1, 1], (n, 6))
        return u, u + apart if shown else rng.randn(n, 6), scores

    found = {}
    for shown in (True, False):
        parts = {"train": pairs(200, shown), "trial": pairs(60, shown)}
        parts["test"] = pairs(150, shown)
        found[shown] = relatedness.fit_and_test(parts, epochs=500, blocks=3)
    assert found[True]["pearson"] > 0.9
    assert found[True]["mse"] < 0.4
    assert abs(found[False]["pearson"]) < 0.3


def test_correlations_are_scipys():
    rng = np.random.RandomState(0)
    a, b = rng.randn(50), rng.randint(0, 9, 50)
    np.testing.assert_allclose(relatedness._pearson(a, b), pearsonr(a, b)[0])
    np.testing.assert_allclose(
        relatedness._pearson(rankdata(a), rankdata(b)), spearmanr(a, b)[0]
    )
    assert relatedness._pearson(np.ones(5), np.arange(5)) == 0


# -- encoding


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The cat didn't sit.", ["The", "cat", "did", "n't", "sit", "."]),
        (
            "it 's the dog 's , is n't it ?",
            ["it", "'s", "the", "dog", "'s", ",", "is", "n't", "it", "?"],
        ),
        (
            'they\u2019ll say "well-known ..."',
            ["they", "'ll", "say", '"', "well-known", "...", '"'],
        ),
        (
            "\ufeff\u201cWait\u2026\u201d \u2014 he said",
            ["``", "Wait", "...", "''", "--", "he", "said"],
        ),
        ("  ", []),
    ],
)
def test_tokens(text, tokens):
    assert encoding.tokens_of(text, lowercase=False) == tokens
    assert encoding.tokens_of(text, lowercase=True) == [t.lower() for t in tokens]


@pytest.fixture(scope="module")
def encoder():
    config = config_file.get_config("smoke")
    config.model.update({"units": 6, "word_size": 4, "vocabulary": len(WORDS)})
    net, rng = model.SkipThoughts(config), np.random.RandomState(0)
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    params = jax.tree.map(lambda s: rng.randn(*s.shape).astype(np.float32), shapes)
    return encoding.Encoder(
        net,
        params,
        encoding.WordVectors(params["embedding"], WORDS),
        lowercase=True,
        batch_size=4,
    ), params


def test_a_vector_does_not_depend_on_its_company(encoder):
    encode, _ = encoder
    texts = [
        "The cat sat.",
        "",
        "cat " * 20,
        "sat",
        "the the the",
        "unheard words",
        "did",
        "did n't",
        "The cat sat .",
    ]
    together = encode(texts, end_token=False)
    assert together.shape == (9, 6)
    for i, text in enumerate(texts):
        np.testing.assert_allclose(
            encode([text], end_token=False)[0], together[i], atol=1e-6
        )
    np.testing.assert_allclose(
        np.linalg.norm(together, axis=1), [1, 0, 1, 1, 1, 1, 1, 1, 1], atol=1e-6
    )
    np.testing.assert_array_equal(together[0], together[8])
    np.testing.assert_allclose(
        np.linalg.norm(encode([""], end_token=True)), 1, rtol=1e-6
    )
    assert encode([], end_token=False).shape == (0, 6)


def test_the_vector_is_the_last_state(encoder):
    encode, params = encoder
    h = np.zeros(6)
    for word in [*WORDS.encode(["the", "cat"]), 0]:
        x = params["embedding"][word]
        _, h = oracle.gru_step(params["encoder"], "layer", None, h, x)
    np.testing.assert_allclose(
        encode(["the cat"], end_token=True)[0], h / np.linalg.norm(h), atol=1e-6
    )


class Vectors(dict):
    path = "vectors"


def test_a_quotation_mark_is_that_of_the_books():
    table = np.random.RandomState(0).randn(4, 3).astype(np.float32)
    words = encoding.WordVectors(table, Vocabulary(["``", "late"]))
    found = words(["``", "''", '"', "late", "--"])
    np.testing.assert_array_equal(found, table[[2, 2, 2, 3, 1]])


def test_expansion_is_the_linear_regression():
    rng = np.random.RandomState(0)
    table = rng.randn(len(WORDS), 3).astype(np.float32)
    shift, matrix = rng.randn(3), rng.randn(2, 3)
    known = {word: rng.randn(2) for word in WORDS.words}
    for word, vector in known.items():
        table[WORDS.encode([word])[0]] = vector @ matrix + shift
    other = {"dog": np.array([1.0, -2.0]), "New_York": np.ones(2)}
    words = encoding.WordVectors(table, WORDS, Vectors(known | other))
    np.testing.assert_allclose(
        words(["dog", "cat"]), [other["dog"] @ matrix + shift, table[3]], rtol=1e-5
    )
    np.testing.assert_array_equal(words(["New_York", "nowhere"]), table[[1, 1]])
    assert words([]).shape == (0, 3)
    with pytest.raises(UserError, match="has none of the 6 words"):
        encoding.WordVectors(table, WORDS, Vectors(other))


# -- whole


@pytest.mark.slow
def test_neighbours_and_a_baseline(tmp_path):
    config = config_file.get_config("smoke")
    config.data.dir = str(tmp_path)
    exp = make(config)
    vars = exp.init(jax.random.key(0))
    page = exp.evals["neighbours"].run(vars).files["neighbours.txt"]
    assert page.count("\n    ") == 12 * 4
    # A polarity of words shows in the words.
    assert evaluate.bag_of_words("story_mpqa", config)["accuracy"] > 60


def test_a_missing_transfer_set_is_named_before_training(tmp_path):
    config = config_file.get_config("smoke")
    config.data.dir = str(tmp_path)
    config.evals, config.curves = ConfigDict({"sick": "end", "mr": "never"}), ()
    exp = make(config)
    with pytest.raises(UserError, match=r"^config.evals.sick: sick is not prepared"):
        experiment.known_metrics(config, exp)
    config.evals.sick = "never"
    experiment.known_metrics(config, make(config))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1] * 20, ""),
        ([0, 1, 2, 3, 4, 5] * 9, "label of example 2 of sentences is 2"),
        ([0, 1, 0], "3 sentences are too few for "),
        ([0] * 40, "of 40 sentences, 0 are labelled 1: a fold has one label only"),
    ],
)
def test_a_transfer_set_that_does_not_fit_is_named_before_training(
    tmp_path, labels, message
):
    rows = [(f"text {i}", label) for i, label in enumerate(labels)]
    own = Reader(
        title="Own.",
        read=lambda raw: Content({"sentences": columns_of_labelled(rows)}),
    )
    data.prepare("own", tmp_path, tmp_path, reader=own)
    config = config_file.get_config("smoke")
    config.data.dir = str(tmp_path)
    config.evals, config.curves = ConfigDict({"own": "end"}), ()
    if message:
        with refused(message, "the set own", "config.evals.own to never"):
            experiment.known_metrics(config, make(config))
    else:
        experiment.known_metrics(config, make(config))
