"""LayerNorm, RMSNorm and BatchNorm with the arguments of flax.linen's modules.

`lnrepro.functional.flax_norms` lists the differences from Flax. While a module
initialises, the axis of `axis_name` need not exist.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro.functional import flax_norms
from lnrepro.functional.moments import canonical_axes

DTypeLike = jax.typing.DTypeLike
Initializer = nn.initializers.Initializer


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
      use_fast_variance: accepted as Flax does, and ignored.
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
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Initializer = nn.initializers.zeros
    scale_init: Initializer = nn.initializers.ones
    reduction_axes: flax_norms.Axes = -1
    feature_axes: flax_norms.Axes = -1
    axis_name: flax_norms.AxisName = None
    axis_index_groups: flax_norms.Groups | None = None
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
        return _normalize_cases(self, x, mask, self.use_bias, subtract_mean=True)


class RMSNorm(nn.Module):
    """RMS norm of x [..., H]: x over its root mean square, times a scale.

    Parameter: "scale" [H]. See `lnrepro.functional.rms_norm`. Attributes are those of
    `LayerNorm` but the bias; the mean square takes the place of the variance.

    >>> x = jnp.array([[3.0, -3.0]])
    >>> layer = RMSNorm()
    >>> variables = layer.init(jax.random.key(0), x)
    >>> layer.apply(variables, x).round(3)
    Array([[ 1., -1.]], dtype=float32)
    """

    epsilon: float = 1e-5
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    use_scale: bool = True
    scale_init: Initializer = nn.initializers.ones
    reduction_axes: flax_norms.Axes = -1
    feature_axes: flax_norms.Axes = -1
    axis_name: flax_norms.AxisName = None
    axis_index_groups: flax_norms.Groups | None = None
    use_fast_variance: bool = False
    force_float32_reductions: bool = True

    @nn.compact
    def __call__(self, x: jax.Array, *, mask: jax.Array | None = None) -> jax.Array:
        """Normalise x [..., H] by the elements that a mask leaves, as `LayerNorm`."""
        return _normalize_cases(self, x, mask, use_bias=False, subtract_mean=False)


class BatchNorm(nn.Module):
    """Batch norm of x [..., H] per feature over all other axes (eq. 2).

    Parameters: "scale" and "bias", [H] each. Running averages: "mean" and "var" [H] in
    the collection "batch_stats". See `lnrepro.functional.batch_norm`.

    Attributes are those of `LayerNorm`, with `axis` in place of reduction_axes and
    feature_axes, and these:

    Attributes:
      use_running_average: True normalises by the running averages (test time), False by
        the batch (training). It is given here or in the call.
      axis: the feature axis of x, or several.
      momentum: weight of the old value in the running averages,
        momentum * running + (1 - momentum) * batch.
      axis_name: mapped axes over which the batch is spread. Without it each device of a
        pmap normalises by its own rows.
      force_float32_reductions: False keeps the running averages in param_dtype.
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
    axis: flax_norms.Axes = -1
    momentum: float = 0.99
    epsilon: float = 1e-5
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Initializer = nn.initializers.zeros
    scale_init: Initializer = nn.initializers.ones
    axis_name: flax_norms.AxisName = None
    axis_index_groups: flax_norms.Groups | None = None
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
          mask: as in `LayerNorm`. For a mask of rows, add the feature axis:
            mask[..., None].

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
        shape = _feature_shape("BatchNorm: axis", self.axis, x)
        dtype = jnp.float32 if self.force_float32_reductions else self.param_dtype
        # Mean 0 and variance 1 leave x as it is, but for epsilon.
        mean = self.variable("batch_stats", "mean", jnp.zeros, shape, dtype)
        var = self.variable("batch_stats", "var", jnp.ones, shape, dtype)
        y, running = flax_norms.normalize_batch(
            self,
            x,
            *_parameters(self, shape, self.use_bias),
            (mean.value, var.value),
            use_running_average,
            mask,
            _axis_name(self),
            force_float32_reductions=self.force_float32_reductions,
        )
        # The batch that init sees does not count in the running averages.
        if not use_running_average and not self.is_initializing():
            mean.value, var.value = running
        return y


def _normalize_cases(module, x, mask, use_bias, subtract_mean):
    """The call of LayerNorm and RMSNorm."""
    x = jnp.asarray(x)
    name = f"{type(module).__name__}: feature_axes"
    shape = _feature_shape(name, module.feature_axes, x)
    return flax_norms.normalize_cases(
        module,
        x,
        *_parameters(module, shape, use_bias),
        mask,
        _axis_name(module),
        subtract_mean=subtract_mean,
        force_float32_reductions=module.force_float32_reductions,
    )


def _feature_shape(name, axes, x):
    """The sizes of x along some axes, whose name is for messages."""
    return tuple(x.shape[axis] for axis in canonical_axes(name, axes, x))


def _parameters(module, shape, use_bias):
    """Scale and bias of a module, None where one is not used."""
    scale = bias = None
    if module.use_scale:
        scale = module.param("scale", module.scale_init, shape, module.param_dtype)
    if use_bias:
        bias = module.param("bias", module.bias_init, shape, module.param_dtype)
    return scale, bias


def _axis_name(module):
    # init may run outside of the mapped computation, where the axis does not exist.
    return None if module.is_initializing() else module.axis_name
