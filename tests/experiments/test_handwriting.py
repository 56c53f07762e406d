"""Handwriting against its equations in NumPy float64, and properties of sampling."""

import importlib
import sys
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from configs import handwriting as config_file
from experiments.handwriting import make, mixture, pictures, window, writing
from experiments.handwriting.data import Lines, open_lines
from experiments.handwriting.model import LAYERS, START, Network
from lnrepro import data
from lnrepro.engine.experiment import check_data_sizes
from lnrepro.errors import UserError
from tests import oracle

NORMS = ("none", "layer")


def small(norm="layer", **sizes):
    config = config_file.get_config("smoke")
    config.norm = norm
    config.model.update(
        {
            "units": 5,
            "gaussians": 3,
            "window_gaussians": 2,
            "symbols": 6,
            "steps": 7,
            "characters": 4,
        }
    )
    config.model.update(sizes)
    return config


# -- the oracle: one sequence, one step, one character and one Gaussian at a time


def oracle_density(y, step, M):
    """-log p of a step [3] under outputs [1 + 6M] (Graves, eq. 18-26)."""
    e = 1 / (1 + np.exp(y[0]))
    pi, mu_x, mu_y, s_x, s_y, rho = y[1:].reshape(6, M)
    pi = np.exp(pi) / np.exp(pi).sum()
    density = 0.0
    for j in range(M):
        sx, sy, r = np.exp(s_x[j]), np.exp(s_y[j]), np.tanh(rho[j])
        a, b = (step[0] - mu_x[j]) / sx, (step[1] - mu_y[j]) / sy
        z = a**2 + b**2 - 2 * r * a * b
        density += (
            pi[j]
            * np.exp(-z / (2 * (1 - r**2)))
            / (2 * np.pi * sx * sy * np.sqrt(1 - r**2))
        )
    return -np.log(density) - np.log(e if step[2] == 1 else 1 - e)


def oracle_nll(config, params, steps, text):
    """(loss in nats of steps [T, 3] that write a text, kappa of every step [T, K])."""
    m = config.model
    H, K, V = m.units, m.window_gaussians, m.symbols
    state = {name: (np.zeros(H), np.zeros(H)) for name in LAYERS}
    w, kappa, x, total, kappas = (
        np.zeros(V),
        np.zeros(K),
        np.array([0.0, 0.0, 1.0]),
        0.0,
        [],
    )
    w_x = np.concatenate([params["lstm1"]["w_x"], params["lstm1"]["w_w"]])
    layer1 = params["lstm1"] | {"w_x": w_x}
    for target in steps:
        state["lstm1"] = oracle.lstm_step(
            layer1, config.norm, *state["lstm1"], np.concatenate([x, w])
        )
        h1 = state["lstm1"][1]
        hats = h1 @ params["lstm1"]["window"] + params["lstm1"]["window_bias"]
        alpha, beta, kappa = (
            np.exp(hats[:K]),
            np.exp(hats[K : 2 * K]),
            kappa + np.exp(hats[2 * K :]),
        )
        kappas.append(kappa)
        w = np.zeros(V)
        for u, character in enumerate(text, 1):
            w[character] += sum(
                alpha[k] * np.exp(-beta[k] * (kappa[k] - u) ** 2) for k in range(K)
            )
        below = h1
        for name in LAYERS[1:]:
            inputs = np.concatenate([x, below, w])
            state[name] = oracle.lstm_step(
                params[name], config.norm, *state[name], inputs
            )
            below = state[name][1]
        y = (
            np.concatenate([state[n][1] for n in LAYERS]) @ params["output"]["w"]
            + params["output"]["bias"]
        )
        total += oracle_density(y, target, m.gaussians)
        x = target
    return total, np.array(kappas)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def setting(config):
    """(network, random parameters, a batch of three lines).

    One line has all steps, one is short, and one has a text of one character.
    """
    network, rng, m = Network(config), np.random.RandomState(0), config.model
    params = jax.tree.map(
        lambda a: np.asarray(a + 0.2 * rng.randn(*a.shape)),
        jax.jit(network.init)(jax.random.key(0)),
    )
    steps = np.concatenate(
        [rng.randn(3, m.steps, 2), rng.rand(3, m.steps, 1) < 0.3], -1
    )
    text = rng.randint(0, m.symbols, (3, m.characters))
    return (
        network,
        params,
        {
            "steps": steps,
            "steps_length": np.array([m.steps, 4, m.steps]),
            "text": text,
            "text_length": np.array([m.characters, 3, 1]),
        },
    )


def lines_of(batch):
    for steps, n, text, u in zip(
        *(batch[k] for k in ("steps", "steps_length", "text", "text_length")),
        strict=True,
    ):
        yield steps[:n], list(text[:u])


def nll(network, batch):
    return lambda params: network.nll(params, batch)


# -- the density

density = jax.jit(mixture.negative_log_likelihood)
slopes = jax.jit(
    jax.vmap(jax.value_and_grad(mixture.negative_log_likelihood), (0, None))
)


def test_density_is_the_formula_in_float64(x64):
    rng = np.random.RandomState(0)
    y, step = (
        2 * rng.randn(50, 1 + 6 * 4),
        np.concatenate([rng.randn(50, 2), rng.rand(50, 1) < 0.5], -1),
    )
    wanted = [oracle_density(a, b, 4) for a, b in zip(y, step, strict=True)]
    np.testing.assert_allclose(density(y, step), wanted, rtol=1e-11)


def test_density_integrates_to_one(x64):
    y = jnp.asarray(np.random.RandomState(1).randn(1 + 6 * 3))
    grid = np.linspace(-25, 25, 1001)
    x = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
    mass = 0.0
    for lifts in (0.0, 1.0):
        step = np.concatenate([x, np.full((len(x), 1), lifts)], -1)
        mass += np.exp(-density(y, step)).sum() * (grid[1] - grid[0]) ** 2
    np.testing.assert_allclose(mass, 1, atol=1e-6)


def test_density_is_stable_and_exact_in_float32_where_the_formula_is_not(x64):
    """rho is within 1e-4 of +-1, sigma near 1e-4, and some points are far away."""
    rng = np.random.RandomState(0)
    y = rng.randn(200, 1 + 6 * 2)
    y[:, -2:] = rng.choice([-1, 1], (200, 2)) * rng.uniform(3, 5, (200, 2))  # rho^
    y[:, 7:11] = rng.uniform(-9, -2, (200, 4))  # sigma^
    step = np.concatenate([rng.randn(200, 2) * 0.5, rng.rand(200, 1) < 0.5], -1)
    wide = density(y, step)
    narrow = density(y.astype(np.float32), step.astype(np.float32))
    np.testing.assert_allclose(narrow, wide, rtol=3e-4, atol=1e-2)
    for far in (1.0, 70.0):
        hats = np.repeat(
            np.array([[0.0], [30.0], [-30.0], [1e4], [-1e4]], np.float32), 13, axis=1
        )
        value, slope = slopes(hats, np.array([far, -far, 1.0], np.float32))
        assert np.isfinite(value).all()
        assert np.isfinite(slope).all()


def test_draws_have_the_moments_of_the_density(x64):
    y = jnp.asarray(np.random.RandomState(3).randn(1 + 6))
    m = mixture.split(y)
    drawn = jax.jit(
        lambda key: mixture.draw(key, mixture.split(jnp.tile(y, (40_000, 1))))
    )(jax.random.key(0))
    sx, sy, rho = (
        float(np.exp(m.log_sigma[0][0])),
        float(np.exp(m.log_sigma[1][0])),
        float(np.tanh(y[-1])),
    )
    np.testing.assert_allclose(
        drawn.mean(0), [m.mu[0][0], m.mu[1][0], oracle.sigmoid(-float(y[0]))], atol=0.03
    )
    np.testing.assert_allclose(
        np.cov(drawn[:, :2].T),
        [[sx**2, rho * sx * sy], [rho * sx * sy, sy**2]],
        atol=0.03 * max(sx, sy) ** 2,
    )
    sharp = mixture.split(y, bias=2.0)
    np.testing.assert_allclose(sharp.log_sigma[0], m.log_sigma[0] - 2)


# -- the network


@pytest.mark.parametrize(
    ("norm", "peephole"),
    [
        pytest.param("none", True, marks=pytest.mark.slow),
        pytest.param("layer_cell", True, marks=pytest.mark.slow),
        ("layer", False),
    ],
)
def test_loss_and_its_gradient_are_the_oracles_in_float64(x64, norm, peephole):
    config = small(norm, peephole=peephole)
    network, params, batch = setting(config)
    loss = nll(network, batch)
    wanted = [oracle_nll(config, params, *line)[0] for line in lines_of(batch)]
    np.testing.assert_allclose(jax.jit(loss)(params), wanted, rtol=1e-10)

    @jax.jit
    def total(params):
        return loss(params).sum()

    check_grads(total, (params,), order=1, modes=["rev"], eps=1e-6)
    gradients = jax.tree.leaves(jax.grad(total)(params))
    assert all(np.any(gradient != 0) for gradient in gradients)


@pytest.fixture(scope="module")
def trained():
    """(config, network, random parameters in float32, a batch)."""
    config = small()
    network, params, batch = setting(config)
    return (
        config,
        network,
        jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), params),
        batch,
    )


@pytest.mark.slow
def test_padding_leaves_no_trace(trained):
    _, network, params, batch = trained
    junk = {k: v.copy() for k, v in batch.items()}
    for i in range(3):
        junk["steps"][i, batch["steps_length"][i] :] = np.nan
        junk["text"][i, batch["text_length"][i] :] = 0
    run = jax.jit(jax.value_and_grad(lambda p, b: nll(network, b)(p).sum()))
    (a, da), (b, db) = run(params, batch), run(params, junk)
    assert a == b
    assert all(np.isfinite(gradient).all() for gradient in jax.tree.leaves(da))
    jax.tree.map(np.testing.assert_array_equal, da, db)


@pytest.mark.slow
def test_one_step_at_a_time_is_the_whole_sequence(trained):
    _, network, params, batch = trained
    x = jnp.moveaxis(jnp.asarray(batch["steps"], jnp.float32), 1, 0)
    text = window.one_hot(batch["text"], batch["text_length"], network.sizes.symbols)
    last, y, h1 = jax.jit(network.run)(params, x, text)
    step = jax.jit(network.step)
    carry, kappas, phis = network.start(params, 3), [], []
    for t in range(len(x)):
        carry, one, h = step(params, carry, x[t], text)
        np.testing.assert_allclose(one, y[t], rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(h, h1[t], rtol=2e-4, atol=2e-5)
        kappas.append(carry["lstm1"].kappa)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), carry, last
    )
    assert (
        np.diff(np.stack(kappas), axis=0) > 0
    ).all()  # the window never stands still and never goes back
    assert (kappas[0] > 0).all()
    phis = window.alignment(params["lstm1"], h1, text.shape[1])
    np.testing.assert_allclose(
        np.einsum("bu,buv->bv", phis[-1], text),
        last["lstm1"].w,
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.slow
def test_kappa_is_the_oracles_and_starts_at_its_bias(x64):
    config = small("none")
    network, params, batch = setting(config)
    text = window.one_hot(
        batch["text"][:1], batch["text_length"][:1], config.model.symbols
    )
    x = np.concatenate([[START], batch["steps"][0, :-1]])[:, None]
    last = jax.jit(network.run)(params, x, text)[0]["lstm1"]
    (line, *_) = lines_of(batch)
    np.testing.assert_allclose(
        last.kappa[0], oracle_nll(config, params, *line)[1][-1], rtol=1e-10
    )
    fresh = jax.jit(network.init)(jax.random.key(0))["lstm1"]["window_bias"]
    np.testing.assert_allclose(
        fresh, [0, 0, 0, 0, config.model.kappa_bias, config.model.kappa_bias], rtol=1e-6
    )


@pytest.mark.slow
def test_clipping_bounds_derivatives_on_their_way_back_and_only_there(trained):
    config, _, params, batch = trained

    def grads(cells, outputs):
        network = Network(small(clip_cells=cells, clip_outputs=outputs))

        def mean(params):
            return network.nll(params, batch).mean()

        return jax.jit(jax.value_and_grad(mean))(params)

    (value, free), (same_value, same), (clipped_value, clipped) = (
        grads(None, None),
        grads(1e6, 1e6),
        grads(0.01, 0.02),
    )
    assert value == same_value == clipped_value
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), free, same
    )
    steps = config.model.steps
    # The gradient of a bias sums T derivatives, each at most the limit. It is a mean
    # over B sequences.
    for name in LAYERS:
        assert np.abs(clipped[name]["bias"]).max() <= 0.01 * steps * 1.0001
        assert np.abs(free[name]["bias"]).max() > 0.01 * steps
    assert np.abs(clipped["output"]["bias"]).max() <= 0.02 * steps * 1.0001


@pytest.mark.parametrize(
    ("norm", "peephole", "count"),
    [("none", False, 3_650_151), ("none", True, 3_653_751)],
)
def test_parameter_counts_of_the_paper(norm, peephole, count):
    for norm, more in (("none", 0), ("layer_cell", 2400), ("layer", 21_600)):
        config = config_file.get_config("paper")
        config.norm, config.model.peephole = norm, peephole
        shapes = jax.eval_shape(make(config).init, jax.random.key(0))["params"]
        sizes = {
            name: sum(a.size for a in jax.tree.leaves(part))
            for name, part in shapes.items()
        }
        assert sum(sizes.values()) == count + more
        assert sizes["output"] == 145_321
    if peephole:  # the layers' own numbers, norm for norm: 18 H more each
        assert sizes == {
            "lstm1": 750_830 + 7200,
            "lstm2": 1_378_800 + 7200,
            "lstm3": 1_378_800 + 7200,
            "output": 145_321,
        }


def test_original_coordinates_are_the_same_density_with_its_jacobian(x64):
    """nll + log sigma_x + log sigma_y is the density in the coordinates of the data."""
    rng, M = np.random.RandomState(0), 3
    y, raw = rng.randn(1 + 6 * M), np.array([30.0, -12.0, 1.0])
    facts = {"mean": [8.0, 0.5], "std": [42.0, 37.0], "symbols": []}
    lines = Lines({"strokes": [raw[None]], "text": [[]]}, facts)
    np.testing.assert_allclose(
        lines.denormalise(lines[0]["steps"]), raw[None], rtol=1e-6
    )
    back = y.copy()
    for i, (mean, std) in enumerate(zip(facts["mean"], facts["std"], strict=True)):
        back[1 + (1 + i) * M : 1 + (2 + i) * M] = (
            y[1 + (1 + i) * M : 1 + (2 + i) * M] * std + mean
        )
        back[1 + (3 + i) * M : 1 + (4 + i) * M] += np.log(std)
    normalised = oracle_density(y, lines[0]["steps"][0].astype(float), M)
    np.testing.assert_allclose(
        normalised + np.log(lines.std).sum(), oracle_density(back, raw, M), rtol=1e-5
    )


def test_strokes_with_decimals_are_not_changed_in_place():
    raw = np.array([[0.5, -1.25, 1.0]], np.float32)
    raw.flags.writeable = False
    facts = {"mean": [0.5, 0.75], "std": [1.0, 2.0], "symbols": []}
    lines = Lines({"strokes": [raw], "text": [[]]}, facts)
    np.testing.assert_array_equal(lines[0]["steps"], [[0, -1, 1]])


# -- what users see


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """The smoke config on generated strokes, its experiment and fresh vars."""
    config = config_file.get_config("smoke")
    config.data.dir = str(tmp_path_factory.mktemp("data"))
    exp = make(config)
    return config, exp, jax.jit(exp.init)(jax.random.key(0))


@pytest.mark.slow
def test_batches_and_evaluation_of_the_embedded_set(embedded):
    config, exp, vars = embedded
    with exp.batches(0) as stream:
        batch = next(stream)
    assert batch["steps"].shape == (config.batch_size, config.model.steps, 3)
    assert batch["text"].shape == (config.batch_size, config.model.characters)
    lines = open_lines(config, "train")
    every = np.concatenate(
        [lines.normalise(lines.strokes[i]) for i in range(len(lines))]
    )[:, :2]
    np.testing.assert_allclose(
        [every.mean(0), every.std(0)], [[0, 0], [1, 1]], atol=2e-3
    )

    found = exp.evaluate(vars, "valid").scalars
    lines = open_lines(config, "valid")
    rows = np.linspace(0, len(lines) - 1, config.eval_examples).round().astype(int)
    network = Network(config)
    run = jax.jit(network.nll)
    total = steps = 0.0
    for i in rows:  # one by one, each padded by hand
        line = lines[i]
        n, u = len(line["steps"]), len(line["text"])
        text = np.zeros((1, config.model.characters), np.int32)
        text[0, :u] = line["text"]
        padded = np.pad(line["steps"], ((0, config.model.steps - n), (0, 0)))[None]
        one = {
            "steps": padded,
            "steps_length": jnp.array([n]),
            "text": text,
            "text_length": jnp.array([u]),
        }
        total, steps = (
            total + float(run(vars["params"], one)[0]),
            steps + n,
        )
    np.testing.assert_allclose(found["nll"], total / len(rows), rtol=1e-4)
    np.testing.assert_allclose(found["nll_per_step"], total / steps, rtol=1e-4)
    scale = np.log(data.facts(config.data.name, config.data.dir)["std"]).sum()
    np.testing.assert_allclose(
        found["nll_original"], (total + steps * scale) / len(rows), rtol=1e-4
    )


@pytest.mark.slow
def test_writing_ends_with_the_text_and_repeats_with_its_key(embedded):
    config, _, vars = embedded
    network, params = Network(config), jax.tree.map(jnp.copy, vars["params"])
    params["lstm1"]["window_bias"] = (
        params["lstm1"]["window_bias"].at[-2:].set(0.0)
    )  # a character a step
    texts = [np.array([5, 6, 7]), np.array([8])]

    def write(seed, **options):
        key = jax.random.key(seed)
        return writing.write(network, params, texts, key, steps=120, **options)

    made, again, other = write(0), write(0), write(1)
    for text, a, b, c in zip(texts, made, again, other, strict=True):
        np.testing.assert_array_equal(a.steps, b.steps)
        assert not np.array_equal(a.steps, c.steps)
        assert a.ended
        assert len(text) <= len(a.steps) < 120
        assert a.steps[-1, 2] == 1
        assert a.phi.shape == (len(a.steps), len(text))
        assert a.outputs.shape == (len(a.steps), network.outputs)
    line = open_lines(config, "valid")[0]
    styled = write(0, style=writing.Style(line["steps"], line["text"]))
    assert [w.phi.shape[1] for w in styled] == [3, 1]
    assert not np.array_equal(styled[0].steps[:1], made[0].steps[:1])


def test_writing_needs_no_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    for name in ("pictures", "use"):
        monkeypatch.delitem(sys.modules, f"experiments.handwriting.{name}", False)
    assert importlib.import_module("experiments.handwriting.use").Model


@pytest.mark.slow
def test_pictures_and_svg_of_strokes_and_of_none(embedded):
    config, _, vars = embedded
    lines = open_lines(config, "valid")
    shown = pictures.draw_all(Network(config), vars["params"], lines, config)
    assert set(shown.images) == {"samples", "alignment", "density", "reading"}
    assert set(shown.files) == {"samples.svg"}
    for image in shown.images.values():
        assert image.dtype == np.uint8
        assert image.shape[-1] == 3
    strokes = writing.strokes_of(
        np.array([[10, 0, 0], [0, 10, 1], [5, 5, 0], [1, 1, 1.0]])
    )
    np.testing.assert_array_equal(strokes[0], [[0, 0], [10, 0], [10, 10]])
    np.testing.assert_array_equal(strokes[1], [[15, 15], [16, 16]])
    later = writing.strokes_of(
        np.array([[10, 0, 0], [0, 10, 1], [5, 5, 0], [1, 1, 1.0]]), lifted=True
    )
    np.testing.assert_array_equal(later[0], [[10, 0], [10, 10]])
    np.testing.assert_array_equal(later[1], strokes[1])
    assert pictures.page([writing.strokes_of(np.zeros((0, 3)))]).shape[-1] == 3


def test_strokes_of_an_svg_are_written_one_after_the_other():
    lines = [
        [np.array([[0.0, 0], [10, 0], [10, 10]]), np.array([[15.0, 15]])],
        [np.array([[0.0, 0], [5, 5]])],
    ]
    paths = ElementTree.fromstring(pictures.svg(lines)).findall(".//{*}path")
    assert [path.get("d").count(",") for path in paths] == [3, 2, 2]
    # Without animation a stroke has no dash, so that all of it is seen.
    assert not any(path.get("stroke-dasharray") for path in paths)
    ended = 0.0
    for path, steps in zip(paths, (3, 1, 2), strict=True):
        animation = path.find("{*}animate")
        times = [float(time) for time in animation.get("keyTimes").split(";")]
        assert times[0] == 0
        assert times[1] == ended
        assert times[2] > times[1]
        assert times[3] == 1
        seconds = float(animation.get("dur").removesuffix("s"))
        written = (times[2] - times[1]) * seconds
        assert written == pytest.approx(steps / pictures.STEPS_PER_SECOND, abs=0.01)
        ended = times[2]
    empty = pictures.svg([[]])
    assert not ElementTree.fromstring(empty).findall(".//{*}path")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"norm": "batch"},
            "config.norm = 'batch': choose one of none, layer_cell, layer",
        ),
        ({"model.units": 0}, "config.model.units = 0: at least 1"),
        ({"model.clip_cells": -1.0}, "config.model.clip_cells = -1.0: a limit above 0"),
    ],
)
def test_bad_sizes_are_one_line(change, message):
    config = config_file.get_config("smoke")
    config.update_from_flattened_dict(change)
    with pytest.raises(UserError, match=message) as e:
        make(config)
    assert "\n" not in str(e.value)


@pytest.mark.slow
def test_data_of_another_size_is_one_line(embedded):
    for change, message in (
        (
            {"model.symbols": 56},
            "config.model.symbols = 56, but generated_strokes has 57",
        ),
        (
            {"model.characters": 9},
            "config.model.characters = 9, but generated_strokes needs at least 20",
        ),
        (
            {"data.train_examples": 5},
            "config.data.train_examples = 5, but generated_strokes has 3000",
        ),
    ):
        config = embedded[0].copy_and_resolve_references()
        config.update_from_flattened_dict(change)
        with pytest.raises(UserError, match=message):
            check_data_sizes(config)
