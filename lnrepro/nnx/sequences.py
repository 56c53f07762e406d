"""A cell over a whole sequence: RNN for any cell, and the LSTM, the GRU, eq. 4.

They have the arguments of flax.nnx.RNN, and mask, resets and memory besides.
docs/flax.md lists the differences from Flax.
"""

import dataclasses
from typing import Any

import jax
from flax import nnx

from lnrepro import functional
from lnrepro.functional import flax_modules
from lnrepro.functional.cells.base import Initializer
from lnrepro.nnx import base
from lnrepro.nnx.cells import FunctionalCell, GatedFields, NamedFields


class SequenceModule(nnx.Module):
    """A module over a whole sequence, with the interface of flax.nnx.RNN.

    A subclass has the attributes return_carry and time_major, and defines `_run` and
    `_step`.
    """

    return_carry: bool
    time_major: bool

    def __call__(
        self,
        inputs: jax.Array,
        *,
        initial_carry: base.Carry | None = None,
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
        rngs: base.Keys | None = None,
    ) -> Any:
        """Run over a sequence. Options override the attributes of the same name.

        Args:
          inputs: x [..., T, D], or [T, ..., D] with time_major.
          initial_carry: the carry before the first step. None takes the cell's own.
          seq_lengths: integers [...] in [0, T]. Steps at and beyond a length are
            padding: the carry passes through them, and their output is zero.
          mask: [..., T], False where a step is padding, anywhere in the sequence.
          resets: [..., T], True at the first observation of an episode: the carry
            starts anew before that step, at zeros or at the learned carry. See the
            picture at `lnrepro.functional.unroll`.
          return_carry: whether to return (carry, y).
          time_major: whether x is [T, ..., D].
          reverse: whether to run from the end to the start.
          keep_order: with reverse, whether y stands in the order of x.
          memory: what every step of the cell reads.
          deterministic: True switches noise off.
          use_running_average: for batch norm, True takes the running statistics, False
            those of the batch.
          rngs: keys for the noise; None takes those that the module was built with.

        Returns:
          y [..., T, H], or (carry, y) with return_carry.

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit, or noise without rngs.
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
        carry, y = self._run(inputs, initial_carry, rngs, call)
        if flax_modules.merge_argument(return_carry, self.return_carry):
            return carry, y
        return y

    def step(
        self,
        carry: base.Carry,
        inputs: jax.Array,
        *,
        mask: jax.Array | None = None,
        reset: jax.Array | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
        rngs: base.Keys | None = None,
    ) -> tuple[base.Carry, jax.Array]:
        """Take one step with the same parameters.

        Args:
          carry: what `initialize_carry`, a step or a whole sequence returned.
          inputs: x [..., D].
          mask: [...], False where the step is padding.
          reset: [...], True where the carry starts anew before the step.
          memory: what the step reads.
          deterministic: as in the call.
          rngs: as in the call. Variational dropout needs one key for all steps of a
            sequence.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError, ValueError: as the call; noise or a norm of whole sequences.
        """
        call = flax_modules.StepCall(mask, reset, memory, deterministic)
        return self._step(carry, inputs, rngs, call)

    def _run(self, inputs, initial_carry, rngs, call):
        """The last carry and the outputs of a sequence."""
        raise NotImplementedError

    def _step(self, carry, inputs, rngs, call):
        """The carry and the output of one step."""
        raise NotImplementedError


@dataclasses.dataclass(eq=False, repr=False)
class CellSequence(SequenceModule):
    """One cell over a whole sequence.

    A subclass is a `ParameterModule`, or holds one as `parameter_module`. It calls
    `_make_statistics` when it is built.
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
    use_running_average: bool = False

    @property
    def parameter_module(self) -> Any:
        """The module that keeps the parameters."""
        return self

    def _run(self: Any, inputs, initial_carry, rngs, call):
        owner = self.parameter_module
        rngs = self.carry_rngs if rngs is None else rngs
        cell = owner.functional_cell
        x, params = base.inputs_and_parameters(owner, inputs)
        # Zeros and learned carries are made by the cell itself.
        if initial_carry is None and owner.carry_init is not None:
            shape = flax_modules.step_shape(x, call.time_major)
            carry = owner.initialize_carry(shape, _carry_stream(rngs))
            initial_carry = flax_modules.drawn_carry(cell, params, x, carry)

        takes_running = flax_modules.merge_argument(
            call.use_running_average, self.use_running_average
        )
        return flax_modules.run_cell(
            self,
            cell,
            params,
            x,
            initial_carry,
            call,
            key=base.noise_key(owner, call.deterministic, rngs),
            takes_running=takes_running,
            moves_running=True,
        )

    # The running statistics of batch norm are attributes of the module.

    def _make_statistics(self, cell):
        def make(name, function, shape, dtype):
            setattr(self, name, nnx.BatchStat(function(shape, dtype)))

        name = type(self).__name__
        flax_modules.make_statistics(name, cell, self.max_steps, make)

    def read_statistics(self, name: str) -> jax.Array:
        """Return the running statistics of a name such as "mean_x", [T_max, n]."""
        return getattr(self, name)[...]

    def write_statistics(self, name: str, value: jax.Array) -> None:
        """Set the running statistics of a name."""
        getattr(self, name)[...] = value

    def _step(self, carry, inputs, rngs, call):
        return base.take_step(self.parameter_module, carry, inputs, call, rngs)

    def set_view(
        self,
        deterministic: bool | None = None,
        use_running_average: bool | None = None,
    ):
        """Set the attributes that `nnx.view` was given.

        Args:
          deterministic: True switches noise off.
          use_running_average: for batch norm, True takes the running statistics.
        """
        if deterministic is not None and self.parameter_module is self:
            self.deterministic = deterministic
        if use_running_average is not None:
            self.use_running_average = use_running_average


@dataclasses.dataclass(eq=False, repr=False)
class RNN(CellSequence):
    """Run any cell over a sequence: x [..., T, D] -> y [..., T, H].

    Arguments are the attributes of `lnrepro.linen.RNN`, and these. `model.train()` and
    `model.eval()` set use_running_average.

    Args:
      cell: an `LSTMCell`, `GRUCell`, `SimpleCell` or `FunctionalCell`, or a cell of
        `lnrepro.functional`, for which a `FunctionalCell` is made.
      in_features: D, for a cell of `lnrepro.functional`. A module knows its own.
      rngs: keys of the parameters and the noise of a cell of `lnrepro.functional`. For
        a module, keys for its `carry_init`, of the stream "carry"; True and False take
        the module's own.

    Raises:
      TypeError: the cell is of another kind.
      ValueError: in_features, rngs or max_steps is missing.

    >>> import jax.numpy as jnp
    >>> from lnrepro.nnx import LSTMCell
    >>> x = jnp.ones((2, 5, 3))
    >>> layer = RNN(LSTMCell(3, 4, rngs=nnx.Rngs(0)))
    >>> layer(x, seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 4)

    A cell of `lnrepro.functional` with all of its options:

    >>> cell = functional.LSTMCell(4, norm="layer", peephole=True)
    >>> RNN(cell, in_features=3, rngs=nnx.Rngs(0))(x).shape
    (2, 5, 4)
    """

    cell: Any
    _: dataclasses.KW_ONLY
    in_features: dataclasses.InitVar[int | None] = None
    rngs: dataclasses.InitVar[base.Streams | bool] = True

    def __post_init__(self, in_features, rngs):
        """Check the cell, and make a module of a functional cell."""
        cell = self.cell
        if isinstance(cell, functional.Cell):
            # A functional cell has no parameters of its own, so they are drawn here.
            if in_features is None or not isinstance(rngs, nnx.Rngs):
                raise ValueError(
                    "RNN: a cell of lnrepro.functional needs in_features=... and "
                    "rngs=nnx.Rngs(...) for its parameters"
                )
            cell, rngs = FunctionalCell(cell, in_features, rngs=rngs), True
        flax_modules.check_cell(cell, base.CellModule, "nnx")
        # nnx.data lets a module take the place of a functional cell.
        self.cell = nnx.data(cell)
        self.carry_rngs = keep_stream(rngs)
        self._make_statistics(cell.functional_cell)

    @property
    def parameter_module(self) -> base.CellModule:
        """The cell."""
        return self.cell

    @property
    def hidden_features(self) -> int:
        """H, the size of the output."""
        return self.cell.hidden_features

    def initialize_carry(
        self,
        input_shape: tuple[int, ...],
        rngs: base.Streams | None = None,
        carry_init: Initializer | None = None,
    ) -> base.Carry:
        """Return the carry before the first step, as the cell's `initialize_carry`."""
        rngs = self.carry_rngs if rngs is None else rngs
        return self.cell.initialize_carry(input_shape, rngs, carry_init)


@dataclasses.dataclass(eq=False, repr=False)
class NamedSequence(CellSequence, NamedFields):
    """A layer that is named after a kind of cell, with its parameters in itself."""

    generic_module = "RNN"

    def __post_init__(self, *parameters):
        """Make the cell, its parameters and its running statistics."""
        super().__post_init__(*parameters)
        self._make_statistics(self.functional_cell)


@dataclasses.dataclass(eq=False, repr=False)
class LSTM(NamedSequence, GatedFields):
    """Run an LSTM (eq. 20-22) over a sequence: x [..., T, D] -> y [..., T, H].

    Short for `RNN(LSTMCell(...))`, with the parameters in the module itself. Arguments
    are those of `LSTMCell`, and of `RNN` but its cell.

    >>> import jax.numpy as jnp
    >>> layer = LSTM(3, 4, rngs=nnx.Rngs(0))
    >>> x = jnp.ones((2, 5, 3))
    >>> layer(x, seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 4)
    >>> carry = layer.initialize_carry(x[:, 0].shape)
    >>> carry, y = layer.step(carry, x[:, 0])
    >>> y.shape
    (2, 4)
    """

    cell_class = functional.LSTMCell


@dataclasses.dataclass(eq=False, repr=False)
class GRU(NamedSequence, GatedFields):
    """Run a GRU (eq. 26-28) over a sequence: x [..., T, D] -> y [..., T, H].

    As `LSTM`, but for the cell, `GRUCell`.

    >>> GRU(3, 4, rngs=nnx.Rngs(0))(jax.numpy.ones((2, 5, 3))).shape
    (2, 5, 4)
    """

    cell_class = functional.GRUCell


class SimpleRNN(NamedSequence):
    """Run eq. 4, a simple network, over a sequence: x [..., T, D] -> y [..., T, H].

    As `LSTM`, but for the cell, `SimpleCell`.

    >>> SimpleRNN(3, 4, rngs=nnx.Rngs(0))(jax.numpy.ones((2, 5, 3))).shape
    (2, 5, 4)
    """

    cell_class = functional.SimpleCell


def keep_stream(rngs: base.Streams | bool) -> Any:
    """Make the stream for carries that a module keeps, None where it keeps none.

    Raises:
      TypeError: `rngs` is neither a bool nor streams.
    """
    if isinstance(rngs, bool):
        return nnx.data(None)
    if not isinstance(rngs, nnx.Rngs | nnx.RngStream):
        raise TypeError(
            f"rngs has the type {type(rngs).__name__}; give rngs=nnx.Rngs(0), with a "
            "seed or key of yours, True or False"
        )
    stream = rngs.carry if isinstance(rngs, nnx.Rngs) else rngs
    # The tag tells the modules inside that their noise is not to be drawn from it.
    return nnx.RngStream(stream(), tag="carry")


def _carry_stream(rngs):
    """The stream for carries among the rngs of a call, or None."""
    if isinstance(rngs, nnx.Rngs) and ("carry" in rngs or "default" in rngs):
        return rngs.carry
    return rngs if isinstance(rngs, nnx.RngStream) else None
