"""The density of the next pen step (Graves 2013, eq. 16-25): M bivariate Gaussians and an end-of-stroke bit, in log space.

The network's 1 + 6M outputs stand in this order: e^, pi^ (M), mu_x (M), mu_y (M), sigma_x^ (M), sigma_y^ (M), rho^ (M);

    e = 1 / (1 + exp(e^));   pi = softmax(pi^);   sigma = exp(sigma^);   rho = tanh(rho^)

Letters: M Gaussians, (...) any leading axes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

LOG_SIGMA_MIN = -9.2103404  # log 1e-4, in standard deviations of the training set's offsets: 1/200 of a unit of IAM-OnDB
RHO_HAT_MAX = 6.0  # |rho| <= 1 - 1.2e-5


class Mixture(NamedTuple):
    """Parameters of the density, each (..., M) but `pen` (...): e^ itself, log pi, means, log sigma, rho^."""

    pen: jax.Array
    log_pi: jax.Array
    mu: tuple[jax.Array, jax.Array]
    log_sigma: tuple[jax.Array, jax.Array]
    rho_hat: jax.Array


def size(gaussians: int) -> int:
    """How many numbers describe the density: 1 + 6M."""
    return 1 + 6 * gaussians


def split(outputs: jax.Array, bias: float | jax.Array = 0.0) -> Mixture:
    """Outputs (..., 1 + 6M) -> Mixture; `bias` b sharpens it: pi^ (1 + b), sigma^ - b (eq. 61, 62)."""
    pi, mu_x, mu_y, sigma_x, sigma_y, rho = jnp.split(outputs[..., 1:], 6, axis=-1)
    log_sigma = (jnp.maximum(s - bias, LOG_SIGMA_MIN) for s in (sigma_x, sigma_y))
    rho = jnp.clip(rho, -RHO_HAT_MAX, RHO_HAT_MAX)
    return Mixture(
        outputs[..., 0],
        jax.nn.log_softmax(pi * (1 + bias)),
        (mu_x, mu_y),
        tuple(log_sigma),
        rho,
    )


def log_normals(m: Mixture, point: jax.Array) -> jax.Array:
    """log N_j of points (..., 2), nats: (..., M) (eq. 24, 25).

    With a, b the distances in sigmas, Z / (1 - rho^2) = ((a - rho b) cosh rho^)^2 + b^2 and log(1 - rho^2) =
    -2 log cosh rho^; a - rho b is formed from a -+ b and 1 -+ rho, so nothing cancels as rho nears +-1.
    """
    a, b = (
        (point[..., i, None] - mu) * jnp.exp(-s)
        for i, (mu, s) in enumerate(zip(m.mu, m.log_sigma, strict=True))
    )
    sign, size = jnp.where(m.rho_hat < 0, -1.0, 1.0).astype(a.dtype), jnp.abs(m.rho_hat)
    short = 2 * jax.nn.sigmoid(-2 * size)  # 1 - |rho|
    log_cosh = size + jax.nn.softplus(-2 * size) - jnp.log(2.0).astype(a.dtype)
    skew = ((a - sign * b) + sign * short * b) * jnp.exp(log_cosh)
    return (
        log_cosh
        - sum(m.log_sigma)
        - jnp.log(2 * jnp.pi).astype(a.dtype)
        - 0.5 * (jnp.square(skew) + jnp.square(b))
    )


def negative_log_likelihood(outputs: jax.Array, step: jax.Array) -> jax.Array:
    """Nats of steps (..., 3) = (dx, dy, ends a stroke) under outputs (..., 1 + 6M): (...) (eq. 26)."""
    m = split(outputs)
    offset = jax.nn.logsumexp(m.log_pi + log_normals(m, step[..., :2]), axis=-1)
    pen = jax.nn.softplus(
        m.pen * jnp.where(step[..., 2] > 0.5, 1.0, -1.0).astype(m.pen.dtype)
    )
    return pen - offset


def draw(key: jax.Array, m: Mixture) -> jax.Array:
    """A step (..., 3) from the density."""
    component, normal, pen = jax.random.split(key, 3)
    chosen = jax.random.categorical(component, m.log_pi)[..., None]
    take = lambda v: jnp.take_along_axis(v, chosen, axis=-1)[..., 0]  # noqa: E731
    a, b = jnp.moveaxis(jax.random.normal(normal, (*m.pen.shape, 2)), -1, 0)
    rho = jnp.tanh(take(m.rho_hat))
    x = take(m.mu[0]) + jnp.exp(take(m.log_sigma[0])) * a
    y = take(m.mu[1]) + jnp.exp(take(m.log_sigma[1])) * (
        rho * a + jnp.sqrt(1 - jnp.square(rho)) * b
    )
    lifts = jax.random.uniform(pen, m.pen.shape) < jax.nn.sigmoid(-m.pen)
    return jnp.stack([x, y, lifts.astype(x.dtype)], axis=-1)
