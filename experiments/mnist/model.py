"""The multi-layer perceptron of section 6.6.

Shape letters: B batch, D pixels of an image, K classes.
"""

import jax
from flax import linen as nn
from ml_collections import ConfigDict

from experiments.classification.batch_norm import BatchNorm
from lnrepro.linen import LayerNorm


class MLP(nn.Module):
    """Hidden layers with ReLU, then a linear layer.

    "layer" normalises the summed inputs of the hidden layers only, because the scale of
    the logits carries the confidence of the prediction (section 6.6). "batch"
    normalises every layer, the last one too. The bias of a normalised layer is the bias
    of its norm (eq. 5), so that each unit has one bias.

    Attributes:
      config: reads `norm`, `model`, `layer_norm` and `batch_norm`.
    """

    config: ConfigDict

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        """Compute logits [B, K] of pixels [B, D].

        Args:
          x: pixels, 0 to 1.
          train: use the statistics of the batch, and update the running statistics.
        """
        norm, model = self.config.norm, self.config.model
        for width in model.hidden:
            # Summed inputs [B, width], then their norm, then the non-linearity (eq. 5).
            x = nn.Dense(width, use_bias=norm == "none")(x)
            if norm == "layer":
                x = LayerNorm(epsilon=self.config.layer_norm.eps)(x)
            elif norm == "batch":
                x = BatchNorm(self.config.batch_norm)(x, train)
            x = nn.relu(x)
        # The logits: layer norm leaves them alone, batch norm brings its own bias.
        x = nn.Dense(model.classes, use_bias=norm != "batch")(x)
        return BatchNorm(self.config.batch_norm)(x, train) if norm == "batch" else x
