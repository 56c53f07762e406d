"""Layer, RMS, batch and weight norm as functions of arrays.

Equations 2, 3, 15 and 16 and section 5.1 of Ba, Kiros and Hinton (2016), and the RMS
norm of Zhang and Sennrich (2019).

Shape letters: B batch, H features or hidden units.

Every statistic is taken in float32 at least and in two passes: first the mean, then the
mean of the squared deviations. The shortcut E[x^2] - E[x]^2 is wrong by percents where
the mean is large, and can even be negative.

In float32 the squares overflow where a deviation from the mean (for RMS norm, a value)
is above about 1e19. The result is then 0.
"""

from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.arguments import floating_point, of_shape
from lnrepro.functional.arrays import at_least_f32, row


def layer_norm(
    x: jax.Array,
    gain: jax.Array | None = None,
    bias: jax.Array | None = None,
    *,
    epsilon: float = 1e-5,
) -> jax.Array:
    """Normalise x [..., H] over the last axis, for each case by itself (eq. 3, 15, 16).

        y = (x - mean) / sqrt(var + epsilon) * gain + bias

    The variance is the population variance: a sum of squares divided by H. A constant
    input gives `bias`, and its gradient is finite. So does one unit by itself, H = 1.

    The paper's supplement swaps the names of gain and bias where it states their
    initial values. The gain starts at 1 and the bias at 0.

    Args:
      x: floating-point array [..., H].
      gain: multiplies the normalised values, [H]. None means 1.
      bias: is added at the end, [H]. None means 0.
      epsilon: added to the variance under the root. The paper's formulas have none, the
        authors' code has 1e-5.

    Returns:
      Array of x's shape and dtype.

    Raises:
      TypeError: x is not floating point.
      ValueError: gain or bias has another shape.

    >>> layer_norm(jnp.array([[1.0, 3.0]]), epsilon=0.0)
    Array([[-1.,  1.]], dtype=float32)
    """
    x = floating_point("layer_norm", "x", x)
    # Eq. 3: the mean and the variance run over the units of one case.
    centred = at_least_f32(x) - jnp.mean(at_least_f32(x), -1, keepdims=True)
    var = jnp.mean(jnp.square(centred), -1, keepdims=True)
    # rsqrt(var + epsilon) has a finite gradient where var is 0. sqrt(var) + epsilon has
    # none there, and W_h h is 0 at the first step of a recurrent network.
    y = centred * jax.lax.rsqrt(var + epsilon)
    return _scaled("layer_norm", y, gain, bias).astype(x.dtype)


def rms_norm(
    x: jax.Array,
    gain: jax.Array | None = None,
    *,
    epsilon: float = 1e-5,
) -> jax.Array:
    """Divide x [..., H] by its root mean square over the last axis.

        y = x / sqrt(mean(x^2) + epsilon) * gain

    This is layer norm without the mean and without a bias.

    Args:
      x: floating-point array [..., H].
      gain: multiplies the normalised values, [H]. None means 1.
      epsilon: added to the mean square under the root.

    Returns:
      Array of x's shape and dtype.

    Raises:
      TypeError: x is not floating point.
      ValueError: gain has another shape.

    References:
      Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.

    >>> rms_norm(jnp.array([[3.0, -3.0]]), epsilon=0.0)
    Array([[ 1., -1.]], dtype=float32)
    """
    x = floating_point("rms_norm", "x", x)
    # The mean of x is not subtracted.
    mean_square = jnp.mean(jnp.square(at_least_f32(x)), -1, keepdims=True)
    y = at_least_f32(x) * jax.lax.rsqrt(mean_square + epsilon)
    return _scaled("rms_norm", y, gain, None).astype(x.dtype)


def batch_norm(
    x: jax.Array,
    gain: jax.Array | None = None,
    bias: jax.Array | None = None,
    *,
    mask: jax.Array | None = None,
    epsilon: float = 1e-5,
    unbiased: bool = False,
    mean: jax.Array | None = None,
    var: jax.Array | None = None,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Normalise each feature of x [..., H] over all other axes (eq. 2).

    The statistics are estimated on the mini-batch as in Ioffe and Szegedy (2015).

    Args:
      x: floating-point array [..., H].
      gain: multiplier [H]. None means 1.
      bias: shift [H]. None means 0.
      mask: flags that broadcast to x.shape[:-1]. Rows where it is 0 or False do not
        count in the statistics, and may be NaN; they are still normalised. Without any
        row the statistics are zero.
      epsilon: added to the variance under the root.
      unbiased: divide the sum of squares by n - 1 in place of n (by 1 where n is 1), in
        the normaliser and in the variance returned.
      mean: with `var`, statistics [H] to use as they are: running averages at test
        time.
      var: the variances [H] that belong to `mean`.

    Returns:
      (y, (mean, var)): y [..., H] in x's dtype, and the statistics used, [H] each, in
      float32 at least.

    Raises:
      TypeError: x is not floating point.
      ValueError: a shape does not fit.

    >>> y, (mean, var) = batch_norm(jnp.array([[1.0], [3.0]]), epsilon=0.0)
    >>> y.ravel(), mean
    (Array([-1.,  1.], dtype=float32), Array([2.], dtype=float32))
    """
    x = floating_point("batch_norm", "x", x)
    values = at_least_f32(x)
    if mean is None and var is None:
        # Training: the statistics are those of the rows of this batch.
        mean, var = _row_statistics(values, mask, unbiased)
    else:
        # Test time: the statistics are given.
        mean = _checked_row("batch_norm", "mean", mean, values)
        var = _checked_row("batch_norm", "var", var, values)
    # Eq. 2, for each feature by itself.
    y = (values - mean) * jax.lax.rsqrt(var + epsilon)
    y = _scaled("batch_norm", y, gain, bias)
    return y.astype(x.dtype), (mean.reshape(-1), var.reshape(-1))


def running_average(old: jax.Array, new: jax.Array, momentum: float) -> jax.Array:
    """Update running statistics: momentum * old + (1 - momentum) * new.

    No gradient flows through the result.

    Args:
      old: running statistics [H].
      new: statistics of the current batch [H].
      momentum: weight of the old value.

    Returns:
      Array [H] in old's dtype.

    >>> running_average(jnp.zeros(2), jnp.ones(2), 0.75)
    Array([0.25, 0.25], dtype=float32)
    """
    moved = momentum * old + (1 - momentum) * new.astype(old.dtype)
    return jax.lax.stop_gradient(moved)


def weight_norm(v: jax.Array, g: jax.Array) -> jax.Array:
    """Make the kernel w = g * v / ||v||, with one norm per output unit.

    In the paper's terms mu = 0 and sigma = ||w||_2 (section 5.1). The norm runs over
    all axes but the last, so that a convolution kernel [height, width, in, out] is
    normalised per output channel. A column of v that is all zero stays zero, and its
    gradient is finite.

    Args:
      v: direction [..., in, out], of two axes at least.
      g: length [out].

    Returns:
      Kernel w of v's shape and dtype.

    Raises:
      TypeError: v is not floating point.
      ValueError: v has fewer than two axes, or g is not of shape [out].

    References:
      Salimans and Kingma, Weight Normalization, 2016.

    >>> weight_norm(jnp.array([[3.0], [4.0]]), jnp.array([10.0]))
    Array([[6.],
           [8.]], dtype=float32)
    """
    v = floating_point("weight_norm", "v", v)
    direction = at_least_f32(v)
    g = _checked_row("weight_norm", "g", g, direction)
    square = _square_of_columns(direction)
    # A zero norm is replaced by 1, so that neither the kernel nor its gradient is NaN.
    is_zero = square < jnp.finfo(direction.dtype).tiny
    inverse = jax.lax.rsqrt(jnp.where(is_zero, 1, square))
    # g / ||v|| multiplies every column of v.
    return (direction * (g * inverse)).astype(v.dtype)


def weight_norm_preserving(w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Start weight norm from a kernel, so that the function is preserved.

    Args:
      w: kernel [..., in, out], of two axes at least.

    Returns:
      (v, g) = (w, ||w||) with g [out]: weight_norm(v, g) is w.

    Raises:
      TypeError: w is not floating point.
      ValueError: w has fewer than two axes.

    >>> weight_norm_preserving(jnp.array([[3.0], [4.0]]))[1]
    Array([5.], dtype=float32)
    """
    w = floating_point("weight_norm_preserving", "w", w)
    length = jnp.sqrt(_square_of_columns(at_least_f32(w))).reshape(-1)
    return w, length.astype(w.dtype)


def _row_statistics(
    x: jax.Array, mask: Any, unbiased: bool
) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance of x [..., H] over its rows, each [1, ..., H]."""
    rows = x.shape[:-1]
    counts = jnp.ones((), bool) if mask is None else jnp.asarray(mask).astype(bool)
    # Of a mask that does not fit, JAX names both shapes.
    counts = jnp.broadcast_to(counts, rows)[..., None]

    def total(a):
        # A product with the mask would keep the NaN of padding.
        if mask is not None:
            a = jnp.where(counts, a, jnp.zeros((), a.dtype))
        return jnp.sum(a, tuple(range(x.ndim - 1)), keepdims=True)

    count = total(counts.astype(x.dtype))
    # A count of 0 gives statistics of 0, not NaN.
    mean = total(x) / jnp.maximum(count, 1)
    squares = total(jnp.square(x - mean))
    return mean, squares / jnp.maximum(count - 1 if unbiased else count, 1)


def _square_of_columns(w):
    if w.ndim < 2:
        raise ValueError(
            f"weight norm: a kernel has two axes at least, (..., in, out), and this "
            f"one has the shape {w.shape}"
        )
    return jnp.sum(jnp.square(w), tuple(range(w.ndim - 1)), keepdims=True)


def _checked_row(function, name, value, x):
    """`row` of a vector that must be [H] for x [..., H]."""
    value = jnp.asarray(value)
    of_shape(function, name, value, x.shape[-1:])
    return row(value, x)


def _scaled(function, y, gain, bias):
    """Return y [..., H] * gain + bias, where None means 1 and 0."""
    if gain is not None:
        y = y * _checked_row(function, "gain", gain, y)
    if bias is not None:
        y = y + _checked_row(function, "bias", bias, y)
    return y
