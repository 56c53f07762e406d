"""LayerNorm, RMSNorm and BatchNorm with the arguments of flax.linen's modules.

All of them differ from Flax in these points:

1. Statistics are always taken in two passes, the mean first. `use_fast_variance` is
   accepted and ignored: E[x^2] - E[x]^2 loses the variance where the mean is large.
2. epsilon is 1e-5 as in the authors' code. Flax's LayerNorm and RMSNorm have 1e-6.
3. The result has x's dtype unless `dtype` is given. Flax promotes x's dtype with that
   of the parameters, so that bfloat16 inputs give float32.
4. Integers are refused unless `dtype` is given. An axis out of range, an empty axis and
   a mask that does not fit raise a ValueError that names the shapes.
5. With `axis_name`, every element counts the same, also where masks leave more elements
   on one device than on another. Flax averages the devices' means. While a module
   initialises, the mapped axis need not exist.
6. Where a mask leaves nothing, mean and variance are 0, and BatchNorm keeps its running
   averages. Flax gives NaN.
"""

from collections.abc import Sequence

import flax.linen as nn
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


class LayerNorm(nn.Module):
    """Layer norm of x [..., H] for each case by itself (eq. 3, 15 and 16).

    Parameters: "scale" (the paper's gain) and "bias", [H] each. See
    `lnrepro.functional.layer_norm`.

    For a convolution's output [B, height, width, C] with statistics over the whole case
    and parameters per channel: `LayerNorm(reduction_axes=(-3, -2, -1))`.

    Attributes:
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
      force_float32_reductions: compute in float32 at least. False computes in the dtype
        of x and of the result; sums are still taken in float32.

    >>> x = jnp.array([[1.0, 3.0], [2.0, 6.0]])
    >>> layer = LayerNorm()
    >>> variables = layer.init(jax.random.key(0), x)
    >>> jax.tree.map(jnp.shape, variables)
    {'params': {'bias': (2,), 'scale': (2,)}}
    >>> layer.apply(variables, x).round(3)
    Array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """

    epsilon: float = 1e-5
    dtype: jax.typing.DTypeLike | None = None
    param_dtype: jax.typing.DTypeLike = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: nn.initializers.Initializer = nn.initializers.zeros
    scale_init: nn.initializers.Initializer = nn.initializers.ones
    reduction_axes: Axes = -1
    feature_axes: Axes = -1
    axis_name: str | tuple[str, ...] | None = None
    axis_index_groups: Sequence[Sequence[int]] | None = None
    use_fast_variance: bool = False
    force_float32_reductions: bool = True

    @nn.compact
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
          ValueError: an axis is out of range or empty, or the mask does not fit.
        """
        x = jnp.asarray(x)
        compute_dtype, result_dtype = module_dtypes(
            "LayerNorm", x, self.dtype, self.force_float32_reductions
        )
        reduction_axes = canonical_axes(
            "LayerNorm: reduction_axes", self.reduction_axes, x
        )
        feature_axes = canonical_axes("LayerNorm: feature_axes", self.feature_axes, x)
        feature_shape = tuple(x.shape[axis] for axis in feature_axes)
        # float32 at least for the statistics and the normaliser, unless it is switched
        # off.
        wide = x.astype(compute_dtype)
        # init may run outside of the mapped computation, where the axis does not exist.
        _, var, _, centred = moments(
            wide,
            reduction_axes,
            mask=mask,
            axis_name=None if self.is_initializing() else self.axis_name,
            axis_index_groups=self.axis_index_groups,
        )

        scale, bias = None, None
        if self.use_scale:
            scale = self.param(
                "scale", self.scale_init, feature_shape, self.param_dtype
            )
        if self.use_bias:
            bias = self.param("bias", self.bias_init, feature_shape, self.param_dtype)
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


class RMSNorm(nn.Module):
    """RMS norm of x [..., H]: x over its root mean square, times a scale.

    Parameter: "scale" [H]. See `lnrepro.functional.rms_norm`.

    Attributes:
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
      force_float32_reductions: compute in float32 at least. False computes in the dtype
        of x and of the result; sums are still taken in float32.

    >>> x = jnp.array([[3.0, -3.0]])
    >>> layer = RMSNorm()
    >>> variables = layer.init(jax.random.key(0), x)
    >>> layer.apply(variables, x).round(3)
    Array([[ 1., -1.]], dtype=float32)
    """

    epsilon: float = 1e-5
    dtype: jax.typing.DTypeLike | None = None
    param_dtype: jax.typing.DTypeLike = jnp.float32
    use_scale: bool = True
    scale_init: nn.initializers.Initializer = nn.initializers.ones
    reduction_axes: Axes = -1
    feature_axes: Axes = -1
    axis_name: str | tuple[str, ...] | None = None
    axis_index_groups: Sequence[Sequence[int]] | None = None
    use_fast_variance: bool = False
    force_float32_reductions: bool = True

    @nn.compact
    def __call__(self, x: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        """Normalise x.

        Args:
          x: array [..., H].
          mask: broadcasts against x. Elements where it is 0 or False do not count in
            the mean square; they are still normalised.

        Returns:
          Array of x's shape.

        Raises:
          TypeError: x is not floating point and no `dtype` is given.
          ValueError: an axis is out of range or empty, or the mask does not fit.
        """
        x = jnp.asarray(x)
        compute_dtype, result_dtype = module_dtypes(
            "RMSNorm", x, self.dtype, self.force_float32_reductions
        )
        reduction_axes = canonical_axes(
            "RMSNorm: reduction_axes", self.reduction_axes, x
        )
        feature_axes = canonical_axes("RMSNorm: feature_axes", self.feature_axes, x)
        feature_shape = tuple(x.shape[axis] for axis in feature_axes)
        wide = x.astype(compute_dtype)
        # Without subtracting the mean, `centred` is x and the second moment is its mean
        # square.
        _, mean_square, _, centred = moments(
            wide,
            reduction_axes,
            mask=mask,
            subtract_mean=False,
            axis_name=None if self.is_initializing() else self.axis_name,
            axis_index_groups=self.axis_index_groups,
        )

        scale = None
        if self.use_scale:
            scale = self.param(
                "scale", self.scale_init, feature_shape, self.param_dtype
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


class BatchNorm(nn.Module):
    """Batch norm of x [..., H] per feature over all other axes (eq. 2).

    Parameters: "scale" and "bias", [H] each. Running averages: "mean" and "var" [H] in
    the collection "batch_stats". See `lnrepro.functional.batch_norm`.

    Attributes:
      use_running_average: True normalises by the running averages (test time), False by
        the batch (training). It is given here or in the call.
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
      force_float32_reductions: compute in float32 at least, and keep the running
        averages in float32. False computes in the dtype of x and of the result, with
        running averages in param_dtype; sums are still taken in float32.
      unbiased: divide the variance by n - 1, in the normaliser and in the running
        average. The paper does so for batches of 4. Flax does not have this option.

    >>> x = jnp.array([[1.0], [3.0]])
    >>> layer = BatchNorm(momentum=0.5)
    >>> variables = layer.init(jax.random.key(0), x, use_running_average=False)
    >>> y, updates = layer.apply(
    ...     variables, x, use_running_average=False, mutable=["batch_stats"]
    ... )
    >>> y.round(3).ravel(), updates["batch_stats"]["mean"]
    (Array([-1.,  1.], dtype=float32), Array([1.], dtype=float32))
    """

    use_running_average: bool | None = None
    axis: Axes = -1
    momentum: float = 0.99
    epsilon: float = 1e-5
    dtype: jax.typing.DTypeLike | None = None
    param_dtype: jax.typing.DTypeLike = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: nn.initializers.Initializer = nn.initializers.zeros
    scale_init: nn.initializers.Initializer = nn.initializers.ones
    axis_name: str | tuple[str, ...] | None = None
    axis_index_groups: Sequence[Sequence[int]] | None = None
    use_fast_variance: bool = False
    force_float32_reductions: bool = True
    unbiased: bool = False

    @nn.compact
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
          use_running_average: see the attribute. It is given in one of the two places.
          mask: broadcasts against x. Elements where it is 0 or False do not count in
            the statistics; they are still normalised. For a mask of rows, add the
            feature axis: mask[..., None].

        Returns:
          Array of x's shape.

        Raises:
          TypeError: x is not floating point and no `dtype` is given.
          ValueError: an axis is out of range, x has no row, or the mask does not fit.
        """
        use_running_average = nn.merge_param(
            "use_running_average", self.use_running_average, use_running_average
        )
        x = jnp.asarray(x)
        compute_dtype, result_dtype = module_dtypes(
            "BatchNorm", x, self.dtype, self.force_float32_reductions
        )
        # Eq. 2: the statistics run over all axes that are no feature axes.
        feature_axes = canonical_axes("BatchNorm: axis", self.axis, x)
        reduction_axes = tuple(i for i in range(x.ndim) if i not in feature_axes)
        feature_shape = tuple(x.shape[axis] for axis in feature_axes)
        row_shape = tuple(
            x.shape[axis] if axis in feature_axes else 1 for axis in range(x.ndim)
        )
        running_dtype = (
            jnp.float32 if self.force_float32_reductions else self.param_dtype
        )
        # Mean 0 and variance 1 leave x as it is, but for epsilon.
        running_mean = self.variable(
            "batch_stats", "mean", jnp.zeros, feature_shape, running_dtype
        )
        running_var = self.variable(
            "batch_stats", "var", jnp.ones, feature_shape, running_dtype
        )

        wide = x.astype(compute_dtype)
        if use_running_average:
            # Test time: [H] becomes [1, ..., H], which broadcasts against x.
            mean = running_mean.value.reshape(row_shape)
            var = running_var.value.reshape(row_shape)
            centred = wide - mean
        else:
            mean, var, count, centred = moments(
                wide,
                reduction_axes,
                mask=mask,
                unbiased=self.unbiased,
                axis_name=None if self.is_initializing() else self.axis_name,
                axis_index_groups=self.axis_index_groups,
            )
            # The batch that init sees does not count in the running averages.
            if not self.is_initializing():
                for running, new in ((running_mean, mean), (running_var, var)):
                    old = running.value.reshape(row_shape)
                    moved = running_average(old, new, self.momentum)
                    # Where a mask left nothing, mean and variance are 0 and say
                    # nothing.
                    kept = jnp.where(count > 0, moved, old)
                    running.value = kept.reshape(feature_shape)

        scale, bias = None, None
        if self.use_scale:
            scale = self.param(
                "scale", self.scale_init, feature_shape, self.param_dtype
            )
        if self.use_bias:
            bias = self.param("bias", self.bias_init, feature_shape, self.param_dtype)
        y = normalize(
            centred,
            var,
            scale,
            bias,
            feature_axes=feature_axes,
            epsilon=self.epsilon,
        )
        return y.astype(result_dtype)
