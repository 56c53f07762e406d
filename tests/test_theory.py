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


def draw(seed, *shape, dtype=np.float64):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def problem(norm, *, seed=0, features=FEATURES):
    """Random theta and data of a layer, with gains and biases that are not trivial."""
    rng = np.random.default_rng(seed)
    weights, bias = rng.normal(size=(UNITS, features)), rng.normal(size=(UNITS, 1))
    gain = rng.uniform(0.5, 2.0, size=(UNITS, 1))
    x = rng.normal(size=(CASES, features)) * rng.uniform(
        0.5, 2.0, features
    ) + rng.normal(size=features)
    return jnp.asarray(
        np.concatenate([weights, bias] + ([] if norm == "none" else [gain]), 1)
    ), jnp.asarray(x)


def layer(norm, epsilon=0.0):
    gain, bias = jnp.abs(draw(11, UNITS)) + 0.5, draw(12, UNITS)
    return lambda w, x: jnp.tanh(
        theory.normalized_sums(norm, w, x, gain, bias, epsilon=epsilon)
    )


# Table 1


@pytest.mark.parametrize("norm", NORMALISERS)
@pytest.mark.parametrize("factor", [0.3, 2.5])
def test_table_1_has_its_18_entries(norm, factor):
    row = theory.measure_row(
        layer(norm),
        draw(1, FEATURES, UNITS),
        draw(2, CASES, FEATURES) + 0.3,
        key=jax.random.key(0),
        factor=factor,
    )
    for column, invariant in theory.TABLE_1[norm].items():
        assert (row[column] < 1e-12) if invariant else (row[column] > 1e-2), (
            column,
            row[column],
        )


@pytest.mark.parametrize("norm", NORMALISERS)
def test_table_1_in_float32_within_1e_5(norm):
    w, x = (
        draw(1, FEATURES, UNITS, dtype=np.float32),
        draw(2, CASES, FEATURES, dtype=np.float32),
    )
    gain, bias = jnp.ones(UNITS, np.float32), jnp.zeros(UNITS, np.float32)
    model = functools.partial(theory.normalized_sums, norm, gain=gain, bias=bias)
    row = theory.measure_row(model, w, x, key=jax.random.key(0))
    assert {column: value < 1e-5 for column, value in row.items()} == theory.TABLE_1[
        norm
    ]


def test_the_table_is_the_papers():
    invariant = {
        (norm, column)
        for norm, row in theory.TABLE_1.items()
        for column, yes in row.items()
        if yes
    }
    assert sum(len(row) for row in theory.TABLE_1.values()) == 18
    assert invariant == {
        *itertools.product(("batch", "weight", "layer"), ["weight matrix re-scaling"]),
        ("layer", "weight matrix re-centering"),
        *itertools.product(("batch", "weight"), ["weight vector re-scaling"]),
        *itertools.product(("batch", "layer"), ["dataset re-scaling"]),
        ("batch", "dataset re-centering"),
        ("layer", "single training case re-scaling"),
    }


def test_without_a_norm_nothing_is_invariant():
    row = theory.measure_row(
        layer("none"),
        draw(1, FEATURES, UNITS),
        draw(2, CASES, FEATURES),
        key=jax.random.key(0),
    )
    assert min(row.values()) > 1e-2


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_eps_breaks_the_invariance_by_the_amount_the_docs_say(norm, factor):
    w, x, epsilon = draw(1, FEATURES, UNITS), draw(2, CASES, FEATURES), 1e-5
    model = functools.partial(theory.normalized_sums, norm, epsilon=epsilon)
    measured = theory.change(model(w, x), model(factor * w, x))
    sums = x @ w
    axis = 0 if norm == "batch" else 1
    before = model(w, x)
    predicted = jnp.abs(
        before * epsilon / (2 * sums.var(axis, keepdims=True)) * (1 - factor**-2)
    ).max()
    np.testing.assert_allclose(measured, predicted / jnp.abs(before).max(), rtol=0.05)
    assert measured > 1e-9


def test_a_negative_factor_turns_the_sign():
    w, x = draw(1, FEATURES, UNITS), draw(2, CASES, FEATURES)
    for norm in NORMALISERS:
        np.testing.assert_allclose(
            theory.normalized_sums(norm, -2.0 * w, x),
            -theory.normalized_sums(norm, w, x),
            atol=1e-12,
        )
    with pytest.raises(ValueError, match="positive"):
        theory.measure_row(layer("layer"), w, x, key=jax.random.key(0), factor=-1.0)


def test_normalising_only_the_input_gives_no_invariance_to_the_weights():
    row = theory.measure_row(
        lambda w, x: layer_norm(x, epsilon=0.0) @ w,
        draw(1, FEATURES, UNITS),
        draw(2, CASES, FEATURES),
        key=jax.random.key(0),
    )
    assert min(value for column, value in row.items() if "weight" in column) > 1e-2
    assert row["single training case re-scaling"] < 1e-12


def test_a_deep_model_keeps_the_row_of_its_first_layer():
    """The function may be a network of two layers, the first normalised."""
    second = draw(3, UNITS, 3)
    for norm in NORMALISERS:

        def net(w, x, norm=norm):
            return {"logits": layer(norm)(w, x) @ second}

        row = theory.measure_row(
            net,
            draw(1, FEATURES, UNITS),
            draw(2, CASES, FEATURES),
            key=jax.random.key(0),
        )
        assert {
            column: value < 1e-10 for column, value in row.items()
        } == theory.TABLE_1[norm]


def test_a_convolutions_layer_norm_is_not_invariant_to_recentering():
    """Statistics over channels and positions remove a constant, but no map."""

    def conv(axis, w, x):
        sums = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return layer_norm(sums, axis=axis, epsilon=0.0)

    w, x = draw(1, 3, 3, 2, 5), draw(2, 6, 7, 7, 2)
    image = theory.measure_row(
        functools.partial(conv, (1, 2, 3)), w, x, key=jax.random.key(0)
    )
    position = theory.measure_row(
        functools.partial(conv, -1), w, x, key=jax.random.key(0)
    )
    for row in (image, position):
        assert row["weight matrix re-scaling"] < 1e-12
        assert row["single training case re-scaling"] < 1e-12
    assert position["weight matrix re-centering"] < 1e-12
    assert image["weight matrix re-centering"] > 1e-2


@pytest.mark.parametrize("norm", ["layer", "none"])
def test_an_lstm_step_has_layer_norms_row_at_both_its_kernels(norm):
    """Section 3.1: a norm makes the step invariant to re-scaling the summed inputs."""
    cell = LSTMCell(UNITS, norm=norm, epsilon=0.0)
    params = cell.init(jax.random.key(0), FEATURES, jnp.float64)
    params = {k: p + 0.1 * draw(i, *p.shape) for i, (k, p) in enumerate(params.items())}
    x, c, h = draw(20, CASES, FEATURES), draw(21, CASES, UNITS), draw(22, CASES, UNITS)

    def of_input(w_x, x):
        return step(cell, {**params, "w_x": w_x}, (c, h), x)

    def of_state(w_h, h):
        return step(cell, {**params, "w_h": w_h}, (c, h), x)

    for model, kernel, data in (
        (of_input, params["w_x"], x),
        (of_state, params["w_h"], h),
    ):
        row = theory.measure_row(jax.jit(model), kernel, data, key=jax.random.key(1))
        expected = (
            theory.TABLE_1["layer"]
            if norm == "layer"
            else dict.fromkeys(theory.COLUMNS, False)
        )
        assert {column: value < 1e-10 for column, value in row.items()} == expected


def test_unknown_norm_and_wrong_theta_are_named():
    with pytest.raises(ValueError, match="'instance'"):
        theory.normalized_sums("instance", draw(1, 2, 2), draw(2, 3, 2))
    with pytest.raises(ValueError, match=r"takes \(H, 8\)"):
        theory.block_fisher(
            "layer",
            draw(1, UNITS, FEATURES + 1),
            draw(2, CASES, FEATURES),
            theory.bernoulli,
        )


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
        "gain": jnp.abs(draw(2, 5)),
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


@pytest.mark.slow
def test_fisher_of_gaussian_outputs_matches_monte_carlo():
    """Eq. 9 with sampled y: a Gaussian's outcomes cannot be listed."""
    theta, x, variance, samples = small_theta(), draw(5, 7, 3), 0.7, 4000
    flat, unravel = ravel_pytree(theta)
    h = small_net("layer", theta, x)
    y = h + np.sqrt(variance) * draw(6, samples, *h.shape)
    jacobian = jax.jacfwd(lambda p: small_net("layer", unravel(p), x))(flat)
    scores = jnp.einsum(
        "sbh,bhp->sbp", (y - h) / variance, jacobian
    )  # d log N(y; h, variance) / d theta
    sampled = jnp.einsum("sbp,sbq->pq", scores, scores) / (samples * len(x))
    exact = theory.fisher(
        functools.partial(small_net, "layer"), theta, x, theory.gaussian(variance)
    )
    assert jnp.linalg.norm(sampled - exact) < 0.05 * jnp.linalg.norm(exact)


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

    @jax.jit
    def all_of(h, other):
        return {
            name: (f.mean(h), f.covariance(h), f.divergence(h, other))
            for name, f in FAMILIES.items()
        }

    found = all_of(h, other)
    h, other, eye = np.asarray(h), np.asarray(other), np.eye(3)
    p = 1 / (1 + np.exp(-h))
    q, r = (np.exp(a) / np.exp(a).sum(-1, keepdims=True) for a in (h, other))
    s = 1 / (1 + np.exp(-other))
    expected = {
        "bernoulli": (
            p,
            (p * (1 - p))[:, None] * eye,
            (p * np.log(p / s) + (1 - p) * np.log((1 - p) / (1 - s))).sum(-1),
        ),
        "categorical": (
            q,
            q[:, None] * eye - q[:, :, None] * q[:, None],
            (q * np.log(q / r)).sum(-1),
        ),
        "gaussian": (
            h,
            0.7 * np.broadcast_to(eye, (5, 3, 3)),
            ((h - other) ** 2).sum(-1) / 1.4,
        ),
    }
    for family, moments in expected.items():
        for value, textbook in zip(found[family], moments, strict=True):
            np.testing.assert_allclose(value, textbook, atol=1e-12, err_msg=family)


# The paper's block form, eq. 12-14


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
def test_block_form_of_the_plain_model_is_eq_12():
    theta, x = problem("none")
    h = x @ theta[:, :FEATURES].T + theta[:, FEATURES]
    ones = np.concatenate([x, np.ones((CASES, 1))], 1)
    literal = np.mean(
        [
            np.kron(theory.categorical.covariance(h)[b], np.outer(ones[b], ones[b]))
            for b in range(CASES)
        ],
        0,
    )
    size = theta.size
    blocks = geometry("none", theta, x)["categorical"]["paper"].reshape(size, size)
    np.testing.assert_allclose(blocks, literal, atol=1e-12)


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


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_closed_form_of_layer_norms_weight_block(family):
    """The projection P = I - (1 1^T + z z^T)/H adds the cross terms."""
    outputs = FAMILIES[family]
    theta, x = problem("layer")
    mean, deviation = theory.scalars("layer", theta[:, :FEATURES].T, x)
    z, gain = (x @ theta[:, :FEATURES].T - mean) / deviation, theta[:, -1]
    projection = jnp.eye(UNITS) - (1 + z[:, :, None] * z[:, None]) / UNITS
    covariance = outputs.covariance(theory.layer_model("layer")(theta, x))
    middle = (
        projection
        @ (gain[:, None] * covariance * gain)
        @ projection
        / deviation[:, :, None] ** 2
    )
    closed = jnp.einsum("bij,bp,bq->ipjq", middle, x, x) / CASES / outputs.phi**2
    exact = geometry("layer", theta, x)[family]["exact"][:, :FEATURES, :, :FEATURES]
    np.testing.assert_allclose(closed, exact, atol=1e-9)


@pytest.mark.parametrize("norm", NORMALISERS)
def test_doubling_the_weights_quarters_the_weight_block_and_halves_the_mixed_ones(norm):
    """The text says 1/2 for the curvature; this is the factor of the step."""
    theta, x = problem(norm)
    doubled = theory.scale_weights(theta, 2.0, FEATURES)
    model = theory.layer_model(norm)
    np.testing.assert_allclose(model(theta, x), model(doubled, x), atol=1e-12)
    layers = [geometry(norm, t, x)["bernoulli"] for t in (theta, doubled)]
    before, after = (layer["exact"] for layer in layers)
    w, rest = slice(None, FEATURES), slice(FEATURES, None)
    np.testing.assert_allclose(after[:, w, :, w], before[:, w, :, w] / 4, atol=1e-12)
    np.testing.assert_allclose(
        after[:, w, :, rest], before[:, w, :, rest] / 2, atol=1e-12
    )
    np.testing.assert_allclose(
        after[:, rest, :, rest], before[:, rest, :, rest], atol=1e-12
    )

    np.testing.assert_allclose(
        layers[1]["curvature"], layers[0]["curvature"] / 4, rtol=1e-10
    )
    direction = jnp.zeros_like(theta).at[:, w].set(draw(9, UNITS, FEATURES))
    ds2 = [
        theory.metric(model, t, x, theory.bernoulli, direction)
        for t in (theta, doubled)
    ]
    np.testing.assert_allclose(jnp.sqrt(ds2[1]), jnp.sqrt(ds2[0]) / 2, rtol=1e-10)


def test_without_a_norm_growing_weights_leave_a_gaussians_curvature_as_it_was():
    theta, x = problem("none")
    layers = [
        geometry("none", theory.scale_weights(theta, s, FEATURES), x)["gaussian"]
        for s in (1.0, 8.0)
    ]
    np.testing.assert_allclose(
        layers[0]["curvature"], layers[1]["curvature"], rtol=1e-10
    )
    variance = FAMILIES["gaussian"].phi
    np.testing.assert_allclose(
        layers[0]["curvature"], (x**2).mean() / variance, rtol=1e-10
    )


# Null directions


@pytest.mark.parametrize("norm", NORMALISERS)
def test_null_directions(norm):
    theta, x = problem(norm)
    model = theory.layer_model(norm)
    weights = theta[:, :FEATURES]

    def ds2(rows):
        direction = jnp.zeros_like(theta).at[:, :FEATURES].set(rows)
        return theory.metric(model, theta, x, theory.bernoulli, direction)

    along_one = jnp.zeros_like(weights).at[1].set(weights[1])
    recentering = jnp.broadcast_to(draw(9, FEATURES), weights.shape)
    assert ds2(weights) < 1e-20  # the whole W: null for all three
    if norm == "layer":
        assert ds2(along_one) > 1e-3
        assert ds2(recentering) < 1e-20
    else:
        assert ds2(along_one) < 1e-20
        assert ds2(recentering) > 1e-3
    # Bernoulli outputs tie no directions together by themselves, so these are all the
    # null directions of the weights: one per unit for batch and weight norm; W itself
    # and D re-centrings for layer norm.
    block = geometry(norm, theta, x)["bernoulli"]["exact"][
        :, :FEATURES, :, :FEATURES
    ].reshape(weights.size, -1)
    eigenvalues = jnp.linalg.eigvalsh(block)
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
    theta, x = problem("batch")
    layers = geometry("batch", theta, x)
    np.testing.assert_allclose(
        layers["gaussian"]["gains"],
        layers["gaussian"]["exact"][:, -1, :, -1],
        atol=1e-9,
    )
    paper, exact = (
        layers["bernoulli"]["gains"],
        layers["bernoulli"]["exact"][:, -1, :, -1],
    )
    assert jnp.linalg.norm(paper - exact) > 0.1 * jnp.linalg.norm(exact)
    z = batch_norm(x @ theta[:, :FEATURES].T, epsilon=0.0)[0]
    covariance = theory.bernoulli.covariance(theory.layer_model("batch")(theta, x))
    np.testing.assert_allclose(
        jnp.einsum("bij,bi,bj->ij", covariance, z, z) / CASES, exact, atol=1e-12
    )


def magnitude_direction(theta, change):
    """The paper's v: delta_g_i w_i / ||w_i||, and 0 for the biases."""
    weights = theta[:, :FEATURES]
    unit = weights / jnp.linalg.norm(weights, axis=1, keepdims=True)
    return (
        jnp.zeros_like(theta).at[:, :FEATURES].set(jnp.asarray(change)[:, None] * unit)
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_eq_35_is_one_of_four_terms(family):
    theta, x = problem("none")
    paper = geometry("none", theta, x)[family]["gains"]
    change = np.array([0.0, 0.4, 0.0, -0.7])
    exact = theory.metric(
        theory.layer_model("none"),
        theta,
        x,
        FAMILIES[family],
        magnitude_direction(theta, change),
    )
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
    normed = jnp.concatenate(
        [plain, jnp.linalg.norm(weights, axis=1, keepdims=True)], 1
    )
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
    np.testing.assert_allclose(layer["magnitude"], jnp.diag(exact), rtol=1e-10)


def test_the_layers_are_the_normalisers_of_the_library():
    theta, x = problem("layer")
    kernel, bias, gain = theta[:, :FEATURES].T, theta[:, -2], theta[:, -1]
    for norm in NORMALISERS:
        mean, deviation = theory.scalars(norm, kernel, x)
        eq_5 = gain / deviation * (x @ kernel - mean) + bias
        np.testing.assert_allclose(
            theory.normalized_sums(norm, kernel, x, gain, bias), eq_5, atol=1e-12
        )
    np.testing.assert_allclose(
        theory.normalized_sums("weight", kernel, x, gain), x @ weight_norm(kernel, gain)
    )
