"""flax.nnx faces of `lnrepro.functional`: the same functions and parameter names as `lnrepro.linen`, with nnx's way of
holding state."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from lnrepro.functional import norms


class LayerNorm(nnx.Module):
    """Layer normalisation of x (..., H) for each case by itself (eq. 3): `scale` (the paper's gain, starts at 1) and
    `bias` (starts at 0).

    Args are flax.nnx.LayerNorm's: `num_features` is H, or the shape of the normalised axes if there are several
    (`reduction_axes`). epsilon is 1e-5 as in the authors' code, and the result has x's dtype unless `dtype` says
    otherwise. See lnrepro.linen.LayerNorm.
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
        bias_init: nnx.initializers.Initializer = nnx.initializers.zeros,
        scale_init: nnx.initializers.Initializer = nnx.initializers.ones,
        reduction_axes: int | Sequence[int] = -1,
        rngs: nnx.Rngs,
    ):
        shape = (num_features,) if isinstance(num_features, int) else tuple(num_features)
        self.scale = nnx.Param(scale_init(rngs.params(), shape, param_dtype)) if use_scale else nnx.data(None)
        self.bias = nnx.Param(bias_init(rngs.params(), shape, param_dtype)) if use_bias else nnx.data(None)
        self.epsilon, self.dtype = epsilon, dtype
        self.reduction_axes = reduction_axes if isinstance(reduction_axes, int) else tuple(reduction_axes)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise x (..., H); raises TypeError for integers and ValueError where `num_features` does not fit."""
        x = jnp.asarray(x)
        dtype = x.dtype if self.dtype is None else self.dtype
        wide = x.astype(jnp.promote_types(x.dtype, dtype))
        return norms.layer_norm(
            wide, _value(self.scale), _value(self.bias), axis=self.reduction_axes, eps=self.epsilon
        ).astype(dtype)


class BatchNorm(nnx.Module):
    """Batch normalisation of x (..., H) per feature over all other axes (eq. 2): `scale`, `bias`, and the running
    `mean` and `var`.

    `model.train()` and `model.eval()` choose between the batch's statistics and the running averages. See
    lnrepro.linen.BatchNorm for the options.
    """

    def __init__(
        self,
        num_features: int,
        *,
        use_running_average: bool = False,
        momentum: float = 0.99,
        epsilon: float = 1e-5,
        unbiased: bool = False,
        dtype: jax.typing.DTypeLike | None = None,
        param_dtype: jax.typing.DTypeLike = jnp.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: nnx.initializers.Initializer = nnx.initializers.zeros,
        scale_init: nnx.initializers.Initializer = nnx.initializers.ones,
        axis_name: str | tuple[str, ...] | None = None,
        rngs: nnx.Rngs,
    ):
        shape = (num_features,)
        self.scale = nnx.Param(scale_init(rngs.params(), shape, param_dtype)) if use_scale else nnx.data(None)
        self.bias = nnx.Param(bias_init(rngs.params(), shape, param_dtype)) if use_bias else nnx.data(None)
        self.mean = nnx.BatchStat(jnp.zeros(shape, jnp.float32))
        self.var = nnx.BatchStat(jnp.ones(shape, jnp.float32))
        self.use_running_average, self.momentum, self.epsilon = use_running_average, momentum, epsilon
        self.unbiased, self.dtype, self.axis_name = unbiased, dtype, axis_name

    def __call__(
        self, x: jax.Array, use_running_average: bool | None = None, *, mask: jax.Array | None = None
    ) -> jax.Array:
        """Normalise x (..., H); mask broadcasts against x.shape[:-1] and rows where it is 0 do not enter the
        statistics."""
        x = jnp.asarray(x)
        dtype = x.dtype if self.dtype is None else self.dtype
        x = x.astype(jnp.promote_types(x.dtype, dtype))
        gain, bias = _value(self.scale), _value(self.bias)
        if self.use_running_average if use_running_average is None else use_running_average:
            return norms.batch_norm(x, gain, bias, eps=self.epsilon, mean=self.mean[...], var=self.var[...])[0].astype(
                dtype
            )
        y, batch = norms.batch_norm(
            x, gain, bias, mask=mask, eps=self.epsilon, unbiased=self.unbiased, axis_name=self.axis_name
        )
        for running, new in zip((self.mean, self.var), batch, strict=True):
            running[...] = norms.running_average(running[...], new, self.momentum, mask=mask, axis_name=self.axis_name)
        return y.astype(dtype)


def _value(variable):
    return None if variable is None else variable[...]
