"""Parts that the norm modules of `lnrepro.linen` and `lnrepro.nnx` share.

They differ from Flax's norms in these points:

1. Statistics are always taken in two passes, the mean first. `use_fast_variance` is
   accepted and ignored: E[x^2] - E[x]^2 loses the variance where the mean is large.
2. epsilon is 1e-5 as in the authors' code. Flax's LayerNorm and RMSNorm have 1e-6.
3. The result has x's dtype unless `dtype` is given. Flax promotes x's dtype with that
   of the parameters, so that bfloat16 inputs give float32.
4. Integers are refused unless `dtype` is given. An axis out of range, an empty axis and
   a mask that does not fit raise a ValueError that names the shapes.
5. With `axis_name`, every element counts the same, also where masks leave more elements
   on one device than on another. Flax averages the devices' means.
6. Where a mask leaves nothing, mean and variance are 0, and BatchNorm keeps its running
   averages. Flax gives NaN.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.moments import (
    canonical_axes,
    module_dtypes,
    moments,
    normalize,
)
from lnrepro.functional.norms import running_average

Axes = int | Sequence[int]
AxisName = str | tuple[str, ...] | None
Groups = Sequence[Sequence[int]]


def normalize_cases(
    module: Any,
    x: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array | None,
    mask: jax.Array | None,
    axis_name: AxisName,
    *,
    subtract_mean: bool = True,
    force_float32_reductions: bool = True,
) -> jax.Array:
    """Normalise x over the reduction axes, as LayerNorm and RMSNorm do.

    Args:
      module: a LayerNorm or an RMSNorm, whose fields epsilon, dtype, reduction_axes,
        feature_axes and axis_index_groups are read.
      x: array [..., H].
      scale: one element for each index of the feature axes, None for 1.
      bias: as scale, None for 0.
      mask: broadcasts against x; elements where it is 0 or False do not count.
      axis_name: mapped axes over which the reduction axes are spread.
      subtract_mean: False divides by the root mean square.
      force_float32_reductions: compute in float32 at least.

    Returns:
      Array of x's shape.

    Raises:
      TypeError: x is not floating point and there is no `dtype`.
      ValueError: an axis is out of range or empty, or the mask does not fit.
    """
    name = type(module).__name__
    compute_dtype, result_dtype = module_dtypes(
        name, x, module.dtype, force_float32_reductions
    )
    # Without subtracting the mean, `centred` is x and `var` its mean square.
    _, var, _, centred = moments(
        x.astype(compute_dtype),
        canonical_axes(f"{name}: reduction_axes", module.reduction_axes, x),
        mask=mask,
        subtract_mean=subtract_mean,
        axis_name=axis_name,
        axis_index_groups=module.axis_index_groups,
    )
    # Eq. 3 and 15: (x - mean) / sqrt(var + epsilon) * scale + bias.
    y = normalize(
        centred,
        var,
        scale,
        bias,
        feature_axes=canonical_axes(f"{name}: feature_axes", module.feature_axes, x),
        epsilon=module.epsilon,
    )
    return y.astype(result_dtype)


def normalize_batch(
    module: Any,
    x: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array | None,
    running: tuple[jax.Array, jax.Array],
    use_running_average: bool,
    mask: jax.Array | None,
    axis_name: AxisName,
    *,
    force_float32_reductions: bool = True,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Normalise x over all axes that are no feature axes, as BatchNorm does.

    Args:
      module: a BatchNorm, whose fields axis, momentum, epsilon, dtype, unbiased and
        axis_index_groups are read.
      x: array [..., H].
      scale: one element for each index of the feature axes, None for 1.
      bias: as scale, None for 0.
      running: running averages of mean and variance, of scale's shape.
      use_running_average: normalise by the running averages in place of the batch.
      mask: broadcasts against x; elements where it is 0 or False do not count.
      axis_name: mapped axes over which the batch is spread.
      force_float32_reductions: compute in float32 at least.

    Returns:
      (array of x's shape, the running averages after this batch).

    Raises:
      TypeError: x is not floating point and there is no `dtype`.
      ValueError: an axis is out of range, x has no row, or the mask does not fit.
    """
    compute_dtype, result_dtype = module_dtypes(
        "BatchNorm", x, module.dtype, force_float32_reductions
    )
    wide = x.astype(compute_dtype)
    # Eq. 2: the statistics run over all axes that are no feature axes.
    feature_axes = canonical_axes("BatchNorm: axis", module.axis, x)
    reduction_axes = tuple(i for i in range(x.ndim) if i not in feature_axes)
    # [H] becomes [1, ..., H], which broadcasts against x.
    row_shape = tuple(
        x.shape[axis] if axis in feature_axes else 1 for axis in range(x.ndim)
    )
    if use_running_average:
        mean, var = (average.reshape(row_shape) for average in running)
        centred = wide - mean
    else:
        mean, var, count, centred = moments(
            wide,
            reduction_axes,
            mask=mask,
            unbiased=module.unbiased,
            axis_name=axis_name,
            axis_index_groups=module.axis_index_groups,
        )

        def move(average, new):
            old = average.reshape(row_shape)
            moved = running_average(old, new, module.momentum)
            # Where a mask left nothing, mean and variance are 0 and say nothing.
            return jnp.where(count > 0, moved, old).reshape(average.shape)

        running = (move(running[0], mean), move(running[1], var))
    y = normalize(
        centred, var, scale, bias, feature_axes=feature_axes, epsilon=module.epsilon
    )
    return y.astype(result_dtype), running


def check_features(module: Any, name: str, axes: Axes, x: jax.Array) -> None:
    """Check that x has the features that a module of nnx was made for.

    Args:
      module: the norm, whose field num_features is read.
      name: name of the field that holds the feature axes.
      axes: the feature axes.
      x: the input.

    Raises:
      ValueError: the feature axes of x have other sizes.
    """
    kind, num_features = type(module).__name__, module.num_features
    feature_axes = canonical_axes(f"{kind}: {name}", axes, x)
    sizes = tuple(x.shape[axis] for axis in feature_axes)
    if isinstance(num_features, tuple):
        fits = sizes == num_features
    else:
        # One number stands for the product of the sizes.
        fits = math.prod(sizes) == num_features
    if not fits:
        raise ValueError(
            f"{kind}: num_features is {num_features}, but x {x.shape} has {sizes} "
            f"along its feature axes {feature_axes}"
        )
