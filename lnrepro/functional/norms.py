"""Layer, RMS, batch and weight norm as functions of arrays.

Equations 2, 3, 15 and 16 and section 5.1 of Ba, Kiros and Hinton (2016), and the RMS
norm of Zhang and Sennrich (2019).

Shape letters: B batch, H features or hidden units.

Every statistic is taken in float32 at least and in two passes: first the mean, then the
mean of the squared deviations. The shortcut E[x^2] - E[x]^2 is wrong by percents where
the mean is large, and can even be negative.
"""

from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp

from lnrepro.functional.moments import moments, normalize, wide_dtype


def layer_norm(
    x: jax.Array,
    gain: jax.Array | None = None,
    bias: jax.Array | None = None,
    *,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-5,
) -> jax.Array:
    """Normalise x over `axis` for each case by itself (eq. 3, 15 and 16).

        y = (x - mean) / sqrt(var + epsilon) * gain + bias

    The variance is the population variance: a sum of squares divided by H. A constant
    input gives `bias`, and its gradient is finite.

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
    x = _floating("layer_norm", x)
    axes = _check_axes("layer_norm", x, axis)
    gain = _expand("layer_norm", "gain", gain, x, axes)
    bias = _expand("layer_norm", "bias", bias, x, axes)

    wide = x.astype(wide_dtype(x.dtype))
    # Eq. 3: the mean and the variance run over the units of one case. `axes` keep size
    # 1, so that both broadcast against x.
    centred = wide - jnp.mean(wide, axes, keepdims=True)
    var = jnp.mean(jnp.square(centred), axes, keepdims=True)
    # rsqrt(var + epsilon) has a finite gradient where var is 0. sqrt(var) + epsilon has
    # none there, and W_h h is 0 at the first step of a recurrent network.
    y = centred * jax.lax.rsqrt(var + epsilon)
    if gain is not None:
        y = y * gain.astype(y.dtype)
    if bias is not None:
        y = y + bias.astype(y.dtype)
    return y.astype(x.dtype)


def rms_norm(
    x: jax.Array,
    gain: jax.Array | None = None,
    *,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-5,
) -> jax.Array:
    """Divide x by its root mean square over `axis`.

        y = x / sqrt(mean(x^2) + epsilon) * gain

    This is layer norm without the mean and without a bias.

    Args:
      x: floating-point array [..., H].
      gain: multiplies the normalised values. Its shape broadcasts to that of the
        normalised axes, and is usually [H]. None means 1.
      axis: the axis or axes over which the mean square is taken.
      epsilon: added to the mean square under the root.

    Returns:
      Array of x's shape and dtype.

    Raises:
      TypeError: x is not floating point.
      ValueError: an axis is out of range or repeated, has no elements, or gain does not
        fit.

    References:
      Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.

    >>> rms_norm(jnp.array([[3.0, -3.0]]), epsilon=0.0)
    Array([[ 1., -1.]], dtype=float32)
    """
    x = _floating("rms_norm", x)
    axes = _check_axes("rms_norm", x, axis)
    gain = _expand("rms_norm", "gain", gain, x, axes)

    wide = x.astype(wide_dtype(x.dtype))
    mean_square = jnp.mean(jnp.square(wide), axes, keepdims=True)
    # The mean of x is not subtracted.
    y = wide * jax.lax.rsqrt(mean_square + epsilon)
    if gain is not None:
        y = y * gain.astype(y.dtype)
    return y.astype(x.dtype)


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
      mask: broadcasts against x.shape[:-1]. Rows where it is 0 or False do not count in
        the statistics, and may be NaN; they are still normalised. With no row left the
        statistics are zero.
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
    x = _floating("batch_norm", x)
    if x.ndim < 1:
        raise ValueError("batch_norm: x is a scalar; it needs a last axis of features")
    features = x.shape[-1:]
    arguments = {"gain": gain, "bias": bias, "mean": mean, "var": var}
    for name, value in arguments.items():
        if value is not None and jnp.shape(value) != features:
            raise ValueError(
                f"batch_norm: {name} has shape {jnp.shape(value)}, but the last axis "
                f"of x {x.shape} asks for {features}"
            )
    if (mean is None) != (var is None):
        raise ValueError(
            "batch_norm: give both mean and var (to normalise by them), or neither "
            "(to take them from x)"
        )

    wide = x.astype(wide_dtype(x.dtype))
    # Statistics are [H], and [1, ..., H] broadcasts against x.
    row_shape = (1,) * (x.ndim - 1) + features
    if mean is None:
        # Training: the statistics are those of the rows of this batch.
        mean, var, centred = _row_statistics(
            "batch_norm", wide, mask=mask, unbiased=unbiased, axis_name=axis_name
        )
    else:
        # Test time: the statistics are given.
        mean = jnp.asarray(mean, wide.dtype)
        var = jnp.asarray(var, wide.dtype)
        centred = wide - mean.reshape(row_shape)
    # Eq. 2: (x - mean) / sqrt(var + epsilon) * gain + bias, per feature.
    y = normalize(
        centred,
        var.reshape(row_shape),
        None if gain is None else jnp.asarray(gain),
        None if bias is None else jnp.asarray(bias),
        feature_axes=(x.ndim - 1,),
        epsilon=epsilon,
    )
    return y.astype(x.dtype), (mean, var)


def running_average(
    old: jax.Array,
    new: jax.Array,
    momentum: float,
    *,
    mask: jax.Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
) -> jax.Array:
    """Update running statistics: momentum * old + (1 - momentum) * new.

    No gradient flows through the result.

    Args:
      old: running statistics [H].
      new: statistics of the current batch [H].
      momentum: weight of the old value.
      mask: the mask that the batch's statistics were taken with. Where it left no row,
        the result is `old`.
      axis_name: mapped axes over which the rows are spread, as for batch_norm.

    Returns:
      Array [H] in old's dtype. It is complex where `new` is.

    >>> running_average(jnp.zeros(2), jnp.ones(2), 0.75)
    Array([0.25, 0.25], dtype=float32)
    """
    dtype = old.dtype
    # Statistics start as real numbers, and a complex x has a complex mean.
    if jnp.iscomplexobj(new):
        dtype = jnp.promote_types(dtype, new.dtype)
    old = old.astype(dtype)
    moved = momentum * old + (1 - momentum) * new.astype(dtype)
    moved = jax.lax.stop_gradient(moved)
    if mask is None:
        return moved
    # A batch without a valid row has statistics of zero, which say nothing about the
    # data.
    seen = jnp.any(jnp.asarray(mask).astype(bool))
    # All devices decide alike, since the statistics are those of all of them.
    if axis_name is not None:
        seen = jax.lax.psum(seen.astype(jnp.int32), axis_name) > 0
    return jnp.where(seen, moved, old)


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
    if jnp.shape(g) != v.shape[-1:]:
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


def weight_norm_from_data(
    t: jax.Array, *, scale: float = 1.0, epsilon: float = 1e-10
) -> tuple[jax.Array, jax.Array]:
    """Start weight norm from a batch of data.

    With g = scale / std(t) and b = -mean(t) * g, every unit starts with mean 0 and
    standard deviation `scale` on that batch. This holds for a dense layer and for a
    convolution alike. The paper draws v from N(0, 0.05^2).

    Args:
      t: the layer's output [..., out] on one batch, with g = 1 and b = 0.
      scale: standard deviation of the units at the start.
      epsilon: added to the variance under the root.

    Returns:
      (g, b), [out] each.

    Raises:
      TypeError: t is not floating point.
      ValueError: t has no row.

    References:
      Salimans and Kingma, Weight Normalization, 2016, section 3.

    >>> weight_norm_from_data(jnp.array([[1.0], [5.0]]))
    (Array([0.5], dtype=float32), Array([-1.5], dtype=float32))
    """
    t = _floating("weight_norm_from_data", t)
    wide = t.astype(wide_dtype(t.dtype))
    mean, var, _ = _row_statistics("weight_norm_from_data", wide)
    # g t + b then has standard deviation `scale` and mean 0.
    g = scale * jax.lax.rsqrt(var + epsilon)
    b = -mean * g
    return g.astype(t.dtype), b.astype(t.dtype)


def _row_statistics(function, x, *, mask=None, unbiased=False, axis_name=None):
    """Return mean [H], variance [H] and x - mean of x [..., H] over all its rows."""
    rows = x.shape[:-1]
    if mask is None and 0 in rows:
        raise ValueError(f"{function}: x {x.shape} has no row to take statistics from")
    if mask is not None:
        try:
            # The mask gets a last axis of size 1, so that it covers all features of a
            # row.
            mask = jnp.broadcast_to(jnp.asarray(mask), rows)[..., None]
        except ValueError:
            raise ValueError(
                f"{function}: mask has shape {jnp.shape(mask)}, which does not "
                f"broadcast to {rows}, the shape of x without its features"
            ) from None
    mean, var, _, centred = moments(
        x,
        tuple(range(x.ndim - 1)),
        mask=mask,
        unbiased=unbiased,
        axis_name=axis_name,
    )
    return mean.reshape(x.shape[-1:]), var.reshape(x.shape[-1:]), centred


def _square_of_columns(w):
    return jnp.sum(jnp.square(w), tuple(range(w.ndim - 1)))


def _floating(function, x):
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"{function}: expected a floating-point array, got dtype {x.dtype}; "
            "convert it first, e.g. x.astype(jnp.float32)"
        )
    return x


def _kernel(function, name, w):
    w = _floating(function, w)
    if w.ndim < 2:
        raise ValueError(
            f"{function}: {name} has shape {w.shape}; a kernel has at least two axes, "
            "(..., in, out)"
        )
    return w


def _check_axes(function, x, axis):
    """Return the axes to normalise, sorted and counted from 0."""
    given = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    for a in given:
        if not -x.ndim <= a < x.ndim:
            raise ValueError(
                f"{function}: axis {a} is out of range for x of shape {x.shape}"
            )
        if x.shape[a] == 0:
            raise ValueError(
                f"{function}: axis {a} of x {x.shape} has no elements to normalise"
            )
    # Negative axes count from the end.
    axes = tuple(sorted(a % x.ndim for a in given))
    if not axes or len(set(axes)) != len(axes):
        raise ValueError(
            f"{function}: axis={axis} must name at least one axis of x {x.shape}, "
            "each once"
        )
    return axes


def _expand(function, name, value, x, axes):
    """Reshape a gain or bias over the normalised axes to the rank of x."""
    if value is None:
        return None
    value = jnp.asarray(value)
    # A shape shorter than the normalised axes is filled with ones from the left, as
    # NumPy broadcasts. Then each size is 1 or that of its axis.
    normalised = tuple(x.shape[a] for a in axes)
    sizes = (1,) * (len(axes) - value.ndim) + value.shape
    fits = len(sizes) == len(axes) and all(
        size in (1, full) for size, full in zip(sizes, normalised, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{function}: {name} has shape {value.shape}, but x {x.shape} is "
            f"normalised over axes {axes}, so it must broadcast to {normalised}"
        )
    # Axes that are not normalised get size 1, such as the batch axis.
    size_of_axis = dict(zip(axes, sizes, strict=True))
    return value.reshape(tuple(size_of_axis.get(a, 1) for a in range(x.ndim)))
