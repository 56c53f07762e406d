"""Stack and Bidirectional: modules one after another, and in both directions."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx

from lnrepro.functional import flax_combine
from lnrepro.nnx.base import Carry, Streams
from lnrepro.nnx.sequences import SequenceModule, keep_stream


class Stack(SequenceModule):
    """Sequence modules one after another: x [..., T, D] -> y [..., T, H].

    Arguments are the attributes of `lnrepro.linen.Stack`. Lengths, masks, resets and
    memory go to every layer, and the carries are a tuple.

    >>> import jax.numpy as jnp
    >>> from lnrepro.nnx import LSTM
    >>> rngs = nnx.Rngs(0)
    >>> layer = Stack([LSTM(3, 4, rngs=rngs), LSTM(4, 6, rngs=rngs)])
    >>> layer(jnp.ones((2, 5, 3))).shape
    (2, 5, 6)
    """

    def __init__(
        self,
        layers: Sequence[nnx.Module],
        *,
        return_carry: bool = False,
        time_major: bool = False,
    ):
        # nnx.List registers its modules, so that their parameters belong to the stack.
        self.layers: Any = nnx.List(layers)
        self.return_carry = return_carry
        self.time_major = time_major

    @property
    def hidden_features(self) -> int:
        """The size of the output."""
        return self.layers[-1].hidden_features

    def _run(self, inputs, initial_carry, rngs, call):
        own = _rngs_of_parts(rngs, len(self.layers))
        return flax_combine.run_layers(self.layers, inputs, initial_carry, own, call)

    def _step(self, carry, inputs, rngs, call):
        own = _rngs_of_parts(rngs, len(self.layers))
        return flax_combine.step_layers(self.layers, carry, inputs, own, call)

    def initialize_carry(
        self, input_shape: tuple[int, ...], rngs: Streams | None = None
    ) -> tuple[Carry, ...]:
        """Return the carries of all layers, see `RNN`."""
        carries = []
        for layer in self.layers:
            carries.append(layer.initialize_carry(input_shape, rngs))
            # The output of a layer is the input of the next one.
            input_shape = (*input_shape[:-1], layer.hidden_features)
        return tuple(carries)


@dataclasses.dataclass(eq=False, repr=False)
class Bidirectional(SequenceModule):
    """One module from left to right and one from right to left, and their merged y.

    Resets, carries and the arguments are those of `lnrepro.linen.Bidirectional`.

    Args:
      rngs: keys for `carry_init` of both modules, of the stream "carry". True and False
        take those of the modules.

    Raises:
      ValueError: an unknown merge_fn.

    >>> import jax.numpy as jnp
    >>> from lnrepro.nnx import GRU
    >>> rngs = nnx.Rngs(0)
    >>> layer = Bidirectional(GRU(3, 4, rngs=rngs), GRU(3, 4, rngs=rngs), rngs=rngs)
    >>> layer(jnp.ones((2, 5, 3)), seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 8)
    """

    forward_rnn: Any
    backward_rnn: Any
    _: dataclasses.KW_ONLY
    merge_fn: str | flax_combine.MergeFn = "concat"
    time_major: bool = False
    return_carry: bool = False
    rngs: dataclasses.InitVar[Streams | bool] = True

    def __post_init__(self, rngs):
        """Check merge_fn, and keep a stream of keys for carries."""
        flax_combine.merge_function(self.merge_fn)
        self.carry_rngs = keep_stream(rngs)

    @property
    def hidden_features(self) -> int:
        """The size of the output, where merge_fn is "concat" or "sum"."""
        sizes = self.forward_rnn.hidden_features, self.backward_rnn.hidden_features
        return flax_combine.merged_features(self.merge_fn, *sizes)

    def _run(self, inputs, initial_carry, rngs, call):
        # Each direction draws its own noise.
        rngs = self.carry_rngs if rngs is None else rngs
        return flax_combine.run_both(
            self.forward_rnn,
            self.backward_rnn,
            inputs,
            initial_carry,
            _rngs_of_parts(rngs, 2),
            call,
            self.merge_fn,
        )

    def _step(self, carry, inputs, rngs, call):
        raise TypeError("Stack: a Bidirectional layer has no single step")

    def initialize_carry(
        self, input_shape: tuple[int, ...], rngs: Streams | None = None
    ) -> tuple[Carry, Carry]:
        """Return the carries of both modules, see `RNN`."""
        rngs = self.carry_rngs if rngs is None else rngs
        return (
            self.forward_rnn.initialize_carry(input_shape, rngs),
            self.backward_rnn.initialize_carry(input_shape, rngs),
        )


def _rngs_of_parts(rngs, count):
    """The argument rngs of each of several modules: a key is split, a stream shared."""
    if rngs is None or isinstance(rngs, nnx.Rngs | nnx.RngStream):
        return [{"rngs": rngs}] * count
    return [{"rngs": key} for key in jax.random.split(rngs, count)]
