"""Batch norm of MNIST and the ConvNets, whose variance may divide by n - 1.

Shape letters: B batch, H features.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

from lnrepro import functional


class BatchNorm(nn.Module):
    """Batch norm of x [B, ..., H] per feature over all other axes (eq. 2).

    Parameters: "scale" and "bias", [H] each. Running averages: "mean" and "var" [H] in
    the collection "batch_stats".

    Attributes:
      use_running_average: True normalises by the running averages (test time), False by
        the batch (training), which also moves the running averages.
      momentum: weight of the old value in the running averages.
      epsilon: added to the variance under the root.
      unbiased: divide the variance by n - 1, in the normaliser and in the running
        average. The paper does so for batches of 4. Flax does not have this option.
    """

    use_running_average: bool
    momentum: float
    epsilon: float
    unbiased: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise x [B, ..., H]."""
        shape = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        # Mean 0 and variance 1 leave x as it is, but for epsilon.
        mean = self.variable("batch_stats", "mean", jnp.zeros, shape)
        var = self.variable("batch_stats", "var", jnp.ones, shape)
        is_test = self.use_running_average
        y, (batch_mean, batch_var) = functional.batch_norm(
            x,
            scale,
            bias,
            epsilon=self.epsilon,
            unbiased=self.unbiased,
            mean=mean.value if is_test else None,
            var=var.value if is_test else None,
        )
        # The batch that `init` sees does not count.
        if not is_test and not self.is_initializing():
            mean.value = functional.running_average(
                mean.value, batch_mean, self.momentum
            )
            var.value = functional.running_average(var.value, batch_var, self.momentum)
        return y


def batch_norm(x: jax.Array, train: bool, options: ConfigDict) -> jax.Array:
    """Add a `BatchNorm` to the module that calls this, and normalise x [B, ..., H].

    Args:
      x: the summed inputs.
      train: use the statistics of the batch, and update the running statistics.
      options: `config.batch_norm`.
    """
    norm = BatchNorm(
        use_running_average=not train,
        momentum=options.momentum,
        epsilon=options.eps,
        unbiased=options.get("unbiased", False),
    )
    return norm(x)
