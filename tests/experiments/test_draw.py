"""DRAW against its equations in NumPy float64, and properties that hold exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from configs import draw as config_file
from experiments.draw import attention, evaluate, model, pictures
from experiments.draw.bound import cross_entropy, noise_of
from tests import oracle
from tests.functional.programs import drawn

NORMS = ("none", "weight", "layer_cell", "layer")


def small(norm="layer_cell", **sizes):
    config = config_file.get_config("smoke")
    config.norm = norm
    config.model.update(
        {
            "image_size": 9,
            "units": 6,
            "latents": 3,
            "glimpses": 4,
            "read_size": 2,
            "write_size": 3,
        }
    )
    config.model.update(sizes)
    config.model.init.update({"read": 0.2, "latent": 0.3, "write": 0.3})
    return config


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


def oracle_read(numbers, image, points):
    fy, fx, gamma = oracle_bank(numbers, points, len(image))
    return gamma * fy @ image @ fx.T


def oracle_write(numbers, patch, size):
    fy, fx, gamma = oracle_bank(numbers, len(patch), size)
    return fy.T @ patch @ fx / gamma


def oracle_bound(config, params, x, noise):
    """(reconstruction, KL) of one image (S, S), noise (G, Z), step by step."""
    m, norm = config.model, config.norm

    def affine(name, h):
        p = params[name]
        w = p["w"]
        if norm == "weight":
            w = w / np.linalg.norm(w, axis=0) * p["length"]
        return h @ w + p["bias"]

    c_enc = h_enc = c_dec = h_dec = np.zeros(m.units)
    canvas, kl = np.zeros(x.shape), 0.0
    for eps in noise:
        seen = [x, x - oracle.sigmoid(canvas)]
        numbers = affine("read", h_dec)
        seen = [oracle_read(numbers, image, m.read_size) for image in seen]
        r = np.concatenate([*map(np.ravel, seen), h_dec])
        c_enc, h_enc = oracle.lstm_step(params["encoder"], norm, c_enc, h_enc, r)
        mu, log_s = np.split(affine("latent", h_enc), 2)
        z = mu + np.exp(log_s) * eps
        kl += 0.5 * np.sum(mu**2 + np.exp(log_s) ** 2 - 2 * log_s - 1)
        c_dec, h_dec = oracle.lstm_step(params["decoder"], norm, c_dec, h_dec, z)
        out = affine("write", h_dec)
        patch = out[5:].reshape(m.write_size, -1)
        canvas = canvas + oracle_write(out[:5], patch, len(x))
    p = oracle.sigmoid(canvas)
    return -np.sum(x * np.log(p) + (1 - x) * np.log(1 - p)), kl


def setting(config, batch=2):
    """(network, params with nothing left at zero, x, noise) in float64."""
    draw = model.Draw(config)
    rng = np.random.RandomState(0)
    shapes = jax.eval_shape(draw.init, jax.random.key(0))
    params = jax.tree.map(np.float64, drawn(shapes))
    m = config.model
    x = (rng.rand(batch, m.image_size, m.image_size) < 0.4).astype(float)
    return draw, params, x, rng.randn(m.glimpses, batch, m.latents)


def mean_bound(draw, x, noise):
    def bound(params):
        canvas, seen = draw.infer(params, x, noise)
        return jnp.mean(cross_entropy(canvas, x) + seen.kl.sum(0))

    return bound


# -- attention


@pytest.mark.parametrize("points", [1, 2, 5])
def test_filter_bank_is_the_brute_force_in_float64(x64, points):
    numbers = np.random.RandomState(points).randn(3, 5) * [0.5, 0.5, 0.7, 0.5, 0.5]
    window = jax.device_get(
        jax.jit(attention.window, static_argnums=(1, 2))(numbers, points, 11)
    )
    for b, (fy, fx, gamma) in enumerate(
        oracle_bank(row, points, 11) for row in numbers
    ):
        np.testing.assert_allclose(window.rows[b], fy, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(window.columns[b], fx, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(window.gamma[b], gamma, rtol=1e-12)


def test_gradients_of_reading_and_writing_are_central_differences(x64):
    rng = np.random.RandomState(1)
    numbers, images, patch = (
        rng.randn(2, 5) * 0.4,
        rng.randn(2, 7, 7),
        rng.randn(2, 3, 3),
    )

    @jax.jit
    def both(numbers, images, patch):
        window = attention.window(numbers, 3, 7)
        return attention.read(window, images), attention.write(window, patch)

    check_grads(both, (numbers, images, patch), order=1, modes=["rev"], eps=1e-6)


def test_a_window_that_misses_the_image_stays_finite():
    far = np.array([[30.0, -30.0, -3.0, 2.0, 0.0]], np.float32)
    rows = jax.value_and_grad(lambda n: attention.window(n, 5, 28).rows.sum())
    value, grad = jax.jit(rows)(far)
    assert value == 0
    assert np.isfinite(grad).all()


def test_numbers_zero_lay_the_grid_over_the_whole_image():
    centres, variance, gamma = attention.geometry(jnp.zeros((1, 5)), 5, 28)
    np.testing.assert_allclose(centres[0], [[1, 7.75, 14.5, 21.25, 28]] * 2, rtol=1e-6)
    assert (variance, gamma) == (1, 1)


# -- the bound


@pytest.mark.parametrize("norm", NORMS)
def test_bound_is_the_brute_force_in_float64(x64, norm):
    config = small(norm)
    draw, params, x, noise = setting(config)
    canvas, seen = jax.device_get(jax.jit(draw.infer)(params, x, noise))
    canvases, _ = jax.device_get(jax.jit(draw.trace)(params, x, noise))
    entropies = jax.device_get(jax.jit(cross_entropy)(canvas, x))
    np.testing.assert_allclose(canvases[-1], canvas, rtol=1e-12)
    for b in range(len(x)):
        reconstruction, kl = oracle_bound(
            config, jax.tree.map(np.asarray, params), x[b], noise[:, b]
        )
        np.testing.assert_allclose(entropies[b], reconstruction, rtol=1e-9)
        np.testing.assert_allclose(seen.kl.sum(0)[b], kl, rtol=1e-9)


# -- what users see


@pytest.mark.slow
def test_importance_weights_are_exact_where_the_posterior_is_the_prior(x64):
    draw, params, x, _ = setting(small(), batch=3)
    params["latent"] = jax.tree.map(
        jnp.zeros_like, params["latent"]
    )  # q(z|x) = p(z): weights are p(x|z)
    _, seen = jax.jit(draw.infer)(
        params, x, noise_of(jax.random.key(0), jnp.arange(3), draw.sizes, x.dtype)
    )
    np.testing.assert_allclose(seen.log_ratio, 0, atol=1e-12)
    np.testing.assert_allclose(seen.kl, 0, atol=1e-12)
    params["write"] = jax.tree.map(
        jnp.zeros_like, params["write"]
    )  # and x does not depend on z
    batch = {"image": np.asarray(x), "index": jnp.arange(3)}
    values = evaluate.nll(draw, jax.random.key(1), 5, {"params": params}, batch)
    np.testing.assert_allclose(values["nll_iw5"], 81 * np.log(2), rtol=1e-6)


@pytest.mark.slow
def test_importance_weighting_tightens_the_bound():
    draw, params, x, _ = setting(small(), batch=6)
    batch, vars = {"image": x, "index": jnp.arange(6)}, {"params": params}
    key = jax.random.key(3)
    one, many = (
        evaluate.nll(draw, key, k, vars, batch)[f"nll_iw{k}"].mean() for k in (1, 300)
    )
    bounds = [
        evaluate.bounds(draw, k, vars, batch)["bound"].mean()
        for k in jax.random.split(key, 20)
    ]
    assert many < np.mean(bounds) - 3 * np.std(bounds) / np.sqrt(20)
    assert many < one


def test_noise_of_an_example_does_not_depend_on_its_batch():
    sizes = small().model
    key = jax.random.key(0)
    together = noise_of(key, jnp.array([4, 7, 9]), sizes, jnp.float32)
    np.testing.assert_array_equal(
        together[:, 1:2], noise_of(key, jnp.array([7]), sizes, jnp.float32)
    )


@pytest.mark.slow
def test_pictures_show_what_was_read_and_written():
    draw, params, x, _ = setting(small(), batch=2)
    params = jax.tree.map(lambda a: a.astype(jnp.float32), params)
    shown = pictures.draw_all(draw, params, x, jax.random.key(0))
    assert set(shown) == {"samples", "samples_over_glimpses", "glimpses"}
    assert all(v.dtype == np.uint8 and v.shape[-1] == 3 for v in shown.values())
    assert len(shown["samples_over_glimpses"]) == 4 + pictures.HELD_FRAMES


def test_frame_stands_where_the_window_stands():
    outermost = np.array([[3.0, 7.0], [2.0, 5.0]])
    windows = [pictures.Window(outermost, 0.1, c) for c in ("none", "#ff0000")]
    picture = pictures.page(np.zeros((2, 9, 9)), 2, windows, zoom=10)
    ys, xs = np.nonzero(picture[..., 0] > 200)
    # The second image begins after ten pixels and a line. Pixel a has its centre at
    # a - 1/2.
    assert abs(xs.min() - 10 * (11 + 2.5)) <= 1
    assert abs(xs.max() - 10 * (11 + 6.5)) <= 1
    assert abs(ys.min() - 10 * (1 + 1.5)) <= 1
    assert abs(ys.max() - 10 * (1 + 4.5)) <= 1
