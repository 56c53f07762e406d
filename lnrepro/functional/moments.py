"""Mean and variance over any axes, with masks and across devices.

`norms.batch_norm` and the norm modules of `lnrepro.linen` and `lnrepro.nnx` share these
functions. Statistics are taken in two passes: first the mean, then the mean of the
squared deviations.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional.norms import wide_dtype


class Moments(NamedTuple):
    """Statistics of x, of x's rank with size 1 in the axes that were reduced."""

    mean: jax.Array
    var: jax.Array
    count: jax.Array  # Number of elements that each mean was taken of.
    centred: jax.Array  # x - mean, of x's shape.


def moments(
    x: jax.Array,
    axes: tuple[int, ...],
    *,
    mask: jax.Array | None = None,
    subtract_mean: bool = True,
    unbiased: bool = False,
    axis_name: str | tuple[str, ...] | None = None,
    axis_index_groups: Sequence[Sequence[int]] | None = None,
) -> Moments:
    """Take mean and variance of x over `axes`.

    Where nothing is left to count, mean and variance are 0.

    Args:
      x: real or complex floating-point array. The statistics are rounded to its dtype;
        sums are taken in float32 at least.
      axes: axes to reduce, counted from 0.
      mask: broadcasts against x. Elements where it is 0 or False do not count; they may
        be NaN.
      subtract_mean: False leaves the mean at 0, and `var` is the mean square.
      unbiased: divide the sum of squares by count - 1.
      axis_name: mapped axes over which x is spread. The statistics are then those of
        all parts.
      axis_index_groups: groups of indices of the mapped axis that share statistics.

    Returns:
      Moments. `centred` is for `normalize`: the gradient of x - mean is then computed
      once.

    Raises:
      ValueError: the mask does not broadcast to x, or an axis to reduce is empty.

    >>> mean, var, *_ = moments(jnp.array([1.0, 3.0, 9.0]), (0,), mask=[1, 1, 0])
    >>> mean, var
    (Array([2.], dtype=float32), Array([1.], dtype=float32))
    """
    if mask is None and 0 in [x.shape[axis] for axis in axes]:
        raise ValueError(
            f"x {x.shape} has no elements over axes {axes} to take statistics from"
        )
    sum_dtype = wide_dtype(x.dtype)
    keep = None if mask is None else _expand_mask(mask, x, axes)

    def valid(values):
        # A product with the mask would keep the NaN of padding.
        if keep is None:
            return values
        return jnp.where(keep, values, jnp.zeros((), values.dtype))

    def total(values):
        values = jnp.sum(values, axes, keepdims=True, dtype=wide_dtype(values.dtype))
        if axis_name is None:
            return values
        return jax.lax.psum(values, axis_name, axis_index_groups=axis_index_groups)

    if keep is None:
        count = _count(x, axes, jnp.finfo(sum_dtype).dtype)
        if axis_name is not None:
            count = jax.lax.psum(count, axis_name, axis_index_groups=axis_index_groups)
    else:
        count = total(keep.astype(jnp.finfo(sum_dtype).dtype))

    if subtract_mean:
        # With a count of 0 the total is 0 too. Dividing by 1 then gives 0 in place of
        # NaN.
        mean = (total(valid(x)) / jnp.maximum(count, 1)).astype(x.dtype)
    else:
        mean = jnp.zeros((1,) * x.ndim, x.dtype)
    centred = x - mean
    # Second pass: the squares of x - mean. Padding counts as 0.
    squares = _square_abs(valid(centred))
    divisor = count - 1 if unbiased else count
    var = (total(squares) / jnp.maximum(divisor, 1)).astype(squares.dtype)
    return Moments(mean, var, count, centred)


def normalize(
    centred: jax.Array,
    var: jax.Array,
    scale: jax.Array | None,
    bias: jax.Array | None,
    *,
    feature_axes: tuple[int, ...],
    epsilon: float,
) -> jax.Array:
    """Compute centred / sqrt(var + epsilon) * scale + bias.

    Args:
      centred: x - mean, in the dtype to compute in.
      var: broadcasts against x, and has x's rank.
      scale: one element for each index of the feature axes, or None for 1.
      bias: as scale, None for 0.
      feature_axes: axes of x along which scale and bias vary, counted from 0.
      epsilon: added to the variance under the root.

    Returns:
      Array of x's shape.

    >>> x = jnp.array([[1.0, 3.0]])
    >>> _, var, _, centred = moments(x, (1,))
    >>> scale = jnp.array([1.0, 2.0])
    >>> normalize(centred, var, scale, None, feature_axes=(1,), epsilon=0.0)
    Array([[-1.,  2.]], dtype=float32)
    """
    shape = tuple(
        size if axis in feature_axes else 1 for axis, size in enumerate(centred.shape)
    )
    y = centred * jax.lax.rsqrt(var + epsilon)
    if scale is not None:
        y = y * scale.reshape(shape).astype(y.dtype)
    if bias is not None:
        y = y + bias.reshape(shape).astype(y.dtype)
    return y


def canonical_axes(
    name: str, axes: int | Sequence[int], x: jax.Array
) -> tuple[int, ...]:
    """Return axes as sorted numbers from 0, each once.

    Args:
      name: what to call the axes in a message, such as "LayerNorm: reduction_axes".
      axes: one axis or several; negative ones count from the end.
      x: the array they belong to.

    Raises:
      ValueError: an axis is out of range.

    >>> canonical_axes("axis", (-1, 0), jnp.ones((2, 3)))
    (0, 1)
    """
    given = tuple(axes) if isinstance(axes, Iterable) else (axes,)
    for axis in given:
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(
                f"{name}={axes}: axis {axis} is out of range for x of shape {x.shape}"
            )
    return tuple(sorted({axis % x.ndim for axis in given}))


def module_dtypes(
    name: str,
    x: jax.Array,
    dtype: jax.typing.DTypeLike | None,
    force_float32_reductions: bool = True,
) -> tuple[Any, Any]:
    """Choose the dtypes of a norm module: that of its computation, and of its result.

    Args:
      name: the module's name, for a message.
      x: the module's input.
      dtype: the result's dtype, or None for x's.
      force_float32_reductions: compute in float32 at least.

    Returns:
      (dtype to compute in, dtype of the result).

    Raises:
      TypeError: the result would not be floating point.

    >>> module_dtypes("LayerNorm", jnp.ones(2, jnp.bfloat16), None)
    (dtype('float32'), dtype(bfloat16))
    """
    result = x.dtype if dtype is None else jnp.dtype(dtype)
    if not jnp.issubdtype(result, jnp.inexact):
        raise TypeError(
            f"{name}: the result would have dtype {result}, which is not floating "
            f"point; convert x ({x.dtype}) first, e.g. x.astype(jnp.float32), or set "
            "dtype=jnp.float32"
        )
    compute = jnp.promote_types(x.dtype, result)
    if force_float32_reductions:
        compute = wide_dtype(compute)
    return compute, result


def _square_abs(x):
    if jnp.iscomplexobj(x):
        # |x|^2 = re^2 + im^2, without a square root in between.
        return jnp.square(x.real) + jnp.square(x.imag)
    return jnp.square(x)


def _count(x, axes, dtype):
    """Return the number of elements over `axes`, of x's rank."""
    count = jnp.ones((1,) * x.ndim, dtype)
    # A product of Python numbers would not do for symbolic sizes of jax.export.
    for axis in axes:
        count = count * x.shape[axis]
    return count


def _expand_mask(mask, x, axes):
    """Broadcast a mask against x along the axes to reduce only."""
    mask = jnp.asarray(mask).astype(bool)
    try:
        fits = mask.ndim <= x.ndim
        fits = fits and jnp.broadcast_shapes(mask.shape, x.shape) == x.shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask has shape {mask.shape}, which does not broadcast to x's {x.shape}; "
            "for a mask of rows, add an axis: mask[..., None]"
        )
    # The mask is expanded along the reduced axes, so that its sum is the count. Along
    # the others it may keep size 1: one count then serves all their indices.
    mask = mask.reshape((1,) * (x.ndim - mask.ndim) + mask.shape)
    shape = tuple(
        x.shape[axis] if axis in axes else mask.shape[axis] for axis in range(x.ndim)
    )
    return jnp.broadcast_to(mask, shape)
