"""Handwriting synthesis in direct Flax.

One nn.scan over the steps contains all three LSTMs, the window and the output layer,
made of nn.Dense and nn.LayerNorm. It has the equations of `experiments.handwriting`.
Command:

    python scripts/bench.py train --config=configs/handwriting.py:paper
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections

from scripts.benches.direct.cells_jax import LayerNormLSTMCell


class Writer(nn.Module):
    """One pen step."""

    config: ml_collections.ConfigDict
    norm: str

    @nn.compact
    def __call__(self, carry, x, text):
        """Take a step.

        Args:
          carry: three (c, h), kappa and w.
          x: [B, 3].
          text: [B, U, V].

        Returns:
          The carry, and the parameters of the density [B, 1 + 6M].
        """
        m = self.config
        lstms, kappa, w = carry
        first, h1 = self.cell("lstm1")(lstms[0], jnp.concatenate([x, w], axis=-1))

        def bias(key, shape, dtype):
            values = jnp.array([0.0, 0.0, m.kappa_bias])
            return jnp.repeat(values, m.window_gaussians)

        # alpha, beta and the move of kappa are exponentials (Graves 2013, eq. 48-51).
        hats = nn.Dense(3 * m.window_gaussians, bias_init=bias, name="window")(h1)
        alpha, beta, move = jnp.split(jnp.exp(hats), 3, axis=-1)
        kappa = kappa + move
        # Characters count from 1.
        u = jnp.arange(1, text.shape[1] + 1)
        phi = jnp.sum(
            alpha[..., None] * jnp.exp(-beta[..., None] * (kappa[..., None] - u) ** 2),
            axis=1,
        )
        w = jnp.einsum("bu,buv->bv", phi, text)
        second, h2 = self.cell("lstm2")(lstms[1], jnp.concatenate([x, h1, w], axis=-1))
        third, h3 = self.cell("lstm3")(lstms[2], jnp.concatenate([x, h2, w], axis=-1))
        y = nn.Dense(1 + 6 * m.gaussians, name="output")(
            jnp.concatenate([h1, h2, h3], axis=-1)
        )
        return ((first, second, third), kappa, w), y

    def cell(self, name: str) -> nn.Module:
        """Return the recurrent cell of `config.norm`."""
        cell = nn.OptimizedLSTMCell if self.norm == "none" else LayerNormLSTMCell
        return cell(self.config.units, name=name)


class Handwriting(nn.Module):
    """Mean nats per sequence of steps [B, T, 3] with lengths [B] and text [B, U, V]."""

    config: ml_collections.ConfigDict
    norm: str

    @nn.compact
    def __call__(self, steps, lengths, text):
        """Return the loss."""
        m, rows = self.config, len(steps)
        first = jnp.broadcast_to(jnp.array([0.0, 0.0, 1.0]), (rows, 1, 3))
        x = jnp.concatenate([first, steps[:, :-1]], axis=1)
        zeros = jnp.zeros((rows, m.units))
        start = (
            ((zeros, zeros),) * 3,
            jnp.zeros((rows, m.window_gaussians)),
            jnp.zeros((rows, m.symbols)),
        )
        scan = nn.scan(
            Writer,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=(1, nn.broadcast),
            out_axes=1,
        )
        _, y = scan(m, self.norm)(start, x, text)
        # The 1 + 6 M numbers of the density: end of stroke, weights, means, log
        # deviations and correlations.
        e, pi, mu1, mu2, s1, s2, rho = jnp.split(
            y, [1, *(1 + m.gaussians * k for k in range(1, 6))], axis=-1
        )
        # |rho| = 1 would divide by zero. s1 and s2 are logarithms of standard
        # deviations, and exp(-9.2) is about 1e-4.
        rho = jnp.clip(jnp.tanh(rho), -0.9999, 0.9999)
        s1, s2 = jnp.maximum(s1, -9.2), jnp.maximum(s2, -9.2)
        a, b = (
            (steps[..., :1] - mu1) * jnp.exp(-s1),
            (steps[..., 1:2] - mu2) * jnp.exp(-s2),
        )
        z = (a**2 + b**2 - 2 * rho * a * b) / (1 - rho**2)
        log_normal = -z / 2 - jnp.log(2 * jnp.pi) - s1 - s2 - 0.5 * jnp.log(1 - rho**2)
        offset = nn.logsumexp(nn.log_softmax(pi) + log_normal, axis=-1)
        # -log(e) at the end of a stroke and -log(1 - e) elsewhere, where
        # e = 1 / (1 + exp(e^)).
        pen = nn.softplus(e[..., 0] * jnp.where(steps[..., 2] > 0.5, 1.0, -1.0))
        there = jnp.arange(steps.shape[1]) < lengths[:, None]
        return jnp.mean(jnp.sum(jnp.where(there, pen - offset, 0.0), axis=1))


def make(config: ml_collections.ConfigDict):
    """Return init(key) -> params and loss(params, batch, key) -> scalar."""
    m = config.model
    model = Handwriting(m, config.norm)

    def init(key):
        steps, text = jnp.zeros((1, 2, 3)), jnp.zeros((1, m.characters, m.symbols))
        return model.init(key, steps, jnp.ones(1), text)

    def loss(params, batch, key):
        there = jnp.arange(m.characters) < batch["text_length"][:, None]
        text = jax.nn.one_hot(batch["text"], m.symbols) * there[..., None]
        return model.apply(params, batch["steps"], batch["steps_length"], text)

    return init, loss
