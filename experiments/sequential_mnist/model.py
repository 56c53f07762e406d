"""An LSTM over the pixels of an image.

Shape letters: B batch, T pixels of an image, E embedding, K classes.
"""

import jax
from flax import linen as nn
from ml_collections import ConfigDict

from lnrepro import functional
from lnrepro.linen import RNN


class PixelLSTM(nn.Module):
    """An embedding of each pixel, one LSTM layer, a linear layer on its last output.

    The LSTM does not take the pixels themselves, for two reasons. The norm of a product
    with a single number keeps only the number's sign. And the first 100 pixels of an
    image are 0: without a bias in the embedding, the state would stay exactly 0, where
    the derivative of a norm is 1 / sqrt(epsilon) = 316 in every step, so that the
    gradient overflows.

    Attributes:
      config: reads `norm` and `model`.
    """

    config: ConfigDict

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """Compute logits [B, K] of pixels [B, T].

        Args:
          x: pixels, 0 to 1, row by row.
          train: without effect; no norm of this network has running statistics.
        """
        del train
        model = self.config.model
        normal = nn.initializers.normal(1.0)
        embedding = nn.Dense(model.embedding, kernel_init=normal, bias_init=normal)
        x = embedding(x[..., None])
        cell = functional.LSTMCell(
            model.units, norm=self.config.norm, forget_bias=model.forget_bias
        )
        options = functional.ScanOptions(kernels=self.config.kernels)
        h = RNN(cell, options=options)(x)[:, -1]
        return nn.Dense(model.classes)(h)
