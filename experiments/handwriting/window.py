"""The soft window over a text (Graves 2013, eq. 46-51), in the cell that reads it.

    h_t = LSTM([x_t; w_{t-1}], h_{t-1})
    (alpha^, beta^, kappa^) = W h_t + b
    alpha = exp(alpha^)
    beta = exp(beta^)
    kappa_t = kappa_{t-1} + exp(kappa^)
    phi(t, u) = sum_k alpha_k exp(-beta_k (kappa_k - u)^2)
    w_t = sum_u phi(t, u) c_u,  u = 1..U

Shape letters: B batch, T time, U characters, V symbols, K Gaussians of the window, H
units.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lnrepro import functional

WINDOW_PARAMS = ("w_w", "window", "window_bias")


class WindowCarry(NamedTuple):
    """The carry of `WindowCell`.

    Attributes:
      lstm: (c, h), each [B, H].
      kappa: [B, K], the positions of the Gaussians.
      w: [B, V], w_t, the characters that the window shows.
    """

    lstm: tuple[jax.Array, jax.Array]
    kappa: jax.Array
    w: jax.Array


@dataclasses.dataclass(frozen=True)
class WindowCell(functional.Cell):
    """An LSTM and its window on a text; the output is [h_t; w_t], [B, H + V].

    The text is the memory of `unroll` and `step`: [B, U, V], one-hot characters, and
    zeros after the end of a text.

    Parameters: those of the LSTM for x_t; w_w [V, 4H], the part of its W_x for the
    window, under the same norm; window [H, 3K] and window_bias [3K].

    Attributes:
      lstm: the LSTM, without batch norm and weight norm.
      symbols: V.
      gaussians: K.
      kappa_bias: start of the bias of kappa^.
    """

    lstm: functional.LSTMCell
    symbols: int
    gaussians: int
    kappa_bias: float

    @property
    def features(self) -> int:
        """H + V."""
        return self.lstm.features + self.symbols

    def init(self, key, features_in, dtype=jnp.float32):
        """Draw fresh parameters; the kernel of the window is N(0, 0.075^2)."""
        key_lstm, key_w, key_window = jax.random.split(key, 3)
        # The LSTM's own initialiser draws the kernel for [x_t; w_{t-1}].
        params = self.lstm.init(key_lstm, features_in, dtype)
        from_window = self.lstm.init(key_w, self.symbols, dtype)
        shape = (self.lstm.features, 3 * self.gaussians)
        start = jnp.array([0.0, 0.0, self.kappa_bias], dtype)
        return params | {
            "w_w": from_window["w_x"],
            "window": 0.075 * jax.random.normal(key_window, shape, dtype),
            "window_bias": jnp.repeat(start, self.gaussians),
        }

    def initial_carry(self, params, x):
        """Return zeros."""
        batch = x.shape[:-1]
        return WindowCarry(
            self.lstm.initial_carry(_without_window(params), x),
            jnp.zeros((*batch, self.gaussians), x.dtype),
            jnp.zeros((*batch, self.symbols), x.dtype),
        )

    def prepare(self, params):
        """Join the two parts of W_x."""
        joined = jnp.concatenate([params["w_x"], params["w_w"]])
        weights, rest = self.lstm.prepare(_without_window(params) | {"w_x": joined})
        # This product is not one of x alone, which has the name w_x in other cells.
        joined = weights.pop("w_x")
        return functional.Prepared(
            {"w_xw": joined, **weights, "window": params["window"]},
            {"lstm": rest, "window_bias": params["window_bias"]},
        )

    def step(self, dot, params, carry, x, context):
        """Take one step of the LSTM, then move the window."""
        x_and_w = jnp.concatenate([x, carry.w], axis=-1)

        def dot_of_lstm(name, v):
            return dot("w_xw" if name == "w_x" else name, v)

        lstm, statistics = self.lstm.step(
            dot_of_lstm, params["lstm"], carry.lstm, x_and_w, context
        )
        numbers = dot("window", self.lstm.output(lstm)) + params["window_bias"]
        alpha, beta, kappa = gaussians_of(numbers, carry.kappa)
        text = context.memory
        phi = weights_of_characters(alpha, beta, kappa, text.shape[-2])
        w = jnp.einsum("...u,...uv->...v", phi, text)
        return WindowCarry(lstm, kappa, w), statistics

    def output(self, carry):
        """Return [h_t; w_t]."""
        return jnp.concatenate([self.lstm.output(carry.lstm), carry.w], axis=-1)


def _without_window(params):
    return {name: v for name, v in params.items() if name not in WINDOW_PARAMS}


def gaussians_of(
    numbers: jax.Array, kappa: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute alpha, beta and kappa, each [..., K] (eq. 48-51).

    Args:
      numbers: [..., 3K], the hatted numbers.
      kappa: [..., K], the positions before this step.
    """
    alpha, beta, move = jnp.split(jnp.exp(numbers), 3, axis=-1)
    return alpha, beta, kappa + move


def weights_of_characters(
    alpha: jax.Array, beta: jax.Array, kappa: jax.Array, characters: int
) -> jax.Array:
    """Compute phi(t, u) for u = 1..U = `characters`, [..., U] (eq. 46)."""
    distance = kappa[..., None] - jnp.arange(1, characters + 1)
    bumps = jnp.exp(-beta[..., None] * jnp.square(distance))
    return jnp.sum(alpha[..., None] * bumps, axis=-2)


def one_hot(tokens: jax.Array, lengths: jax.Array, symbols: int) -> jax.Array:
    """Turn texts into one-hot vectors [B, U, V], zero after the end of a text.

    Args:
      tokens: [B, U], numbers of the symbols.
      lengths: [B], lengths of the texts.
      symbols: V.
    """
    inside = jnp.arange(tokens.shape[-1]) < lengths[:, None]
    return jax.nn.one_hot(tokens, symbols) * inside[..., None]
