"""Handwriting against its equations in NumPy float64, and properties of sampling."""

from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import handwriting as config_file
from experiments.handwriting import (
    make,
    mixture,
    pictures,
    window,
    writing,
)
from experiments.handwriting.data import Lines, open_lines
from experiments.handwriting.model import LAYERS, Network
from lnrepro.data.batches import eval_batches, evenly_spaced
from tests import oracle
from tests.functional.programs import drawn


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
    pi, mu_x, mu_y, s_x, s_y, r = y[1:].reshape(6, M)
    pi, sx, sy, r = np.exp(pi) / np.exp(pi).sum(), np.exp(s_x), np.exp(s_y), np.tanh(r)
    a, b = (step[0] - mu_x) / sx, (step[1] - mu_y) / sy
    z = a**2 + b**2 - 2 * r * a * b
    normals = np.exp(-z / (2 * (1 - r**2)))
    normals = normals / (2 * np.pi * sx * sy * np.sqrt(1 - r**2))
    return -np.log(pi @ normals) - np.log(e if step[2] == 1 else 1 - e)


def oracle_nll(config, params, steps, text):
    """Loss in nats of steps [T, 3] that write a text."""
    m = config.model
    state = {name: (np.zeros(m.units), np.zeros(m.units)) for name in LAYERS}
    # The pen is put down anew before the first step.
    w, kappa, x, total = np.zeros(m.symbols), 0.0, np.array([0.0, 0.0, 1.0]), 0.0
    first = params["lstm1"]
    w_x = np.concatenate([first["w_x"], first["w_w"]])
    cells = params | {"lstm1": first | {"w_x": w_x}}

    def layer(name, *inputs):
        inputs = np.concatenate(inputs)
        state[name] = oracle.lstm_step(cells[name], config.norm, *state[name], inputs)
        return state[name][1]

    for target in steps:
        h1 = layer("lstm1", x, w)
        numbers = np.exp(h1 @ first["window"] + first["window_bias"])
        alpha, beta, move = np.split(numbers, 3)
        kappa = kappa + move
        w = np.zeros(m.symbols)
        for u, character in enumerate(text, 1):
            w[character] += alpha @ np.exp(-beta * (kappa - u) ** 2)
        h2 = layer("lstm2", x, h1, w)
        h3 = layer("lstm3", x, h2, w)
        y = np.concatenate([h1, h2, h3]) @ params["output"]["w"]
        total += oracle_density(y + params["output"]["bias"], target, m.gaussians)
        x = target
    return total


def setting(config):
    """(network, random parameters, a batch of three lines).

    One line has all steps, one is short, and one has a text of one character.
    """
    network, rng, m = Network(config), np.random.RandomState(0), config.model
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    params = jax.tree.map(np.float64, drawn(shapes))
    steps = np.concatenate(
        [rng.randn(3, m.steps, 2), rng.rand(3, m.steps, 1) < 0.3], -1
    )
    text = rng.randint(0, m.symbols, (3, m.characters))
    batch = {
        "steps": steps,
        "steps_length": np.array([m.steps, 4, m.steps]),
        "text": text,
        "text_length": np.array([m.characters, 3, 1]),
    }
    return network, params, batch


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
    # The correlation, tanh(1.2) = 0.83, is far from sin(1.2) = 0.93 and from 0.
    y = np.array([0.7, 0.0, 0.4, -1.1, 0.3, -0.6, 1.2])

    @jax.jit
    def draws(y):
        many = mixture.split(jnp.tile(y, (40_000, 1)))
        return mixture.split(y), mixture.draw(jax.random.key(0), many)

    m, drawn = jax.device_get(draws(y))
    mean = [m.mu[0][0], m.mu[1][0], oracle.sigmoid(-float(y[0]))]
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.03)
    s, rho = np.exp(np.ravel(m.log_sigma)), np.tanh(y[-1])
    covariance = np.outer(s, s) * np.array([[1, rho], [rho, 1]])
    np.testing.assert_allclose(np.cov(drawn[:, :2].T), covariance, rtol=0.03)


def test_a_bias_sharpens_the_density_as_in_equations_61_and_62(x64):
    y = np.random.RandomState(4).randn(1 + 6 * 3)
    pi, _, _, sigma_x, sigma_y, _ = y[1:].reshape(6, 3)
    sharp = mixture.split(jnp.asarray(y), bias=0.5)
    wanted = np.exp(1.5 * pi) / np.exp(1.5 * pi).sum()
    np.testing.assert_allclose(np.exp(sharp.log_pi), wanted)
    np.testing.assert_allclose(sharp.log_sigma, [sigma_x - 0.5, sigma_y - 0.5])


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
    loss = jax.jit(nll(network, batch))
    wanted = [oracle_nll(config, params, *line) for line in lines_of(batch)]
    np.testing.assert_allclose(loss(params), wanted, rtol=1e-10)
    gradients = jax.jit(jax.grad(lambda params: loss(params).sum()))(params)
    assert all(np.any(gradient != 0) for gradient in jax.tree.leaves(gradients))

    # The slope along one direction of all parameters, by central differences.
    rng = np.random.RandomState(1)
    direction = jax.tree.map(lambda a: rng.randn(*a.shape), params)

    def moved(by):
        there = jax.tree.map(lambda a, d: a + by * d, params, direction)
        return np.sum(loss(there))

    slope = (moved(1e-6) - moved(-1e-6)) / 2e-6
    found = sum(jax.tree.leaves(jax.tree.map(np.vdot, gradients, direction)))
    np.testing.assert_allclose(found, slope, rtol=1e-6)


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
def test_one_step_at_a_time_is_the_whole_sequence(trained):
    _, network, params, batch = trained
    x = jnp.moveaxis(jnp.asarray(batch["steps"], jnp.float32), 1, 0)
    text = window.one_hot(batch["text"], batch["text_length"], network.sizes.symbols)
    last, y = jax.jit(network.run)(params, x, text)
    step = jax.jit(network.step)
    carry = {
        name: cell.initial_carry(params[name], x[0])
        for name, cell in network.cells.items()
    }
    kappas = []
    for t in range(len(x)):
        carry, one = step(params, carry, x[t], text)
        np.testing.assert_allclose(one, y[t], rtol=2e-4, atol=2e-5)
        kappas.append(carry["lstm1"].kappa)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), carry, last
    )
    # The window never stands still and never goes back.
    assert (np.diff(np.stack(kappas), axis=0) > 0).all()


def test_strokes_with_decimals_are_not_changed_in_place():
    raw = np.array([[0.5, -1.25, 1.0]], np.float32)
    raw.flags.writeable = False
    facts = {"mean": [0.5, 0.75], "std": [1.0, 2.0]}
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
    steps = np.concatenate([lines.normalise(stroke) for stroke in lines.strokes])
    np.testing.assert_allclose(steps[:, :2].mean(0), 0, atol=2e-3)
    np.testing.assert_allclose(steps[:, :2].std(0), 1, atol=2e-3)

    found = exp.evals["valid"].run(vars).scalars
    lines = open_lines(config, "valid")
    pad = {"steps": config.model.steps, "text": config.model.characters}
    # One by one.
    rows = evenly_spaced(len(lines), config.eval_examples)
    ones = eval_batches([lines[i] for i in rows], 1, pad=pad)
    run, total, steps = jax.jit(Network(config).nll), 0.0, 0
    for one in ones:
        total += float(run(vars["params"], one)[0])
        steps += int(one["steps_length"][0])
    lines_read = config.eval_examples
    np.testing.assert_allclose(found["nll"], total / lines_read, rtol=1e-4)
    np.testing.assert_allclose(found["nll_per_step"], total / steps, rtol=1e-4)
    original = total + steps * np.log(lines.std).sum()
    np.testing.assert_allclose(found["nll_original"], original / lines_read, rtol=1e-4)


@pytest.mark.slow
def test_writing_ends_with_the_text_and_repeats_with_its_key(embedded):
    config, _, vars = embedded
    network, params = Network(config), jax.tree.map(jnp.copy, vars["params"])
    # A character a step.
    bias = params["lstm1"]["window_bias"].at[-2:].set(0.0)
    params["lstm1"]["window_bias"] = bias
    texts = [np.array([5, 6, 7]), np.array([8])]

    def write(seed):
        return writing.write(network, params, texts, jax.random.key(seed), steps=120)

    lines = zip(texts, write(0), write(0), write(1), strict=True)
    for text, line, again, other in lines:
        np.testing.assert_array_equal(line.steps, again.steps)
        assert not np.array_equal(line.steps, other.steps)
        assert line.ended
        assert line.steps[-1, 2] == 1
        assert line.phi.shape == (len(line.steps), len(text))


@pytest.mark.slow
def test_pictures_of_a_network(embedded):
    config, _, vars = embedded
    lines = open_lines(config, "valid")
    shown = pictures.draw_all(Network(config), vars["params"], lines, config)
    assert set(shown.images) == {"samples", "alignment"}
    assert set(shown.files) == {"samples.svg"}
    for image in shown.images.values():
        assert image.dtype == np.uint8
        assert image.shape[-1] == 3
    assert pictures.page([[]]).shape[-1] == 3


def test_steps_make_strokes():
    steps = np.array([[10, 0, 0], [0, 10, 1], [5, 5, 0], [1, 1, 1.0]])
    first, second = writing.strokes_of(steps)
    np.testing.assert_array_equal(first, [[0, 0], [10, 0], [10, 10]])
    np.testing.assert_array_equal(second, [[15, 15], [16, 16]])
    assert writing.strokes_of(np.zeros((0, 3))) == []


def test_strokes_of_an_svg_are_written_one_after_the_other():
    lines = [
        [np.array([[0.0, 0], [10, 0], [10, 10]]), np.array([[15.0, 15]])],
        [np.array([[0.0, 0], [5, 5]])],
    ]
    paths = ElementTree.fromstring(pictures.svg(lines)).findall(".//{*}path")
    assert [path.get("d").count(",") for path in paths] == [3, 2, 2]
    # Without animation a stroke has no dash, so that all of it is seen.
    assert not any(path.get("stroke-dasharray") for path in paths)
    # The finished lines come first, and then each stroke after the one before it.
    ended = None
    for path, steps in zip(paths, (3, 1, 2), strict=True):
        animation = path.find("{*}animate")
        times = [float(time) for time in animation.get("keyTimes").split(";")]
        offsets = [float(value) for value in animation.get("values").split(";")]
        seconds = float(animation.get("dur").removesuffix("s"))
        assert times[0] == 0
        assert times[1] == times[2] == pytest.approx(pictures.PAUSE / seconds, abs=1e-4)
        assert times[3] == (times[2] if ended is None else ended)
        assert times[4] > times[3]
        assert times[5] == 1
        assert [offset > 1 for offset in offsets] == [0, 0, 1, 1, 0, 0]
        written = (times[4] - times[3]) * seconds
        assert written == pytest.approx(steps / pictures.STEPS_PER_SECOND, abs=0.01)
        ended = times[4]
    empty = pictures.svg([[]])
    assert not ElementTree.fromstring(empty).findall(".//{*}path")
