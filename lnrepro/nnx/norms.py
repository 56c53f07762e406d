"""LayerNorm, RMSNorm and BatchNorm with the arguments of flax.nnx's modules.

All of them differ from Flax in the points that `lnrepro.linen.norms` lists, and in two
more:

1. x must have `num_features` features. Flax broadcasts where one of the two is 1.
2. `promote_dtype` is None by default: neither x nor the parameters are rounded before
   the statistics are taken, and the result has x's dtype unless `dtype` is given. With
   `promote_dtype=flax.nnx.nn.dtypes.promote_dtype` dtypes are Flax's.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.typing import PromoteDtypeFn

from lnrepro.functional.cells.base import Initializer
from lnrepro.functional.moments import (
    canonical_axes,
    module_dtypes,
    moments,
    normalize,
)
from lnrepro.functional.norms import running_average

Axes = int | Sequence[int]
NO_METADATA: Mapping[str, Any] = MappingProxyType({})


class LayerNorm(nnx.Module):
    """Layer norm of x [..., H] for each case by itself (eq. 3, 15 and 16).

    Parameters: `scale` (the paper's gain) and `bias`, [H] each. See
    `lnrepro.functional.layer_norm`.

    Args:
      num_features: H, or the sizes of all feature axes. One number for several axes is
        their product.
      epsilon: added to the variance under the root. Flax has 1e-6.
      dtype: dtype of the result. None means x's; Flax promotes with the parameters'.
      param_dtype: dtype of the parameters.
      use_bias: whether there is a bias.
      use_scale: whether there is a scale.
      bias_init: initialiser of the bias.
      scale_init: initialiser of the scale.
      reduction_axes: axes over which mean and variance are taken.
      feature_axes: axes along which scale and bias vary. They need not be among the
        reduction axes.
      axis_name: mapped axes over which the reduction axes are spread.
      axis_index_groups: groups of indices of the mapped axis that share statistics,
        such as [[0, 1], [2, 3]].
      use_fast_variance: accepted for Flax's sake and ignored; there are always two
        passes.
      promote_dtype: function ((x, scale, bias), dtype=) that casts all of them before
        anything is computed. None casts nothing.
      rngs: keys for the initialisers, of the stream "params".
      bias_metadata: metadata of the bias, such as {"out_sharding": ("model",)}.
      scale_metadata: metadata of the scale.

    >>> layer = LayerNorm(2, rngs=nnx.Rngs(0))
    >>> layer(jnp.array([[1.0, 3.0], [2.0, 6.0]])).round(3)
    Array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        num_features: int | Sequence[int],
        *,
        epsilon: float = 1e-5,
        dtype: jax.typing.DTypeLike | None = None,
        param_dtype: jax.typing.DTypeLike = jnp.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Initializer = nnx.initializers.zeros,
        scale_init: Initializer = nnx.initializers.ones,
        reduction_axes: Axes = -1,
        feature_axes: Axes = -1,
        axis_name: str | tuple[str, ...] | None = None,
        axis_index_groups: Sequence[Sequence[int]] | None = None,
        use_fast_variance: bool = False,
        promote_dtype: PromoteDtypeFn | None = None,
        rngs: nnx.Rngs,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        shape = _shape(num_features)
        # Without a scale or a bias, the attribute is None and `normalize` leaves it
        # out.
        self.scale = nnx.data(None)
        self.bias = nnx.data(None)
        if use_scale:
            scale = scale_init(rngs.params(), shape, param_dtype)
            self.scale = nnx.Param(scale, **scale_metadata)
        if use_bias:
            bias = bias_init(rngs.params(), shape, param_dtype)
            self.bias = nnx.Param(bias, **bias_metadata)

        # Static attributes are hashed, so lists become tuples.
        self.num_features = _static(num_features)
        self.epsilon = epsilon
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.use_bias = use_bias
        self.use_scale = use_scale
        self.reduction_axes = _static(reduction_axes)
        self.feature_axes = _static(feature_axes)
        self.axis_name = axis_name
        self.axis_index_groups = _static_groups(axis_index_groups)
        self.use_fast_variance = use_fast_variance
        self.promote_dtype = promote_dtype

    def __call__(self, x: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        """Normalise x.

        Args:
          x: array [..., H].
          mask: broadcasts against x. Elements where it is 0 or False do not count in
            the statistics; they are still normalised.

        Returns:
          Array of x's shape.

        Raises:
          TypeError: x is not floating point and no `dtype` is given.
          ValueError: x does not have num_features features, an axis is out of range or
            empty, or the mask does not fit.
        """
        x = jnp.asarray(x)
        scale, bias = _value(self.scale), _value(self.bias)
        if self.promote_dtype is not None:
            x, scale, bias = self.promote_dtype((x, scale, bias), dtype=self.dtype)
        compute_dtype, result_dtype = module_dtypes("LayerNorm", x, self.dtype)
        reduction_axes = canonical_axes(
            "LayerNorm: reduction_axes", self.reduction_axes, x
        )
        feature_axes = canonical_axes("LayerNorm: feature_axes", self.feature_axes, x)
        _check_features("LayerNorm", self.num_features, x, feature_axes)

        # float32 at least for the statistics and the normaliser, whatever x has.
        wide = x.astype(compute_dtype)
        _, var, _, centred = moments(
            wide,
            reduction_axes,
            mask=mask,
            axis_name=self.axis_name,
            axis_index_groups=self.axis_index_groups,
        )
        # Eq. 3 and 15: (x - mean) / sqrt(var + epsilon) * scale + bias.
        y = normalize(
            centred,
            var,
            scale,
            bias,
            feature_axes=feature_axes,
            epsilon=self.epsilon,
        )
        return y.astype(result_dtype)


class RMSNorm(nnx.Module):
    """RMS norm of x [..., H]: x over its root mean square, times a scale.

    Parameter: `scale` [H]. See `lnrepro.functional.rms_norm`.

    Args:
      num_features: H, or the sizes of all feature axes. One number for several axes is
        their product.
      epsilon: added to the mean square under the root. Flax has 1e-6.
      dtype: dtype of the result. None means x's; Flax promotes with the parameters'.
      param_dtype: dtype of the scale.
      use_scale: whether there is a scale.
      scale_init: initialiser of the scale.
      reduction_axes: axes over which the mean square is taken.
      feature_axes: axes along which the scale varies. They need not be among the
        reduction axes.
      axis_name: mapped axes over which the reduction axes are spread.
      axis_index_groups: groups of indices of the mapped axis that share statistics,
        such as [[0, 1], [2, 3]].
      use_fast_variance: accepted for Flax's sake and ignored.
      promote_dtype: function ((x, scale), dtype=) that casts both before anything is
        computed. None casts nothing.
      rngs: keys for the initialiser, of the stream "params".
      scale_metadata: metadata of the scale, such as {"out_sharding": ("model",)}.

    >>> layer = RMSNorm(2, rngs=nnx.Rngs(0))
    >>> layer(jnp.array([[3.0, -3.0]])).round(3)
    Array([[ 1., -1.]], dtype=float32)
    """

    def __init__(
        self,
        num_features: int | Sequence[int],
        *,
        epsilon: float = 1e-5,
        dtype: jax.typing.DTypeLike | None = None,
        param_dtype: jax.typing.DTypeLike = jnp.float32,
        use_scale: bool = True,
        scale_init: Initializer = nnx.initializers.ones,
        reduction_axes: Axes = -1,
        feature_axes: Axes = -1,
        axis_name: str | tuple[str, ...] | None = None,
        axis_index_groups: Sequence[Sequence[int]] | None = None,
        use_fast_variance: bool = False,
        promote_dtype: PromoteDtypeFn | None = None,
        rngs: nnx.Rngs,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
    ):
        self.scale = nnx.data(None)
        if use_scale:
            scale = scale_init(rngs.params(), _shape(num_features), param_dtype)
            self.scale = nnx.Param(scale, **scale_metadata)

        self.num_features = _static(num_features)
        self.epsilon = epsilon
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.use_scale = use_scale
        self.reduction_axes = _static(reduction_axes)
        self.feature_axes = _static(feature_axes)
        self.axis_name = axis_name
        self.axis_index_groups = _static_groups(axis_index_groups)
        self.use_fast_variance = use_fast_variance
        self.promote_dtype = promote_dtype

    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        """Normalise x.

        Args:
          x: array [..., H].
          mask: broadcasts against x. Elements where it is 0 or False do not count in
            the mean square; they are still normalised.

        Returns:
          Array of x's shape.

        Raises:
          TypeError: x is not floating point and no `dtype` is given.
          ValueError: x does not have num_features features, an axis is out of range or
            empty, or the mask does not fit.
        """
        x = jnp.asarray(x)
        scale = _value(self.scale)
        if self.promote_dtype is not None:
            x, scale = self.promote_dtype((x, scale), dtype=self.dtype)
        compute_dtype, result_dtype = module_dtypes("RMSNorm", x, self.dtype)
        reduction_axes = canonical_axes(
            "RMSNorm: reduction_axes", self.reduction_axes, x
        )
        feature_axes = canonical_axes("RMSNorm: feature_axes", self.feature_axes, x)
        _check_features("RMSNorm", self.num_features, x, feature_axes)

        wide = x.astype(compute_dtype)
        # Without subtracting the mean, `centred` is x and the second moment is its mean
        # square.
        _, mean_square, _, centred = moments(
            wide,
            reduction_axes,
            mask=mask,
            subtract_mean=False,
            axis_name=self.axis_name,
            axis_index_groups=self.axis_index_groups,
        )
        y = normalize(
            centred,
            mean_square,
            scale,
            None,
            feature_axes=feature_axes,
            epsilon=self.epsilon,
        )
        return y.astype(result_dtype)


class BatchNorm(nnx.Module):
    """Batch norm of x [..., H] per feature over all other axes (eq. 2).

    Parameters: `scale` and `bias`, [H] each. Running averages: `mean` and `var` [H].
    See `lnrepro.functional.batch_norm`.

    `model.train()` and `model.eval()` choose between the batch's statistics and the
    running averages, and so does `nnx.view(model, use_running_average=...)`.

    Args:
      num_features: H, or the sizes of all feature axes.
      use_running_average: True normalises by the running averages (test time), False by
        the batch (training). None leaves the choice to the call.
      axis: the feature axis of x, or several.
      momentum: weight of the old value in the running averages,
        momentum * running + (1 - momentum) * batch.
      epsilon: added to the variance under the root.
      dtype: dtype of the result. None means x's; Flax promotes with the parameters'.
      param_dtype: dtype of the parameters.
      use_bias: whether there is a bias.
      use_scale: whether there is a scale.
      bias_init: initialiser of the bias.
      scale_init: initialiser of the scale.
      axis_name: mapped axes over which the batch is spread. Without it each device of a
        pmap normalises by its own rows.
      axis_index_groups: groups of indices of the mapped axis that share statistics,
        such as [[0, 1], [2, 3]].
      use_fast_variance: accepted for Flax's sake and ignored; there are always two
        passes.
      promote_dtype: function ((x, mean, var, scale, bias), dtype=) that casts all of
        them before anything is computed. None casts nothing.
      rngs: keys for the initialisers, of the stream "params".
      bias_metadata: metadata of the bias, such as {"out_sharding": ("model",)}.
      scale_metadata: metadata of the scale.
      unbiased: divide the variance by n - 1, in the normaliser and in the running
        average. The paper does so for batches of 4. Flax does not have this option.

    >>> layer = BatchNorm(1, momentum=0.5, rngs=nnx.Rngs(0))
    >>> layer(jnp.array([[1.0], [3.0]])).round(3).ravel(), layer.mean[...]
    (Array([-1.,  1.], dtype=float32), Array([1.], dtype=float32))
    """

    def __init__(
        self,
        num_features: int | Sequence[int],
        *,
        use_running_average: bool | None = False,
        axis: Axes = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-5,
        dtype: jax.typing.DTypeLike | None = None,
        param_dtype: jax.typing.DTypeLike = jnp.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Initializer = nnx.initializers.zeros,
        scale_init: Initializer = nnx.initializers.ones,
        axis_name: str | tuple[str, ...] | None = None,
        axis_index_groups: Sequence[Sequence[int]] | None = None,
        use_fast_variance: bool = False,
        promote_dtype: PromoteDtypeFn | None = None,
        rngs: nnx.Rngs,
        bias_metadata: Mapping[str, Any] = NO_METADATA,
        scale_metadata: Mapping[str, Any] = NO_METADATA,
        unbiased: bool = False,
    ):
        shape = _shape(num_features)
        # Mean 0 and variance 1 leave x as it is, but for epsilon.
        self.mean = nnx.BatchStat(jnp.zeros(shape, jnp.float32))
        self.var = nnx.BatchStat(jnp.ones(shape, jnp.float32))
        self.scale = nnx.data(None)
        self.bias = nnx.data(None)
        if use_scale:
            scale = scale_init(rngs.params(), shape, param_dtype)
            self.scale = nnx.Param(scale, **scale_metadata)
        if use_bias:
            bias = bias_init(rngs.params(), shape, param_dtype)
            self.bias = nnx.Param(bias, **bias_metadata)

        self.num_features = _static(num_features)
        self.use_running_average = use_running_average
        self.axis = _static(axis)
        self.momentum = momentum
        self.epsilon = epsilon
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.use_bias = use_bias
        self.use_scale = use_scale
        self.axis_name = axis_name
        self.axis_index_groups = _static_groups(axis_index_groups)
        self.use_fast_variance = use_fast_variance
        self.promote_dtype = promote_dtype
        self.unbiased = unbiased

    def __call__(
        self,
        x: jax.Array,
        use_running_average: bool | None = None,
        *,
        mask: jax.Array | None = None,
    ) -> jax.Array:
        """Normalise x, and update the running averages where the batch is used.

        Args:
          x: array [..., H].
          use_running_average: overrides the attribute.
          mask: broadcasts against x. Elements where it is 0 or False do not count in
            the statistics; they are still normalised. For a mask of rows, add the
            feature axis: mask[..., None].

        Returns:
          Array of x's shape.

        Raises:
          TypeError: x is not floating point and no `dtype` is given.
          ValueError: x does not have num_features features or has no row, an axis is
            out of range, the mask does not fit, or nothing says whether to use the
            running averages.
        """
        if use_running_average is None:
            use_running_average = self.use_running_average
        if use_running_average is None:
            raise ValueError(
                "BatchNorm: use_running_average is not set; give it to the constructor "
                "or to the call, or use model.train(), model.eval() or nnx.view"
            )
        x = jnp.asarray(x)
        mean, var = self.mean[...], self.var[...]
        scale, bias = _value(self.scale), _value(self.bias)
        if self.promote_dtype is not None:
            x, mean, var, scale, bias = self.promote_dtype(
                (x, mean, var, scale, bias), dtype=self.dtype
            )
        compute_dtype, result_dtype = module_dtypes("BatchNorm", x, self.dtype)
        # Eq. 2: the statistics run over all axes that are no feature axes.
        feature_axes = canonical_axes("BatchNorm: axis", self.axis, x)
        reduction_axes = tuple(i for i in range(x.ndim) if i not in feature_axes)
        _check_features("BatchNorm", self.num_features, x, feature_axes)
        row_shape = tuple(
            x.shape[axis] if axis in feature_axes else 1 for axis in range(x.ndim)
        )

        wide = x.astype(compute_dtype)
        if use_running_average:
            var = var.reshape(row_shape)
            # Test time: [H] becomes [1, ..., H], which broadcasts against x.
            centred = wide - mean.reshape(row_shape)
        else:
            mean, var, count, centred = moments(
                wide,
                reduction_axes,
                mask=mask,
                unbiased=self.unbiased,
                axis_name=self.axis_name,
                axis_index_groups=self.axis_index_groups,
            )
            # Training also moves the running averages.
            for running, new in ((self.mean, mean), (self.var, var)):
                old = running[...]
                new = new.reshape(old.shape)
                # Where a mask left nothing, mean and variance are 0 and say nothing.
                seen = jnp.broadcast_to(count > 0, row_shape).reshape(old.shape)
                moved = running_average(old, new, self.momentum)
                running[...] = jnp.where(seen, moved, old)

        y = normalize(
            centred,
            var,
            scale,
            bias,
            feature_axes=feature_axes,
            epsilon=self.epsilon,
        )
        return y.astype(result_dtype)

    def set_view(self, use_running_average: bool | None = None):
        """Set the attributes that `nnx.view` was given.

        Args:
          use_running_average: if True, the running averages are used in place of the
            batch's statistics.
        """
        if use_running_average is not None:
            self.use_running_average = use_running_average


def _value(variable):
    return None if variable is None else variable[...]


def _static(sizes):
    """Return a number as it is, and a sequence as a tuple, which can be hashed."""
    return tuple(sizes) if isinstance(sizes, Iterable) else sizes


def _static_groups(groups):
    return None if groups is None else tuple(tuple(group) for group in groups)


def _shape(num_features):
    sizes = _static(num_features)
    return sizes if isinstance(sizes, tuple) else (sizes,)


def _check_features(name, num_features, x, feature_axes):
    """Refuse an x whose feature axes have other sizes than num_features says."""
    sizes = tuple(x.shape[axis] for axis in feature_axes)
    if isinstance(num_features, tuple):
        fits = sizes == num_features
    else:
        # One number stands for the product of the sizes.
        fits = math.prod(sizes) == num_features
    if not fits:
        raise ValueError(
            f"{name}: num_features is {num_features}, but x {x.shape} has {sizes} "
            f"along its feature axes {feature_axes}"
        )
