"""Recurrent cells in JAX that the benchmark `cells` compares: ours, Flax's, Haiku's.

Shape letters: T time, B batch, D input features, H units.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro import functional


class Shape(NamedTuple):
    """The sizes of a benchmark.

    Attributes:
      steps: T.
      batch: B.
      features: D.
      units: H.
      resets: share of the steps before which a row starts anew.
      dtype: dtype of parameters and inputs.
    """

    steps: int
    batch: int
    features: int
    units: int
    resets: float = 0.0
    dtype: str = "float32"


class Implementation(NamedTuple):
    """A function that is measured.

    Attributes:
      call: starts it once and returns the result, which may not be there yet. If there
        is a `compile`, it takes the compiled program.
      wait: waits for a result.
      compile: returns the compiled program; None where nothing is compiled.
      function: what is compiled, for functions in JAX.
      arguments: its arguments.
    """

    call: Callable[..., Any]
    wait: Callable[[Any], Any]
    compile: Callable[[], Any] | None = None
    function: Callable[..., Any] | None = None
    arguments: tuple[Any, ...] = ()


def implement(
    apply: Callable,
    params: Any,
    shape: Shape,
    inference: bool = False,
    precision: str | None = None,
) -> Implementation:
    """Make the gradient with respect to parameters and inputs, or for inference y.

    Parameters and weights of the loss are arguments of the program. As constants, they
    would count as compile time.

    Args:
      apply: (params, x [T, B, D], resets) -> y [T, B, H]. `resets` is [T, B], or None
        where the shape has none.
      params: the parameters.
      shape: the sizes.
      inference: measure y alone.
      precision: of the matrix products, see jax.default_matmul_precision.
    """
    steps = (shape.steps, shape.batch)
    x = jax.random.normal(jax.random.key(0), (*steps, shape.features))
    w = jax.random.normal(jax.random.key(1), (*steps, shape.units))
    resets = None
    if shape.resets:
        resets = jax.random.bernoulli(jax.random.key(3), shape.resets, steps)
    params, x, w = jax.tree.map(lambda a: a.astype(shape.dtype), (params, x, w))

    # A random linear function of the outputs gives each of them a gradient of its own.
    def loss(params, x, resets, w):
        return jnp.sum(apply(params, x, resets) * w)

    # Gradients of parameters and inputs, as a layer inside a network needs them.
    function, arguments = jax.grad(loss, (0, 1)), (params, x, resets, w)
    if inference:
        function, arguments = apply, (params, x, resets)
    return implement_function(function, arguments, precision)


def implement_function(
    function: Callable, arguments: tuple[Any, ...], precision: str | None = None
) -> Implementation:
    """Make what is measured of a function in JAX.

    Args:
      function: the function.
      arguments: its arguments.
      precision: of the matrix products, see jax.default_matmul_precision.
    """
    jax.block_until_ready(arguments)

    def call(compiled):
        return compiled(*arguments)

    def compile():
        with jax.default_matmul_precision(precision):
            return jax.jit(function).lower(*arguments).compile()

    return Implementation(call, jax.block_until_ready, compile, function, arguments)


def ours(
    cell: functional.Cell,
    shape: Shape,
    inference: bool = False,
    options: functional.ScanOptions | None = None,
    precision: str | None = None,
) -> Implementation:
    """`functional.unroll` of a cell; for the arguments see `implement`."""
    params = cell.init(jax.random.key(2), shape.features)

    def apply(params, x, resets):
        return functional.unroll(
            cell, params, x, time_major=True, resets=resets, options=options
        ).outputs

    return implement(apply, params, shape, inference, precision)


def our_products(
    cell_class: type[functional.Cell], shape: Shape, inference: bool = False
) -> Implementation:
    """`functional.unroll` of a cell that does little besides its matrix products."""

    class ProductsCell(cell_class):
        """A cell with the products of `cell_class`, whose gates are added."""

        def step(self, dot, params, carry, x_proj, context):
            is_lstm = isinstance(carry, tuple)
            h = carry[-1] if is_lstm else carry
            gates = jnp.split(x_proj + dot("w_h", h), self.gates, -1)
            # A linear function, so that nothing is kept for the backward pass.
            h = 0.1 * sum(gates)
            return (carry[0], h) if is_lstm else h, None

    return ours(ProductsCell(shape.units, use_bias=False), shape, inference)


def flax(
    cell_class: type[nn.RNNCellBase], shape: Shape, inference: bool = False
) -> Implementation:
    """`nn.RNN` of a cell."""
    cell = cell_class(shape.units)
    features = shape.features
    if shape.resets:
        cell = Resetting(cell)
        features += 1
    module = nn.RNN(cell, time_major=True)
    example = jnp.zeros((1, shape.batch, features))
    variables = module.init(jax.random.key(2), example)
    carry = cell.initialize_carry(jax.random.key(2), (shape.batch, features))
    # Flax's cells start with zeros in float32.
    carry = jax.tree.map(lambda a: a.astype(shape.dtype), carry)

    def apply(variables, x, resets):
        if resets is not None:
            # The reset travels as one more feature, since nn.RNN takes one array.
            x = jnp.concatenate([x, resets[..., None].astype(x.dtype)], -1)
        return module.apply(variables, x, initial_carry=carry)

    return implement(apply, variables, shape, inference)


class Resetting(nn.RNNCellBase):
    """A cell whose carry is zero before each step that has a reset.

    The last feature of x is 1 where there is one. Users of Flax in reinforcement
    learning write it like this.
    """

    cell: nn.RNNCellBase

    @nn.compact
    def __call__(self, carry, x):
        """One step: carry, and x [B, D + 1]."""
        keep = 1 - x[..., -1:]
        carry = jax.tree.map(lambda a: a * keep, carry)
        return self.cell(carry, x[..., :-1])

    @nn.nowrap
    def initialize_carry(self, rng, input_shape):
        """Return that of the cell."""
        inner = (*input_shape[:-1], input_shape[-1] - 1)
        return self.cell.initialize_carry(rng, inner)

    num_feature_axes = 1


def cudnn_lstm(shape: Shape) -> Implementation:
    """cuDNN's LSTM without norms, as jax.experimental.rnn runs it on a GPU."""
    from jax.experimental import rnn

    sizes = (shape.features, shape.units, 1)
    weights = rnn.init_lstm_weight(jax.random.key(2), *sizes, False)
    zeros = jnp.zeros((1, shape.batch, shape.units))
    lengths = jnp.full(shape.batch, shape.steps, jnp.int32)

    def apply(weights, x, resets):
        del resets
        x = x.swapaxes(0, 1)
        y, _, _ = rnn.lstm(x, zeros, zeros, weights, lengths, *sizes, 0.0, False)
        return y.swapaxes(0, 1)

    return implement(apply, weights, shape)


def haiku(name: str, shape: Shape) -> Implementation:
    """Haiku's `dynamic_unroll` of its LSTM or GRU; `name` is "lstm" or "gru"."""
    import haiku as hk

    def run(x):
        core = hk.LSTM(shape.units) if name == "lstm" else hk.GRU(shape.units)
        return hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))[0]

    model = hk.without_apply_rng(hk.transform(run))
    example = jnp.zeros((1, shape.batch, shape.features))
    params = model.init(jax.random.key(2), example)

    def apply(params, x, resets):
        del resets
        return model.apply(params, x)

    return implement(apply, params, shape)


class LayerNormLSTMCell(nn.RNNCellBase):
    """LSTM cell of eq. 20-22 with nn.Dense and nn.LayerNorm, as Flax users write it."""

    features: int

    @nn.compact
    def __call__(self, carry, x):
        """One step: carry (c, h), each [B, H], and x [B, D]."""
        c, h = carry
        x_proj, h_proj = self.products(x, h)
        gates = nn.LayerNorm(1e-5, name="norm_x")(x_proj)
        # One bias of the sum is enough. That of norm_x stands for all three of eq. 20.
        gates += nn.LayerNorm(1e-5, use_bias=False, name="norm_h")(h_proj)
        return self.advance(c, gates)

    def products(self, x, h):
        """Return the products of the inputs and of the state, each [B, 4 H]."""
        size = 4 * self.features
        x_proj = nn.Dense(size, use_bias=False, name="x")(x)
        return x_proj, nn.Dense(size, use_bias=False, name="h")(h)

    def advance(self, c, gates):
        """Return carry and output after the gates [B, 4 H]."""
        f, i, o, g = jnp.split(gates, 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(nn.LayerNorm(1e-5, name="norm_c")(c))
        return (c, h), h

    @nn.nowrap
    def initialize_carry(self, rng, input_shape):
        """Return zeros."""
        zeros = jnp.zeros((*input_shape[:-1], self.features))
        return zeros, zeros

    num_feature_axes = 1


class LayerNormGRUCell(nn.RNNCellBase):
    """GRU cell of eq. 26-28 with nn.Dense and nn.LayerNorm, or without norms."""

    features: int
    layer_norm: bool = True

    @nn.compact
    def __call__(self, h, x):
        """One step: carry h [B, H], x [B, D]."""

        def normed(name, size, value, use_bias):
            product = nn.Dense(size, use_bias=use_bias, name=name)(value)
            if not self.layer_norm:
                return product
            return nn.LayerNorm(1e-5, name=f"norm_{name}")(product)

        size = self.features
        # Eq. 26: both gates share one layer norm per product. Eq. 27: the candidate has
        # norms of its own.
        gates = normed("x", 2 * size, x, True) + normed("h", 2 * size, h, False)
        z, r = jnp.split(nn.sigmoid(gates), 2, -1)
        n = jnp.tanh(normed("xn", size, x, True) + r * normed("hn", size, h, False))
        h = (1 - z) * h + z * n
        return h, h

    @nn.nowrap
    def initialize_carry(self, rng, input_shape):
        """Return zeros [B, H]."""
        return jnp.zeros((*input_shape[:-1], self.features))

    num_feature_axes = 1
