"""DRAW's attention: a grid of N x N Gaussian filters reads a patch, or writes one.

Shape letters: B batch, N grid points per side, S pixels per side, C images per example.

References:
  Gregor et al. (2015), "DRAW: A Recurrent Neural Network For Image Generation", 3.2.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional.fast import platform


class Geometry(NamedTuple):
    """Where a grid of filters stands.

    Attributes:
      centres: [B, 2, N], positions in pixels along x (index 0) and y (index 1), where
        the first pixel has its centre at 1.
      variance: [B], of each filter, in square pixels.
      gamma: [B], intensity.
    """

    centres: jax.Array
    variance: jax.Array
    gamma: jax.Array


class Window(NamedTuple):
    """The filters of a grid.

    Attributes:
      rows: [B, N, S], F_Y. Each row is a Gaussian that sums to 1.
      columns: [B, N, S], F_X.
      gamma: [B], intensity.
    """

    rows: jax.Array
    columns: jax.Array
    gamma: jax.Array


def geometry(numbers: jax.Array, points: int, size: int) -> Geometry:
    """Compute where the grid stands.

    Centre i = 1..N of the x axis lies at

        (S + 1) / 2 (g~x + 1) + (i - N / 2 - 0.5) delta
        delta = (S - 1) / (N - 1) delta~

    At zeros, the grid covers the whole image.

    Args:
      numbers: [B, 5], which are g~x, g~y, log sigma^2, log delta~ and log gamma.
      points: N.
      size: S.
    """
    middle = (size + 1) / 2 * (numbers[:, :2] + 1)
    stride = (size - 1) / max(points - 1, 1) * jnp.exp(numbers[:, 3])
    offsets = jnp.arange(1, points + 1, dtype=numbers.dtype) - points / 2 - 0.5
    centres = middle[:, :, None] + stride[:, None, None] * offsets
    return Geometry(centres, jnp.exp(numbers[:, 2]), jnp.exp(numbers[:, 4]))


def window(numbers: jax.Array, points: int, size: int) -> Window:
    """Compute the filters of a grid.

    A filter that misses every pixel is divided by 1e-8 instead of its vanishing sum.

    Args:
      numbers: [B, 5], as in `geometry`.
      points: N.
      size: S.
    """
    centres, variance, gamma = geometry(numbers, points, size)
    scale = jnp.broadcast_to(jax.lax.rsqrt(2 * variance)[:, None, None], centres.shape)
    pixels = jnp.arange(1, size + 1, dtype=numbers.dtype)
    if platform.current() == "cpu":
        # (pixel - centre) / (sigma sqrt 2) as one product [..., 2] x [2, S] is faster
        # than broadcasts on a CPU.
        distance = jnp.matmul(
            jnp.stack([scale, -centres * scale], axis=-1),
            jnp.stack([pixels, jnp.ones_like(pixels)]),
            precision=jax.lax.Precision.HIGHEST,
        )
    else:
        distance = (pixels - centres[..., None]) * scale[..., None]
    bells = jnp.exp(-jnp.square(distance))
    bells = bells / jnp.maximum(jnp.sum(bells, axis=-1, keepdims=True), 1e-8)
    return Window(rows=bells[:, 1], columns=bells[:, 0], gamma=gamma)


def read(window: Window, *images: jax.Array) -> jax.Array:
    """Read a patch gamma F_Y x F_X^T from each image.

    Args:
      window: the filters.
      *images: C images x, each [B, S, S].

    Returns:
      [B, C N N], one patch after the other.
    """
    batch, points, size = window.rows.shape
    # The images side by side: what a filter reads of each is then one row.
    read_rows = window.rows @ jnp.concatenate(images, axis=-1)
    patches = read_rows.reshape(batch, -1, size) @ window.columns.transpose(0, 2, 1)
    patches = window.gamma[:, None, None, None] * patches.reshape(
        batch, points, len(images), points
    )
    return patches.transpose(0, 2, 1, 3).reshape(batch, -1)


def write(window: Window, patch: jax.Array) -> jax.Array:
    """Return F_Y^T w F_X / gamma, [B, S, S].

    Args:
      window: the filters.
      patch: w, [B, N, N].
    """
    scaled = patch / window.gamma[:, None, None]
    precision = jax.config.jax_default_matmul_precision
    return _sum_of_outer_products(window.rows, scaled @ window.columns, precision)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _sum_of_outer_products(
    rows: jax.Array, columns: jax.Array, precision: str | None
) -> jax.Array:
    """Sum rows[:, n, :, None] * columns[:, n, None, :] over n.

    On a CPU, one batched matrix product takes two and a half times as long. The
    gradients are fastest as batched products, hence the derivative below.

    Args:
      rows: [B, N, Y].
      columns: [B, N, X].
      precision: `jax.default_matmul_precision` of the gradients.

    Returns:
      [B, Y, X]
    """
    rows, columns = jax.lax.optimization_barrier((rows, columns))
    return sum(
        rows[:, n, :, None] * columns[:, n, None, :] for n in range(rows.shape[1])
    )


def _forward(rows, columns, precision):
    return _sum_of_outer_products(rows, columns, precision), (rows, columns)


def _backward(precision, saved, grad):
    rows, columns = saved
    with jax.default_matmul_precision(precision):
        return columns @ grad.transpose(0, 2, 1), rows @ grad


_sum_of_outer_products.defvjp(_forward, _backward)
