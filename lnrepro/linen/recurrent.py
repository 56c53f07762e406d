"""RNN runs a cell over a sequence.

It has the arguments of flax.linen.RNN, and mask, resets and memory besides. It differs
from Flax in these points, and so do `LSTM`, `GRU` and `SimpleRNN`:

1. Gradients are taken by the memory-lean backward pass of `lnrepro.functional.unroll`.
   For forward mode (jvp) give `options=functional.ScanOptions(backward="autodiff")`.
2. Outputs at padding are zero, and the carry passes through padding. Flax returns what
   the cell computes there, and for a length of 0 the carry of a padded step.
3. Cells are those of `lnrepro.linen`, or of `lnrepro.functional`. Other cells of Flax,
   such as ConvLSTMCell, run in flax.linen.RNN.
4. Integers are refused unless the cell has a `dtype`. Complex numbers are refused.
"""

from typing import Any, cast

import flax.linen as nn
import jax

from lnrepro import functional
from lnrepro.linen.base import CellModule, SequenceModule
from lnrepro.linen.cells import FunctionalCell
from lnrepro.linen.parameters import declare_parameters

Carry = Any


class RNN(SequenceModule):
    """Run any cell over a sequence: x [..., T, D] -> y [..., T, H].

    Attributes:
      cell: an `LSTMCell`, `GRUCell`, `SimpleCell` or `FunctionalCell`, or a cell of
        `lnrepro.functional`, for which a `FunctionalCell` is made. Its parameters are
        in the submodule "cell".
      return_carry: whether the call returns (carry, y) in place of y.
      time_major: whether x is [T, ..., D] in place of [..., T, D].
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

    A cell of `lnrepro.functional`, here two layers in one scan:

    >>> layer = RNN(functional.stack(functional.GRUCell(4), functional.GRUCell(4)))
    >>> y, variables = layer.init_with_output(jax.random.key(0), x)
    >>> y.shape
    (2, 5, 4)
    """

    cell: CellModule | functional.Cell
    return_carry: bool = False
    time_major: bool = False
    reverse: bool = False
    keep_order: bool = False
    unroll: int = 1
    options: functional.ScanOptions | None = None
    max_steps: int | None = None
    momentum: float = 0.9
    use_running_average: bool | None = None

    def __post_init__(self):
        """Check the cell, and make a module of a functional cell."""
        # A module is a frozen dataclass, whose fields are set by object.__setattr__.
        if isinstance(self.cell, functional.Cell):
            object.__setattr__(self, "cell", FunctionalCell(self.cell, parent=None))
        # A module with another `__call__` would not run as written: only its functional
        # cell does.
        elif not _runs_functional_cell(self.cell):
            raise TypeError(
                f"RNN: the cell is a {type(self.cell).__name__}; it must be a cell of "
                "lnrepro.linen whose __call__ is not overridden, or one of "
                "lnrepro.functional. For other cells use flax.linen.RNN"
            )
        super().__post_init__()

    @property
    def _module(self) -> CellModule:
        """The cell, which is a module after `__post_init__`."""
        return cast(CellModule, self.cell)

    @property
    def features(self) -> int:
        """H, the size of the output."""
        return self._module.functional_cell.features

    @property
    def functional_cell(self) -> functional.Cell:
        """The cell of `lnrepro.functional` that the module stands for."""
        return self._module.functional_cell

    @property
    def dtype(self) -> jax.typing.DTypeLike | None:
        """The dtype of the cell."""
        return self._module.dtype

    @property
    def param_dtype(self) -> jax.typing.DTypeLike:
        """The dtype of the cell's parameters."""
        return self._module.param_dtype

    @property
    def carry_init(self) -> nn.initializers.Initializer:
        """The cell's initialiser of the carry."""
        return self._module.carry_init

    @property
    def deterministic(self) -> bool | None:
        """Whether the cell is without noise."""
        return self._module.deterministic

    @nn.nowrap
    def parameters(self, cell: functional.Cell, features_in: int) -> Any:
        """Return the parameters of the cell; make them if it has none."""
        return declare_parameters(
            self._module, cell, features_in, self._module.initializers()
        )

    @nn.nowrap
    def initialize_carry(
        self, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> Carry:
        """Return the carry before the first step, as the cell's `initialize_carry`.

        Args:
          rng: random key for `carry_init`; zeros do not need it.
          input_shape: shape [..., D] of the inputs of one step.

        Returns:
          The carry.

        Raises:
          ValueError: a learned carry of a module that is not bound to its parameters.
        """
        return self._module.initialize_carry(rng, input_shape)


def _runs_functional_cell(cell):
    """Whether a step of the module is a step of its functional cell."""
    return isinstance(cell, CellModule) and type(cell).__call__ is CellModule.__call__
