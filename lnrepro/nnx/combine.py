"""Stack and Bidirectional: modules one after another, and in both directions."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from lnrepro.functional.flax_modules import given
from lnrepro.nnx.base import Carry, Keys

MergeFn = Callable[[jax.Array, jax.Array], jax.Array]


class Stack(nnx.Module):
    """Sequence modules one after another: x [..., T, D] -> y [..., T, H].

    Lengths, masks, resets and memory go to every layer, and the carries are a tuple.
    For many short steps on a small batch, `RNN(functional.stack(...))` runs all layers
    in one scan.

    Args:
      layers: sequence modules such as `LSTM`, `RNN` and `Bidirectional`, the lowest
        first. Those of Flax work too where none of mask, resets and memory is given.
      return_carry: whether the call returns (carry, y) in place of y.
      time_major: whether x is [T, ..., D] in place of [..., T, D].

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

    def __call__(
        self,
        inputs: jax.Array,
        *,
        initial_carry: Sequence[Carry] | None = None,
        seq_lengths: jax.Array | None = None,
        mask: jax.Array | None = None,
        resets: jax.Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool = False,
        keep_order: bool = False,
        memory: Any = None,
        deterministic: bool | None = None,
        use_running_average: bool | None = None,
        rngs: Keys | None = None,
    ) -> Any:
        """Run the layers over a sequence.

        Args:
          inputs: x [..., T, D], or [T, ..., D] with time_major.
          initial_carry: one carry per layer, or None.
          seq_lengths: see `RNN`, as for mask and resets.
          mask: see above.
          resets: see above.
          return_carry: overrides the attribute.
          time_major: overrides the attribute.
          reverse: run every layer from the end to the start.
          keep_order: with reverse, whether y stands in the order of x.
          memory: what every step of every layer reads.
          deterministic: True switches noise off, see `RNN`.
          use_running_average: for batch norm, see `RNN`.
          rngs: keys for the noise; None takes those of the layers.

        Returns:
          y, or (carry, y) with return_carry; carry has one entry per layer.

        Raises:
          ValueError: another number of carries than of layers.
        """
        count = len(self.layers)
        carries = [None] * count if initial_carry is None else list(initial_carry)
        if len(carries) != count:
            raise ValueError(f"Stack: {len(carries)} carries for {count} layers")
        keys = _keys_of_parts(rngs, count)
        passed_on = given(mask, resets, memory, deterministic, use_running_average)
        y, last_carries = inputs, []
        for index, layer in enumerate(self.layers):
            # Passed only where they are needed, since a layer may have its own default.
            direction = {}
            if reverse:
                # Between the layers, sequences stand in the order of x.
                is_last = index == count - 1
                direction = {"reverse": True, "keep_order": keep_order or not is_last}
            carry, y = layer(
                y,
                initial_carry=carries[index],
                seq_lengths=seq_lengths,
                return_carry=True,
                time_major=self.time_major if time_major is None else time_major,
                rngs=keys[index],
                **direction,
                **passed_on,
            )
            last_carries.append(carry)
        returns_carry = self.return_carry if return_carry is None else return_carry
        return (tuple(last_carries), y) if returns_carry else y

    def step(
        self,
        carry: Sequence[Carry],
        inputs: jax.Array,
        *,
        mask: jax.Array | None = None,
        reset: jax.Array | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
        rngs: Keys | None = None,
    ) -> tuple[tuple[Carry, ...], jax.Array]:
        """Take one step of all layers.

        Args:
          carry: one carry per layer.
          inputs: x [..., D].
          mask: [...], False where the step is padding.
          reset: [...], True where the carries start anew before the step.
          memory: what the step reads.
          deterministic: as in the call, and rngs too.
          rngs: see above.

        Returns:
          (carry, y [..., H]).

        Raises:
          ValueError: another number of carries than of layers.
          TypeError: a layer is bidirectional, which needs the whole sequence.
        """
        keys = _keys_of_parts(rngs, len(self.layers))
        # The output of a layer at this step is the input of the next one.
        y, carries = inputs, []
        for layer, layer_carry, key in zip(self.layers, carry, keys, strict=True):
            if isinstance(layer, Bidirectional):
                raise TypeError("Stack: a Bidirectional layer has no single step")
            new, y = layer.step(
                layer_carry,
                y,
                mask=mask,
                reset=reset,
                memory=memory,
                deterministic=deterministic,
                rngs=key,
            )
            carries.append(new)
        return tuple(carries), y

    def initialize_carry(
        self,
        input_shape: tuple[int, ...],
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> tuple[Carry, ...]:
        """Return the carries of all layers before the first step.

        Args:
          input_shape: shape [..., D] of the inputs of one step.
          rngs: keys for the layers' `carry_init`, of the stream "carry".

        Returns:
          One carry per layer.
        """
        carries = []
        for layer in self.layers:
            carries.append(layer.initialize_carry(input_shape, rngs))
            # The output of a layer is the input of the next one.
            input_shape = (*input_shape[:-1], layer.hidden_features)
        return tuple(carries)


class Bidirectional(nnx.Module):
    """One module from left to right and one from right to left, and their merged y.

    Args:
      forward_rnn: a sequence module, which runs from left to right.
      backward_rnn: a sequence module, which runs from right to left.
      merge_fn: "concat" gives y [..., T, 2 H], "sum" gives [..., T, H]. A function of
        both outputs, such as Flax takes, gives what it returns.
      time_major: whether x is [T, ..., D] in place of [..., T, D].
      return_carry: whether the call returns (carry, y) in place of y.

    Raises:
      ValueError: an unknown merge_fn.

    >>> from lnrepro.nnx import GRU
    >>> rngs = nnx.Rngs(0)
    >>> layer = Bidirectional(GRU(3, 4, rngs=rngs), GRU(3, 4, rngs=rngs))
    >>> layer(jnp.ones((2, 5, 3)), seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        forward_rnn: Any,
        backward_rnn: Any,
        *,
        merge_fn: str | MergeFn = "concat",
        time_major: bool = False,
        return_carry: bool = False,
    ):
        if isinstance(merge_fn, str) and merge_fn not in ("concat", "sum"):
            raise ValueError(
                f"Bidirectional: merge_fn={merge_fn!r}; choose 'concat', 'sum' or a "
                "function"
            )
        self.forward_rnn = forward_rnn
        self.backward_rnn = backward_rnn
        self.merge_fn: Any = merge_fn
        self.time_major = time_major
        self.return_carry = return_carry

    @property
    def hidden_features(self) -> int:
        """The size of the output, where merge_fn is "concat" or "sum"."""
        if self.merge_fn == "sum":
            return self.forward_rnn.hidden_features
        return self.forward_rnn.hidden_features + self.backward_rnn.hidden_features

    def __call__(
        self,
        inputs: jax.Array,
        *,
        initial_carry: tuple[Carry, Carry] | None = None,
        seq_lengths: jax.Array | None = None,
        mask: jax.Array | None = None,
        resets: jax.Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
        use_running_average: bool | None = None,
        rngs: Keys | None = None,
    ) -> Any:
        """Run both modules over a sequence.

        Args:
          inputs: x [..., T, D], or [T, ..., D] with time_major.
          initial_carry: a pair of carries, or None.
          seq_lengths: see `RNN`, as for mask and resets.
          mask: see above.
          resets: see above. Both modules restart between two sequences.
          return_carry: overrides the attribute.
          time_major: overrides the attribute.
          memory: what every step of both modules reads.
          deterministic: True switches noise off, see `RNN`.
          use_running_average: for batch norm, see `RNN`.
          rngs: keys for the noise; None takes those of the modules.

        Returns:
          y in the order of x, or (carry, y) with return_carry; carry is a pair.
        """
        carries = (None, None) if initial_carry is None else initial_carry
        # Each direction draws its own noise.
        forward_keys, backward_keys = _keys_of_parts(rngs, 2)
        time_major = self.time_major if time_major is None else time_major
        passed_on = given(mask, resets, memory, deterministic, use_running_average)
        forward_carry, forward = self.forward_rnn(
            inputs,
            initial_carry=carries[0],
            seq_lengths=seq_lengths,
            return_carry=True,
            time_major=time_major,
            reverse=False,
            rngs=forward_keys,
            **passed_on,
        )
        backward_carry, backward = self.backward_rnn(
            inputs,
            initial_carry=carries[1],
            seq_lengths=seq_lengths,
            return_carry=True,
            time_major=time_major,
            reverse=True,
            keep_order=True,
            rngs=backward_keys,
            **passed_on,
        )
        # Both outputs stand in the order of x.
        y = self._merge(forward, backward)
        returns_carry = self.return_carry if return_carry is None else return_carry
        return ((forward_carry, backward_carry), y) if returns_carry else y

    def initialize_carry(
        self,
        input_shape: tuple[int, ...],
        rngs: nnx.Rngs | nnx.RngStream | None = None,
    ) -> tuple[Carry, Carry]:
        """Return the carries of both modules before their first step.

        Args:
          input_shape: shape [..., D] of the inputs of one step.
          rngs: keys for `carry_init`, of the stream "carry".
        """
        return (
            self.forward_rnn.initialize_carry(input_shape, rngs),
            self.backward_rnn.initialize_carry(input_shape, rngs),
        )

    def _merge(self, forward, backward):
        """The outputs of both directions as one array."""
        if self.merge_fn == "concat":
            return jnp.concatenate([forward, backward], -1)
        if self.merge_fn == "sum":
            return forward + backward
        return self.merge_fn(forward, backward)


def _keys_of_parts(rngs, count):
    """Rngs for each of several modules: a key is split, a stream is shared."""
    if rngs is None or isinstance(rngs, nnx.Rngs | nnx.RngStream):
        return [rngs] * count
    return list(jax.random.split(rngs, count))
