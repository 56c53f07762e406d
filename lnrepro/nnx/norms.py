"""LayerNorm, RMSNorm and BatchNorm with the arguments of flax.nnx's modules.

They differ from Flax in the points that `lnrepro.functional.flax_norms` lists, and in
two more:

1. x must have `num_features` features. Flax broadcasts where one of the two is 1.
2. `promote_dtype` is None by default: neither x nor the parameters are rounded before
   the statistics are taken, and the result has x's dtype unless `dtype` is given. With
   `promote_dtype=flax.nnx.nn.dtypes.promote_dtype` dtypes are Flax's.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.typing import PromoteDtypeFn

from lnrepro.functional import flax_norms
from lnrepro.functional.cells.base import Initializer
from lnrepro.nnx.parameters import NO_METADATA, Metadata, init_key

DTypeLike = jax.typing.DTypeLike


@dataclasses.dataclass(eq=False, repr=False)
class Norm(nnx.Module):
    """The fields of all norms, and their scale."""

    num_features: int | Sequence[int]
    _: dataclasses.KW_ONLY
    epsilon: float = 1e-5
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    use_scale: bool = True
    scale_init: dataclasses.InitVar[Initializer] = nnx.initializers.ones
    axis_name: flax_norms.AxisName = None
    axis_index_groups: flax_norms.Groups | None = None
    use_fast_variance: bool = False
    promote_dtype: PromoteDtypeFn | None = None
    rngs: dataclasses.InitVar[nnx.Rngs]
    scale_metadata: dataclasses.InitVar[Metadata] = NO_METADATA

    def __post_init__(self, scale_init, rngs, scale_metadata):
        """Make the scale."""
        # Static attributes are hashed, so lists become tuples.
        for field in dataclasses.fields(self):
            setattr(self, field.name, _static(getattr(self, field.name)))
        self.scale = self._parameter(self.use_scale, scale_init, rngs, scale_metadata)
        self.bias = nnx.data(None)

    def _parameter(self, is_used, initializer, rngs, metadata):
        """A parameter; None, which `normalize` leaves out, where it is not used."""
        if not is_used:
            return nnx.data(None)
        value = initializer(init_key(self, rngs), self._shape(), self.param_dtype)
        return nnx.Param(value, **metadata)

    def _shape(self):
        """The shape of scale and bias."""
        sizes = self.num_features
        return sizes if isinstance(sizes, tuple) else (sizes,)

    def _promoted(self, x: jax.Array, *averages: jax.Array) -> Any:
        """x, averages, scale and bias as arrays, as promote_dtype casts them."""
        variables = (self.scale, self.bias)
        parameters = [None if v is None else v[...] for v in variables]
        arrays = (jnp.asarray(x), *averages, *parameters)
        if self.promote_dtype is None:
            return arrays
        return self.promote_dtype(arrays, dtype=self.dtype)


@dataclasses.dataclass(eq=False, repr=False)
class NormWithBias(Norm):
    """The fields of a norm with a bias."""

    _: dataclasses.KW_ONLY
    use_bias: bool = True
    bias_init: dataclasses.InitVar[Initializer] = nnx.initializers.zeros
    bias_metadata: dataclasses.InitVar[Metadata] = NO_METADATA

    def __post_init__(self, scale_init, rngs, scale_metadata, bias_init, bias_metadata):
        """Make the scale and the bias."""
        super().__post_init__(scale_init, rngs, scale_metadata)
        self.bias = self._parameter(self.use_bias, bias_init, rngs, bias_metadata)


@dataclasses.dataclass(eq=False, repr=False)
class LayerNorm(NormWithBias):
    """Layer norm of x [..., H] for each case by itself (eq. 3, 15 and 16).

    Parameters: `scale` (the paper's gain) and `bias`, [H] each. See
    `lnrepro.functional.layer_norm`.

    Arguments are the attributes of `lnrepro.linen.LayerNorm`, and these:

    Args:
      num_features: H, or the sizes of all feature axes. One number for several axes is
        their product.
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

    _: dataclasses.KW_ONLY
    reduction_axes: flax_norms.Axes = -1
    feature_axes: flax_norms.Axes = -1

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
          ValueError: num_features, an axis or the mask does not fit x.
        """
        x, scale, bias = self._promoted(x)
        flax_norms.check_features(self, "feature_axes", self.feature_axes, x)
        return flax_norms.normalize_cases(self, x, scale, bias, mask, self.axis_name)


@dataclasses.dataclass(eq=False, repr=False)
class RMSNorm(Norm):
    """RMS norm of x [..., H]: x over its root mean square, times a scale.

    Parameter: `scale` [H]. See `lnrepro.functional.rms_norm`. Arguments are those of
    `LayerNorm` but the bias; the mean square takes the place of the variance.

    >>> layer = RMSNorm(2, rngs=nnx.Rngs(0))
    >>> layer(jnp.array([[3.0, -3.0]])).round(3)
    Array([[ 1., -1.]], dtype=float32)
    """

    _: dataclasses.KW_ONLY
    reduction_axes: flax_norms.Axes = -1
    feature_axes: flax_norms.Axes = -1

    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        """Normalise x [..., H] by the elements that a mask leaves, as `LayerNorm`."""
        x, scale, _ = self._promoted(x)
        flax_norms.check_features(self, "feature_axes", self.feature_axes, x)
        return flax_norms.normalize_cases(
            self, x, scale, None, mask, self.axis_name, subtract_mean=False
        )


@dataclasses.dataclass(eq=False, repr=False)
class BatchNorm(NormWithBias):
    """Batch norm of x [..., H] per feature over all other axes (eq. 2).

    Parameters: `scale` and `bias`, [H] each. Running averages: `mean` and `var` [H].
    See `lnrepro.functional.batch_norm`.

    `model.train()` and `model.eval()` choose between the batch's statistics and the
    running averages, and so does `nnx.view(model, use_running_average=...)`.

    Arguments are the attributes of `lnrepro.linen.BatchNorm`, and those of `LayerNorm`
    that only nnx has. With use_running_average=None the call makes the choice.

    >>> layer = BatchNorm(1, momentum=0.5, rngs=nnx.Rngs(0))
    >>> layer(jnp.array([[1.0], [3.0]])).round(3).ravel(), layer.mean[...]
    (Array([-1.,  1.], dtype=float32), Array([1.], dtype=float32))
    """

    _: dataclasses.KW_ONLY
    use_running_average: bool | None = False
    axis: flax_norms.Axes = -1
    momentum: float = 0.99
    unbiased: bool = False

    def __post_init__(self, *parameters):
        """Make the parameters and the running averages."""
        super().__post_init__(*parameters)
        # Mean 0 and variance 1 leave x as it is, but for epsilon.
        self.mean = nnx.BatchStat(jnp.zeros(self._shape(), jnp.float32))
        self.var = nnx.BatchStat(jnp.ones(self._shape(), jnp.float32))

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
          mask: as in `LayerNorm`. For a mask of rows, add the feature axis:
            mask[..., None].

        Returns:
          Array of x's shape.

        Raises:
          TypeError: x is not floating point and no `dtype` is given.
          ValueError: as LayerNorm; x has no row, or use_running_average is not set.
        """
        if use_running_average is None:
            use_running_average = self.use_running_average
        if use_running_average is None:
            raise ValueError(
                "BatchNorm: use_running_average is not set; give it to the constructor "
                "or to the call, or use model.train(), model.eval() or nnx.view"
            )
        stored = self.mean[...], self.var[...]
        x, mean, var, scale, bias = self._promoted(x, *stored)
        flax_norms.check_features(self, "axis", self.axis, x)
        # The averages themselves are moved in their own dtype.
        averages = (mean, var) if use_running_average else stored
        y, running = flax_norms.normalize_batch(
            self, x, scale, bias, averages, use_running_average, mask, self.axis_name
        )
        if not use_running_average:
            self.mean[...], self.var[...] = running
        return y

    def set_view(self, use_running_average: bool | None = None):
        """Set the attribute that `nnx.view` was given.

        Args:
          use_running_average: if True, the running averages are used.
        """
        if use_running_average is not None:
            self.use_running_average = use_running_average


def _static(value):
    """Return a value with tuples in place of lists, which have no hash."""
    if isinstance(value, list | tuple):
        return tuple(_static(item) for item in value)
    return value
