"""Layer norm as a flax.nnx module."""

import jax
import jax.numpy as jnp
from flax import nnx

from lnrepro.flax_modules import DTypeLike, layer_norm_as
from lnrepro.functional.cells.base import Initializer


class LayerNorm(nnx.Module):
    """Layer norm of x [..., H] for each case by itself (eq. 3, 15 and 16).

    Parameters: `scale` (the paper's gain) and `bias`, [H] each. See
    `lnrepro.functional.layer_norm`.

    >>> layer = LayerNorm(2, rngs=nnx.Rngs(0))
    >>> layer(jnp.array([[1.0, 3.0], [2.0, 6.0]])).round(3)
    Array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        num_features: int,
        *,
        epsilon: float = 1e-5,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Initializer = nnx.initializers.zeros,
        scale_init: Initializer = nnx.initializers.ones,
        rngs: nnx.Rngs,
    ):
        """Draw the parameters.

        Args:
          num_features: H.
          epsilon: added to the variance under the root. Flax has 1e-6.
          dtype: dtype of the result. None means x's; Flax promotes with the
            parameters'.
          param_dtype: dtype of the parameters.
          use_bias: whether there is a bias.
          use_scale: whether there is a scale.
          bias_init: initialiser of the bias.
          scale_init: initialiser of the scale.
          rngs: keys for the initialisers, of the stream "params".
        """
        self.num_features, self.epsilon, self.dtype = num_features, epsilon, dtype
        self.scale = self.bias = nnx.data(None)
        shape = (num_features,)
        if use_scale:
            self.scale = nnx.Param(scale_init(rngs.params(), shape, param_dtype))
        if use_bias:
            self.bias = nnx.Param(bias_init(rngs.params(), shape, param_dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise x [..., H].

        Raises:
          TypeError: x is not floating point and no `dtype` is given.
          ValueError: x has another number of features.
        """
        x = jnp.asarray(x)
        if x.shape[-1:] != (self.num_features,):
            raise ValueError(
                f"LayerNorm: num_features is {self.num_features}, but x has the shape "
                f"{x.shape}"
            )
        scale, bias = (None if p is None else p[...] for p in (self.scale, self.bias))
        return layer_norm_as(self.dtype, x, scale, bias, self.epsilon)
