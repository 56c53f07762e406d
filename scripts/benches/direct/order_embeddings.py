"""Order-embeddings in direct Flax: nn.RNN, a GRU cell with nn.LayerNorm.

It has the equations of `experiments.order_embeddings`, on the same batch, whose
captions are padded to one length. All pairs are compared at once. Command:

    python scripts/bench.py train --config=configs/order_embeddings.py:paper
"""

import flax.linen as nn
import jax.numpy as jnp
import ml_collections

from scripts.benches.direct.cells_jax import LayerNormGRUCell


class OrderEmbeddings(nn.Module):
    """Ranking loss of images [B, D] and captions [B, T] with lengths [B]."""

    config: ml_collections.ConfigDict

    @nn.compact
    def __call__(self, features, tokens, length):
        """Return the loss."""
        c = self.config
        x = nn.Embed(c.data.vocabulary, c.model.words)(tokens)
        cell = LayerNormGRUCell(c.model.units, c.norm == "layer")
        s, _ = nn.RNN(cell, return_carry=True)(x, seq_lengths=length)
        im = nn.Dense(c.model.units)(features)
        s, im = (
            jnp.abs(v / jnp.linalg.norm(v, axis=-1, keepdims=True)) for v in (s, im)
        )
        # [B, B]: row i is caption i, column j is image j. In between it is [B, B, K].
        errors = jnp.sum(jnp.maximum(s[:, None, :] - im[None, :, :], 0) ** 2, axis=-1)
        own = jnp.diag(errors)
        cost = nn.relu(c.margin - errors + own[:, None]) + nn.relu(
            c.margin - errors + own[None, :]
        )
        # A pair is no negative of itself.
        return jnp.sum(cost * (1 - jnp.eye(len(errors))))


def make(config: ml_collections.ConfigDict):
    """Return init(key) -> params and loss(params, batch, key) -> scalar."""
    network = OrderEmbeddings(config)

    def init(key):
        # Zero features have no direction, and their norm is 0.
        one = jnp.zeros((2, config.model.features)).at[:, 0].set(1.0)
        return network.init(key, one, jnp.ones((2, 3), int), jnp.array([3, 2]))

    def loss(params, batch, key):
        del key
        rows = len(
            batch["length"]
        )  # of the parts of a packed batch, each lacks the rows that have ended
        parts = [
            jnp.pad(part, ((0, rows - len(part)), (0, 0))) for part in batch["tokens"]
        ]
        return network.apply(
            params, batch["image"], jnp.concatenate(parts, axis=1), batch["length"]
        )

    return init, loss
