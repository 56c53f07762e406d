"""DRAW in direct Flax: nn.scan over the glimpses, nn.OptimizedLSTMCell, nn.LayerNorm.

It has the equations of `experiments.draw`. Command:

    python scripts/bench.py train --config=configs/draw.py
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections

from scripts.benches.direct.cells_jax import LayerNormLSTMCell


class OutputNormLSTMCell(LayerNormLSTMCell):
    """LSTM cell with nn.LayerNorm in the output alone (eq. 29-31)."""

    @nn.compact
    def __call__(self, carry, x):
        """One step: carry (c, h), x [B, D]."""
        c, h = carry
        gates = nn.Dense(4 * self.features, use_bias=False, name="x")(x)
        gates += nn.Dense(4 * self.features, name="h")(h)
        return self.advance(c, gates)


def filter_bank(window, n: int, size: int):
    """Window parameters [B, 5] -> gamma [B], F_Y and F_X [B, n, size]."""
    gx, gy, log_var, log_delta, log_gamma = jnp.split(window, 5, axis=-1)
    # The grid of Gregor et al. (2015), section 3.2, as in `experiments.draw.attention`.
    delta = (size - 1) / (n - 1) * jnp.exp(log_delta)
    pixels = jnp.arange(size)
    banks = []
    for g in (gy, gx):
        centres = (
            (size + 1) / 2 * (g + 1) + (jnp.arange(n) - n / 2 + 0.5) * delta - 1
        )  # pixels counted from 0
        bank = jnp.exp(
            -((pixels - centres[..., None]) ** 2) / (2 * jnp.exp(log_var)[..., None])
        )
        # Each row of a filter bank sums to 1.
        banks.append(bank / jnp.maximum(bank.sum(-1, keepdims=True), 1e-8))
    return jnp.exp(log_gamma)[..., 0], *banks


class Glimpse(nn.Module):
    """One glimpse: read, encode, sample, decode, write."""

    config: ml_collections.ConfigDict
    norm: str

    @nn.compact
    def __call__(self, carry, noise, x):
        """Take (encoder, decoder, canvas), noise [B, Z], x [B, S S]; also return KL."""
        c = self.config
        encoder, decoder, canvas = carry
        size = c.image_size
        image, error = x, x - nn.sigmoid(canvas)
        if c.attention:
            gamma, fy, fx = filter_bank(
                nn.Dense(5, name="read")(decoder[1]), c.read_size, size
            )
            patches = [
                gamma[:, None]
                * jnp.einsum(
                    "bny,byx,bmx->bnm", fy, v.reshape(-1, size, size), fx
                ).reshape(len(v), -1)
                for v in (image, error)
            ]
        else:
            patches = [image, error]
        r = jnp.concatenate([*patches, decoder[1]], axis=-1)
        encoder, h = self.cell("encoder")(encoder, r)
        # q(z | x) is a normal distribution with mean mu and standard deviation
        # exp(log_s).
        mu, log_s = jnp.split(nn.Dense(2 * c.latents, name="latent")(h), 2, axis=-1)
        z = mu + jnp.exp(log_s) * noise
        kl = 0.5 * jnp.sum(mu**2 + jnp.exp(2 * log_s) - 2 * log_s - 1, axis=-1)
        decoder, h = self.cell("decoder")(decoder, z)
        if c.attention:
            gamma, fy, fx = filter_bank(
                nn.Dense(5, name="write_window")(h), c.write_size, size
            )
            w = nn.Dense(c.write_size**2, name="write_patch")(h).reshape(
                -1, c.write_size, c.write_size
            )
            canvas = canvas + (
                jnp.einsum("bny,bnm,bmx->byx", fy, w, fx) / gamma[:, None, None]
            ).reshape(canvas.shape)
        else:
            canvas = canvas + nn.Dense(size * size, name="write_patch")(h)
        return (encoder, decoder, canvas), kl

    def cell(self, name: str) -> nn.Module:
        """Return the recurrent cell of `config.norm`."""
        units = self.config.units
        cells = {"none": nn.OptimizedLSTMCell, "layer": LayerNormLSTMCell}
        return cells.get(self.norm, OutputNormLSTMCell)(units, name=name)


class Draw(nn.Module):
    """Mean bound in nats per image, of binary x [B, 784] and noise [G, B, Z]."""

    config: ml_collections.ConfigDict
    norm: str

    @nn.compact
    def __call__(self, x, noise):
        """Return the bound."""
        rows, units = len(x), self.config.units
        state = (jnp.zeros((rows, units)), jnp.zeros((rows, units)))
        # One set of parameters for all glimpses. The noise is scanned over, the images
        # are not.
        scan = nn.scan(
            Glimpse,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=(0, nn.broadcast),
            out_axes=0,
        )
        (_, _, canvas), kl = scan(self.config, self.norm)(
            (state, state, jnp.zeros_like(x)), noise, x
        )
        # L_x + L_z of Gregor et al. (2015), as in `experiments.draw.model`.
        reconstruction = jnp.sum(nn.softplus(canvas) - x * canvas, axis=-1)
        return jnp.mean(reconstruction + kl.sum(0))


def make(config: ml_collections.ConfigDict):
    """Return init(key) -> params and loss(params, batch, key) -> scalar."""
    sizes = config.model
    model = Draw(sizes, config.norm)

    def noise(key, rows):
        return jax.random.normal(key, (sizes.glimpses, rows, sizes.latents))

    def init(key):
        return model.init(key, jnp.zeros((1, sizes.image_size**2)), noise(key, 1))

    def loss(params, batch, key):
        x = batch["image"].reshape(len(batch["image"]), -1).astype(jnp.float32)
        return model.apply(params, x, noise(key, len(x)))

    return init, loss
