"""A cell over a whole sequence: RNN for any cell, and the LSTM, the GRU, eq. 4.

They have the arguments of flax.nnx.RNN, and mask, resets and memory besides.
docs/flax.md lists the differences from Flax.
"""

import dataclasses
from dataclasses import InitVar
from typing import Any

import jax
from flax import nnx

from lnrepro import functional
from lnrepro.flax_modules import no_cell, refuse_other_cells, run_sequence
from lnrepro.functional.cells.base import Carry
from lnrepro.nnx.cells import (
    CellModule,
    CellParameters,
    FunctionalCell,
    GatedFields,
    Keys,
    NamedFields,
    arrays,
)


@dataclasses.dataclass(eq=False, repr=False)
class SequenceModule(nnx.Module):
    """One cell over a whole sequence, with the interface of flax.nnx.RNN.

    A subclass is a `CellParameters`, or holds one as `parameter_module`.
    """

    _: dataclasses.KW_ONLY
    time_major: bool = False
    return_carry: bool = False
    reverse: bool = False
    keep_order: bool = False
    options: functional.ScanOptions | None = None

    @property
    def parameter_module(self) -> CellParameters:
        """The module that keeps the parameters."""
        raise NotImplementedError

    @property
    def num_feature_axes(self) -> int:
        """What Flax's RNN asks of a cell, and this is none."""
        raise no_cell(self)

    def __call__(
        self,
        inputs: jax.Array,
        *misplaced: Any,
        initial_carry: Carry | None = None,
        seq_lengths: jax.Array | None = None,
        mask: jax.Array | None = None,
        resets: jax.Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
        rngs: Keys | None = None,
    ) -> Any:
        """Run over a sequence. Options override the attributes of the same name.

        Args:
          inputs: x [..., T, D], or [T, ..., D] with time_major.
          *misplaced: nothing; all other arguments are given by name.
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
          rngs: keys for the noise; None takes those that the module was built with.

        Returns:
          y [..., T, H], or (carry, y) with return_carry.

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit; parameters of another cell; noise
            without rngs.
        """
        if misplaced:
            raise no_cell(self)
        owner = self.parameter_module
        return run_sequence(
            self,
            owner._prepare(inputs, deterministic, rngs),
            dtype=owner.dtype,
            return_carry=return_carry,
            time_major=time_major,
            reverse=reverse,
            keep_order=keep_order,
            initial_carry=arrays(initial_carry),
            seq_lengths=seq_lengths,
            mask=mask,
            resets=resets,
            memory=arrays(memory),
        )

    def step(
        self,
        carry: Carry,
        inputs: jax.Array,
        *,
        mask: jax.Array | None = None,
        reset: jax.Array | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
        rngs: Keys | None = None,
    ) -> tuple[Carry, jax.Array]:
        """Take one step with the same parameters.

        Args:
          carry: what `initialize_carry`, a step or a whole sequence returned.
          inputs: x [..., D].
          mask: [...], False where the step is padding.
          reset: [...], True where the carry starts anew before the step.
          memory: what the step reads.
          deterministic: as in the call.
          rngs: as in the call.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError, ValueError: as the call; noise of whole sequences.
        """
        owner = self.parameter_module
        return owner._step(carry, inputs, deterministic, rngs, mask, reset, memory)


@dataclasses.dataclass(eq=False, repr=False)
class RNN(SequenceModule):
    """Run any cell over a sequence: x [..., T, D] -> y [..., T, H].

    Arguments are the attributes of `lnrepro.linen.RNN`, and these:

    Args:
      cell: an `LSTMCell`, `GRUCell`, `SimpleCell` or `FunctionalCell`, or a cell of
        `lnrepro.functional`, for which a `FunctionalCell` is made.
      in_features: D, for a cell of `lnrepro.functional`. A module knows its own.
      rngs: keys of the parameters and the noise of a cell of `lnrepro.functional`. For
        a module they are accepted as Flax does, and ignored.

    Raises:
      TypeError: the cell is of another kind.
      ValueError: in_features or rngs is missing.

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
    in_features: InitVar[int | None] = None
    rngs: InitVar[Keys | bool] = True

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
            cell = FunctionalCell(cell, in_features, rngs=rngs)
        refuse_other_cells(cell, CellModule, "nnx")
        # nnx.data lets a module take the place of a functional cell.
        self.cell = nnx.data(cell)

    @property
    def parameter_module(self) -> CellParameters:
        """The cell."""
        return self.cell

    def initialize_carry(
        self,
        input_shape: tuple[int, ...],
        rngs: Keys | None = None,
    ) -> Carry:
        """Return the carry before the first step, as the cell's `initialize_carry`."""
        return self.cell.initialize_carry(input_shape, rngs)


@dataclasses.dataclass(eq=False, repr=False)
class LSTM(GatedFields, SequenceModule):
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
class GRU(GatedFields, SequenceModule):
    """Run a GRU (eq. 26-28) over a sequence: x [..., T, D] -> y [..., T, H].

    As `LSTM`, but for the cell, `GRUCell`.

    >>> GRU(3, 4, rngs=nnx.Rngs(0))(jax.numpy.ones((2, 5, 3))).shape
    (2, 5, 4)
    """

    cell_class = functional.GRUCell


@dataclasses.dataclass(eq=False, repr=False)
class SimpleRNN(NamedFields, SequenceModule):
    """Run eq. 4, a simple network, over a sequence: x [..., T, D] -> y [..., T, H].

    As `LSTM`, but for the cell, `SimpleCell`.

    >>> SimpleRNN(3, 4, rngs=nnx.Rngs(0))(jax.numpy.ones((2, 5, 3))).shape
    (2, 5, 4)
    """

    cell_class = functional.SimpleCell
