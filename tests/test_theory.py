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
from lnrepro.functional.norms import layer_norm, weight_norm
from tests.functional.programs import drawn, on_host, same, shapes_of
from tests.oracle import sigmoid
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


def problem(norm, *, seed=0, features=FEATURES):
    """Random theta and data of a layer, with gains and biases that are not trivial."""
    rng = np.random.default_rng(seed)
    weights, bias = rng.normal(size=(UNITS, features)), rng.normal(size=(UNITS, 1))
    gain = rng.uniform(0.5, 2.0, size=(UNITS, 1))
    x = rng.normal(size=(CASES, features)) * rng.uniform(
        0.5, 2.0, features
    ) + rng.normal(size=features)
    parts = [weights, bias] if norm == "none" else [weights, bias, gain]
    return np.concatenate(parts, 1), x


def layer(norm, epsilon=0.0):
    gain, bias = np.abs(draw(11, UNITS)) + 0.5, draw(12, UNITS)
    return lambda w, x: jnp.tanh(
        theory.normalized_sums(norm, w, x, gain, bias, epsilon=epsilon)
    )


INVARIANT = {"none": set()}
for norm, columns in theory.TABLE_1.items():
    INVARIANT[norm] = {column for column, invariant in columns.items() if invariant}


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


def test_the_table_is_the_papers():
    assert sum(len(row) for row in theory.TABLE_1.values()) == 18
    matrix = {"weight matrix re-scaling"}
    batch = matrix | {"weight vector re-scaling", "dataset re-scaling"}
    case = {"dataset re-scaling", "single training case re-scaling"}
    assert {
        "none": set(),
        "batch": batch | {"dataset re-centering"},
        "weight": matrix | {"weight vector re-scaling"},
        "layer": matrix | case | {"weight matrix re-centering"},
    } == INVARIANT


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_eps_breaks_the_invariance_by_the_amount_the_docs_say(norm):
    w, x, epsilon, factor = draw(1, FEATURES, UNITS), draw(2, CASES, FEATURES), 1e-5, 10
    model = jax.jit(functools.partial(theory.normalized_sums, norm, epsilon=epsilon))
    before, after = np.asarray(model(w, x)), model(factor * w, x)
    var = (x @ w).var(0 if norm == "batch" else 1, keepdims=True)
    predicted = np.abs(before * epsilon / (2 * var) * (1 - factor**-2)).max()
    measured = theory.change(before, after)
    np.testing.assert_allclose(measured, predicted / np.abs(before).max(), rtol=0.05)
    assert measured > 1e-9


@pytest.mark.parametrize("norm", NORMALISERS)
def test_a_negative_factor_turns_the_sign(norm):
    w, x = draw(1, FEATURES, UNITS), draw(2, CASES, FEATURES)
    sums = jax.jit(functools.partial(theory.normalized_sums, norm))
    same(sums(-2.0 * w, x), -sums(w, x), 1e-12)


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
    with refused("positive", error=ValueError):
        theory.measure_row(layer("layer"), w, x, key=jax.random.key(0), factor=-1.0)
    theta = draw(1, UNITS, FEATURES + 1)
    with refused("takes (H, 8)", error=ValueError):
        theory.block_fisher("layer", theta, x, theory.bernoulli)


# Fisher information


def small_net(theta, x):
    """Two layers, the first with layer norm, and three natural parameters."""
    hidden = layer_norm(x @ theta["w"]) * theta["gain"]
    return jnp.tanh(hidden) @ theta["out"] + theta["bias"]


def small_theta():
    return {
        "w": draw(1, 3, 5),
        "gain": np.abs(draw(2, 5)),
        "out": draw(3, 5, 3),
        "bias": draw(4, 3),
    }


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
    theta, x = small_theta(), draw(5, 7, 3)
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


def test_metric_is_the_finite_difference_of_the_divergence():
    """Eq. 8: KL of a small step = ds^2 + O(step^3), by autodiff and by the matrix."""
    theta, x, step = small_theta(), draw(5, 7, 3), 1e-4
    direction = jax.tree.map(lambda p: draw(p.size, *p.shape), theta)
    flat, _ = ravel_pytree(direction)

    @functools.partial(jax.jit, static_argnums=0)
    def three_ways(outputs):
        def kl(s):
            moved = jax.tree.map(lambda d: s * d, direction)
            return theory.divergence(small_net, theta, x, outputs, moved)

        matrix = theory.fisher(small_net, theta, x, outputs)
        # The sum of both signs drops the third-order term.
        difference = (kl(step) + kl(-step)) / (2 * step**2)
        metric = theory.metric(small_net, theta, x, outputs, direction)
        return metric, 0.5 * flat @ matrix @ flat, difference

    for family, outputs in FAMILIES.items():
        metric, matrix, difference = three_ways(outputs)
        np.testing.assert_allclose(metric, matrix, rtol=1e-10, err_msg=family)
        np.testing.assert_allclose(metric, difference, rtol=1e-5, err_msg=family)


def test_output_families_have_their_textbook_moments():
    h, other = draw(7, 5, 3), draw(8, 5, 3)

    def kl(a, b):
        return a * np.log(a / b)

    def diagonal(a):
        return a[..., None] * np.eye(3)

    p, s = sigmoid(h), sigmoid(other)
    q, r = (np.exp(a) / np.exp(a).sum(-1, keepdims=True) for a in (h, other))
    textbook = {
        "bernoulli": (p, diagonal(p * (1 - p)), kl(p, s) + kl(1 - p, 1 - s)),
        "gaussian": (h, diagonal(np.full_like(h, 0.7)), (h - other) ** 2 / 1.4),
        "categorical": (q, diagonal(q) - q[:, :, None] * q[:, None], kl(q, r)),
    }
    for family, (mean, covariance, divergence) in textbook.items():
        of = FAMILIES[family]
        found = of.mean(h), of.covariance(h), of.divergence(h, other)
        same(found, (mean, covariance, divergence.sum(-1)), 1e-12)


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
    # The cross terms themselves: dh_k / dw_i with k != i.
    assert np.abs(jacobian - own).max() > 0.05
    own_part = np.einsum("bkip,bkl,bljq->ipjq", own, covariance, own) / CASES
    np.testing.assert_allclose(layer["paper"], own_part, atol=1e-9)
    # No entry of the bias and gain blocks is missing.
    others = np.s_[:, FEATURES:, :, FEATURES:]
    np.testing.assert_allclose(
        layer["paper"][others], layer["exact"][others], atol=1e-9
    )


@pytest.mark.parametrize("norm", NORMALISERS)
def test_doubling_the_weights_quarters_the_weight_block_and_halves_the_mixed_ones(norm):
    """The text says 1/2 for the curvature; this is the factor of the step."""
    theta, x = problem(norm)
    doubled = np.asarray(theory.scale_weights(jnp.asarray(theta), 2.0, FEATURES))
    model = jax.jit(theory.layer_model(norm))
    same(model(theta, x), model(doubled, x), 1e-12)
    before, after = (geometry(norm, t, x)["bernoulli"] for t in (theta, doubled))
    factor = np.where(np.arange(theta.shape[1]) < FEATURES, 0.5, 1.0)
    expected = before["exact"] * factor[:, None, None] * factor
    np.testing.assert_allclose(after["exact"], expected, atol=1e-12)
    np.testing.assert_allclose(after["curvature"], before["curvature"] / 4, rtol=1e-10)


def test_without_a_norm_growing_weights_leave_a_gaussians_curvature_as_it_was():
    theta, x = problem("none")
    expected = (x**2).mean() / FAMILIES["gaussian"].phi
    for scale in (1.0, 8.0):
        scaled = theory.scale_weights(jnp.asarray(theta), scale, FEATURES)
        found = geometry("none", scaled, x)["gaussian"]["curvature"]
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("norm", NORMALISERS)
def test_null_directions(norm):
    theta, x = problem(norm)
    weights = theta[:, :FEATURES]
    exact = geometry(norm, theta, x)["bernoulli"]["exact"]
    block = exact[:, :FEATURES, :, :FEATURES].reshape(weights.size, -1)

    def is_null(direction):
        return direction.ravel() @ block @ direction.ravel() < 1e-12

    of_one_unit = np.zeros_like(weights)
    of_one_unit[1] = weights[1]
    recentering = np.broadcast_to(draw(9, FEATURES), weights.shape)
    assert is_null(weights)
    assert is_null(of_one_unit) == (norm != "layer")
    assert is_null(recentering) == (norm == "layer")
    # Bernoulli outputs tie no directions together by themselves, so these are all the
    # null directions of the weights: one per unit for batch and weight norm; W itself
    # and D re-centrings for layer norm.
    eigenvalues = np.linalg.eigvalsh(block)
    null = int((eigenvalues < 1e-12 * eigenvalues[-1]).sum())
    assert null == (1 + FEATURES if norm == "layer" else UNITS)


@each_family
def test_eq_34_and_eq_35_have_the_same_form(family):
    """With g = ||w||, both models have the same metric along the magnitude."""
    plain, x = problem("none")
    lengths = np.linalg.norm(plain[:, :FEATURES], axis=1, keepdims=True)
    normed = geometry("weight", np.concatenate([plain, lengths], 1), x)
    expected = geometry("none", plain, x)[family]["gains"]
    np.testing.assert_allclose(normed[family]["gains"], expected, rtol=1e-10)


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
    for norm in NORMALISERS:
        mean, deviation = theory.scalars(norm, kernel, x)
        expected = gain / deviation * (x @ kernel - mean) + bias
        same(theory.normalized_sums(norm, kernel, x, gain, bias), expected, 1e-12)
    found = theory.normalized_sums("weight", kernel, x, gain)
    same(found, x @ weight_norm(jnp.asarray(kernel), gain), 1e-12)
