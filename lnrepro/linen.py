"""flax.linen faces of `lnrepro.functional`: the same functions, with Flax's argument names, parameters in "params",
running averages in "batch_stats"."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro.functional import norms


class LayerNorm(nn.Module):
    """Layer normalisation of x (..., H) for each case by itself (eq. 3): parameters "scale" (the paper's gain, starts
    at 1) and "bias" (starts at 0).

    Unlike flax.linen.LayerNorm, epsilon is 1e-5 as in the authors' code, the variance is taken in two passes, and the
    result has x's dtype unless `dtype` says otherwise. For a convolution's output (B, height, width, C) with
    statistics over the whole case: `LayerNorm(reduction_axes=(-3, -2, -1))`.

    Attributes:
      epsilon: added to the variance under the root.
      dtype: dtype of the result; None means x's. Statistics are in float32 at least.
      param_dtype: dtype of the parameters.
      use_bias, use_scale: whether there is a bias and a gain.
      bias_init, scale_init: their initialisers.
      reduction_axes: axes over which mean and variance are taken.
      feature_axes: those of the reduction axes along which gain and bias vary.
    """

    epsilon: float = 1e-5
    dtype: jax.typing.DTypeLike | None = None
    param_dtype: jax.typing.DTypeLike = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: nn.initializers.Initializer = nn.initializers.zeros
    scale_init: nn.initializers.Initializer = nn.initializers.ones
    reduction_axes: int | Sequence[int] = -1
    feature_axes: int | Sequence[int] = -1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise x (..., H); raises TypeError for integers and ValueError for axes that do not fit."""
        x = jnp.asarray(x)
        reduced, featured = _axes(self.reduction_axes, x), _axes(self.feature_axes, x)
        if not set(featured) <= set(reduced):
            raise ValueError(
                f"LayerNorm: feature_axes={self.feature_axes} must be among reduction_axes={self.reduction_axes}"
            )
        stored = tuple(x.shape[a] for a in featured)
        spread = tuple(x.shape[a] if a in featured else 1 for a in reduced)
        gain = (
            self.param("scale", self.scale_init, stored, self.param_dtype).reshape(spread) if self.use_scale else None
        )
        bias = self.param("bias", self.bias_init, stored, self.param_dtype).reshape(spread) if self.use_bias else None
        dtype = x.dtype if self.dtype is None else self.dtype
        wide = x.astype(jnp.promote_types(x.dtype, dtype))
        return norms.layer_norm(wide, gain, bias, axis=reduced, eps=self.epsilon).astype(dtype)


class BatchNorm(nn.Module):
    """Batch normalisation of x (..., H) per feature over all other axes (eq. 2): parameters "scale", "bias"; running
    "mean", "var" in "batch_stats".

    Attributes:
      use_running_average: normalise by the running averages (test time) or by the batch (training); here or in the
        call.
      momentum: running <- momentum * running + (1 - momentum) * batch.
      epsilon: added to the variance under the root.
      unbiased: divide by n - 1, in the normaliser and in the running variance (the paper does so for batches of 4).
      axis_name: mapped axes over which the batch is spread; without it each device of a pmap normalises by its own
        rows.
      dtype, param_dtype, use_bias, use_scale, bias_init, scale_init: as in LayerNorm.
    """

    use_running_average: bool | None = None
    momentum: float = 0.99
    epsilon: float = 1e-5
    unbiased: bool = False
    dtype: jax.typing.DTypeLike | None = None
    param_dtype: jax.typing.DTypeLike = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: nn.initializers.Initializer = nn.initializers.zeros
    scale_init: nn.initializers.Initializer = nn.initializers.ones
    axis_name: str | tuple[str, ...] | None = None

    @nn.compact
    def __call__(
        self, x: jax.Array, use_running_average: bool | None = None, *, mask: jax.Array | None = None
    ) -> jax.Array:
        """Normalise x (..., H); mask broadcasts against x.shape[:-1] and rows where it is 0 do not enter the
        statistics."""
        running_only = nn.merge_param("use_running_average", self.use_running_average, use_running_average)
        x = jnp.asarray(x)
        features = x.shape[-1:]
        mean = self.variable("batch_stats", "mean", jnp.zeros, features, jnp.float32)
        var = self.variable("batch_stats", "var", jnp.ones, features, jnp.float32)
        gain = self.param("scale", self.scale_init, features, self.param_dtype) if self.use_scale else None
        bias = self.param("bias", self.bias_init, features, self.param_dtype) if self.use_bias else None
        dtype = x.dtype if self.dtype is None else self.dtype
        x = x.astype(jnp.promote_types(x.dtype, dtype))
        if running_only:
            return norms.batch_norm(x, gain, bias, eps=self.epsilon, mean=mean.value, var=var.value)[0].astype(dtype)
        across = None if self.is_initializing() else self.axis_name
        y, batch = norms.batch_norm(
            x, gain, bias, mask=mask, eps=self.epsilon, unbiased=self.unbiased, axis_name=across
        )
        if not self.is_initializing():
            for running, new in zip((mean, var), batch, strict=True):
                running.value = norms.running_average(running.value, new, self.momentum, mask=mask, axis_name=across)
        return y.astype(dtype)


def _axes(axes, x):
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    if any(not -x.ndim <= a < x.ndim for a in given):
        raise ValueError(f"axes {axes} are out of range for x of shape {x.shape}")
    return tuple(sorted(a % x.ndim for a in given))
