"""The normalised layer that section 5 of the paper studies (eq. 5), for the three methods and for none.

Shape letters: B training cases, D input features, H units. Kernels are (D, H): column i holds unit i's incoming weights
w_i (the paper writes them as rows).
"""

import jax
import jax.numpy as jnp

from lnrepro.functional.norms import batch_norm, layer_norm, weight_norm

NORMS = ("none", "batch", "weight", "layer")


def normalized_sums(
    norm: str,
    kernel: jax.Array,
    x: jax.Array,
    gain: jax.Array | None = None,
    bias: jax.Array | None = None,
    *,
    epsilon: float = 0.0,
) -> jax.Array:
    """Normalised summed inputs gain (a - mu) / sigma + bias, (B, H), of a (D, H) kernel on (B, D) data: eq. 5 before f.

    Args:
        norm: "none" (mu = 0, sigma = 1), "batch" (statistics of the B cases, which stand for the data distribution),
            "weight" (mu = 0, sigma = ||w_i||) or "layer" (statistics of the H units).
        kernel: (D, H).
        x: (B, D).
        gain: (H,), ones if left out.
        bias: (H,), zeros if left out.
        epsilon: added to the variance under the root; the paper's formulas have none, weight norm never has one.

    Raises:
        ValueError: an unknown `norm`.
    """
    if norm == "batch":
        return batch_norm(x @ kernel, gain, bias, epsilon=epsilon)[0]
    if norm == "layer":
        return layer_norm(x @ kernel, gain, bias, epsilon=epsilon)
    if norm == "weight":
        kernel, gain = (
            weight_norm(
                kernel,
                jnp.ones(kernel.shape[-1], kernel.dtype) if gain is None else gain,
            ),
            None,
        )
    elif norm != "none":
        raise ValueError(f"norm is {norm!r}; choose one of {', '.join(NORMS)}")
    sums = x @ kernel
    sums = sums if gain is None else gain * sums
    return sums if bias is None else sums + bias


def scalars(norm: str, kernel: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The two scalars (mu, sigma) of eq. 5, each (B, H), as the paper defines them (eq. 2, eq. 3, section 5.1; no epsilon).

    Written out apart from `normalized_sums`, so that eq. 13 computed from these checks the normalisers themselves.

    Raises:
        ValueError: an unknown `norm`.
    """
    sums = x @ kernel
    axis = {"batch": 0, "layer": 1}.get(norm)
    if axis is not None:
        mean, deviation = sums.mean(axis, keepdims=True), sums.std(axis, keepdims=True)
    elif norm in ("none", "weight"):
        mean = jnp.zeros_like(sums)
        deviation = (
            jnp.linalg.norm(kernel, axis=0) if norm == "weight" else jnp.ones_like(sums)
        )
    else:
        raise ValueError(f"norm is {norm!r}; choose one of {', '.join(NORMS)}")
    return jnp.broadcast_to(mean, sums.shape), jnp.broadcast_to(deviation, sums.shape)
