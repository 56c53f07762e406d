"""DRAW's attention in two dimensions: a grid of N x N Gaussian filters reads a patch of an image, or writes one.

Gregor et al. (2015), section 3.2. Letters: B batch, N grid points per side, S pixels per side, and C images per case.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Window(NamedTuple):
    """A grid of filters per case: `rows` F_Y (B, N, S), `columns` F_X (B, N, S), the intensity `gamma` (B,)."""

    rows: jax.Array
    columns: jax.Array
    gamma: jax.Array


def geometry(
    numbers: jax.Array, points: int, size: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Where the grid stands: numbers (B, 5) -> centres (B, 2, N) in pixels, variance (B,), gamma (B,).

    The five numbers are g~x, g~y, log sigma^2, log delta~, log gamma. Centre i of the x axis (index 0; 1 is y) lies at
    (S + 1) / 2 * (g~x + 1) + (i - N / 2 - 0.5) * delta, i = 1..N, on pixels counted 1..S, with
    delta = (S - 1) / (N - 1) * delta~: symmetric about the window's centre, the whole image at numbers 0.
    """
    middle = (size + 1) / 2 * (numbers[:, :2] + 1)
    stride = (size - 1) / max(points - 1, 1) * jnp.exp(numbers[:, 3])
    offsets = jnp.arange(1, points + 1, dtype=numbers.dtype) - points / 2 - 0.5
    return (
        middle[:, :, None] + stride[:, None, None] * offsets,
        jnp.exp(numbers[:, 2]),
        jnp.exp(numbers[:, 4]),
    )


def window(numbers: jax.Array, points: int, size: int) -> Window:
    """The filters of a window: numbers (B, 5) -> F_Y, F_X (B, N, S), rows that are Gaussians and sum to 1.

    A row whose Gaussian misses every pixel is divided by 1e-8, not by its vanishing sum.
    """
    centres, variance, gamma = geometry(numbers, points, size)
    scale = jnp.broadcast_to(jax.lax.rsqrt(2 * variance)[:, None, None], centres.shape)
    pixels = jnp.arange(1, size + 1, dtype=numbers.dtype)
    # (pixel - centre) / (sigma sqrt 2) as one product (.., 2) x (2, S): cheaper than broadcasts on a CPU, and in full
    # precision, for the short mantissas of GPUs and TPUs would move the centres by tenths of a pixel
    distance = jnp.matmul(
        jnp.stack([scale, -centres * scale], axis=-1),
        jnp.stack([pixels, jnp.ones_like(pixels)]),
        precision=jax.lax.Precision.HIGHEST,
    )
    bells = jnp.exp(-jnp.square(distance))
    bells = bells / jnp.maximum(jnp.sum(bells, axis=-1, keepdims=True), 1e-8)
    return Window(bells[:, 1], bells[:, 0], gamma)


def read(window: Window, *images: jax.Array) -> jax.Array:
    """gamma F_Y x F_X^T of each of C images (B, S, S), one after the other: (B, C N N)."""
    rows = jnp.concatenate([window.rows @ image for image in images], axis=1)
    patches = window.gamma[:, None, None] * (rows @ window.columns.transpose(0, 2, 1))
    return patches.reshape(len(patches), -1)


def write(window: Window, patch: jax.Array) -> jax.Array:
    """F_Y^T w F_X / gamma: a patch (B, N, N) -> (B, S, S), the transpose of `read` but for gamma's inverse."""
    return _outer(window.rows, (patch / window.gamma[:, None, None]) @ window.columns)


@jax.custom_vjp
def _outer(rows, columns):
    """sum_n rows[:, n, :, None] * columns[:, n, None, :]: (B, N, Y), (B, N, X) -> (B, Y, X), in one sweep.

    As batched products it takes two and a half times as long on a CPU; its gradients are best as such products.
    """
    rows, columns = jax.lax.optimization_barrier((rows, columns))
    return sum(
        rows[:, n, :, None] * columns[:, n, None, :] for n in range(rows.shape[1])
    )


_outer.defvjp(
    lambda rows, columns: (_outer(rows, columns), (rows, columns)),
    lambda saved, grad: (saved[1] @ grad.transpose(0, 2, 1), saved[0] @ grad),
)
