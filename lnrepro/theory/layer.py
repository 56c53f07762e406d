"""The normalised layer of section 5 (eq. 5), for the three norms and for none.

Shape letters: B training cases, D input features, H units. Column i of a kernel [D, H]
is w_i, the incoming weights of unit i. The paper writes them as rows.
"""

import jax
import jax.numpy as jnp

from lnrepro.functional.arguments import choice
from lnrepro.functional.norms import batch_norm, layer_norm, weight_norm

NORMS = ("none", "batch", "weight", "layer")
"""The norms of eq. 5."""


def normalized_sums(
    norm: str,
    kernel: jax.Array,
    x: jax.Array,
    gain: jax.Array | None = None,
    bias: jax.Array | None = None,
    *,
    epsilon: float = 0.0,
) -> jax.Array:
    """Return gain (a - mu) / sigma + bias of the summed inputs a = x W (eq. 5).

    Args:
      norm: "none" (mu = 0, sigma = 1), "batch" (statistics of the B cases, which stand
        for the data distribution), "weight" (mu = 0, sigma = ||w_i||) or "layer"
        (statistics of the H units).
      kernel: [D, H].
      x: [B, D].
      gain: [H]; None is ones.
      bias: [H]; None is zeros.
      epsilon: added to the variance under the root. The paper's formulas have none, and
        weight norm never has one.

    Returns:
      [B, H].

    Raises:
      ValueError: an unknown norm.
    """
    choice("normalized_sums", "norm", norm, NORMS)
    if norm == "batch":
        # Eq. 2. The statistics of the B cases are those of the distribution here.
        return batch_norm(x @ kernel, gain, bias, epsilon=epsilon)[0]
    if norm == "layer":
        # Eq. 3.
        return layer_norm(x @ kernel, gain, bias, epsilon=epsilon)
    if gain is None:
        gain = jnp.ones(kernel.shape[-1], kernel.dtype)
    # weight_norm multiplies by g / ||w_i||, so that the product is normalised already.
    sums = x @ weight_norm(kernel, gain) if norm == "weight" else gain * (x @ kernel)
    return sums if bias is None else sums + bias


def scalars(norm: str, kernel: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute mu and sigma of eq. 5, as eq. 2, eq. 3 and section 5.1 define them.

    They are written out here by themselves. So eq. 13, computed from them, checks the
    norms of `lnrepro.functional`.

    Args:
      norm: as in `normalized_sums`.
      kernel: [D, H].
      x: [B, D].

    Returns:
      (mu, sigma), each [B, H]. There is no epsilon.

    Raises:
      ValueError: an unknown norm.
    """
    choice("scalars", "norm", norm, NORMS)
    sums = x @ kernel
    mean, deviation = jnp.zeros_like(sums), jnp.ones_like(sums)
    if norm in ("batch", "layer"):
        # Over the cases for each unit, or over the units for each case.
        axis = 0 if norm == "batch" else 1
        mean = sums.mean(axis, keepdims=True)
        deviation = sums.std(axis, keepdims=True)
    elif norm == "weight":
        deviation = jnp.linalg.norm(kernel, axis=0)
    return jnp.broadcast_to(mean, sums.shape), jnp.broadcast_to(deviation, sums.shape)
