"""A cell over a whole sequence: RNN for any cell, and the LSTM, the GRU, eq. 4.

They have the arguments of flax.linen.RNN, and mask, resets and memory besides.
docs/flax.md lists the differences from Flax.
"""

import dataclasses
import functools
from typing import Any, cast

import flax.linen as nn
import jax

from lnrepro import functional
from lnrepro.functional import flax_modules
from lnrepro.linen import base
from lnrepro.linen.cells import FunctionalCell, GatedFields, NamedFields


class SequenceModule(nn.Module):
    """A module over a whole sequence, with the interface of flax.linen.RNN.

    A subclass has the fields return_carry and time_major, and defines `_run` and
    `_step`.
    """

    @nn.compact
    def __call__(
        self,
        inputs: jax.Array,
        *,
        initial_carry: base.Carry | None = None,
        init_key: jax.Array | None = None,
        seq_lengths: jax.Array | None = None,
        mask: jax.Array | None = None,
        resets: jax.Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
        use_running_average: bool | None = None,
    ) -> Any:
        """Run over a sequence.

        Args:
          inputs: x [..., T, D], or [T, ..., D] with time_major.
          initial_carry: the carry before the first step. None takes the cell's own.
          init_key: random key for `carry_init`; None takes jax.random.key(0).
          seq_lengths: integers [...] in [0, T]. Steps at and beyond a length are
            padding: the carry passes through them, and their output is zero.
          mask: [..., T], False where a step is padding, anywhere in the sequence.
          resets: [..., T], True at the first observation of an episode: the carry
            starts anew before that step, at zeros or at the learned carry. See the
            picture at `lnrepro.functional.unroll`.
          return_carry: overrides the attribute, as do the next three arguments.
          time_major: whether x is [T, ..., D].
          reverse: whether to run from the end to the start.
          keep_order: with reverse, whether y stands in the order of x.
          memory: what every step of the cell reads.
          deterministic: True switches noise off, which the rng "dropout" draws. A cell
            with noise needs it here or as an attribute.
          use_running_average: for batch norm, True takes the running statistics, False
            those of the batch. It is given here or as an attribute.

        Returns:
          y [..., T, H], or (carry, y) with return_carry.

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit; an option given twice or not at all.
        """
        call = flax_modules.SequenceCall(
            flax_modules.merge_argument(time_major, self.time_major),
            reverse,
            keep_order,
            seq_lengths,
            mask,
            resets,
            memory,
            deterministic,
            use_running_average,
        )
        carry, y = self._run(inputs, initial_carry, init_key, call)
        if flax_modules.merge_argument(return_carry, self.return_carry):
            return carry, y
        return y

    @nn.compact
    def step(
        self,
        carry: base.Carry,
        inputs: jax.Array,
        *,
        mask: jax.Array | None = None,
        reset: jax.Array | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
    ) -> tuple[base.Carry, jax.Array]:
        """Take one step with the same parameters: module.apply(..., method="step").

        Args:
          carry: what `initialize_carry`, a step or a whole sequence returned.
          inputs: x [..., D].
          mask: [...], False where the step is padding.
          reset: [...], True where the carry starts anew before the step.
          memory: what the step reads.
          deterministic: as in the call.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError, ValueError: as the call; noise or a norm of whole sequences.
        """
        call = flax_modules.StepCall(mask, reset, memory, deterministic)
        return self._step(carry, inputs, call)

    @nn.nowrap
    def _run(self, inputs, initial_carry, init_key, call):
        """The last carry and the outputs of a sequence."""
        raise NotImplementedError

    @nn.nowrap
    def _step(self, carry, inputs, call):
        """The carry and the output of one step."""
        raise NotImplementedError


class CellSequence(SequenceModule):
    """One cell over a whole sequence.

    A subclass has the fields of a cell module or holds one as `parameter_module`.
    """

    _: dataclasses.KW_ONLY
    time_major: bool = False
    return_carry: bool = False
    reverse: bool = False
    keep_order: bool = False
    unroll: int = 1
    options: functional.ScanOptions | None = None
    max_steps: int | None = None
    momentum: float = 0.9
    use_running_average: bool | None = None

    generic_module = "RNN"

    @property
    def parameter_module(self) -> Any:
        """The module that keeps the parameters."""
        return self

    @nn.nowrap
    def _run(self, inputs, initial_carry, init_key, call):
        owner = self.parameter_module
        cell = owner.functional_cell
        x, params = base.inputs_and_parameters(owner, inputs)
        # Zeros and learned carries are made by the cell itself.
        if initial_carry is None and owner.carry_init is not nn.initializers.zeros:
            shape = flax_modules.step_shape(x, call.time_major)
            carry = owner.initialize_carry(init_key, shape)
            initial_carry = flax_modules.drawn_carry(cell, params, x, carry)

        flax_modules.make_statistics(
            type(self).__name__,
            cell,
            self.max_steps,
            functools.partial(self.variable, "batch_stats"),
        )
        takes_running = cell.sites and nn.merge_param(
            "use_running_average", self.use_running_average, call.use_running_average
        )
        return flax_modules.run_cell(
            self,
            cell,
            params,
            x,
            initial_carry,
            call,
            key=base.noise_key(self, owner, call.deterministic),
            takes_running=bool(takes_running),
            # `init` only makes the variables.
            moves_running=not self.is_initializing(),
        )

    # The running statistics of batch norm are variables of the module.

    @nn.nowrap
    def read_statistics(self, name: str) -> jax.Array:
        """Return the running statistics of a name such as "mean_x", [T_max, n]."""
        return self.get_variable("batch_stats", name)

    @nn.nowrap
    def write_statistics(self, name: str, value: jax.Array) -> None:
        """Set the running statistics of a name."""
        self.put_variable("batch_stats", name, value)

    @nn.nowrap
    def _step(self, carry, inputs, call):
        return base.take_step(self, self.parameter_module, carry, inputs, call)


class RNN(CellSequence):
    """Run any cell over a sequence: x [..., T, D] -> y [..., T, H].

    Attributes:
      cell: an `LSTMCell`, `GRUCell`, `SimpleCell` or `FunctionalCell`, or a cell of
        `lnrepro.functional`, for which a `FunctionalCell` is made. Its parameters are
        in the submodule "cell". All other fields are given by name.
      time_major: whether x is [T, ..., D] in place of [..., T, D].
      return_carry: whether the call returns (carry, y) in place of y.
      reverse: whether to run from the end to the start.
      keep_order: with reverse, whether y stands in the order of x.
      unroll: steps per iteration of the loop, as in flax.linen.RNN.
      options: how the scan runs and what its backward pass keeps.
      max_steps: for batch norm, the number of time steps with running statistics of
        their own. Later steps use the last ones.
      momentum: for batch norm, the weight of the old value in the running statistics.
      use_running_average: for batch norm, True normalises by the running statistics,
        False by the batch. It is given here or in the call.

    >>> import jax.numpy as jnp
    >>> from lnrepro.linen import LSTMCell
    >>> x = jnp.ones((2, 5, 3))
    >>> layer = RNN(LSTMCell(4))
    >>> variables = layer.init(jax.random.key(0), x)
    >>> layer.apply(variables, x, seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 4)

    A cell of `lnrepro.functional` with all of its options:

    >>> layer = RNN(functional.LSTMCell(4, norm="layer", peephole=True))
    >>> layer.init_with_output(jax.random.key(0), x)[0].shape
    (2, 5, 4)
    """

    cell: base.CellModule | functional.Cell

    def __post_init__(self):
        """Check the cell, and make a module of a functional cell."""
        # A module is a frozen dataclass, whose fields are set by object.__setattr__.
        if isinstance(self.cell, functional.Cell):
            object.__setattr__(self, "cell", FunctionalCell(self.cell, parent=None))
        flax_modules.check_cell(self.cell, base.CellModule, "linen")
        super().__post_init__()

    @property
    def parameter_module(self) -> base.CellModule:
        """The cell, which is a module after `__post_init__`."""
        return cast(base.CellModule, self.cell)

    @property
    def features(self) -> int:
        """H, the size of the output."""
        return self.parameter_module.functional_cell.features

    @nn.nowrap
    def initialize_carry(
        self, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> base.Carry:
        """Return the carry before the first step, as the cell's `initialize_carry`."""
        return self.parameter_module.initialize_carry(rng, input_shape)


class LSTM(CellSequence, GatedFields):
    """Run an LSTM (eq. 20-22) over a sequence: x [..., T, D] -> y [..., T, H].

    Short for `RNN(LSTMCell(features, ...))`, with the parameters in the module itself.
    Attributes are those of `LSTMCell`, and of `RNN` but its cell.

    >>> import jax.numpy as jnp
    >>> x = jnp.ones((2, 5, 3))
    >>> layer = LSTM(4)
    >>> variables = layer.init(jax.random.key(0), x)
    >>> layer.apply(variables, x, seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 4)
    >>> carry = layer.initialize_carry(jax.random.key(0), x[:, 0].shape)
    >>> carry, y = layer.apply(variables, carry, x[:, 0], method="step")
    >>> y.shape
    (2, 4)
    """

    cell_class = functional.LSTMCell


class GRU(CellSequence, GatedFields):
    """Run a GRU (eq. 26-28) over a sequence: x [..., T, D] -> y [..., T, H].

    As `LSTM`, but for the cell, `GRUCell`.

    >>> x = jax.numpy.ones((2, 5, 3))
    >>> GRU(4).init_with_output(jax.random.key(0), x)[0].shape
    (2, 5, 4)
    """

    cell_class = functional.GRUCell


class SimpleRNN(CellSequence, NamedFields):
    """Run eq. 4, a simple network, over a sequence: x [..., T, D] -> y [..., T, H].

    As `LSTM`, but for the cell, `SimpleCell`.

    >>> x = jax.numpy.ones((2, 5, 3))
    >>> SimpleRNN(4).init_with_output(jax.random.key(0), x)[0].shape
    (2, 5, 4)
    """

    cell_class = functional.SimpleCell
