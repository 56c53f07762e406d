"""Normalised cells of other libraries in Flax, as its users write them.

Each is one step with nn.Dense and nn.LayerNorm or nn.RMSNorm, to be run by nn.RNN.

Shape letters: B batch, D input features, H hidden units, K units of an input layer.
"""

import flax.linen as nn
import jax.numpy as jnp

from scripts.benches.direct.cells_jax import LayerNormGRUCell, LayerNormLSTMCell


class RNNTLSTMCell(LayerNormLSTMCell):
    """LSTM of speech transducers: one norm of the sum, c carried normalised."""

    @nn.compact
    def __call__(self, carry, x):
        """One step: carry (c, h), each [B, H], and x [B, D]."""
        c, h = carry
        gates = nn.LayerNorm(1e-5, name="norm")(sum(self.products(x, h)))
        return self.advance(c, jnp.split(gates, 4, -1))

    def advance(self, c, gates):
        """Return carry and output after the four gates, [B, H] each."""
        f, i, o, g = gates
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        c = nn.LayerNorm(1e-5, name="norm_c")(c)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (c, h), h


class RMSLSTMCell(RNNTLSTMCell):
    """LSTM of eq. 20-22 with RMS norm in place of layer norm."""

    @nn.compact
    def __call__(self, carry, x):
        """One step: carry (c, h), each [B, H], and x [B, D]."""
        c, h = carry
        x_proj, h_proj = self.products(x, h)
        gates = nn.RMSNorm(1e-5, name="norm_x")(x_proj)
        gates += nn.RMSNorm(1e-5, name="norm_h")(h_proj)
        gates += self.param("bias", nn.initializers.zeros, (4 * self.features,))
        f, i, o, g = jnp.split(gates, 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(nn.RMSNorm(1e-5, name="norm_c")(c))
        return (c, h), h


class DreamerGRUCell(LayerNormGRUCell):
    """GRU of DreamerV2: one dense layer of [x; h], one norm."""

    @nn.compact
    def __call__(self, h, x):
        """One step: carry h [B, H], x [B, D]."""
        a = nn.Dense(3 * self.features)(jnp.concatenate([x, h], -1))
        r, n, u = jnp.split(nn.LayerNorm(1e-5)(a), 3, -1)
        return self.advance(h, r, n, u)

    def advance(self, h, r, n, u):
        """Return carry and output after the three gates, [B, H] each."""
        n = jnp.tanh(nn.sigmoid(r) * n)
        u = nn.sigmoid(u - 1)
        h = u * n + (1 - u) * h
        return h, h


class DreamerBlockGRUCell(DreamerGRUCell):
    """GRU of DreamerV3 with 8 blocks, whose input has one part.

    A block-diagonal layer is nn.Dense of each block, made by nn.vmap.
    """

    blocks: int = 8

    @nn.compact
    def __call__(self, h, x):
        """One step: carry h [B, H], x [B, D]."""
        size = self.features // self.blocks
        dense = nn.vmap(
            nn.Dense,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=-2,
            out_axes=-2,
        )
        layers = []
        for k, part in enumerate((h, x)):
            y = nn.Dense(size * 4, name=f"in{k}")(part)
            layers.append(nn.silu(nn.RMSNorm(1e-4, name=f"norm{k}")(y)))
        y = jnp.concatenate(layers, -1)[..., None, :]
        y = jnp.broadcast_to(y, (*y.shape[:-2], self.blocks, y.shape[-1]))
        parts = h.reshape(*h.shape[:-1], self.blocks, size)
        hidden = dense(size, name="hidden")(jnp.concatenate([parts, y], -1))
        hidden = hidden.reshape(h.shape)
        hidden = nn.silu(nn.RMSNorm(1e-4, name="norm_hidden")(hidden))
        gates = dense(3 * size, name="gates")(hidden.reshape(parts.shape))
        r, n, u = (part.reshape(h.shape) for part in jnp.split(gates, 3, -1))
        return self.advance(h, r, n, u)
