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
from lnrepro.functional.norms import batch_norm, layer_norm, weight_norm
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


@pytest.mark.parametrize("norm", NORMALISERS)
def test_table_1_in_float32_within_1e_5(norm):
    model = functools.partial(theory.normalized_sums, norm)
    w, x = draw(1, FEATURES, UNITS), draw(2, CASES, FEATURES)
    w, x = w.astype(np.float32), x.astype(np.float32)
    assert invariant_columns(model, w, x, tolerance=1e-5) == INVARIANT[norm]


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
@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_eps_breaks_the_invariance_by_the_amount_the_docs_say(norm, factor):
    w, x, epsilon = draw(1, FEATURES, UNITS), draw(2, CASES, FEATURES), 1e-5
    model = jax.jit(functools.partial(theory.normalized_sums, norm, epsilon=epsilon))
    measured = theory.change(model(w, x), model(factor * w, x))
    sums = x @ w
    axis = 0 if norm == "batch" else 1
    before = np.asarray(model(w, x))
    predicted = np.abs(
        before * epsilon / (2 * sums.var(axis, keepdims=True)) * (1 - factor**-2)
    ).max()
    np.testing.assert_allclose(measured, predicted / np.abs(before).max(), rtol=0.05)
    assert measured > 1e-9


def test_a_negative_factor_turns_the_sign():
    w, x = draw(1, FEATURES, UNITS), draw(2, CASES, FEATURES)
    for norm in NORMALISERS:
        sums = jax.jit(functools.partial(theory.normalized_sums, norm))
        expected = -np.asarray(sums(w, x))
        np.testing.assert_allclose(sums(-2.0 * w, x), expected, atol=1e-12)


def test_normalising_only_the_input_gives_no_invariance_to_the_weights():
    found = invariant_columns(lambda w, x: layer_norm(x, epsilon=0.0) @ w)
    assert found == {"dataset re-scaling", "single training case re-scaling"}


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


@pytest.mark.parametrize("norm", ["layer", "none"])
@pytest.mark.parametrize("kernel", ["w_x", "w_h"])
def test_an_lstm_step_has_layer_norms_row_at_both_its_kernels(norm, kernel):
    """Section 3.1: a norm makes the step invariant to re-scaling the summed inputs."""
    cell = LSTMCell(UNITS, norm=norm, epsilon=0.0)
    params = drawn(shapes_of(cell, FEATURES, jnp.float64)[0])
    x, c, h = draw(20, CASES, FEATURES), draw(21, CASES, UNITS), draw(22, CASES, UNITS)

    def model(weights, inputs):
        changed = params | {kernel: weights}
        if kernel == "w_x":
            return step(cell, changed, (c, h), inputs)
        return step(cell, changed, (c, inputs), x)

    data = {"w_x": x, "w_h": h}[kernel]
    assert invariant_columns(model, params[kernel], data) == INVARIANT[norm]


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


def small_net(norm, theta, x):
    """Two layers, the first with the norm, and three natural parameters."""
    hidden = {
        "none": lambda a: a,
        "batch": lambda a: batch_norm(a)[0],
        "layer": layer_norm,
    }[norm](x @ theta["w"]) * theta["gain"]
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


@pytest.mark.parametrize("family", ["bernoulli", "categorical"])
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_fisher_of_a_small_net_is_eq_9_with_every_outcome_counted(norm, family):
    theta, x = small_theta(), draw(5, 7, 3)
    flat, unravel = ravel_pytree(theta)
    outcomes = (
        list(itertools.product([0, 1], repeat=3))
        if family == "bernoulli"
        else np.eye(3)
    )

    @jax.jit
    @jax.vmap
    def weighted(outcome):
        y = jnp.broadcast_to(outcome, (len(x), 3))
        scores = jax.jacfwd(
            lambda p: log_prob(family, small_net(norm, unravel(p), x), y)
        )(flat)
        chance = jnp.exp(log_prob(family, small_net(norm, theta, x), y))
        return jnp.einsum("b,bp,bq->pq", chance, scores, scores) / len(x)

    literal = weighted(jnp.asarray(outcomes, x.dtype)).sum(0)
    exact = jax.jit(
        lambda t: theory.fisher(
            functools.partial(small_net, norm), t, x, FAMILIES[family]
        )
    )(theta)
    np.testing.assert_allclose(exact, literal, atol=1e-12)


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_metric_is_the_finite_difference_of_the_divergence(norm):
    """Eq. 8: KL of a small step = ds^2 + O(step^3), by autodiff and by the matrix."""
    model, theta, x, step = (
        functools.partial(small_net, norm),
        small_theta(),
        draw(5, 7, 3),
        1e-4,
    )
    direction = jax.tree.map(lambda p: draw(p.size, *p.shape), theta)
    flat, _ = ravel_pytree(direction)

    @functools.partial(jax.jit, static_argnums=0)
    def three_ways(outputs):
        def kl(s):
            return theory.divergence(
                model, theta, x, outputs, jax.tree.map(lambda d: s * d, direction)
            )

        return (
            theory.metric(model, theta, x, outputs, direction),
            0.5 * flat @ theory.fisher(model, theta, x, outputs) @ flat,
            (kl(step) + kl(-step))
            / 2
            / step**2,  # the sum of both signs drops the third-order term
        )

    for family, outputs in FAMILIES.items():
        metric, matrix, difference = three_ways(outputs)
        np.testing.assert_allclose(metric, matrix, rtol=1e-10, err_msg=family)
        np.testing.assert_allclose(metric, difference, rtol=1e-5, err_msg=family)


def test_output_families_have_their_textbook_moments():
    h, other = draw(7, 5, 3), draw(8, 5, 3)

    def softmax(a):
        return np.exp(a) / np.exp(a).sum(-1, keepdims=True)

    def kl(a, b):
        return a * np.log(a / b)

    def diagonal(a):
        return a[..., None] * np.eye(3)

    p, s = sigmoid(h), sigmoid(other)
    q, r = softmax(h), softmax(other)
    textbook = {
        "bernoulli": (p, diagonal(p * (1 - p)), kl(p, s) + kl(1 - p, 1 - s)),
        "categorical": (q, diagonal(q) - q[:, :, None] * q[:, None], kl(q, r)),
        "gaussian": (h, diagonal(np.full_like(h, 0.7)), (h - other) ** 2 / 1.4),
    }

    @jax.jit
    def moments(h, other):
        return {
            family: (of.mean(h), of.covariance(h), of.divergence(h, other))
            for family, of in FAMILIES.items()
        }

    found = moments(h, other)
    for family, (mean, covariance, divergence) in textbook.items():
        expected = mean, covariance, divergence.sum(-1)
        for ours, theirs in zip(found[family], expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12, err_msg=family)


# The paper's block form, eq. 12-14


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


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("norm", ["none", "batch", "weight"])
def test_block_form_is_exact_without_a_norm_and_for_batch_and_weight_norm(norm, family):
    theta, x = problem(norm)
    layer = geometry(norm, theta, x)[family]
    np.testing.assert_allclose(layer["paper"], layer["exact"], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_block_form_leaves_out_layer_norms_cross_neuron_terms(family):
    """Eq. 13 leaves out that a unit's weights move the outputs of other units."""
    outputs = FAMILIES[family]
    theta, x = problem("layer")
    exact, paper = (
        geometry("layer", theta, x)[family][name] for name in ("exact", "paper")
    )
    assert jnp.linalg.norm(exact - paper) > 0.1 * jnp.linalg.norm(exact)

    jacobian = jax.jacfwd(lambda t: theory.layer_model("layer")(t, x))(
        theta
    )  # (B, H, H, D + 2)
    own = jnp.where(jnp.eye(UNITS, dtype=bool)[..., None], jacobian, 0.0)
    assert (
        jnp.abs(jacobian - own).max() > 0.05
    )  # the cross terms themselves: dh_k/dw_i with k != i
    covariance = (
        outputs.covariance(theory.layer_model("layer")(theta, x)) / outputs.phi**2
    )
    own_part = jnp.einsum("bkip,bkl,bljq->ipjq", own, covariance, own) / CASES
    np.testing.assert_allclose(paper, own_part, atol=1e-9)
    # ... and no entry of the bias and gain blocks is missing
    np.testing.assert_allclose(
        paper[:, FEATURES:, :, FEATURES:], exact[:, FEATURES:, :, FEATURES:], atol=1e-9
    )


@pytest.mark.parametrize("norm", NORMALISERS)
def test_doubling_the_weights_quarters_the_weight_block_and_halves_the_mixed_ones(norm):
    """The text says 1/2 for the curvature; this is the factor of the step."""
    theta, x = problem(norm)
    doubled = np.asarray(theory.scale_weights(jnp.asarray(theta), 2.0, FEATURES))
    model = jax.jit(theory.layer_model(norm))
    np.testing.assert_allclose(model(theta, x), model(doubled, x), atol=1e-12)
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


# Null directions


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


# The gains, eq. 32-35


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("norm", ["layer", "weight"])
def test_gain_metrics_of_layer_and_weight_norm_are_exact(norm, family):
    layer = geometry(norm, *problem(norm))[family]
    np.testing.assert_allclose(layer["gains"], layer["exact"][:, -1, :, -1], atol=1e-9)


def test_batch_norms_gain_metric_needs_an_assumption():
    """Eq. 32 is exact for a constant diagonal covariance (Gaussian) only."""
    layers = geometry("batch", *problem("batch"))
    errors = {}
    for family in ("gaussian", "bernoulli"):
        exact = layers[family]["exact"][:, -1, :, -1]
        difference = np.linalg.norm(layers[family]["gains"] - exact)
        errors[family] = difference / np.linalg.norm(exact)
    assert errors["gaussian"] < 1e-9
    assert errors["bernoulli"] > 0.1


def magnitude_direction(theta, change):
    """The paper's v: delta_g_i w_i / ||w_i||, and 0 for the biases."""
    weights = theta[:, :FEATURES]
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    direction = np.zeros_like(theta)
    direction[:, :FEATURES] = change[:, None] * unit
    return direction


@pytest.mark.parametrize("family", FAMILIES)
def test_eq_35_is_one_of_four_terms(family):
    theta, x = problem("none")
    paper = geometry("none", theta, x)[family]["gains"]
    change = np.array([0.0, 0.4, 0.0, -0.7])

    @jax.jit
    def metric(theta, direction):
        model = theory.layer_model("none")
        return theory.metric(model, theta, x, FAMILIES[family], direction)

    exact = metric(theta, magnitude_direction(theta, change))
    terms = [change[i] * change[j] * paper[i, j] / 2 for i in (1, 3) for j in (1, 3)]
    np.testing.assert_allclose(sum(terms), exact, rtol=1e-10)
    assert (
        abs(terms[1] - exact) > 0.1 * exact
    )  # the (i, j) term that eq. 35 writes, alone


@pytest.mark.parametrize("family", FAMILIES)
def test_eq_34_and_eq_35_have_the_same_form(family):
    """With g = ||w||, both models have the same metric along the magnitude."""
    plain, x = problem("none")
    weights = plain[:, :FEATURES]
    normed = np.concatenate([plain, np.linalg.norm(weights, axis=1, keepdims=True)], 1)
    pair = [
        geometry(norm, t, x)[family]["gains"]
        for norm, t in (("weight", normed), ("none", plain))
    ]
    np.testing.assert_allclose(*pair, rtol=1e-10)


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_gain_learning_is_robust_to_input_scale_in_batch_and_layer_norm_only(scale):
    for norm in theory.NORMS:
        theta, x = problem(norm)
        before, after = (
            geometry(norm, theta, s * x)["gaussian"]["magnitude"] for s in (1.0, scale)
        )
        expected = before if norm in ("batch", "layer") else scale**2 * before
        np.testing.assert_allclose(after, expected, rtol=1e-9, err_msg=norm)


@pytest.mark.parametrize("norm", theory.NORMS)
def test_magnitude_curvature_is_the_diagonal_of_the_exact_metric(norm):
    theta, x = problem(norm)
    layer = geometry(norm, theta, x)["bernoulli"]
    exact = layer["gains"] if norm == "none" else layer["exact"][:, -1, :, -1]
    np.testing.assert_allclose(layer["magnitude"], np.diag(exact), rtol=1e-10)


def test_the_layers_are_the_normalisers_of_the_library():
    theta, x = problem("layer")
    kernel, bias, gain = theta[:, :FEATURES].T, theta[:, -2], theta[:, -1]

    @jax.jit
    def of_all(kernel, bias, gain):
        sums, eq_5 = [], []
        for norm in NORMALISERS:
            mean, deviation = theory.scalars(norm, kernel, x)
            eq_5.append(gain / deviation * (x @ kernel - mean) + bias)
            sums.append(theory.normalized_sums(norm, kernel, x, gain, bias))
        sums.append(theory.normalized_sums("weight", kernel, x, gain))
        return sums, [*eq_5, x @ weight_norm(kernel, gain)]

    same(*of_all(kernel, bias, gain), 1e-12)
