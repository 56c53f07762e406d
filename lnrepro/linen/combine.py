"""Stack and Bidirectional: modules one after another, and in both directions."""

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro.functional.flax_modules import given

Carry = Any
MergeFn = Callable[[jax.Array, jax.Array], jax.Array]


class Stack(nn.Module):
    """Sequence modules one after another: x [..., T, D] -> y [..., T, H].

    Lengths, masks, resets and memory go to every layer, and the carries are a tuple.
    For many short steps on a small batch, `RNN(functional.stack(...))` runs all layers
    in one scan.

    Attributes:
      layers: sequence modules such as `LSTM`, `RNN` and `Bidirectional`, the lowest
        first. Those of Flax work too where none of mask, resets and memory is given.
      return_carry: whether the call returns (carry, y) in place of y.
      time_major: whether x is [T, ..., D] in place of [..., T, D].

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

    def __call__(
        self,
        inputs: jax.Array,
        *,
        initial_carry: Sequence[Carry] | None = None,
        init_key: jax.Array | None = None,
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
    ) -> Any:
        """Run the layers over a sequence.

        Args:
          inputs: x [..., T, D], or [T, ..., D] with time_major.
          initial_carry: one carry per layer, or None.
          init_key: random key for `carry_init`.
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

        Returns:
          y, or (carry, y) with return_carry; carry has one entry per layer.

        Raises:
          ValueError: another number of carries than of layers.
        """
        count = len(self.layers)
        carries = [None] * count if initial_carry is None else list(initial_carry)
        if len(carries) != count:
            raise ValueError(f"Stack: {len(carries)} carries for {count} layers")
        keys = [None] * count if init_key is None else jax.random.split(init_key, count)
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
                init_key=keys[index],
                seq_lengths=seq_lengths,
                return_carry=True,
                time_major=self.time_major if time_major is None else time_major,
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
    ) -> tuple[tuple[Carry, ...], jax.Array]:
        """Take one step of all layers: module.apply(..., method="step").

        Args:
          carry: one carry per layer.
          inputs: x [..., D].
          mask: [...], False where the step is padding.
          reset: [...], True where the carries start anew before the step.
          memory: what the step reads.
          deterministic: as in the call.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError: a layer is bidirectional, which needs the whole sequence.
        """
        # The output of a layer at this step is the input of the next one.
        y, carries = inputs, []
        for layer, layer_carry in zip(self.layers, carry, strict=True):
            if isinstance(layer, Bidirectional):
                raise TypeError("Stack: a Bidirectional layer has no single step")
            new, y = layer.step(
                layer_carry,
                y,
                mask=mask,
                reset=reset,
                memory=memory,
                deterministic=deterministic,
            )
            carries.append(new)
        return tuple(carries), y

    @nn.nowrap
    def initialize_carry(
        self, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> tuple[Carry, ...]:
        """Return the carries of all layers before the first step.

        Args:
          rng: random key for `carry_init`; zeros do not need it.
          input_shape: shape [..., D] of the inputs of one step.

        Returns:
          One carry per layer.
        """
        count = len(self.layers)
        keys = [None] * count if rng is None else jax.random.split(rng, count)
        carries = []
        for key, layer in zip(keys, self.layers, strict=True):
            carries.append(layer.initialize_carry(key, input_shape))
            # The output of a layer is the input of the next one.
            input_shape = (*input_shape[:-1], layer.features)
        return tuple(carries)


class Bidirectional(nn.Module):
    """One module from left to right and one from right to left, and their merged y.

    Attributes:
      forward_rnn: a sequence module, which runs from left to right.
      backward_rnn: a sequence module, which runs from right to left.
      merge_fn: "concat" gives y [..., T, 2 H], "sum" gives [..., T, H]. A function of
        both outputs, such as Flax takes, gives what it returns.
      time_major: whether x is [T, ..., D] in place of [..., T, D].
      return_carry: whether the call returns (carry, y) in place of y.

    >>> from lnrepro.linen import GRU
    >>> x = jnp.ones((2, 5, 3))
    >>> layer = Bidirectional(GRU(4), GRU(4))
    >>> variables = layer.init(jax.random.key(0), x)
    >>> layer.apply(variables, x, seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 8)
    """

    forward_rnn: nn.Module
    backward_rnn: nn.Module
    merge_fn: str | MergeFn = "concat"
    time_major: bool = False
    return_carry: bool = False

    @property
    def features(self) -> int:
        """The size of the output, where merge_fn is "concat" or "sum"."""
        if self.merge_fn == "sum":
            return self.forward_rnn.features
        return self.forward_rnn.features + self.backward_rnn.features

    def __call__(
        self,
        inputs: jax.Array,
        *,
        initial_carry: tuple[Carry, Carry] | None = None,
        init_key: jax.Array | None = None,
        seq_lengths: jax.Array | None = None,
        mask: jax.Array | None = None,
        resets: jax.Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
        use_running_average: bool | None = None,
    ) -> Any:
        """Run both modules over a sequence.

        Args:
          inputs: x [..., T, D], or [T, ..., D] with time_major.
          initial_carry: a pair of carries, or None.
          init_key: random key for `carry_init`.
          seq_lengths: see `RNN`, as for mask and resets.
          mask: see above.
          resets: see above. Both modules restart between two sequences.
          return_carry: overrides the attribute.
          time_major: overrides the attribute.
          memory: what every step of both modules reads.
          deterministic: True switches noise off, see `RNN`.
          use_running_average: for batch norm, see `RNN`.

        Returns:
          y in the order of x, or (carry, y) with return_carry; carry is a pair.

        Raises:
          ValueError: an unknown merge_fn.
        """
        merge = merge_function(self.merge_fn)
        left_carry, right_carry = initial_carry or (None, None)
        # Each direction draws its own first carry.
        left_key, right_key = None, None
        if init_key is not None:
            left_key, right_key = jax.random.split(init_key)
        time_major = self.time_major if time_major is None else time_major
        passed_on = given(mask, resets, memory, deterministic, use_running_average)
        left_carry, left = self.forward_rnn(
            inputs,
            initial_carry=left_carry,
            init_key=left_key,
            seq_lengths=seq_lengths,
            return_carry=True,
            time_major=time_major,
            reverse=False,
            **passed_on,
        )
        right_carry, right = self.backward_rnn(
            inputs,
            initial_carry=right_carry,
            init_key=right_key,
            seq_lengths=seq_lengths,
            return_carry=True,
            time_major=time_major,
            reverse=True,
            keep_order=True,
            **passed_on,
        )
        # Both outputs stand in the order of x.
        y = merge(left, right)
        returns_carry = self.return_carry if return_carry is None else return_carry
        return ((left_carry, right_carry), y) if returns_carry else y

    @nn.nowrap
    def initialize_carry(
        self, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> tuple[Carry, Carry]:
        """Return the carries of both modules before their first step.

        Args:
          rng: random key for `carry_init`; zeros do not need it.
          input_shape: shape [..., D] of the inputs of one step.
        """
        left_key, right_key = (None, None) if rng is None else jax.random.split(rng)
        return (
            self.forward_rnn.initialize_carry(left_key, input_shape),
            self.backward_rnn.initialize_carry(right_key, input_shape),
        )


def merge_function(merge_fn: str | MergeFn) -> MergeFn:
    """Return the function that "concat" or "sum" stands for, or merge_fn itself."""
    if merge_fn == "concat":
        return _concatenate
    if merge_fn == "sum":
        return jnp.add
    if isinstance(merge_fn, str):
        raise ValueError(
            f"Bidirectional: merge_fn={merge_fn!r}; choose 'concat', 'sum' or a "
            "function"
        )
    return merge_fn


def _concatenate(left, right):
    return jnp.concatenate([left, right], -1)
