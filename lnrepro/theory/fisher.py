"""The geometry of section 5.2: Fisher information and the metric ds^2 of (normalised) generalised linear models.

Outputs are exponential families of eq. 10, log P(y|h) = (h.y - A(h)) / phi + c(y, phi), with h (B, H) the natural
parameters a model computes. Then E[y] = A'(h), Cov[y] = phi A''(h), and with J = dh/dtheta eq. 9 reads
F = E_x[J^T (Cov[y|x] / phi^2) J]: exact by autodiff for any model, `fisher`. `block_fisher` is the paper's closed form
for one normalised layer, eq. 13-14 (eq. 12 for none).

Parameters of one layer are an (H, D + 2) array, row i = [w_i, b_i, g_i], the paper's vec([W, b, g]^T); without a norm
(H, D + 1), row i = [w_i, b_i]. Fisher matrices of a layer are (H, D + 2, H, D + 2), [i, :, j, :] being the block F_ij.

Where the paper's formulas are exact, and where they are not (each line is a test):
- Eq. 13 is exact for batch and weight norm. For layer norm it is the own-neuron part: mu and sigma depend on every
  unit's weights, so dh_k/dw_i is not 0 for k != i. With z = (a - mu)/sigma, G = diag(g) and the projection
  P = I - (1 1^T + z z^T)/H, the exact w-w block is E_x[(P G Cov G P)_ij x x^T / sigma^2] / phi^2. The blocks among the
  b and g are exact.
- Eq. 32 needs Cov[y_i, y_j|x] to be uncorrelated with z_i z_j over the data, as with Gaussian outputs. In general the
  batch-norm gain block is E_x[Cov_ij z_i z_j] / phi^2.
- When ||w|| doubles, the w-w block of the curvature falls to 1/4, not 1/2; the w-b and w-g blocks and the step in
  function space fall to 1/2.
- Eq. 35 writes one (i, j) term of a quadratic form that has all four. Eq. 34 and eq. 35 have the same form: both grow
  with the square of the input's scale, so weight norm does not share the robustness of batch and layer norm.
- Along w_i the metric is zero for batch and weight norm. For layer norm it is zero only along the whole W (all units
  together) and along every re-centring 1 gamma^T.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from lnrepro.theory.layer import normalized_sums, scalars

Model = Callable[[Any, jax.Array], jax.Array]


class Outputs(NamedTuple):
    """An output distribution of eq. 10: the log-partition function A: (H,) -> () of the natural parameters, and phi."""

    log_partition: Callable[[jax.Array], jax.Array]
    phi: float = 1.0

    def mean(self, h: jax.Array) -> jax.Array:
        """E[y|h] (..., H) of natural parameters h (..., H): eq. 11."""
        return jnp.vectorize(jax.grad(self.log_partition), signature="(h)->(h)")(h)

    def covariance(self, h: jax.Array) -> jax.Array:
        """Cov[y|h] (..., H, H) of natural parameters h (..., H): eq. 11."""
        return self.phi * jnp.vectorize(
            jax.hessian(self.log_partition), signature="(h)->(h,h)"
        )(h)

    def divergence(self, h: jax.Array, other: jax.Array) -> jax.Array:
        """KL[P(y|h) || P(y|other)] (...) of natural parameters (..., H), in nats."""
        total = jnp.vectorize(self.log_partition, signature="(h)->()")
        return (
            total(other) - total(h) - ((other - h) * self.mean(h)).sum(-1)
        ) / self.phi


bernoulli = Outputs(lambda h: jax.nn.softplus(h).sum())
"""H independent binary outputs; h are the logits."""

categorical = Outputs(jax.nn.logsumexp)
"""One of H classes, y one-hot; h are the logits."""


def gaussian(variance: float = 1.0) -> Outputs:
    """H independent normal outputs of the given variance (= phi); h are the means."""
    return Outputs(_half_square, variance)


def _half_square(
    h: jax.Array,
) -> (
    jax.Array
):  # a named function: two equal families are then equal to jit's cache too
    return 0.5 * h @ h


def layer_model(norm: str, *, epsilon: float = 0.0) -> Model:
    """The layer of eq. 5 as a function (theta (H, D + 2) or, for norm "none", (H, D + 1); x (B, D)) -> h (B, H)."""

    def model(theta: jax.Array, x: jax.Array) -> jax.Array:
        kernel, bias, gain = _unpack(norm, theta, x)
        return normalized_sums(norm, kernel, x, gain, bias, epsilon=epsilon)

    return model


def _unpack(
    norm: str, theta: jax.Array, x: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    features = x.shape[-1]
    expected = features + (1 if norm == "none" else 2)
    if theta.ndim != 2 or theta.shape[1] != expected:
        raise ValueError(
            f"theta has shape {theta.shape}; norm {norm!r} on {features} features takes (H, {expected})"
        )
    return (
        theta[:, :features].T,
        theta[:, features],
        None if norm == "none" else theta[:, features + 1],
    )


def fisher(model: Model, theta: Any, x: jax.Array, outputs: Outputs) -> jax.Array:
    """Exact Fisher information (eq. 9) of any model: (P, P) in the order of `ravel_pytree(theta)`, a mean over x.

    Holds B H P numbers for P parameters, so it is for small models; `metric` needs no matrix. A batch-normalised model
    sees x as its data distribution, and the derivative goes through the statistics.

    Args:
        model: (theta, x) -> natural parameters (B, H).
        theta: parameters, any tree.
        x: (B, ...), the data distribution.
        outputs: `bernoulli`, `categorical`, `gaussian(variance)` or another `Outputs`.
    """
    flat, unravel = ravel_pytree(theta)
    jacobian = jax.jacfwd(lambda p: model(unravel(p), x))(flat)
    covariance = outputs.covariance(model(theta, x)) / outputs.phi**2
    return jnp.einsum(
        "bhp,bhk,bkq->pq", jacobian, covariance, jacobian, optimize=True
    ) / len(jacobian)


def metric(
    model: Model, theta: Any, x: jax.Array, outputs: Outputs, direction: Any
) -> jax.Array:
    """ds^2 = direction^T F direction / 2 in nats, a scalar (eq. 8): one forward-mode pass; direction is like theta."""
    h, moved = jax.jvp(lambda p: model(p, x), (theta,), (direction,))
    # The derivative of the mean A'(h) is A''(h) = Cov[y|x] / phi, so no (B, H, H) covariance is formed.
    _, pulled = jax.jvp(outputs.mean, (h,), (moved,))
    return 0.5 * (moved * pulled).sum(-1).mean() / outputs.phi


def divergence(
    model: Model, theta: Any, x: jax.Array, outputs: Outputs, direction: Any
) -> jax.Array:
    """E_x KL[P(y|x; theta) || P(y|x; theta + direction)] in nats, a scalar: the left side of eq. 8, unexpanded."""
    moved = jax.tree.map(jnp.add, theta, direction)
    return outputs.divergence(model(theta, x), model(moved, x)).mean()


def block_fisher(
    norm: str, theta: jax.Array, x: jax.Array, outputs: Outputs
) -> jax.Array:
    """The paper's Fisher matrix of one layer, (H, D + 2, H, D + 2): eq. 13 with eq. 14; for norm "none" eq. 12.

    Exact for "none", "batch" and "weight"; for "layer" only the own-neuron part (see the module's first lines).
    """
    kernel, bias, gain = _unpack(norm, theta, x)
    sums, (mean, deviation) = x @ kernel, scalars(norm, kernel, x)
    if gain is None:
        features = jnp.broadcast_to(x[:, None], (*sums.shape, x.shape[-1]))
        features = jnp.concatenate([features, jnp.ones_like(sums)[..., None]], -1)
        h = sums + bias
    else:
        z = (sums - mean) / deviation
        # d mu_i / d w_i and d sigma_i / d w_i: the unit's own weights only, as eq. 14 has it.
        own = [
            jnp.einsum("bidi->bid", j)
            for j in jax.jacobian(lambda w: scalars(norm, w, x))(kernel)
        ]
        chi = x[:, None] - own[0] - z[..., None] * own[1]
        features = jnp.concatenate(
            [
                (gain / deviation)[..., None] * chi,
                jnp.ones_like(z)[..., None],
                z[..., None],
            ],
            -1,
        )
        h = gain * z + bias
    covariance = outputs.covariance(h) / outputs.phi**2
    return jnp.einsum(
        "bij,bip,bjq->ipjq", covariance, features, features, optimize=True
    ) / len(x)


def gain_metric(
    norm: str, theta: jax.Array, x: jax.Array, outputs: Outputs
) -> jax.Array:
    """The paper's metric of the gains, K (H, H) in ds^2 = delta_g^T K delta_g / 2: eq. 32-35.

    Eq. 32 is "batch", 33 "layer", 34 "weight", 35 "none" (a gain change mapped to delta_g_i w_i / ||w_i||). Eq. 33-35
    are exact; eq. 32 leaves out z_i z_j.
    """
    kernel, _, _ = _unpack(norm, theta, x)
    covariance = outputs.covariance(layer_model(norm)(theta, x)) / outputs.phi**2
    if norm == "batch":
        return covariance.mean(0)
    mean, deviation = scalars("weight" if norm == "none" else norm, kernel, x)
    z = (x @ kernel - mean) / deviation
    return jnp.einsum("bij,bi,bj->ij", covariance, z, z) / len(x)


def scale_weights(
    theta: jax.Array, scale: jax.Array | float, features: int
) -> jax.Array:
    """theta (H, D + 1 or D + 2) with every w_i multiplied by `scale`, biases and gains as they are; `features` is D."""
    return theta.at[:, :features].multiply(scale)


def weight_curvature(
    norm: str, theta: jax.Array, x: jax.Array, outputs: Outputs
) -> jax.Array:
    """Mean eigenvalue, a scalar, of the exact w-w block of a layer's Fisher matrix: the curvature along a random step.

    Divided by 4 when ||w|| doubles in a normalised layer: the implicit learning-rate reduction of section 5.2.2.
    """
    features = x.shape[-1]
    blocks = fisher(layer_model(norm), theta, x, outputs).reshape(
        *theta.shape, *theta.shape
    )
    return jnp.einsum("ipip->", blocks[:, :features, :, :features]) / (
        len(theta) * features
    )


def magnitude_curvature(
    norm: str, theta: jax.Array, x: jax.Array, outputs: Outputs
) -> jax.Array:
    """Exact curvature (H,) along the magnitude of each unit's weights: g_i, or without a norm w_i / ||w_i||."""
    features, units = x.shape[-1], len(theta)
    steps = jnp.zeros((units, *theta.shape), theta.dtype)
    own = jnp.arange(units)
    if norm == "none":
        weights = theta[:, :features]
        steps = steps.at[own, own, :features].set(
            weights / jnp.linalg.norm(weights, axis=1, keepdims=True)
        )
    else:
        steps = steps.at[own, own, features + 1].set(1.0)
    return 2 * jax.vmap(
        lambda step: metric(layer_model(norm), theta, x, outputs, step)
    )(steps)
