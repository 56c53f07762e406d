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
      options: `config.batch_norm`. Where it has "unbiased", the variance is divided by
        n - 1, in the normaliser and in the running average. The paper does so for
        batches of 4. Flax does not have this option.
    """

    options: ConfigDict

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """Normalise x [B, ..., H].

        Args:
          x: the summed inputs.
          train: normalise by the batch, and move the running averages. At test time,
            the running averages normalise.
        """
        options, shape = self.options, x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        # Mean 0 and variance 1 leave x as it is, but for epsilon.
        mean = self.variable("batch_stats", "mean", jnp.zeros, shape)
        var = self.variable("batch_stats", "var", jnp.ones, shape)
        y, statistics = functional.batch_norm(
            x,
            scale,
            bias,
            epsilon=options.eps,
            unbiased=options.get("unbiased", False),
            mean=None if train else mean.value,
            var=None if train else var.value,
        )
        # The batch that `init` sees does not count.
        if train and not self.is_initializing():
            for average, of_batch in zip((mean, var), statistics, strict=True):
                average.value = functional.running_average(
                    average.value, of_batch, options.momentum
                )
        return y
