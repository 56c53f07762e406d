"""Section 5 of the paper: Table 1, and the formulas of eq. 12-14 and 32-35."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from lnrepro import theory
from lnrepro.functional import LSTMCell, step
from lnrepro.functional.norms import layer_norm
from tests.functional.programs import drawn, on_host, same, shapes_of
from tests.refused import refused

FEATURES, UNITS, CASES = 6, 4, 40
NORMALISERS = ("batch", "weight", "layer")
FAMILIES = {
    "bernoulli": theory.bernoulli,
    "gaussian": theory.gaussian(0.7),
    "categorical": theory.categorical,
}


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def draw(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def problem(norm):
    """Random theta and data of a layer, with gains and biases that are not trivial."""
    theta, x = draw(3, UNITS, FEATURES + 2), draw(4, CASES, FEATURES)
    theta[:, -1] = 0.5 + np.abs(theta[:, -1])
    # The features differ in size, and their means are not zero.
    x = x * np.linspace(0.5, 2.0, FEATURES) + draw(5, FEATURES)
    return theta[:, :-1] if norm == "none" else theta, x


def layer(norm, epsilon=0.0):
    gain, bias = np.abs(draw(11, UNITS)) + 0.5, draw(12, UNITS)
    return lambda w, x: jnp.tanh(
        theory.normalized_sums(norm, w, x, gain, bias, epsilon=epsilon)
    )


MATRIX = {"weight matrix re-scaling"}
BATCH = {"weight vector re-scaling", "dataset re-scaling", "dataset re-centering"}
CASE = {"dataset re-scaling", "single training case re-scaling"}
# The columns of Table 1 that say "Invariant".
INVARIANT = {
    "none": set(),
    "batch": MATRIX | BATCH,
    "weight": MATRIX | {"weight vector re-scaling"},
    "layer": MATRIX | CASE | {"weight matrix re-centering"},
}


def invariant_columns(model, w=None, x=None, tolerance=1e-10, **options):
    """The columns of Table 1 in which a model changes by nothing but rounding."""
    w = draw(1, FEATURES, UNITS) if w is None else w
    x = draw(2, CASES, FEATURES) + 0.3 if x is None else x
    key = jax.random.key(0)
    w, x = jnp.asarray(w), jnp.asarray(x)
    row = theory.measure_row(jax.jit(model), w, x, key=key, **options)
    found = {column for column, change in row.items() if change < tolerance}
    assert all(row[column] > 1e-2 for column in row.keys() - found), row
    return found


# Table 1


@pytest.mark.parametrize("norm", INVARIANT)
@pytest.mark.parametrize("factor", [0.3, 2.5])
def test_table_1_has_its_18_entries_and_a_second_layer_keeps_them(norm, factor):
    second = draw(3, UNITS, 3)

    def net(w, x):
        return {"logits": layer(norm)(w, x) @ second}

    assert invariant_columns(layer(norm), factor=factor) == INVARIANT[norm]
    assert invariant_columns(net, factor=factor) == INVARIANT[norm]


@pytest.mark.parametrize("norm", NORMALISERS)
def test_the_table_is_the_papers(norm):
    row = theory.TABLE_1[norm]
    assert len(row) == 6
    assert {column for column, invariant in row.items() if invariant} == INVARIANT[norm]


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_eps_breaks_the_invariance_by_the_amount_the_docs_say(norm):
    w, x, epsilon, factor = draw(1, FEATURES, UNITS), draw(2, CASES, FEATURES), 1e-5, 10
    model = jax.jit(functools.partial(theory.normalized_sums, norm, epsilon=epsilon))
    before, after = np.asarray(model(w, x)), model(factor * w, x)
    var = (x @ w).var(0 if norm == "batch" else 1, keepdims=True)
    predicted = before * epsilon / (2 * var) * (1 - factor**-2)
    assert np.abs(predicted).max() > 1e-9
    np.testing.assert_allclose(after - before, predicted, rtol=0.01)


def test_a_change_is_relative_to_the_largest_output_before_it():
    before = {"a": np.ones(2), "b": np.array([-2.0, 0.0])}
    assert theory.change(before, {"a": np.ones(2), "b": np.array([-3.0, 0.5])}) == 0.5


@pytest.mark.parametrize("of_map", [False, True])
def test_a_convolutions_layer_norm_is_not_invariant_to_recentering(of_map):
    """Statistics over channels and positions remove a constant, but no map."""

    def conv(w, x):
        sums = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        values = sums.reshape(len(sums), -1) if of_map else sums
        return layer_norm(values, epsilon=0.0).reshape(sums.shape)

    expected = INVARIANT["layer"]
    if of_map:
        expected = expected - {"weight matrix re-centering"}
    found = invariant_columns(conv, draw(1, 3, 3, 2, 5), draw(2, 6, 7, 7, 2))
    assert found == expected


@pytest.mark.parametrize("kernel", ["w_x", "w_h"])
def test_an_lstm_step_has_layer_norms_row_at_both_its_kernels(kernel):
    """Section 3.1: a norm makes the step invariant to re-scaling the summed inputs."""
    cell = LSTMCell(UNITS, epsilon=0.0)
    params = drawn(shapes_of(cell, FEATURES, jnp.float64)[0])
    x, c, h = draw(20, CASES, FEATURES), draw(21, CASES, UNITS), draw(22, CASES, UNITS)

    def model(weights, inputs):
        changed = params | {kernel: weights}
        if kernel == "w_x":
            return step(cell, changed, (c, h), inputs)
        return step(cell, changed, (c, inputs), x)

    data = {"w_x": x, "w_h": h}[kernel]
    assert invariant_columns(model, params[kernel], data) == INVARIANT["layer"]


def test_mistakes_are_named():
    w, x = draw(1, FEATURES, UNITS), draw(2, CASES, FEATURES)
    with refused("'instance'", error=ValueError):
        theory.normalized_sums("instance", w, x)
    theta = draw(1, UNITS, FEATURES + 1)
    with refused("theta has shape (4, 7)", error=ValueError):
        theory.block_fisher("layer", theta, x, theory.bernoulli)


# Fisher information


def small_net(theta, x):
    """A layer with layer norm, and three natural parameters on top of it."""
    return theory.layer_model("layer")(theta["layer"], x) @ theta["out"]


def log_prob(family, h, y):
    """log P(y|h) [B] from the textbook densities."""
    if family == "bernoulli":
        p = jax.nn.sigmoid(h)
        return jnp.log(jnp.where(y == 1, p, 1 - p)).sum(-1)
    return jnp.log((jax.nn.softmax(h) * y).sum(-1))


OUTCOMES = {
    "bernoulli": np.array(list(itertools.product([0.0, 1.0], repeat=3))),
    "categorical": np.eye(3),
}


@pytest.mark.parametrize("family", OUTCOMES)
def test_fisher_of_a_small_net_is_eq_9_with_every_outcome_counted(family):
    theta, x = problem("layer")
    theta, x = {"layer": theta, "out": draw(6, UNITS, 3)}, x[:7]
    flat, unravel = ravel_pytree(theta)

    @jax.vmap
    def weighted(outcome):
        def log_p(p):
            return log_prob(family, small_net(unravel(p), x), outcome)

        scores, chance = jax.jacfwd(log_p)(flat), jnp.exp(log_p(flat))
        return jnp.einsum("b,bp,bq->pq", chance, scores, scores) / len(x)

    @jax.jit
    def both():
        literal = weighted(jnp.asarray(OUTCOMES[family])).sum(0)
        return theory.fisher(small_net, theta, x, FAMILIES[family]), literal

    same(*both(), 1e-12)


def test_output_families_have_their_textbook_moments():
    h, other = draw(7, 5, 3), draw(8, 5, 3)

    @jax.jit
    def moments():
        return {
            name: (family.mean(h), family.divergence(h, other))
            for name, family in FAMILIES.items()
        }

    @jax.jit
    def log_probs(outcomes):
        return {
            family: [[log_prob(family, a, y) for y in ys] for a in (h, other)]
            for family, ys in outcomes.items()
        }

    found, log_probs = moments(), log_probs(OUTCOMES)
    same(found["gaussian"], (h, ((h - other) ** 2).sum(-1) / 1.4), 1e-12)
    for family, (log_p, log_q) in log_probs.items():
        log_p, log_q = np.array(log_p), np.array(log_q)
        p = np.exp(log_p)
        expected = p.T @ OUTCOMES[family], (p * (log_p - log_q)).sum(0)
        same(found[family], expected, 1e-12)


# One layer: the paper's block form, eq. 12-14, and the gains, eq. 32-35


@on_host
@functools.partial(jax.jit, static_argnums=0)
def geometry(norm, theta, x):
    """All results about a layer for each output family, compiled once."""
    model = theory.layer_model(norm)
    return {
        family: {
            "exact": theory.fisher(model, theta, x, outputs).reshape(
                *theta.shape, *theta.shape
            ),
            "paper": theory.block_fisher(norm, theta, x, outputs),
            "gains": theory.gain_metric(norm, theta, x, outputs),
            "magnitude": theory.magnitude_curvature(norm, theta, x, outputs),
            "curvature": theory.weight_curvature(norm, theta, x, outputs),
        }
        for family, outputs in FAMILIES.items()
    }


each_family = pytest.mark.parametrize("family", FAMILIES)


@each_family
def test_metric_is_the_finite_difference_of_the_divergence(family):
    """Eq. 8: KL of a small step = ds^2 + O(step^3), by autodiff and by the matrix."""
    theta, x = problem("layer")
    arguments = theory.layer_model("layer"), theta, x, FAMILIES[family]
    direction, step = draw(6, *theta.shape), 1e-4
    exact = geometry("layer", theta, x)[family]["exact"]

    @jax.jit
    def both():
        kl = [theory.divergence(*arguments, s * direction) for s in (step, -step)]
        return theory.metric(*arguments, direction), sum(kl)

    metric, of_both_signs = both()
    matrix = np.einsum("ip,ipjq,jq", direction, exact, direction)
    np.testing.assert_allclose(metric, matrix / 2, rtol=1e-10)
    # The sum of both signs drops the third-order term.
    np.testing.assert_allclose(metric, of_both_signs / (2 * step**2), rtol=1e-5)


@each_family
@pytest.mark.parametrize("norm", theory.NORMS)
def test_which_formulas_are_exact(norm, family):
    """All but eq. 13 for layer norm, and eq. 32 for a covariance that is no constant.

    Eq. 35 writes one of the four terms of this quadratic form of the gains.
    """
    theta, x = problem(norm)
    layer = geometry(norm, theta, x)[family]
    exact = layer["exact"]
    of_gains = exact[:, -1, :, -1]
    if norm == "none":
        # A gain scales w_i / ||w_i||.
        unit = theta[:, :FEATURES]
        unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
        blocks = exact[:, :FEATURES, :, :FEATURES]
        of_gains = np.einsum("ip,ipjq,jq->ij", unit, blocks, unit)
    np.testing.assert_allclose(layer["magnitude"], np.diag(of_gains), rtol=1e-10)
    for formula, expected, is_exact in (
        ("paper", exact, norm != "layer"),
        ("gains", of_gains, norm != "batch" or family == "gaussian"),
    ):
        difference = np.linalg.norm(layer[formula] - expected)
        error = difference / np.linalg.norm(expected)
        assert error < 1e-10 if is_exact else error > 0.1


@each_family
def test_block_form_leaves_out_layer_norms_cross_neuron_terms(family):
    """Eq. 13 leaves out that a unit's weights move the outputs of other units."""
    theta, x = problem("layer")
    layer, model = geometry("layer", theta, x)[family], theory.layer_model("layer")

    @jax.jit
    def jacobian_and_covariance(theta):
        # dh_k / d theta_i, [B, H, H, D + 2].
        jacobian = jax.jacfwd(lambda t: model(t, x))(theta)
        outputs = FAMILIES[family]
        return jacobian, outputs.covariance(model(theta, x)) / outputs.phi**2

    jacobian, covariance = jax.device_get(jacobian_and_covariance(theta))
    own = np.where(np.eye(UNITS, dtype=bool)[..., None], jacobian, 0.0)
    own_part = np.einsum("bkip,bkl,bljq->ipjq", own, covariance, own) / CASES
    np.testing.assert_allclose(layer["paper"], own_part, atol=1e-9)
    # No entry of the bias and gain blocks is missing.
    others = np.s_[:, FEATURES:, :, FEATURES:]
    np.testing.assert_allclose(
        *(layer[form][others] for form in ("paper", "exact")), atol=1e-9
    )


@pytest.mark.parametrize("norm", NORMALISERS)
def test_doubling_the_weights_quarters_the_weight_block_and_halves_the_mixed_ones(norm):
    """The text says 1/2 for the curvature; this is the factor of the step."""
    theta, x = problem(norm)
    doubled = np.asarray(theory.scale_weights(jnp.asarray(theta), 2.0, FEATURES))
    before, after = (geometry(norm, t, x)["bernoulli"] for t in (theta, doubled))
    factor = np.where(np.arange(theta.shape[1]) < FEATURES, 0.5, 1.0)
    expected = before["exact"] * factor[:, None, None] * factor
    np.testing.assert_allclose(after["exact"], expected, atol=1e-12)
    np.testing.assert_allclose(after["curvature"], before["curvature"] / 4, rtol=1e-10)


@pytest.mark.parametrize("norm", theory.NORMS)
def test_gain_learning_is_robust_to_input_scale_in_batch_and_layer_norm_only(norm):
    theta, x = problem(norm)
    before, after = (
        geometry(norm, theta, s * x)["gaussian"]["magnitude"] for s in (1.0, 10.0)
    )
    expected = before if norm in ("batch", "layer") else 100 * before
    np.testing.assert_allclose(after, expected, rtol=1e-9)


def test_the_layers_are_the_normalisers_of_the_library():
    theta, x = problem("layer")
    kernel, bias, gain = theta[:, :FEATURES].T, theta[:, -2], theta[:, -1]

    @functools.partial(jax.jit, static_argnums=0)
    def both(norm, kernel, x):
        sums = functools.partial(theory.normalized_sums, norm, kernel, x)
        mean, deviation = theory.scalars(norm, kernel, x)
        z = (x @ kernel - mean) / deviation
        return [sums(), sums(gain, bias)], [z, gain * z + bias]

    for norm in NORMALISERS:
        same(*both(norm, kernel, x), 1e-12)
