"""DRAW against its equations in NumPy float64, and properties that hold exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from experiments.draw import attention, evaluate, model, pictures
from tests import oracle
from tests.experiments.small import config_of, random_params

NORMS = ("none", "weight", "layer_cell", "layer")
SIZES = {
    "model.image_size": 9,
    "model.units": 6,
    "model.latents": 3,
    "model.glimpses": 4,
    "model.read_size": 2,
    "model.write_size": 3,
}

# -- the reference: loops over pixels and grid points


def oracle_bank(numbers, points, size):
    """F_Y, F_X [N, S] and gamma of one image (Gregor et al., eq. 19-26)."""
    gx, gy, log_var, log_delta, log_gamma = numbers
    delta = (size - 1) / (points - 1) * np.exp(log_delta) if points > 1 else 0.0
    pixels, banks = np.arange(1, size + 1), []
    for g in (gy, gx):
        bank = []
        for i in range(1, points + 1):
            mu = (size + 1) / 2 * (g + 1) + (i - points / 2 - 0.5) * delta
            bell = np.exp(-((pixels - mu) ** 2) / (2 * np.exp(log_var)))
            bank.append(bell / max(bell.sum(), 1e-8))
        banks.append(np.stack(bank))
    return *banks, np.exp(log_gamma)


def oracle_bound(config, params, x, noise):
    """(reconstruction, KL, log p(z) / q(z)) of an image (S, S) and noise (G, Z)."""
    m, norm = config.model, config.norm

    def affine(name, h):
        p = params[name]
        w = p["w"]
        if norm == "weight":
            w = w / np.linalg.norm(w, axis=0) * p["length"]
        return h @ w + p["bias"]

    c_enc = h_enc = c_dec = h_dec = np.zeros(m.units)
    canvas, kl, log_ratio = np.zeros(x.shape), 0.0, 0.0
    for eps in noise:
        fy, fx, gamma = oracle_bank(affine("read", h_dec), m.read_size, len(x))
        seen = [gamma * fy @ a @ fx.T for a in (x, x - oracle.sigmoid(canvas))]
        r = np.concatenate([*map(np.ravel, seen), h_dec])
        c_enc, h_enc = oracle.lstm_step(params["encoder"], norm, c_enc, h_enc, r)
        mu, log_s = np.split(affine("latent", h_enc), 2)
        z = mu + np.exp(log_s) * eps
        kl += 0.5 * np.sum(mu**2 + np.exp(log_s) ** 2 - 2 * log_s - 1)
        log_ratio += np.sum(log_s + 0.5 * ((z - mu) / np.exp(log_s)) ** 2 - 0.5 * z**2)
        c_dec, h_dec = oracle.lstm_step(params["decoder"], norm, c_dec, h_dec, z)
        out = affine("write", h_dec)
        fy, fx, gamma = oracle_bank(out[:5], m.write_size, len(x))
        canvas = canvas + fy.T @ out[5:].reshape(m.write_size, -1) @ fx / gamma
    p = oracle.sigmoid(canvas)
    return -np.sum(x * np.log(p) + (1 - x) * np.log(1 - p)), kl, log_ratio


def setting(norm="layer_cell"):
    """(config, network, params with nothing left at zero, two images)."""
    changes = {"model.read_size": 1} if norm == "weight" else {}
    config = config_of("draw", norm=norm, **SIZES | changes)
    draw = model.Draw(config)
    x = (np.random.RandomState(0).rand(2, 9, 9) < 0.4).astype(float)
    return config, draw, random_params(draw.init), x


# -- attention


def test_gradients_of_reading_and_writing_are_central_differences(x64):
    rng = np.random.RandomState(1)
    inputs = rng.randn(2, 5) * 0.4, rng.randn(2, 7, 7), rng.randn(2, 3, 3)

    @jax.jit
    def both(numbers, images, patch):
        window = attention.window(numbers, 3, 7)
        return attention.read(window, images), attention.write(window, patch)

    check_grads(both, inputs, order=1, modes=["rev"], eps=1e-6)


def test_a_window_that_misses_the_image_stays_finite():
    far = np.array([[30.0, -30.0, -3.0, 2.0, 0.0]], np.float32)
    rows = jax.value_and_grad(lambda n: attention.window(n, 5, 28).rows.sum())
    value, grad = jax.jit(rows)(far)
    assert value == 0
    assert np.isfinite(grad).all()


# -- the bound


@pytest.mark.parametrize("norm", NORMS)
def test_bound_is_the_brute_force_in_float64(x64, norm):
    config, draw, params, x = setting(norm)
    key, index = jax.random.key(0), jnp.arange(2)
    noise = np.asarray(draw.noise(params, key, index))

    @jax.jit
    def terms(params):
        batch = {"image": x, "index": index}
        bounds = evaluate.bounds(draw, key, {"params": params}, batch)
        result = draw.infer(params, x, noise, output=lambda carry: carry.canvas)
        change = result.outputs[-1] - result.carry.canvas
        return bounds, result.aux.log_ratio.sum(0), change

    bounds, log_ratio, change = jax.device_get(terms(params))
    assert not change.any()
    for b, image in enumerate(x):
        entropy, kl, ratio = oracle_bound(config, params, image, noise[:, b])
        found = {name: values[b] for name, values in bounds.items()}
        wanted = {"bound": entropy + kl, "reconstruction": entropy, "kl": kl}
        assert found == pytest.approx(wanted, rel=1e-9)
        assert log_ratio[b] == pytest.approx(ratio, rel=1e-9)


def test_importance_weighting_is_the_mean_of_the_weights(x64):
    config, draw, params, x = setting()
    key, index, weights = jax.random.key(1), jnp.arange(2), []
    batch = {"image": x, "index": index}
    for one in jax.random.split(key, 3):
        noise = np.asarray(draw.noise(params, one, index))
        images = zip(x, noise.swapaxes(0, 1), strict=True)
        terms = [oracle_bound(config, params, *image) for image in images]
        weights.append([np.exp(ratio - entropy) for entropy, _, ratio in terms])
    found = evaluate.nll(draw, key, 3, {"params": params}, batch)
    np.testing.assert_allclose(found["nll"], -np.log(np.mean(weights, 0)))


def test_noise_of_an_example_does_not_depend_on_its_batch(x64):
    _, draw, params, _ = setting()
    key = jax.random.key(0)
    together = draw.noise(params, key, jnp.array([4, 7, 9]))
    alone = draw.noise(params, key, jnp.array([7]))
    np.testing.assert_array_equal(together[:, 1:2], alone)
    assert (together[:, 0] != together[:, 1]).all()


# -- what users see


@pytest.mark.slow
def test_pictures_show_what_was_read_and_written():
    _, draw, params, x = setting()
    params = jax.tree.map(jnp.float32, params)
    shown = pictures.draw_all(draw, params, x, jax.random.key(0))
    assert {f"{name}.txt" for name in shown} == pictures.TEXTS.keys()
    assert all(v.dtype == np.uint8 and v.shape[-1] == 3 for v in shown.values())
    assert len(shown["samples_over_glimpses"]) == 4 + pictures.HELD_FRAMES


def test_frame_stands_where_the_window_stands():
    outermost = np.array([[3.0, 7.0], [2.0, 5.0]])
    windows = [pictures.Window(outermost, 0.1, c) for c in ("none", "#ff0000")]
    picture = pictures.page(np.zeros((2, 9, 9)), 2, windows, zoom=10)
    ys, xs = np.nonzero(picture[..., 0] > 200)
    # The second image begins after ten pixels and a line. Pixel a has its centre at
    # a - 1/2.
    found = [xs.min(), xs.max(), ys.min(), ys.max()]
    wanted = 10 * np.array([11 + 2.5, 11 + 6.5, 1 + 1.5, 1 + 4.5])
    np.testing.assert_allclose(found, wanted, atol=1)
