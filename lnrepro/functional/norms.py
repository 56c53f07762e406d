"""Layer, batch and weight normalisation as functions of arrays (Ba, Kiros, Hinton 2016, eq. 2-3, 15-16 and section
5.1).

Every statistic is taken in two passes (first the mean, then the mean of squared deviations) and in at least float32:
the shortcut E[x^2] - E[x]^2 is off by percents at large means and may even be negative.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp


def layer_norm(
    x: jax.Array,
    gain: jax.Array | None = None,
    bias: jax.Array | None = None,
    *,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
) -> jax.Array:
    """Normalise x (..., H) over `axis` for each case by itself: (x - mean) / sqrt(var + eps) * gain + bias, in x's
    shape and dtype.

    The variance is the population variance (divided by H), and eps stands under the root, so that a constant input
    gives `bias` and a finite gradient.

    Args:
      x: floating-point array.
      gain: multiplies the normalised values; any shape that broadcasts to the normalised axes (usually (H,)); None
        means 1.
      bias: is added at the end; shape as for gain; None means 0.
      axis: the axis or axes over which mean and variance are taken.
      eps: added to the variance; the paper's formulas have none, the authors' code has 1e-5.

    Raises:
      TypeError: x is not floating point.
      ValueError: an axis is out of range or repeated, has no elements, or gain or bias does not fit.

    Source: eq. 3 and 15-16. The paper's supplement swaps the names of gain and bias where it states their initial
    values; gain starts at 1 and bias at 0.

    >>> layer_norm(jnp.array([[1.0, 3.0]]), eps=0.0)
    Array([[-1.,  1.]], dtype=float32)
    """
    x = _floating("layer_norm", x)
    axes = _axes("layer_norm", x, axis)
    z = x.astype(_statistics_dtype(x))
    centred = z - jnp.mean(z, axes, keepdims=True)
    y = centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axes, keepdims=True) + eps)
    if gain is not None:
        y = y * _spread("layer_norm", "gain", gain, x, axes).astype(y.dtype)
    if bias is not None:
        y = y + _spread("layer_norm", "bias", bias, x, axes).astype(y.dtype)
    return y.astype(x.dtype)


def layer_norm_centred(
    a: jax.Array,
    gain: jax.Array | None,
    bias: jax.Array | None,
    *,
    eps: float = 1e-5,
    blocks: tuple[int, ...] = (1,),
) -> jax.Array:
    """layer_norm of a (..., N) whose mean over the last axis is zero already; the result stays in the statistics'
    dtype.

    The mean of W x over the units is (mean of W's columns) x. Where the columns' mean is taken out of the kernel once
    (`centre`), a recurrent step is spared a pass, and the second pass squares deviations that never held the mean.
    `blocks` says how many equal parts of the units each group has that is centred and normalised by itself, one group
    or two: (2, 1) for the GRU, whose two gates are one group and whose candidate is another.
    """
    a = a.astype(_statistics_dtype(a))
    gain = jnp.ones(a.shape[-1:], a.dtype) if gain is None else gain.astype(a.dtype)
    y = _gained_once(a, gain, eps, blocks)
    return y if bias is None else y + bias.astype(y.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _gained(a, gain, eps, blocks):
    """Each group of a (..., N) over its deviation, times gain, (N,) or (..., N)."""
    return a * _side_by_side(_first(a, blocks), _scales(a, eps, blocks)) * gain


@_gained.defjvp
def _(eps, blocks, primals, tangents):
    # With dy the cotangent, the reverse of this sums one product, normalised a * dy, over the units (times gain) and over
    # the rows: fewer passes over all of a than JAX's own derivative takes. The sum over the units is written as a matrix
    # product, whose reverse XLA's CPU backend does not pay for with another pass.
    a, gain = primals
    da, dgain = tangents
    first, scales = _first(a, blocks), _scales(a, eps, blocks)
    sums = [jnp.sum(part, -1, keepdims=True) for part in _each(first, a * da)]
    drifts = [-(s**2) * (dot / n) for s, dot, n in zip(scales, sums, _sizes(a, blocks), strict=True)]  # dscale / scale
    gains = _each(first, gain)
    if gain.ndim == 1:
        change = jnp.matmul(jnp.concatenate(drifts, -1), jnp.stack(gains), precision="highest") + dgain
    else:
        change = sum(drift * part for drift, part in zip(drifts, gains, strict=True)) + dgain
    wide = _side_by_side(first, scales)
    return a * wide * gain, da * (wide * gain) + a * (wide * change)


_gained_once = jax.jit(_gained, static_argnums=(2, 3))  # a cell's sites of one shape are traced once


def _scales(a, eps, blocks):
    """One over the deviation of each group of a (..., N), (..., 1) each."""
    square = jnp.square(a)
    if len(blocks) == 1:
        return [jax.lax.rsqrt(jnp.mean(square, -1, keepdims=True) + eps)]
    # All parts in one pass, and both groups in one array: XLA's CPU backend would copy slices, and compile each apart.
    parts = jnp.sum(_parts(square, blocks), -1)
    columns = [parts[..., k : k + 1] for k in range(sum(blocks))]
    sums = sum(columns[: blocks[0]]), sum(columns[blocks[0] :])
    means = jnp.where(jnp.arange(2) < 1, *(dot / n for dot, n in zip(sums, _sizes(a, blocks), strict=True)))
    scales = jax.lax.rsqrt(means + eps)
    return [scales[..., :1], scales[..., 1:]]


def _sizes(a, blocks):
    return [a.shape[-1] // sum(blocks) * n for n in blocks]


def _first(a, blocks):
    """Which units (N,) belong to the first of two groups; None is all of them."""
    return None if len(blocks) == 1 else jnp.arange(a.shape[-1]) < a.shape[-1] // sum(blocks) * blocks[0]


def _each(first, a):
    """a (..., N) for each group, with zeros in the other's place."""
    zero = jnp.zeros((), a.dtype)
    return [a] if first is None else [jnp.where(first, a, zero), jnp.where(first, zero, a)]


def _side_by_side(first, values):
    """One array from a value for each group."""
    return values[0] if first is None else jnp.where(first, *values)


def _parts(a, blocks):
    return a.reshape(*a.shape[:-1], sum(blocks), a.shape[-1] // sum(blocks))


def centre(w: jax.Array, *, blocks: tuple[int, ...] = (1,)) -> jax.Array:
    """w (..., n) less its mean over the last axis: of a kernel (in, out), so that w^T x has zero mean over the units for
    every x; of activations, the first half of their layer norm. `blocks` as for layer_norm_centred."""
    wide = w.astype(_statistics_dtype(w))
    if len(blocks) == 1:
        return (wide - jnp.mean(wide, -1, keepdims=True)).astype(w.dtype)
    # By a product with the matrix that says which parts make up a group: its derivative is another such product, where
    # that of slices takes long to compile.
    parts, group = _parts(wide, blocks), [k for k, n in enumerate(blocks) for _ in range(n)]
    pool = [[-(g == k) / (blocks[k] * parts.shape[-1]) for g in group] for k in group]  # of -1: no kernel that negates
    minus_means = jnp.matmul(jnp.sum(parts, -1), jnp.asarray(pool, wide.dtype), precision="highest")
    return (parts + minus_means[..., None]).reshape(w.shape).astype(w.dtype)


def batch_norm(
    x: jax.Array,
    gain: jax.Array | None = None,
    bias: jax.Array | None = None,
    *,
    mask: jax.Array | None = None,
    eps: float = 1e-5,
    unbiased: bool = False,
    mean: jax.Array | None = None,
    var: jax.Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Normalise each feature of x (..., H) over all other axes; returns y (..., H) and the statistics used, two arrays
    (H,).

    Args:
      x: floating-point array, features last.
      gain: (H,) multiplier, None means 1.
      bias: (H,) shift, None means 0.
      mask: broadcasts against x.shape[:-1]; rows where it is 0 or False do not count in the statistics (they are still
        normalised). With no row left the statistics are zero.
      eps: added to the variance under the root.
      unbiased: divide the sum of squares by n - 1 in place of n (by 1 where n is 1), in the normaliser and in the
        variance returned.
      mean: with `var`, statistics (H,) to use as they are: running averages at test time.
      var: see mean.
      axis_name: mapped axes (of pmap, vmap or shard_map) over which the rows are spread; the statistics are then those
        of all of them.

    Raises:
      TypeError: x is not floating point.
      ValueError: a shape does not fit, x has no row, or only one of mean and var is given.

    Source: eq. 2, estimated on the mini-batch as in Ioffe and Szegedy (2015).
    """
    x = _floating("batch_norm", x)
    if x.ndim < 1:
        raise ValueError("batch_norm: x is a scalar; it needs a last axis of features")
    features = x.shape[-1:]
    for name, value in (("gain", gain), ("bias", bias), ("mean", mean), ("var", var)):
        if value is not None and jnp.shape(value) != features:
            raise ValueError(
                f"batch_norm: {name} has shape {jnp.shape(value)}, but the last axis of x {x.shape} asks for {features}"
            )
    if (mean is None) != (var is None):
        raise ValueError("batch_norm: give both mean and var (to normalise by them), or neither (to take them from x)")
    dtype = _statistics_dtype(x)
    z = x.astype(dtype)
    if mean is None:
        mean, var = _batch_statistics(z, mask, unbiased, axis_name)
    else:
        mean, var = jnp.asarray(mean, dtype), jnp.asarray(var, dtype)
    y = (z - mean) * jax.lax.rsqrt(var + eps)
    if gain is not None:
        y = y * jnp.asarray(gain, dtype)
    if bias is not None:
        y = y + jnp.asarray(bias, dtype)
    return y.astype(x.dtype), (mean, var)


def _batch_statistics(z, mask, unbiased, axis_name):
    rows, axes = z.shape[:-1], tuple(range(z.ndim - 1))

    def total(a):
        a = jnp.sum(a, axes)
        return a if axis_name is None else jax.lax.psum(a, axis_name)

    if mask is None:
        keep = None
        count = jnp.asarray(1.0, z.dtype)
        for size in rows:  # a loop, so that symbolic sizes of jax.export stay what they are
            count = count * size
        if axis_name is not None:
            count = jax.lax.psum(count, axis_name)
        if 0 in rows:
            raise ValueError(f"batch_norm: x {z.shape} has no row to take statistics from")
    else:
        try:
            keep = jnp.broadcast_to(jnp.asarray(mask) != 0, rows)[..., None]
        except ValueError:
            raise ValueError(
                f"batch_norm: mask has shape {jnp.shape(mask)}, which does not broadcast to {rows}, "
                "the shape of x without its features"
            ) from None
        count = total(keep.astype(z.dtype))
    # where, not a product with the mask: padding may hold NaN
    valid = (lambda a: a) if keep is None else (lambda a: jnp.where(keep, a, jnp.zeros((), a.dtype)))
    mean = total(valid(z)) / jnp.maximum(count, 1)
    var = total(jnp.square(valid(z - mean))) / jnp.maximum(count - 1 if unbiased else count, 1)
    return mean, var


def running_average(
    old: jax.Array,
    new: jax.Array,
    momentum: float,
    *,
    mask: jax.Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
) -> jax.Array:
    """Running statistics (H,) one batch on: momentum * old + (1 - momentum) * new, or old where the batch's mask left
    no row; no gradient flows."""
    moved = jax.lax.stop_gradient(momentum * old + (1 - momentum) * new.astype(old.dtype))
    if mask is None:
        return moved
    seen = jnp.any(jnp.asarray(mask) != 0)
    if axis_name is not None:
        seen = jax.lax.psum(seen.astype(jnp.int32), axis_name) > 0
    return jnp.where(seen, moved, old)


def weight_norm(v: jax.Array, g: jax.Array) -> jax.Array:
    """Kernel w = g * v / ||v|| of shape (..., in, out): direction v (..., in, out), length g (out,), one norm per
    output unit.

    The norm runs over all axes but the last, so that a convolution kernel (height, width, in, out) is normalised per
    output channel. In the paper's terms this is mu = 0, sigma = ||w||_2 (section 5.1; Salimans and Kingma 2016).

    Raises:
      TypeError: v is not floating point.
      ValueError: v has fewer than two axes or g is not of shape (out,).
    """
    v = _floating("weight_norm", v)
    if v.ndim < 2:
        raise ValueError(f"weight_norm: v has shape {v.shape}; a kernel has at least two axes, (..., in, out)")
    if jnp.shape(g) != v.shape[-1:]:
        raise ValueError(
            f"weight_norm: g has shape {jnp.shape(g)}, but v {v.shape} asks for one length "
            f"per output unit, {v.shape[-1:]}"
        )
    dtype = _statistics_dtype(v)
    direction = v.astype(dtype)
    square = jnp.sum(jnp.square(direction), tuple(range(v.ndim - 1)))
    # an all-zero column stays zero, and its gradient finite
    scale = jnp.asarray(g, dtype) * jax.lax.rsqrt(jnp.where(square < jnp.finfo(dtype).tiny, 1, square))
    return (direction * scale).astype(v.dtype)


def weight_norm_preserving(w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Function-preserving start: (v, g) = (w, ||w||) with v (..., in, out) and g (out,), so that weight_norm(v, g) is
    the kernel w."""
    w = _floating("weight_norm_preserving", w)
    if w.ndim < 2:
        raise ValueError(
            f"weight_norm_preserving: w has shape {w.shape}; a kernel has at least two axes, (..., in, out)"
        )
    square = jnp.sum(jnp.square(w.astype(_statistics_dtype(w))), tuple(range(w.ndim - 1)))
    return w, jnp.sqrt(square).astype(w.dtype)


def weight_norm_from_data(t: jax.Array, *, scale: float = 1.0, eps: float = 1e-10) -> tuple[jax.Array, jax.Array]:
    """Data-dependent start from t (..., out), the layer's output on one batch with g = 1 and b = 0: returns (g, b),
    both (out,).

    With g = scale / std(t) and b = -mean(t) * g every unit starts with mean 0 and standard deviation `scale` on that
    batch, for a dense layer and for a convolution alike. eps is added to the variance. Source: Salimans and Kingma
    (2016), section 3; v is drawn from N(0, 0.05^2) there.
    """
    t = _floating("weight_norm_from_data", t)
    mean, var = _batch_statistics(t.astype(_statistics_dtype(t)), None, False, None)
    g = scale * jax.lax.rsqrt(var + eps)
    return g.astype(t.dtype), (-mean * g).astype(t.dtype)


def _statistics_dtype(x):
    return jnp.promote_types(x.dtype, jnp.float32)


def _floating(function, x):
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"{function}: expected a floating-point array, got dtype {x.dtype}; "
            "convert it first, e.g. x.astype(jnp.float32)"
        )
    return x


def _axes(function, x, axis):
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in given:
        if not -x.ndim <= a < x.ndim:
            raise ValueError(f"{function}: axis {a} is out of range for x of shape {x.shape}")
        if x.shape[a] == 0:
            raise ValueError(f"{function}: axis {a} of x {x.shape} has no elements to normalise")
    axes = tuple(sorted(a % x.ndim for a in given))
    if not axes or len(set(axes)) != len(axes):
        raise ValueError(f"{function}: axis={axis} must name at least one axis of x {x.shape}, each once")
    return axes


def _spread(function, name, value, x, axes):
    """Reshape a gain or bias that stands over the normalised axes so that it broadcasts against x."""
    value = jnp.asarray(value)
    normalised = tuple(x.shape[a] for a in axes)
    if value.ndim > len(axes) or any(
        v not in (1, n) for v, n in zip(value.shape[::-1], normalised[::-1], strict=False)
    ):
        raise ValueError(
            f"{function}: {name} has shape {value.shape}, but x {x.shape} is normalised over axes {axes}, "
            f"so it must broadcast to {normalised}"
        )
    sizes = (1,) * (len(axes) - value.ndim) + value.shape
    return value.reshape(tuple(sizes[axes.index(a)] if a in axes else 1 for a in range(axes[0], x.ndim)))
