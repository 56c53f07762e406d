"""Layer norm as a flax.linen module."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro.flax_modules import DTypeLike, layer_norm_as

Initializer = nn.initializers.Initializer


class LayerNorm(nn.Module):
    """Layer norm of x [..., H] for each case by itself (eq. 3, 15 and 16).

    Parameters: "scale" (the paper's gain) and "bias", [H] each. See
    `lnrepro.functional.layer_norm`.

    Attributes:
      epsilon: added to the variance under the root. Flax has 1e-6.
      dtype: dtype of the result. None means x's; Flax promotes with the parameters'.
      param_dtype: dtype of the parameters.
      use_bias: whether there is a bias.
      use_scale: whether there is a scale.
      bias_init: initialiser of the bias.
      scale_init: initialiser of the scale.

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

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise x [..., H].

        Raises:
          TypeError: x is not floating point and no `dtype` is given.
        """
        x = jnp.asarray(x)
        shape, scale, bias = x.shape[-1:], None, None
        if self.use_scale:
            scale = self.param("scale", self.scale_init, shape, self.param_dtype)
        if self.use_bias:
            bias = self.param("bias", self.bias_init, shape, self.param_dtype)
        return layer_norm_as(self.dtype, x, scale, bias, self.epsilon)
