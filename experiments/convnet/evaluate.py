"""Statistics of units near the border of the image, beside those of the other units.

For each unit of a convolution, moments are summed over the images: how often its ReLU
is active, and the first two moments of its summed input before and after the norm.

Shape letters: B batch, H height, W width, C channels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array | np.ndarray


class Maps(NamedTuple):
    """Statistics of each unit [H, W, C] of one convolution.

    Attributes:
      active: fraction of images in which the ReLU of the unit is active.
      input_std: standard deviation of the summed input over the images.
      normalised_std: the same after the norm; None without a norm.
    """

    active: np.ndarray
    input_std: np.ndarray
    normalised_std: np.ndarray | None


# The names of the fields of `Maps` in metrics.
NAMES = Maps("on", "std", "normalised std")


def batch_moments(inputs: Array, normalised: Array, mask: Array) -> Array:
    """Sum the moments of a batch over its images.

    Args:
      inputs: summed inputs of a convolution, [B, H, W, C].
      normalised: the same after the norm.
      mask: [B], 1 for an image and 0 for padding.

    Returns:
      [6, H, W, C]: the number of images and of those in which the ReLU is active, and
      the sums of the inputs, of the normalised values, and of the squares of both.
    """
    is_image = mask[:, None, None, None] > 0
    values = (
        jnp.ones_like(inputs),
        (normalised > 0).astype(inputs.dtype),
        inputs,
        normalised,
        inputs * inputs,
        normalised * normalised,
    )
    # Padding may hold anything, even NaN, which times 0 is NaN.
    return jnp.stack([jnp.where(is_image, value, 0).sum(0) for value in values])


def unit_statistics(moments: Array, norm: str) -> Maps:
    """Compute the statistics of each unit.

    Args:
      moments: [6, H, W, C], summed over all images.
      norm: `config.norm`; "none" has no statistics after the norm.
    """
    means = moments[1:] / moments[0]
    # With sums in float32, rounding can make a variance negative.
    stds = np.sqrt(np.maximum(means[3:] - means[1:3] ** 2, 0.0))
    return Maps(means[0], stds[0], None if norm == "none" else stds[1])


def border(height: int, width: int) -> np.ndarray:
    """Return which positions [H, W] lie near the border.

    The border is a ring of a seventh of each side, at least one position wide. In
    MNIST's 28 x 28 these are 4 pixels, the margin that is blank around most digits.
    """
    row = _near_the_ends(height)
    column = _near_the_ends(width)
    return row[:, None] | column[None, :]


def _near_the_ends(n: int) -> np.ndarray:
    position = np.arange(n)
    # The distance to the nearer end.
    return np.minimum(position, position[::-1]) < max(1, n // 7)


def border_metrics(layers: Sequence[Maps]) -> dict[str, float]:
    """Average the statistics of the units near the border, and of the rest.

    Args:
      layers: the statistics of each convolution.

    Returns:
      {"convN STATISTIC WHERE": mean}, with N from 1, a name of `NAMES`, and WHERE
      "border" or "rest". A layer without a position away from the border has no "rest".
    """
    metrics = {}
    for n, maps in enumerate(layers, 1):
        # [H, W]; indexing with it takes all channels of these positions.
        near = border(*maps.active.shape[:2])
        for name, values in zip(NAMES, maps, strict=True):
            if values is None:
                continue
            rest = values[~near]
            metrics[f"conv{n} {name} border"] = float(values[near].mean())
            if rest.size:
                metrics[f"conv{n} {name} rest"] = float(rest.mean())
    return metrics
