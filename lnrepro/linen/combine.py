"""Stack and Bidirectional: modules one after another, and in both directions."""

from collections.abc import Sequence

import flax.linen as nn
import jax

from lnrepro.functional import flax_combine
from lnrepro.linen.base import Carry
from lnrepro.linen.sequences import SequenceModule


class Stack(SequenceModule):
    """Sequence modules one after another: x [..., T, D] -> y [..., T, H].

    Lengths, masks, resets and memory go to every layer, and the carries are a tuple.
    For many short steps on a small batch, `RNN(functional.stack(...))` runs all layers
    in one scan.

    Attributes:
      layers: sequence modules such as `LSTM`, `RNN` and `Bidirectional`, the lowest
        first. Those of Flax work too where none of mask, resets and memory is given.
      return_carry: as in `RNN`, and so is time_major.

    >>> import jax.numpy as jnp
    >>> from lnrepro.linen import LSTM
    >>> x = jnp.ones((2, 5, 3))
    >>> layer = Stack([LSTM(4), LSTM(6)])
    >>> variables = layer.init(jax.random.key(0), x)
    >>> layer.apply(variables, x).shape
    (2, 5, 6)
    """

    layers: Sequence[nn.Module]
    return_carry: bool = False
    time_major: bool = False

    @property
    def features(self) -> int:
        """The size of the output."""
        return self.layers[-1].features

    @nn.nowrap
    def _run(self, inputs, initial_carry, init_key, call):
        own = [{"init_key": key} for key in _split(init_key, len(self.layers))]
        return flax_combine.run_layers(self.layers, inputs, initial_carry, own, call)

    @nn.nowrap
    def _step(self, carry, inputs, call):
        nothing = [{}] * len(self.layers)
        return flax_combine.step_layers(self.layers, carry, inputs, nothing, call)

    @nn.nowrap
    def initialize_carry(
        self, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> tuple[Carry, ...]:
        """Return the carries of all layers, see `RNN`."""
        carries = []
        keys = _split(rng, len(self.layers))
        for key, layer in zip(keys, self.layers, strict=True):
            carries.append(layer.initialize_carry(key, input_shape))
            # The output of a layer is the input of the next one.
            input_shape = (*input_shape[:-1], layer.features)
        return tuple(carries)


class Bidirectional(SequenceModule):
    """One module from left to right and one from right to left, and their merged y.

    The carries are a pair. A reset cuts a sequence in two before its step for the
    forward module; for the backward one the step is the first of its part. `reverse`
    and `keep_order` of the call have no effect, as in Flax.

    Attributes:
      forward_rnn: a sequence module, which runs from left to right.
      backward_rnn: a sequence module, which runs from right to left.
      merge_fn: "concat" gives y [..., T, 2 H], "sum" gives [..., T, H]. A function of
        both outputs, such as Flax takes, gives what it returns.
      time_major: as in `RNN`, and so is return_carry.

    >>> import jax.numpy as jnp
    >>> from lnrepro.linen import GRU
    >>> x = jnp.ones((2, 5, 3))
    >>> layer = Bidirectional(GRU(4), GRU(4))
    >>> variables = layer.init(jax.random.key(0), x)
    >>> layer.apply(variables, x, seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 8)
    """

    forward_rnn: nn.Module
    backward_rnn: nn.Module
    merge_fn: str | flax_combine.MergeFn = "concat"
    time_major: bool = False
    return_carry: bool = False

    @property
    def features(self) -> int:
        """The size of the output, where merge_fn is "concat" or "sum"."""
        sizes = self.forward_rnn.features, self.backward_rnn.features
        return flax_combine.merged_features(self.merge_fn, *sizes)

    @nn.nowrap
    def _run(self, inputs, initial_carry, init_key, call):
        # Each direction draws its own first carry.
        return flax_combine.run_both(
            self.forward_rnn,
            self.backward_rnn,
            inputs,
            initial_carry,
            [{"init_key": key} for key in _split(init_key, 2)],
            call,
            self.merge_fn,
        )

    @nn.nowrap
    def _step(self, carry, inputs, call):
        raise TypeError("Stack: a Bidirectional layer has no single step")

    @nn.nowrap
    def initialize_carry(
        self, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> tuple[Carry, Carry]:
        """Return the carries of both modules, see `RNN`."""
        left_key, right_key = _split(rng, 2)
        return (
            self.forward_rnn.initialize_carry(left_key, input_shape),
            self.backward_rnn.initialize_carry(right_key, input_shape),
        )


def _split(key, count):
    """A key for each of several modules, None where there is no key."""
    return [None] * count if key is None else jax.random.split(key, count)
