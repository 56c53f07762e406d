"""The density of the next pen step: M bivariate Gaussians and an end-of-stroke bit.

The 1 + 6M outputs of the network stand in this order: e^, pi^ [M], mu_x [M], mu_y [M],
sigma_x^ [M], sigma_y^ [M], rho^ [M], where

    e = 1 / (1 + exp(e^))
    pi = softmax(pi^)
    sigma = exp(sigma^)
    rho = tanh(rho^)

All functions work in log space. Leading axes are arbitrary.

References:
  Graves (2013), "Generating Sequences With Recurrent Neural Networks", eq. 16-26.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Graves has neither limit. Without them a Gaussian may shrink to a point or a line,
# where the density has no bound.
# log 1e-4, in standard deviations of the training set's offsets. In IAM-OnDB this is
# 1/200 of the unit of the coordinates.
LOG_SIGMA_MIN = -9.2103404
# Then |rho| <= 1 - 1.2e-5.
RHO_HAT_MAX = 6.0


class Mixture(NamedTuple):
    """Parameters of the density.

    Attributes:
      pen: [...], e^.
      log_pi: [..., M].
      mu: (mu_x, mu_y), each [..., M].
      log_sigma: (log sigma_x, log sigma_y), each [..., M].
      rho_hat: [..., M], rho^.
    """

    pen: jax.Array
    log_pi: jax.Array
    mu: tuple[jax.Array, jax.Array]
    log_sigma: tuple[jax.Array, jax.Array]
    rho_hat: jax.Array


def split(outputs: jax.Array, bias: float | jax.Array = 0.0) -> Mixture:
    """Read the density from outputs of the network.

    Args:
      outputs: [..., 1 + 6M].
      bias: b makes samples neater: pi^ (1 + b) and sigma^ - b (eq. 61, 62).
    """
    pi, mu_x, mu_y, sigma_x, sigma_y, rho = jnp.split(outputs[..., 1:], 6, axis=-1)
    return Mixture(
        pen=outputs[..., 0],
        log_pi=jax.nn.log_softmax(pi * (1 + bias)),
        mu=(mu_x, mu_y),
        log_sigma=(
            jnp.maximum(sigma_x - bias, LOG_SIGMA_MIN),
            jnp.maximum(sigma_y - bias, LOG_SIGMA_MIN),
        ),
        rho_hat=jnp.clip(rho, -RHO_HAT_MAX, RHO_HAT_MAX),
    )


def log_normals(m: Mixture, point: jax.Array) -> jax.Array:
    """Compute log N_j of points (eq. 24, 25).

    With a and b the distances from the mean in standard deviations,

        Z / (1 - rho^2) = ((a - rho b) cosh rho^)^2 + b^2
        log(1 - rho^2) = -2 log cosh rho^

    a - rho b is computed from a -+ b and 1 -+ rho, so that nothing cancels as rho nears
    +-1.

    Args:
      m: the density.
      point: [..., 2].

    Returns:
      [..., M] in nats.
    """
    # Distances from the mean in standard deviations, for each Gaussian.
    a = (point[..., 0, None] - m.mu[0]) * jnp.exp(-m.log_sigma[0])
    b = (point[..., 1, None] - m.mu[1]) * jnp.exp(-m.log_sigma[1])
    # 1 - |rho| = 2 sigmoid(-2 |rho^|) and log cosh by softplus stay exact where tanh
    # has rounded to 1.
    sign = jnp.where(m.rho_hat < 0, -1.0, 1.0).astype(a.dtype)
    size = jnp.abs(m.rho_hat)
    one_minus_rho = 2 * jax.nn.sigmoid(-2 * size)
    log_cosh = size + jax.nn.softplus(-2 * size) - jnp.log(2.0).astype(a.dtype)
    skew = ((a - sign * b) + sign * one_minus_rho * b) * jnp.exp(log_cosh)
    return (
        log_cosh
        - sum(m.log_sigma)
        - jnp.log(2 * jnp.pi).astype(a.dtype)
        - 0.5 * (jnp.square(skew) + jnp.square(b))
    )


def negative_log_likelihood(outputs: jax.Array, step: jax.Array) -> jax.Array:
    """Compute the negative log-likelihood of pen steps (eq. 26).

    Args:
      outputs: [..., 1 + 6M].
      step: [..., 3], dx, dy and whether the step ends a stroke.

    Returns:
      [...] in nats.
    """
    # Eq. 26 is the logarithm of a product: the mixture for the offset, and a Bernoulli
    # term for the end of the stroke.
    m = split(outputs)
    offset = jax.nn.logsumexp(m.log_pi + log_normals(m, step[..., :2]), axis=-1)
    # -log e = softplus(e^) and -log(1 - e) = softplus(-e^), as e = 1 / (1 + exp(e^)).
    sign = jnp.where(step[..., 2] > 0.5, 1.0, -1.0).astype(m.pen.dtype)
    return jax.nn.softplus(m.pen * sign) - offset


def draw(key: jax.Array, m: Mixture) -> jax.Array:
    """Draw steps [..., 3] from the density."""
    component_key, normal_key, pen_key = jax.random.split(key, 3)
    # First which Gaussian, then a point of it.
    component = jax.random.categorical(component_key, m.log_pi)[..., None]

    def of_component(values):
        return jnp.take_along_axis(values, component, axis=-1)[..., 0]

    normal = jax.random.normal(normal_key, (*m.pen.shape, 2), m.pen.dtype)
    a, b = normal[..., 0], normal[..., 1]
    rho = jnp.tanh(of_component(m.rho_hat))
    # The Cholesky factor of [[1, rho], [rho, 1]].
    correlated = rho * a + jnp.sqrt(1 - jnp.square(rho)) * b
    x = of_component(m.mu[0]) + jnp.exp(of_component(m.log_sigma[0])) * a
    y = of_component(m.mu[1]) + jnp.exp(of_component(m.log_sigma[1])) * correlated
    uniform = jax.random.uniform(pen_key, m.pen.shape, m.pen.dtype)
    ends = uniform < jax.nn.sigmoid(-m.pen)
    return jnp.stack([x, y, ends.astype(x.dtype)], axis=-1)
