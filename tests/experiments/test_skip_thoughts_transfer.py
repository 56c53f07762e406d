"""Transfer tasks: folds, logistic regression beside scikit-learn, SICK, encoders."""

import jax
import numpy as np
import pytest
import scipy.sparse
from ml_collections import ConfigDict
from scipy.stats import pearsonr, rankdata, spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from experiments.skip_thoughts import (
    encoding,
    evaluate,
    logistic_regression,
    make,
    model,
    relatedness,
)
from lnrepro.data.readers.sentences import columns_of_labelled
from lnrepro.data.text import Vocabulary
from lnrepro.engine import schedule
from tests import oracle
from tests.data.small import prepare_own
from tests.experiments.small import config_of
from tests.refused import refused

WORDS = Vocabulary(("the", "cat", "sat", "did", "n't", "."))


def problem(n=300, d=12):
    """Rows of length 1 whose labels a line explains in part."""
    rng = np.random.RandomState(0)
    x = rng.randn(n, d) + 1
    y = (x @ rng.randn(d) + 1.5 * rng.randn(n) > 0.5).astype(int)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), y


# -- nested cross-validation


@pytest.mark.parametrize(("c", "sparse"), [(1.0, True), (256.0, False), (256.0, True)])
def test_minimisers_are_liblinears(c, sparse):
    x, y = problem()
    train = logistic_regression.folds(y, 4, 1234).train[:, :4]
    rows = np.concatenate([x, np.ones((len(x), 1), np.float32)], 1)
    rows = scipy.sparse.csr_array(rows) if sparse else rows
    start = np.zeros((13, 4), np.float32)
    w = logistic_regression.solve(rows, y > 0, train, c, start, tolerance=1e-6)
    liblinear = LogisticRegression(C=c, solver="liblinear", tol=1e-8, max_iter=1000)
    for found, chosen in zip(w.T, train.T, strict=True):
        reference = liblinear.fit(x[chosen], y[chosen])
        wanted = np.append(reference.coef_[0], reference.intercept_)
        np.testing.assert_allclose(found, wanted, atol=2e-3 * np.abs(wanted).max())


def test_nested_accuracies_are_scikit_learns():
    x, y = problem(240, 6)
    found = logistic_regression.nested_cross_validation(x, y, 4, 7)
    order = np.arange(len(y))
    np.random.RandomState(7).shuffle(order)
    x, y = x[order], y[order]

    def accuracy(c, train, test):
        fitted = LogisticRegression(C=c, solver="liblinear").fit(x[train], y[train])
        return 100 * fitted.score(x[test], y[test])

    for i, (train, test) in enumerate(KFold(4).split(x)):
        inner = list(KFold(4).split(train))
        means = []
        for c in logistic_regression.GRID:
            of_c = [accuracy(c, train[a], train[b]) for a, b in inner]
            means.append(np.mean(of_c))
        best = logistic_regression.GRID[int(np.argmax(means))]
        np.testing.assert_allclose(found[i], accuracy(best, train, test), atol=1e-4)


# -- SICK


def test_target_its_inverse_and_the_features():
    found = relatedness.target([3.6, 5.0, 1.0])
    wanted = [[0, 0, 0.4, 0.6, 0], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]]
    np.testing.assert_allclose(found, wanted)
    scores = np.linspace(1, 5, 41)
    distributions = relatedness.target(scores)
    np.testing.assert_allclose(distributions.sum(1), 1)
    np.testing.assert_allclose(relatedness.expected(distributions), scores)
    u, v = np.array([[1.0, -2.0, 3.0]]), np.array([[4.0, 1.0, 0.5]])
    np.testing.assert_array_equal(relatedness.features(u, v), [[3, 3, 2.5, 4, -2, 1.5]])


def test_relatedness_learns_what_the_vectors_show():
    rng = np.random.RandomState(0)
    options = config_of("skip_thoughts").transfer
    options.update({"sick_epochs": 500, "sick_blocks": 3})
    parts = {}
    for part, n in {"train": 200, "trial": 60, "test": 150}.items():
        u, scores = rng.randn(n, 6), rng.uniform(1, 5, n)
        apart = (5 - scores)[:, None] * rng.choice([-1, 1], (n, 6))
        parts[part] = (u, u + apart, scores)
    found = relatedness.fit_and_test(parts, options)
    assert found["pearson"] > 0.9
    assert found["mse"] < 0.4


def test_correlations_are_scipys():
    rng = np.random.RandomState(0)
    a, b = rng.randn(50), rng.randint(0, 9, 50)
    found = relatedness._pearson(a, b), relatedness._pearson(rankdata(a), rankdata(b))
    np.testing.assert_allclose(found, [pearsonr(a, b)[0], spearmanr(a, b)[0]])
    assert relatedness._pearson(np.ones(5), np.arange(5)) == 0


# -- encoding


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The cat didn't sit.", "The cat did n't sit ."),
        ("it 's the dog 's , is n't it ?", "it 's the dog 's , is n't it ?"),
        ('they\u2019ll say "well-known ..."', 'they \'ll say " well-known ... "'),
        ("\ufeff\u201cWait\u2026\u201d \u2014 he said", "`` Wait ... '' -- he said"),
        ("cafe\u0301", "caf\u00e9"),
        ("  ", ""),
    ],
)
def test_tokens(text, tokens):
    assert encoding.tokens_of(text, lowercase=False) == tokens.split()
    assert encoding.tokens_of(text, lowercase=True) == tokens.lower().split()


@pytest.fixture(scope="module")
def encoder():
    sizes = {"units": 6, "word_size": 4, "vocabulary": len(WORDS)}
    config = config_of("skip_thoughts", **{f"model.{k}": n for k, n in sizes.items()})
    net, rng = model.SkipThoughts(config), np.random.RandomState(0)
    shapes = jax.eval_shape(net.init, jax.random.key(0))
    params = jax.tree.map(lambda s: rng.randn(*s.shape).astype(np.float32), shapes)
    words = encoding.WordVectors(params["embedding"], WORDS)
    return encoding.Encoder(net, params, words, lowercase=True, batch_size=4), params


TEXTS = (
    "The cat sat.",
    "",
    "cat " * 20,
    "sat",
    "the the the",
    "unheard words",
    "did",
    "did n't",
    "The cat sat .",
)


def test_a_vector_does_not_depend_on_its_company(encoder):
    encode, _ = encoder
    together = encode(TEXTS, end_token=False)
    alone = [encode([text], end_token=False)[0] for text in TEXTS]
    np.testing.assert_allclose(alone, together, atol=1e-6)
    lengths = np.linalg.norm(together, axis=1)
    np.testing.assert_allclose(lengths, [1, 0] + [1] * 7, atol=1e-6)
    np.testing.assert_array_equal(together[0], together[8])
    assert encode([], end_token=False).shape == (0, 6)


def test_the_vector_is_the_last_state(encoder):
    encode, params = encoder
    h = np.zeros(6)
    for word in [*WORDS.encode(["the", "cat"]), 0]:
        x = params["embedding"][word]
        _, h = oracle.gru_step(params["encoder"], "layer", None, h, x)
    found = encode(["the cat"], end_token=True)[0]
    np.testing.assert_allclose(found, h / np.linalg.norm(h), atol=1e-6)


class Vectors(dict):
    path = "vectors"


def test_a_quotation_mark_is_that_of_the_books():
    table = np.random.RandomState(0).randn(4, 3).astype(np.float32)
    words = encoding.WordVectors(table, Vocabulary(["``", "late"]))
    found = words(["``", "''", '"', "late", "--"])
    np.testing.assert_array_equal(found, table[[2, 2, 2, 3, 1]])


def test_expansion_is_the_linear_regression():
    rng = np.random.RandomState(0)
    vectors, shift, matrix = rng.randn(6, 2), rng.randn(3), rng.randn(2, 3)
    # Rows 0 and 1 are those of special tokens.
    table = np.concatenate([rng.randn(2, 3), vectors @ matrix + shift])
    known = dict(zip(WORDS.words, vectors, strict=True))
    other = {"dog": np.array([1.0, -2.0]), "New_York": np.ones(2)}
    words = encoding.WordVectors(np.float32(table), WORDS, Vectors(known | other))
    wanted = [other["dog"] @ matrix + shift, table[3], table[1], table[1]]
    found = words(["dog", "cat", "New_York", "nowhere"])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert words.unknown == 2
    with refused("vectors: has none of the 6 words"):
        encoding.WordVectors(table, WORDS, Vectors(other))


# -- whole


@pytest.mark.slow
def test_neighbours_and_a_baseline(tmp_path):
    config = config_of("skip_thoughts", **{"data.dir": str(tmp_path)})
    exp = make(config)
    vars = exp.init(jax.random.key(0))
    page = exp.evals["neighbours"].run(vars).files["neighbours.txt"]
    assert page.count("\n    ") == 12 * 4
    # A polarity of words shows in the words.
    assert evaluate.bag_of_words("story_mpqa", config)["accuracy"] > 60


def check_transfer(folder, *message, **evals):
    """Check that what the evaluations read is refused with these words, or taken."""
    config = config_of("skip_thoughts", curves=(), **{"data.dir": str(folder)})
    config.evals = ConfigDict(evals)
    if message:
        with refused(*message):
            schedule.known_metrics(config, make(config))
    else:
        schedule.known_metrics(config, make(config))


def test_a_missing_transfer_set_is_named_before_training(tmp_path):
    says = "config.evals.sick: sick is not prepared"
    check_transfer(tmp_path, says, sick="end", mr="never")
    check_transfer(tmp_path, sick="never", mr="never")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1] * 20, ()),
        ([0, 1, 2, 3, 4, 5] * 9, ("label of example 2 of sentences is 2",)),
        ([0, 1, 0], ("3 sentences are too few for ",)),
        ([0] * 40, ("of 40 sentences, 0 are labelled 1: a fold has one label only",)),
        ([1] * 40, ("of 40 sentences, 40 are labelled 1",)),
    ],
)
def test_a_transfer_set_that_does_not_fit_is_named_before_training(
    tmp_path, labels, message
):
    rows = [(f"text {i}", label) for i, label in enumerate(labels)]
    prepare_own(tmp_path, {"sentences": columns_of_labelled(rows)})
    more = ("the set own", "config.evals.own to never") if message else ()
    check_transfer(tmp_path, *message, *more, own="end")
