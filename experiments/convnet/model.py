"""The convolutional network.

Shape letters: B batch, H height, W width, K classes.
"""

import jax
from flax import linen as nn
from ml_collections import ConfigDict

from experiments.classification.batch_norm import BatchNorm

# Axes over which layer norm takes its statistics: "layer" takes the channels and
# positions of an image, as the paper does. "position" takes the channels at a position.
STATISTICS = {"layer": (-3, -2, -1), "position": (-1,)}


class ConvNet(nn.Module):
    """3x3 convolutions with ReLU, then a linear layer.

    `config.norm` normalises the summed inputs of every convolution, but not the logits.
    Batch norm takes statistics over images and positions, with one gain and one bias a
    channel. Layer norm takes them over `config.layer_norm.statistics`, with one gain
    and one bias a channel.

    The summed inputs of every convolution are sown as "sums", and the values after the
    norm as "normalised".

    Attributes:
      config: reads `norm`, `model`, `layer_norm` and `batch_norm`.
    """

    config: ConfigDict

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """Compute logits [B, K] of images [B, H, W].

        Args:
          x: pixels, 0 to 1.
          train: use the statistics of the batch, and update the running statistics.
        """
        norm, model = self.config.norm, self.config.model
        # One channel, [B, H, W, 1].
        x = x[..., None]
        for channels, stride in zip(model.channels, model.strides, strict=True):
            # A normalised layer has the bias of its norm (eq. 5), so the convolution
            # has none.
            x = nn.Conv(channels, (3, 3), strides=stride, use_bias=norm == "none")(x)
            self.sow("intermediates", "sums", x)
            if norm == "batch":
                x = BatchNorm(self.config.batch_norm)(x, train)
            elif norm == "layer":
                x = self._layer_norm(x)
            self.sow("intermediates", "normalised", x)
            x = nn.relu(x)
        # [B, H, W, C] -> [B, H W C] -> [B, K].
        return nn.Dense(model.classes)(x.reshape(x.shape[0], -1))

    def _layer_norm(self, x: jax.Array) -> jax.Array:
        options = self.config.layer_norm
        # Flax's norm takes several axes. Its fast variance, E[x^2] - E[x]^2, cancels.
        norm = nn.LayerNorm(
            epsilon=options.eps,
            reduction_axes=STATISTICS[options.statistics],
            use_fast_variance=False,
        )
        return norm(x)
