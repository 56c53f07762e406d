"""The geometry of section 5.2: Fisher information and the metric of normalised layers.

The outputs are exponential families (eq. 10): log P(y|h) = (h.y - A(h)) / phi + c(y,
phi). A model computes the natural parameters h [B, H]. Then E[y] = A'(h) and Cov[y] =
phi A''(h). With J = dh/dtheta, eq. 9 is F = E_x[J^T (Cov[y|x] / phi^2) J]. `fisher`
computes it by automatic differentiation for any model. `block_fisher` is the paper's
closed form for one normalised layer: eq. 13-14, and eq. 12 without a norm.

The parameters of one layer are an array [H, D + 2] with rows [w_i, b_i, g_i], the
paper's vec([W, b, g]^T). Without a norm they are [H, D + 1], with rows [w_i, b_i]. The
Fisher matrix of a layer is [H, D + 2, H, D + 2], and [i, :, j, :] is the block F_ij.

Where the paper's formulas are exact, and where they are not (each point has a test):

- Eq. 13 is exact for batch and weight norm. For layer norm it is only the part of each
  unit's own weights: mu and sigma depend on the weights of all units, so that dh_k/dw_i
  is not 0 for k != i. With z = (a - mu) / sigma, G = diag(g) and the projection P = I -
  (1 1^T + z z^T) / H, the exact block of w_i and w_j is E_x[(P G Cov G P)_ij x x^T /
  sigma^2] / phi^2. The blocks of b and g are exact.
- Eq. 32 needs Cov[y_i, y_j|x] to be uncorrelated with z_i z_j over the data, as it is
  for Gaussian outputs. In general the batch-norm block of the gains is E_x[Cov_ij z_i
  z_j] / phi^2.
- When ||w|| doubles, the curvature of the weights falls to 1/4, not 1/2. The blocks of
  w with b and g, and the step in function space, fall to 1/2.
- Eq. 35 has one (i, j) term of a quadratic form that has all four. Eq. 34 and eq. 35
  have the same form: both grow with the square of the input's scale. So weight norm is
  not as robust as batch and layer norm.
- Along w_i the metric is zero for batch and weight norm. For layer norm it is zero only
  along the whole W (all units together) and along every re-centring 1 gamma^T.

Shape letters: B training cases, D input features, H units, P parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from lnrepro.functional.arguments import of_shape
from lnrepro.theory.layer import normalized_sums, scalars

Model = Callable[[Any, jax.Array], jax.Array]


class Outputs(NamedTuple):
    """An output distribution of eq. 10.

    Attributes:
      log_partition: the function A of the natural parameters, [H] -> [].
      phi: the dispersion.
    """

    log_partition: Callable[[jax.Array], jax.Array]
    phi: float = 1.0

    def mean(self, h: jax.Array) -> jax.Array:
        """Return E[y|h], [..., H], of natural parameters h [..., H] (eq. 11)."""
        return jnp.vectorize(jax.grad(self.log_partition), signature="(h)->(h)")(h)

    def covariance(self, h: jax.Array) -> jax.Array:
        """Return Cov[y|h], [..., H, H], of natural parameters h [..., H] (eq. 11)."""
        hessian = jax.hessian(self.log_partition)
        return self.phi * jnp.vectorize(hessian, signature="(h)->(h,h)")(h)

    def divergence(self, h: jax.Array, other: jax.Array) -> jax.Array:
        """Return KL[P(y|h) || P(y|other)] in nats, [...], of parameters [..., H]."""
        total = jnp.vectorize(self.log_partition, signature="(h)->()")
        # KL of an exponential family is the Bregman divergence of A, divided by phi.
        linear = ((other - h) * self.mean(h)).sum(-1)
        return (total(other) - total(h) - linear) / self.phi


def _sum_of_softplus(h):
    return jax.nn.softplus(h).sum()


def _half_square(h):
    return 0.5 * h @ h


bernoulli = Outputs(_sum_of_softplus)
"""H independent binary outputs; h are the logits."""

categorical = Outputs(jax.nn.logsumexp)
"""One of H classes, y one-hot; h are the logits."""


def gaussian(variance: float = 1.0) -> Outputs:
    """Return H independent normal outputs; phi is the variance, h are the means."""
    return Outputs(_half_square, variance)


def layer_model(norm: str, *, epsilon: float = 0.0) -> Model:
    """Return the layer of eq. 5 as a function of its parameters.

    Args:
      norm: one of `lnrepro.theory.NORMS`.
      epsilon: added to the variance under the root.

    Returns:
      (theta, x [B, D]) -> h [B, H]. theta is [H, D + 2], or [H, D + 1] for norm "none".
    """

    def model(theta: jax.Array, x: jax.Array) -> jax.Array:
        kernel, bias, gain = _unpack(norm, theta, x)
        return normalized_sums(norm, kernel, x, gain, bias, epsilon=epsilon)

    return model


def _unpack(norm, theta, x):
    """Return the kernel [D, H], the bias [H] and the gain [H] or None."""
    features = x.shape[-1]
    columns = features + (1 if norm == "none" else 2)
    of_shape(f"norm {norm!r}", "theta", theta, (len(theta), columns))
    gain = None if norm == "none" else theta[:, features + 1]
    return theta[:, :features].T, theta[:, features], gain


def fisher(model: Model, theta: Any, x: jax.Array, outputs: Outputs) -> jax.Array:
    """Compute the exact Fisher information of any model (eq. 9).

    It needs memory for B H P numbers, so it is for small models. `metric` needs no
    matrix. For a batch-normalised model x is the data distribution, and the derivative
    goes through the statistics.

    Args:
      model: (theta, x) -> natural parameters [B, H].
      theta: parameters, any tree.
      x: [B, ...], the data distribution.
      outputs: `bernoulli`, `categorical`, `gaussian(variance)` or another `Outputs`.

    Returns:
      [P, P] in the order of `ravel_pytree(theta)`, a mean over x.
    """
    flat, unravel = ravel_pytree(theta)
    # J = dh/dtheta, [B, H, P].
    jacobian = jax.jacfwd(lambda p: model(unravel(p), x))(flat)
    covariance = outputs.covariance(model(theta, x)) / outputs.phi**2
    # J^T (Cov[y|x] / phi^2) J, summed over x.
    total = jnp.einsum("bhp,bhk,bkq->pq", jacobian, covariance, jacobian, optimize=True)
    return total / len(jacobian)


def metric(
    model: Model, theta: Any, x: jax.Array, outputs: Outputs, direction: Any
) -> jax.Array:
    """Compute ds^2 = direction^T F direction / 2 in nats, a scalar (eq. 8).

    Args:
      model: as in `fisher`, as are theta, x and outputs.
      theta: see above.
      x: see above.
      outputs: see above.
      direction: a step of the parameters, like theta.
    """
    # `moved` is J direction, [B, H].
    h, moved = jax.jvp(lambda p: model(p, x), (theta,), (direction,))
    # The derivative of the mean A'(h) is A''(h) = Cov[y|x] / phi, so that no covariance
    # [B, H, H] is computed.
    _, pulled = jax.jvp(outputs.mean, (h,), (moved,))
    return 0.5 * (moved * pulled).sum(-1).mean() / outputs.phi


def divergence(
    model: Model, theta: Any, x: jax.Array, outputs: Outputs, direction: Any
) -> jax.Array:
    """Compute E_x KL[P(y|x; theta) || P(y|x; theta + direction)], the left of eq. 8.

    Args:
      model: as in `metric`, as are the others.
      theta: see above.
      x: see above.
      outputs: see above.
      direction: see above.

    Returns:
      A scalar in nats.
    """
    moved = jax.tree.map(jnp.add, theta, direction)
    return outputs.divergence(model(theta, x), model(moved, x)).mean()


def block_fisher(
    norm: str, theta: jax.Array, x: jax.Array, outputs: Outputs
) -> jax.Array:
    """Compute the paper's Fisher matrix of one layer: eq. 13-14, and eq. 12 for "none".

    It is exact for "none", "batch" and "weight". For "layer" it is the part of each
    unit's own weights, see the top of this module.

    Args:
      norm: one of `lnrepro.theory.NORMS`.
      theta: [H, D + 2], or [H, D + 1] for "none".
      x: [B, D].
      outputs: the output distribution.

    Returns:
      [H, D + 2, H, D + 2].
    """
    kernel, bias, gain = _unpack(norm, theta, x)
    has_gain = gain is not None
    gain = gain if has_gain else jnp.ones_like(bias)
    mean, deviation = scalars(norm, kernel, x)
    z = (x @ kernel - mean) / deviation
    # d mu_i / d w_i and d sigma_i / d w_i of the unit's own weights, as in eq. 14.
    # [B, H, D, H]; "bidi->bid" takes the derivative by the unit's own weights.
    jacobians = jax.jacobian(lambda w: scalars(norm, w, x))(kernel)
    d_mean, d_deviation = (jnp.einsum("bidi->bid", j) for j in jacobians)
    chi = x[:, None] - d_mean - z[..., None] * d_deviation
    # The features of w_i, b_i and g_i in eq. 13 are g_i chi_i / sigma_i, 1 and z_i.
    # Without a norm they are x and 1, as in eq. 12.
    of_weights = (gain / deviation)[..., None] * chi
    features = [of_weights, jnp.ones_like(z)[..., None]]
    if has_gain:
        features.append(z[..., None])
    features = jnp.concatenate(features, -1)
    h = gain * z + bias
    covariance = outputs.covariance(h) / outputs.phi**2
    total = jnp.einsum(
        "bij,bip,bjq->ipjq", covariance, features, features, optimize=True
    )
    return total / len(x)


def gain_metric(
    norm: str, theta: jax.Array, x: jax.Array, outputs: Outputs
) -> jax.Array:
    """Compute the paper's metric of the gains, K in ds^2 = delta_g^T K delta_g / 2.

    Eq. 32 is "batch", 33 "layer", 34 "weight", and 35 "none", where a change of a gain
    is the change delta_g_i w_i / ||w_i|| of the weights. Eq. 33-35 are exact. Eq. 32
    leaves out z_i z_j.

    Args:
      norm: one of `lnrepro.theory.NORMS`.
      theta: [H, D + 2], or [H, D + 1] for "none".
      x: [B, D].
      outputs: the output distribution.

    Returns:
      K [H, H].
    """
    kernel, _, _ = _unpack(norm, theta, x)
    covariance = outputs.covariance(layer_model(norm)(theta, x)) / outputs.phi**2
    # Eq. 32 has the covariance alone.
    if norm == "batch":
        return covariance.mean(0)
    mean, deviation = scalars("weight" if norm == "none" else norm, kernel, x)
    z = (x @ kernel - mean) / deviation
    return jnp.einsum("bij,bi,bj->ij", covariance, z, z) / len(x)


def scale_weights(
    theta: jax.Array, scale: jax.Array | float, features: int
) -> jax.Array:
    """Multiply every w_i, and leave biases and gains as they are.

    Args:
      theta: [H, D + 1] or [H, D + 2].
      scale: the factor.
      features: D.
    """
    return theta.at[:, :features].multiply(scale)


def weight_curvature(
    norm: str, theta: jax.Array, x: jax.Array, outputs: Outputs
) -> jax.Array:
    """Compute the mean eigenvalue of the exact block of the weights, a scalar.

    It is the curvature along a random step. It falls to 1/4 when ||w|| doubles in a
    normalised layer: the implicit learning-rate reduction of section 5.2.2.

    Args:
      norm: as in `gain_metric`, as are the others.
      theta: see above.
      x: see above.
      outputs: see above.
    """
    matrix = fisher(layer_model(norm), theta, x, outputs)
    # The mean eigenvalue of a symmetric matrix is its trace over its size.
    diagonal = jnp.diagonal(matrix).reshape(theta.shape)
    return diagonal[:, : x.shape[-1]].mean()


def magnitude_curvature(
    norm: str, theta: jax.Array, x: jax.Array, outputs: Outputs
) -> jax.Array:
    """Compute the exact curvature along the magnitude of each unit's weights, [H].

    The magnitude is g_i; without a norm, the direction is w_i / ||w_i||.

    Args:
      norm: as in `gain_metric`, as are the others.
      theta: see above.
      x: see above.
      outputs: see above.
    """
    features = x.shape[-1]
    # What a change of the magnitude of each unit moves, [H, D + 2].
    directions = jnp.zeros_like(theta)
    if norm == "none":
        weights = theta[:, :features]
        unit = weights / jnp.linalg.norm(weights, axis=1, keepdims=True)
        directions = directions.at[:, :features].set(unit)
    else:
        directions = directions.at[:, features + 1].set(1.0)

    def half_curvature(change):
        step = change[:, None] * directions
        return metric(layer_model(norm), theta, x, outputs, step)

    # ds^2 of eq. 8 has a factor 1/2.
    return 2 * jax.vmap(half_curvature)(jnp.eye(len(theta), dtype=theta.dtype))
