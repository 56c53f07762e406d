"""A cell over a whole sequence: RNN for any cell, and the LSTM, the GRU, eq. 4.

They have the arguments of flax.linen.RNN, and mask, resets and memory besides.
docs/flax.md lists the differences from Flax.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax

from lnrepro import functional
from lnrepro.flax_modules import no_cell, refuse_other_cells, run_sequence, run_step
from lnrepro.functional.cells.base import Carry
from lnrepro.linen.cells import (
    CellModule,
    CellParameters,
    FunctionalCell,
    GatedFields,
    NamedFields,
)


class SequenceModule(nn.Module):
    """One cell over a whole sequence, with the interface of flax.linen.RNN.

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

    @nn.compact
    def __call__(
        self,
        inputs: jax.Array,
        *misplaced: Any,
        initial_carry: Carry | None = None,
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
    ) -> Any:
        """Run over a sequence.

        Args:
          inputs: x [..., T, D], or [T, ..., D] with time_major.
          *misplaced: nothing; all other arguments are given by name.
          initial_carry: the carry before the first step. None takes the cell's own.
          init_key: accepted as Flax does, and ignored.
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

        Returns:
          y [..., T, H], or (carry, y) with return_carry.

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit; parameters of another cell; an option
            given twice or not at all.
        """
        # Flax's Bidirectional passes a key, but our carries are not drawn.
        del init_key
        if misplaced:
            raise no_cell(self)
        owner = self.parameter_module
        return run_sequence(
            self,
            owner._prepare(inputs, deterministic),
            dtype=owner.dtype,
            return_carry=return_carry,
            time_major=time_major,
            reverse=reverse,
            keep_order=keep_order,
            initial_carry=initial_carry,
            seq_lengths=seq_lengths,
            mask=mask,
            resets=resets,
            memory=memory,
        )

    @nn.compact
    def step(
        self,
        carry: Carry,
        inputs: jax.Array,
        *,
        mask: jax.Array | None = None,
        reset: jax.Array | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
    ) -> tuple[Carry, jax.Array]:
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
        owner = self.parameter_module
        prepared = owner._prepare(inputs, deterministic)
        return run_step(owner, prepared, carry, mask, reset, memory)


class RNN(SequenceModule):
    """Run any cell over a sequence: x [..., T, D] -> y [..., T, H].

    Attributes:
      cell: an `LSTMCell`, `GRUCell`, `SimpleCell` or `FunctionalCell`, or a cell of
        `lnrepro.functional`, for which a `FunctionalCell` is made. Its parameters are
        in the submodule "cell". All other fields are given by name.
      time_major: whether x is [T, ..., D] in place of [..., T, D].
      return_carry: whether the call returns (carry, y) in place of y.
      reverse: whether to run from the end to the start.
      keep_order: with reverse, whether y stands in the order of x.
      options: how the scan runs and what its backward pass keeps.

    Raises:
      TypeError: the cell is of another kind.

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

    cell: CellModule | functional.Cell

    def __post_init__(self):
        """Check the cell, and make a module of a functional cell."""
        cell = self.cell
        if isinstance(cell, functional.Cell):
            cell = FunctionalCell(cell, parent=None)
        refuse_other_cells(cell, CellModule, "linen")
        # A module is a frozen dataclass, whose fields are set by object.__setattr__.
        object.__setattr__(self, "cell", cell)
        super().__post_init__()

    @property
    def parameter_module(self: Any) -> CellParameters:
        """The cell, which is a module after `__post_init__`."""
        return self.cell

    @nn.nowrap
    def initialize_carry(
        self, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> Carry:
        """Return the carry before the first step, as the cell's `initialize_carry`."""
        return self.parameter_module.initialize_carry(rng, input_shape)


class LSTM(GatedFields, SequenceModule):
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


class GRU(GatedFields, SequenceModule):
    """Run a GRU (eq. 26-28) over a sequence: x [..., T, D] -> y [..., T, H].

    As `LSTM`, but for the cell, `GRUCell`.

    >>> x = jax.numpy.ones((2, 5, 3))
    >>> GRU(4).init_with_output(jax.random.key(0), x)[0].shape
    (2, 5, 4)
    """

    cell_class = functional.GRUCell


class SimpleRNN(NamedFields, SequenceModule):
    """Run eq. 4, a simple network, over a sequence: x [..., T, D] -> y [..., T, H].

    As `LSTM`, but for the cell, `SimpleCell`.

    >>> x = jax.numpy.ones((2, 5, 3))
    >>> SimpleRNN(4).init_with_output(jax.random.key(0), x)[0].shape
    (2, 5, 4)
    """

    cell_class = functional.SimpleCell
