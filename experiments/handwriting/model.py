"""The synthesis network (Graves 2013, section 5; Ba, Kiros, Hinton 2016, section 6.5).

    h1_t = LSTM([x_t; w_{t-1}])
    w_t from h1_t and the text
    h2_t = LSTM([x_t; h1_t; w_t])
    h3_t = LSTM([x_t; h2_t; w_t])
    y^_t = b + sum_n W_n h^n_t, the density of x_{t+1}

x_t = (dx, dy, 1 at the end of a stroke). The first layer and its window depend on each
other in every step. The other two layers and the outputs see whole sequences.

Shape letters: B batch, T time, U characters, V symbols, H units, M Gaussians.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.functional import LSTMCell, ScanOptions, step, unroll
from lnrepro.functional.arrays import row
from lnrepro.functional.products import wide_product

from . import mixture
from .window import WindowCell, one_hot

LAYERS = ("lstm1", "lstm2", "lstm3")
START = (0.0, 0.0, 1.0)  # x_1: no offset, and the pen is put down anew.
Params = dict[str, dict[str, jax.Array]]


class Output(NamedTuple):
    """Outputs of the network.

    Attributes:
      carry: {layer: carry after the last step}.
      density: y^ [..., B, 1 + 6M].
    """

    carry: dict
    density: jax.Array


class Network:
    """The network of a config: its sizes, and functions of its parameters."""

    def __init__(self, config: ConfigDict):
        """Take the sizes of `config.model`."""
        sizes = config.model
        self.sizes = sizes
        # What `mixture.split` reads.
        self.outputs = 1 + 6 * sizes.gaussians
        # Without layer norm, keeping the products takes more than half the memory of
        # plain autodiff and saves 3 % of the time. With layer norm it takes a third
        # and saves 10 to 16 % (`bench.py train` of commit 47dd3db). A kernel takes at
        # most 1.1 of the scan's memory with either (one layer, compiled for an H100).
        save = "products" if config.norm == "layer" else "carries"
        self.options = ScanOptions(save=save, kernels=config.kernels)
        lstm = LSTMCell(sizes.units, norm=config.norm, peephole=sizes.peephole)
        first = WindowCell(
            lstm, sizes.symbols, sizes.window_gaussians, sizes.kappa_bias
        )
        self.cells = {"lstm1": first, "lstm2": lstm, "lstm3": lstm}

    def init(self, key: jax.Array) -> Params:
        """Draw fresh parameters.

        Returns:
          {layer: parameters of its cell}, and "output", the affine map of all three
          layers' h, with weights N(0, 0.075^2).
        """
        *layer_keys, output_key = jax.random.split(key, len(LAYERS) + 1)
        # Layers 2 and 3 read [x_t, h of the layer below, w_t].
        wide_input = 3 + self.sizes.units + self.sizes.symbols
        inputs = {"lstm1": 3, "lstm2": wide_input, "lstm3": wide_input}
        params = {}
        for (name, cell), layer_key in zip(self.cells.items(), layer_keys, strict=True):
            params[name] = cell.init(layer_key, inputs[name])
        shape = (len(LAYERS) * self.sizes.units, self.outputs)
        w = 0.075 * jax.random.normal(output_key, shape, jnp.float32)
        bias = jnp.zeros(self.outputs, jnp.float32)
        return params | {"output": {"w": w, "bias": bias}}

    def run(self, params: Params, x: jax.Array, text: jax.Array) -> Output:
        """Read whole sequences.

        Args:
          params: as `init` returns them.
          x: [T, B, 3].
          text: [B, U, V], one-hot.

        Returns:
          `Output` with density [T, B, 1 + 6M].
        """
        carry = {}

        def layer(name, inputs, memory=None):
            result = unroll(
                self.cells[name],
                params[name],
                inputs,
                time_major=True,
                memory=memory,
                options=self.options,
            )
            carry[name] = result.carry
            return result.outputs

        return Output(carry, self._layers(params, layer, x, text))

    def step(
        self, params: Params, carry: dict, x: jax.Array, text: jax.Array
    ) -> Output:
        """Take one step of `run`, of x [B, 3]."""
        new_carry = {}

        def layer(name, inputs, memory=None):
            new_carry[name], y = step(
                self.cells[name], params[name], carry[name], inputs, memory=memory
            )
            return y

        return Output(new_carry, self._layers(params, layer, x, text))

    def _layers(self, params, layer, x, text):
        """Apply the layers to x [..., B, 3] and return the density."""
        dtype = params["output"]["w"].dtype
        x, text = x.astype(dtype), text.astype(dtype)
        with jax.named_scope("layer1_and_window"):
            h1_and_w = layer("lstm1", x, memory=text)
        # The window cell returns [h1, w], [..., B, H + V].
        h1, w = jnp.split(h1_and_w, [self.sizes.units], axis=-1)
        with jax.named_scope("layer2"):
            h2 = layer("lstm2", jnp.concatenate([x, h1_and_w], -1))
        with jax.named_scope("layer3"):
            h3 = layer("lstm3", jnp.concatenate([x, h2, w], -1))
        with jax.named_scope("output"):
            # sum_n W_n h^n is one product with the three matrices on top of each other.
            hidden = jnp.concatenate([h1, h2, h3], -1)
            # The density and its logarithm are computed in float32 at least.
            product = wide_product(hidden, params["output"]["w"])
            return product + row(params["output"]["bias"], product)

    def nll(self, params: Params, batch: Mapping) -> jax.Array:
        """Compute the negative log-likelihood of every sequence in nats, [B].

        The density is that of normalised offsets.

        Args:
          params: as `init` returns them.
          batch: "steps" [B, T, 3], normalised; "text" [B, U], numbers of the symbols;
            and their lengths "steps_length" and "text_length" [B].
        """
        steps, lengths = batch["steps"], batch["steps_length"]
        text = one_hot(batch["text"], batch["text_length"], self.sizes.symbols)
        inside = jnp.arange(steps.shape[1]) < lengths[:, None]
        # Padding may hold anything, even NaN, which would reach the gradients.
        steps = jnp.where(inside[..., None], steps, 0)
        # Step t reads x_t and predicts x_{t+1}: the inputs are the targets, delayed by
        # one step.
        targets = jnp.moveaxis(steps, 1, 0)
        start = jnp.array(START, targets.dtype)
        first = jnp.broadcast_to(start, (1, *targets.shape[1:]))
        inputs = jnp.concatenate([first, targets[:-1]])
        density = self.run(params, inputs, text).density
        with jax.named_scope("density"):
            nats = mixture.negative_log_likelihood(density, targets)
            return jnp.sum(jnp.where(inside.T, nats, 0), axis=0)
