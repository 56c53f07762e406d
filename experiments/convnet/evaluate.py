"""Statistics of units near the border of the image, beside those of the other units.

For each unit of a convolution, moments are summed over the images: how often its ReLU
is active, and the first two moments of its summed input before and after the norm.

Shape letters: B batch, H height, W width, C channels.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array | np.ndarray


# Statistics of each unit [H, W, C] of one convolution, by their names in metrics:
#   on              fraction of images in which the ReLU of the unit is active
#   std             standard deviation of the summed input over the images
#   normalised std  the same after the norm; only where there is a norm
Maps = dict[str, np.ndarray]


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
    maps = {"on": means[0], "std": stds[0]}
    return maps if norm == "none" else maps | {"normalised std": stds[1]}


def border(height: int, width: int) -> np.ndarray:
    """Return which positions [H, W] lie near the border.

    The border is a ring of a seventh of each side, at least one position wide. In
    MNIST's 28 x 28 these are 4 pixels, the margin that is blank around most digits.
    """
    rows, columns = max(1, height // 7), max(1, width // 7)
    near = np.ones((height, width), bool)
    near[rows : height - rows, columns : width - columns] = False
    return near


def border_metrics(layers: Sequence[Maps]) -> dict[str, float]:
    """Average the statistics of the units near the border, and of the rest.

    Args:
      layers: the statistics of each convolution.

    Returns:
      {"convN STATISTIC WHERE": mean}, with N from 1, a name of `Maps`, and WHERE
      "border" or "rest". A layer without a position away from the border has no "rest".
    """
    metrics = {}
    for n, maps in enumerate(layers, 1):
        # [H, W]; indexing with it takes all channels of these positions.
        near = border(*maps["on"].shape[:2])
        for name, values in maps.items():
            rest = values[~near]
            metrics[f"conv{n} {name} border"] = float(values[near].mean())
            if rest.size:
                metrics[f"conv{n} {name} rest"] = float(rest.mean())
    return metrics
