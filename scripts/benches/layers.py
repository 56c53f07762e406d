"""The recurrent layers that the benchmarks compare.

Shape letters: T time, B batch, D input features, H units.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro import functional


class Shape(NamedTuple):
    """The sizes of a benchmark: T, B, D and H."""

    steps: int
    batch: int
    features: int
    units: int


class Measured(NamedTuple):
    """A function in JAX that is measured, and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def compile(self) -> Callable[..., Any]:
        """Return the compiled program."""
        return jax.jit(self.function).lower(*self.arguments).compile()


def gradient(apply: Callable, params: Any, shape: Shape) -> Measured:
    """Return the gradient of a layer with respect to parameters and inputs.

    Parameters and weights of the loss are arguments of the program. As constants, they
    would count as compile time.

    Args:
      apply: (params, x [T, B, D]) -> y [T, B, H].
      params: the parameters.
      shape: the sizes.
    """
    steps = (shape.steps, shape.batch)
    x = jax.random.normal(jax.random.key(0), (*steps, shape.features))
    w = jax.random.normal(jax.random.key(1), (*steps, shape.units))

    # A random linear function of the outputs gives each of them a gradient of its own.
    def loss(params, x, w):
        return jnp.sum(apply(params, x) * w)

    # Gradients of parameters and inputs, as a layer inside a network needs them.
    return Measured(jax.grad(loss, (0, 1)), (params, x, w))


def ours(cell: functional.Cell, shape: Shape) -> Measured:
    """Return the gradient of `functional.unroll` of a cell."""

    def apply(params, x):
        return functional.unroll(cell, params, x, time_major=True).outputs

    params = cell.init(jax.random.key(2), shape.features)
    return gradient(apply, params, shape)


def flax(cell: nn.RNNCellBase, shape: Shape) -> Measured:
    """Return the gradient of `nn.RNN` of a cell."""
    module = nn.RNN(cell, time_major=True)
    example = jnp.zeros((1, shape.batch, shape.features))
    variables = module.init(jax.random.key(2), example)
    return gradient(module.apply, variables, shape)


def cudnn_lstm(shape: Shape) -> Measured:
    """Return the gradient of cuDNN's LSTM, as jax.experimental.rnn runs it on a GPU."""
    from jax.experimental import rnn

    sizes = (shape.features, shape.units, 1)
    weights = rnn.init_lstm_weight(jax.random.key(2), *sizes, False)
    zeros = jnp.zeros((1, shape.batch, shape.units))
    lengths = jnp.full(shape.batch, shape.steps, jnp.int32)

    def apply(weights, x):
        x = x.swapaxes(0, 1)
        y, _, _ = rnn.lstm(x, zeros, zeros, weights, lengths, *sizes, 0.0, False)
        return y.swapaxes(0, 1)

    return gradient(apply, weights, shape)


class LayerNormLSTMCell(nn.LSTMCell):
    """LSTM cell of eq. 20-22 with nn.Dense and nn.LayerNorm, as Flax users write it."""

    @nn.compact
    def __call__(self, carry, x):
        """One step: carry (c, h), each [B, H], and x [B, D]."""
        c, h = carry
        size = 4 * self.features
        x_proj = nn.Dense(size, use_bias=False, name="x")(x)
        h_proj = nn.Dense(size, use_bias=False, name="h")(h)
        gates = nn.LayerNorm(1e-5, name="norm_x")(x_proj)
        # One bias of the sum is enough. That of norm_x stands for all three of eq. 20.
        gates += nn.LayerNorm(1e-5, use_bias=False, name="norm_h")(h_proj)
        f, i, o, g = jnp.split(gates, 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(nn.LayerNorm(1e-5, name="norm_c")(c))
        return (c, h), h


class LayerNormGRUCell(nn.GRUCell):
    """GRU cell of eq. 26-28 with nn.Dense and nn.LayerNorm."""

    @nn.compact
    def __call__(self, h, x):
        """One step: carry h [B, H], x [B, D]."""

        def normed(name, size, value, use_bias):
            product = nn.Dense(size, use_bias=use_bias, name=name)(value)
            return nn.LayerNorm(1e-5, name=f"norm_{name}")(product)

        size = self.features
        # Eq. 26: both gates share one layer norm per product. Eq. 27: the candidate has
        # norms of its own.
        gates = normed("x", 2 * size, x, True) + normed("h", 2 * size, h, False)
        z, r = jnp.split(nn.sigmoid(gates), 2, -1)
        n = jnp.tanh(normed("xn", size, x, True) + r * normed("hn", size, h, False))
        h = (1 - z) * h + z * n
        return h, h
