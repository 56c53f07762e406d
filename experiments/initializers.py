"""Initialisers of parameters that JAX does not have."""

import jax
import jax.numpy as jnp


def uniform(scale: float) -> jax.nn.initializers.Initializer:
    """Return an initialiser that draws from [-scale, scale]."""

    def init(key, shape, dtype=jnp.float32):
        return jax.random.uniform(key, shape, dtype, -scale, scale)

    return init
