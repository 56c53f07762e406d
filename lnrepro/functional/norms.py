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


def wide_dtype(dtype: jax.typing.DTypeLike) -> Any:
    """Return the dtype of floating-point numbers, or float32 where it is narrower."""
    # `jnp.promote_types` refuses bfloat16 under strict promotion.
    return jnp.float32 if jnp.finfo(dtype).bits < 32 else jnp.dtype(dtype)


def wide(a: jax.Array) -> jax.Array:
    """Return a in float32 at least, for statistics and gates."""
    return a.astype(wide_dtype(a.dtype))


def layer_norm(
    x: jax.Array,
    gain: jax.Array | None = None,
    bias: jax.Array | None = None,
    *,
    axis: int | tuple[int, ...] = -1,
    epsilon: float = 1e-5,
) -> jax.Array:
    """Normalise x over `axis` for each case by itself (eq. 3, 15 and 16).

        y = (x - mean) / sqrt(var + epsilon) * gain + bias

    The variance is the population variance: a sum of squares divided by H. A constant
    input gives `bias`, and its gradient is finite. So does one unit by itself, H = 1.

    The paper's supplement swaps the names of gain and bias where it states their
    initial values. The gain starts at 1 and the bias at 0.

    Args:
      x: floating-point array [..., H].
      gain: multiplies the normalised values. Its shape broadcasts to that of the
        normalised axes, and is usually [H]. None means 1.
      bias: is added at the end; shape as for gain. None means 0.
      axis: the axis or axes over which mean and variance are taken.
      epsilon: added to the variance under the root. The paper's formulas have none, the
        authors' code has 1e-5.

    Returns:
      Array of x's shape and dtype.

    Raises:
      TypeError: x is not floating point.
      ValueError: an axis is out of range or repeated, has no elements, or gain or bias
        does not fit.

    >>> layer_norm(jnp.array([[1.0, 3.0]]), epsilon=0.0)
    Array([[-1.,  1.]], dtype=float32)
    """
    x, axes = _check("layer_norm", x, axis, epsilon)
    gain = _expand("layer_norm", "gain", gain, x, axes)
    bias = _expand("layer_norm", "bias", bias, x, axes)

    # Eq. 3: the mean and the variance run over the units of one case. `axes` keep size
    # 1, so that both broadcast against x.
    centred = wide(x) - jnp.mean(wide(x), axes, keepdims=True)
    var = jnp.mean(jnp.square(centred), axes, keepdims=True)
    # rsqrt(var + epsilon) has a finite gradient where var is 0. sqrt(var) + epsilon has
    # none there, and W_h h is 0 at the first step of a recurrent network.
    y = centred * jax.lax.rsqrt(var + epsilon)
    return _scaled(y, gain, bias).astype(x.dtype)


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
      ValueError: x has no elements to normalise, or gain does not fit.

    References:
      Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.

    >>> rms_norm(jnp.array([[3.0, -3.0]]), epsilon=0.0)
    Array([[ 1., -1.]], dtype=float32)
    """
    x, axes = _check("rms_norm", x, -1, epsilon)
    gain = _expand("rms_norm", "gain", gain, x, axes)
    # The mean of x is not subtracted.
    mean_square = jnp.mean(jnp.square(wide(x)), -1, keepdims=True)
    y = wide(x) * jax.lax.rsqrt(mean_square + epsilon)
    return _scaled(y, gain, None).astype(x.dtype)


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
    axis_name: str | tuple[str, ...] | None = None,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Normalise each feature of x [..., H] over all other axes (eq. 2).

    The statistics are estimated on the mini-batch as in Ioffe and Szegedy (2015).

    Args:
      x: floating-point array [..., H].
      gain: multiplier [H]. None means 1.
      bias: shift [H]. None means 0.
      mask: flags that broadcast to x.shape[:-1]. Rows where it is 0 or False do not
        count in the statistics, and may be NaN; they are still normalised. With no row
        left the statistics are zero.
      epsilon: added to the variance under the root.
      unbiased: divide the sum of squares by n - 1 in place of n (by 1 where n is 1), in
        the normaliser and in the variance returned.
      mean: with `var`, statistics [H] to use as they are: running averages at test
        time.
      var: the variances [H] that belong to `mean`.
      axis_name: mapped axes (of pmap, vmap or shard_map) over which the rows are
        spread. The statistics are then those of all of them.

    Returns:
      (y, (mean, var)): y [..., H] in x's dtype, and the statistics used, [H] each, in
      float32 at least.

    Raises:
      TypeError: x is not floating point.
      ValueError: a shape does not fit, x has no row, or only one of mean and var is
        given.

    >>> y, (mean, var) = batch_norm(jnp.array([[1.0], [3.0]]), epsilon=0.0)
    >>> y.ravel(), mean
    (Array([-1.,  1.], dtype=float32), Array([2.], dtype=float32))
    """
    x = _floating("batch_norm", x, epsilon)
    if x.ndim < 1:
        raise ValueError("batch_norm: x is a scalar; it needs a last axis of features")
    # [H] as [1, ..., H], which broadcasts against x.
    row_shape = (1,) * (x.ndim - 1) + x.shape[-1:]
    rows = {"gain": gain, "bias": bias, "mean": mean, "var": var}
    for name, value in rows.items():
        if value is None:
            continue
        if jnp.asarray(value).shape != x.shape[-1:]:
            raise ValueError(
                f"batch_norm: {name} has shape {jnp.shape(value)}, but the last axis "
                f"of x {x.shape} asks for {x.shape[-1:]}"
            )
        rows[name] = jnp.asarray(value).reshape(row_shape)
    if (mean is None) != (var is None):
        raise ValueError(
            "batch_norm: give both mean and var (to normalise by them), or neither "
            "(to take them from x)"
        )

    values = wide(x)
    if mean is None or var is None:
        # Training: the statistics are those of the rows of this batch.
        mean, var = _row_statistics(values, mask, unbiased, axis_name)
    else:
        # Test time: the statistics are given.
        mean = jnp.asarray(mean, values.dtype).reshape(row_shape)
        var = jnp.asarray(var, values.dtype).reshape(row_shape)
    # Eq. 2, for each feature by itself.
    y = (values - mean) * jax.lax.rsqrt(var + epsilon)
    y = _scaled(y, rows["gain"], rows["bias"])
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
      v: direction [..., in, out].
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
    v = _kernel("weight_norm", "v", v)
    if jnp.asarray(g).shape != v.shape[-1:]:
        raise ValueError(
            f"weight_norm: g has shape {jnp.shape(g)}, but v {v.shape} asks for one "
            f"length per output unit, {v.shape[-1:]}"
        )
    dtype = wide_dtype(v.dtype)
    direction = v.astype(dtype)
    square = _square_of_columns(direction)
    # A zero norm is replaced by 1, so that neither the kernel nor its gradient is NaN.
    is_zero = square < jnp.finfo(dtype).tiny
    inverse = jax.lax.rsqrt(jnp.where(is_zero, 1, square))
    # g / ||v||, [out], multiplies every column of v.
    scale = jnp.asarray(g, dtype) * inverse
    scale = scale.reshape((1,) * (v.ndim - 1) + scale.shape)
    return (direction * scale).astype(v.dtype)


def weight_norm_preserving(w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Start weight norm from a kernel, so that the function is preserved.

    Args:
      w: kernel [..., in, out].

    Returns:
      (v, g) = (w, ||w||) with g [out]: weight_norm(v, g) is w.

    Raises:
      TypeError: w is not floating point.
      ValueError: w has fewer than two axes.

    >>> weight_norm_preserving(jnp.array([[3.0], [4.0]]))[1]
    Array([5.], dtype=float32)
    """
    w = _kernel("weight_norm_preserving", "w", w)
    square = _square_of_columns(w.astype(wide_dtype(w.dtype)))
    return w, jnp.sqrt(square).astype(w.dtype)


def _row_statistics(
    x: jax.Array, mask: Any, unbiased: bool, axis_name: Any
) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance of x [..., H] over its rows, each [1, ..., H]."""
    rows = x.shape[:-1]
    axes = tuple(range(x.ndim - 1))
    if mask is None:
        if 0 in rows:
            raise ValueError(
                f"batch_norm: x {x.shape} has no row to take statistics from"
            )
        counts = jnp.ones(rows, bool)
    else:
        try:
            counts = jnp.broadcast_to(jnp.asarray(mask).astype(bool), rows)
        except ValueError:
            raise ValueError(
                f"batch_norm: mask has shape {jnp.shape(mask)}, which does not "
                f"broadcast to {rows}, the shape of x without its features"
            ) from None

    def total(a):
        # A product with the mask would keep the NaN of padding.
        if mask is not None:
            a = jnp.where(counts[..., None], a, jnp.zeros((), a.dtype))
        a = jnp.sum(a, axes, keepdims=True)
        return a if axis_name is None else jax.lax.psum(a, axis_name)

    count = total(counts[..., None].astype(x.dtype))
    # A count of 0 gives statistics of 0, not NaN.
    mean = total(x) / jnp.maximum(count, 1)
    squares = total(jnp.square(x - mean))
    return mean, squares / jnp.maximum(count - 1 if unbiased else count, 1)


def _square_of_columns(w):
    return jnp.sum(jnp.square(w), tuple(range(w.ndim - 1)))


def _floating(function, x, epsilon=0.0):
    """Return x as an array of a floating-point dtype; check epsilon."""
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"{function}: expected a floating-point array, got dtype {x.dtype}; "
            "convert it first, e.g. x.astype(jnp.float32)"
        )
    check_epsilon(function, epsilon)
    return x


def check_epsilon(where: str, epsilon: Any) -> None:
    """Raise ValueError for a negative epsilon that is known while tracing."""
    if isinstance(epsilon, int | float) and not epsilon >= 0:
        raise ValueError(f"{where}: epsilon={epsilon} must be 0 or more")


def _kernel(function, name, w):
    w = _floating(function, w)
    if w.ndim < 2:
        raise ValueError(
            f"{function}: {name} has shape {w.shape}; a kernel has at least two axes, "
            "(..., in, out)"
        )
    return w


def _check(function, x, axis, epsilon):
    """Return x, and the axes to normalise, sorted and counted from 0."""
    x = _floating(function, x, epsilon)
    given = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    in_range = all(-x.ndim <= a < x.ndim for a in given)
    # Negative axes count from the end.
    axes = tuple(sorted({a % x.ndim for a in given})) if in_range else ()
    if not axes or len(axes) != len(given):
        raise ValueError(
            f"{function}: axis={axis} must name axes of x {x.shape}, each once"
        )
    if 0 in [x.shape[a] for a in axes]:
        raise ValueError(
            f"{function}: x {x.shape} has no elements to normalise over axis {axis}"
        )
    return x, axes


def _expand(function, name, value, x, axes):
    """Reshape a gain or bias over the normalised axes to the rank of x."""
    if value is None:
        return None
    normalised = tuple(x.shape[a] for a in axes)
    try:
        value = jnp.broadcast_to(jnp.asarray(value), normalised)
    except ValueError:
        raise ValueError(
            f"{function}: {name} has shape {jnp.shape(value)}, but x {x.shape} is "
            f"normalised over axes {axes}, so it must broadcast to {normalised}"
        ) from None
    return jnp.expand_dims(value, [a for a in range(x.ndim) if a not in axes])


def _scaled(y, gain, bias):
    """Return y * gain + bias, where None means 1 and 0."""
    if gain is not None:
        y = y * gain.astype(y.dtype)
    if bias is not None:
        y = y + bias.astype(y.dtype)
    return y
