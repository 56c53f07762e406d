"""Handwriting against its equations in NumPy float64, and properties of sampling."""

from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from experiments.handwriting import mixture, pictures, window, writing
from experiments.handwriting.data import Lines, open_lines
from experiments.handwriting.model import LAYERS, Network
from tests import oracle
from tests.experiments.small import config_of, random_params

SIZES = {
    "model.units": 5,
    "model.gaussians": 3,
    "model.window_gaussians": 2,
    "model.symbols": 6,
    "model.steps": 7,
    "model.characters": 4,
}

# -- the oracle: one sequence, one step, one character and one Gaussian at a time


def oracle_density(y, step, M):
    """-log p of a step [3] under outputs [1 + 6M] (Graves, eq. 18-26)."""
    e = oracle.sigmoid(-y[0])
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


def setting(norm="layer", peephole=False):
    """(config, network, random parameters, a batch of three lines).

    One line has all steps, one is short, and one has a text of one character. What
    stands behind the end of a line or a text is not 0.
    """
    changes = {"norm": norm, "model.peephole": peephole}
    config = config_of("handwriting", **SIZES, **changes)
    network, rng = Network(config), np.random.RandomState(0)
    batch = {
        "steps": np.concatenate([rng.randn(3, 7, 2), rng.rand(3, 7, 1) < 0.3], -1),
        "steps_length": np.array([7, 4, 7]),
        "text": rng.randint(0, 6, (3, 4)),
        "text_length": np.array([4, 3, 1]),
    }
    batch["steps"][1, 4:] = np.nan
    return config, network, random_params(network.init), batch


# -- the density

density = jax.jit(mixture.negative_log_likelihood)
slopes = jax.jit(
    jax.vmap(jax.value_and_grad(mixture.negative_log_likelihood), (0, None))
)


def test_density_is_stable_and_exact_in_float32_where_the_formula_is_not(x64):
    """rho is within 1e-4 of +-1, sigma near 1e-4, and some points are far away."""
    rng = np.random.RandomState(0)
    y = rng.randn(200, 1 + 6 * 2)
    y[:, -2:] = rng.choice([-1, 1], (200, 2)) * rng.uniform(3, 5, (200, 2))  # rho^
    y[:, 7:11] = rng.uniform(-9, -2, (200, 4))  # sigma^
    step = np.concatenate([rng.randn(200, 2) * 0.5, rng.rand(200, 1) < 0.5], -1)
    narrow = density(y.astype(np.float32), step.astype(np.float32))
    np.testing.assert_allclose(narrow, density(y, step), rtol=3e-4, atol=1e-2)
    hats = np.tile(np.float32([[0], [30], [-30], [1e4], [-1e4]]), 13)
    for far in (1.0, 70.0):
        found = slopes(hats, np.array([far, -far, 1.0], np.float32))
        assert all(np.isfinite(a).all() for a in found)


def test_draws_have_the_moments_of_the_density(x64):
    # The correlation, tanh(1.2) = 0.83, is far from sin(1.2) = 0.93 and from 0.
    y = np.array([0.7, 0.0, 0.4, -1.1, 0.3, -0.6, 1.2])

    @jax.jit
    def draws(y):
        return mixture.draw(jax.random.key(0), mixture.split(jnp.tile(y, (40_000, 1))))

    drawn = np.asarray(draws(y))
    mean = [0.4, -1.1, oracle.sigmoid(-0.7)]
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.03)
    s, rho = np.exp([0.3, -0.6]), np.tanh(1.2)
    covariance = np.outer(s, s) * [[1, rho], [rho, 1]]
    np.testing.assert_allclose(np.cov(drawn[:, :2].T), covariance, rtol=0.03)


def test_a_bias_sharpens_the_density_as_in_equations_61_and_62(x64):
    y = np.random.RandomState(4).randn(6, 3)
    sharp = mixture.split(jnp.append(0, y), bias=0.5)
    wanted = np.exp(1.5 * y[0]) / np.exp(1.5 * y[0]).sum()
    np.testing.assert_allclose(np.exp(sharp.log_pi), wanted)
    np.testing.assert_allclose(sharp.log_sigma, y[3:5] - 0.5)


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
    config, network, params, batch = setting(norm, peephole)

    @jax.jit
    def loss(params):
        return network.nll(params, batch)

    wanted = []
    for steps, n, text, u in zip(*batch.values(), strict=True):
        wanted.append(oracle_nll(config, params, steps[:n], text[:u]))
    np.testing.assert_allclose(loss(params), wanted, rtol=1e-10)
    check_grads(loss, (params,), order=1, modes=["rev"], eps=1e-6)


@pytest.mark.slow
def test_one_step_at_a_time_is_the_whole_sequence(x64):
    _, network, params, batch = setting()
    x = np.moveaxis(np.nan_to_num(batch["steps"]), 1, 0)
    text = window.one_hot(batch["text"], batch["text_length"], 6)
    _, y = jax.jit(network.run)(params, x, text)
    step, carry = jax.jit(network.step), {}
    for name, cell in network.cells.items():
        carry[name] = cell.initial_carry(params[name], x[0])
    for x_t, wanted in zip(x, y, strict=True):
        kappa = carry["lstm1"].kappa
        carry, one = step(params, carry, x_t, text)
        np.testing.assert_allclose(one, wanted, rtol=1e-9)
        # The window never stands still and never goes back.
        assert (carry["lstm1"].kappa > kappa).all()


def test_strokes_with_decimals_are_not_changed_in_place():
    raw = np.array([[0.5, -1.25, 1.0]], np.float32)
    raw.flags.writeable = False
    facts = {"mean": [0.5, 0.75], "std": [1.0, 2.0]}
    lines = Lines({"strokes": [raw], "text": [[]]}, facts)
    steps = lines[0]["steps"]
    np.testing.assert_array_equal(steps, [[0, -1, 1]])
    np.testing.assert_array_equal(lines.denormalise(steps), raw)


# -- what users see


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """The smoke config on generated strokes, its network and fresh parameters."""
    folder = str(tmp_path_factory.mktemp("data"))
    config = config_of("handwriting", **{"data.dir": folder})
    network = Network(config)
    return config, network, jax.jit(network.init)(jax.random.key(0))


@pytest.mark.slow
def test_writing_ends_with_the_text_and_repeats_with_its_key(embedded):
    _, network, params = embedded
    # A character a step.
    bias = params["lstm1"]["window_bias"].at[-2:].set(0.0)
    params = params | {"lstm1": params["lstm1"] | {"window_bias": bias}}
    texts = [np.array([5, 6, 7]), np.array([8])]
    written = [
        writing.write(network, params, texts, jax.random.key(seed), steps=120)
        for seed in (0, 0, 1)
    ]
    for text, line, again, other in zip(texts, *written, strict=True):
        np.testing.assert_array_equal(line.steps, again.steps)
        assert not np.array_equal(line.steps, other.steps)
        assert line.ended
        assert line.steps[-1, 2] == 1
        assert line.phi.shape == (len(line.steps), len(text))


@pytest.mark.slow
def test_pictures_of_a_network(embedded):
    config, network, params = embedded
    lines = open_lines(config, "valid")
    shown = pictures.draw_all(network, params, lines, config)
    assert set(shown.images) == {"samples", "alignment"}
    assert set(shown.files) == {"samples.svg", "samples.txt", "alignment.txt"}
    for image in shown.images.values():
        assert (image.dtype, image.shape[-1]) == (np.uint8, 3)


def test_steps_make_strokes():
    steps = np.array([[10, 0, 0], [0, 10, 1], [5, 5, 0], [1, 1, 1.0]])
    first, second = writing.strokes_of(steps)
    np.testing.assert_array_equal(first, [[0, 0], [10, 0], [10, 10]])
    np.testing.assert_array_equal(second, [[15, 15], [16, 16]])


def test_strokes_of_an_svg_are_written_one_after_the_other():
    # Strokes of 3, 1 and 2 points; one point is drawn as a short line.
    lines = [[np.eye(3, 2), np.array([[15.0, 15]])], [np.array([[0.0, 0], [5, 5]])]]
    paths = ElementTree.fromstring(pictures.svg(lines)).findall(".//{*}path")
    assert [path.get("d").count(",") for path in paths] == [3, 2, 2]
    # The finished lines come first, and then each stroke after the one before it.
    pause, seconds = pictures.PAUSE, pictures.PAUSE + 6 / pictures.STEPS_PER_SECOND
    ends = pause + np.cumsum([0, 3, 1, 2]) / pictures.STEPS_PER_SECOND
    for path, start, end in zip(paths, ends, ends[1:], strict=False):
        animation = path.find("{*}animate")
        assert animation.get("dur") == f"{seconds:.2f}s"
        times = [float(time) for time in animation.get("keyTimes").split(";")]
        wanted = np.array([0, pause, pause, start, end, seconds]) / seconds
        np.testing.assert_allclose(times, wanted, atol=1e-3)
