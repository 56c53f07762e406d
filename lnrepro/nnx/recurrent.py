"""RNN runs a cell over a sequence.

It has the arguments of flax.nnx.RNN, and mask, resets and memory besides. It differs
from Flax in these points, and so do `LSTM`, `GRU` and `SimpleRNN`:

1. Gradients are taken by the memory-lean backward pass of `lnrepro.functional.unroll`.
   For forward mode (jvp) give `options=functional.ScanOptions(backward="autodiff")`.
2. Outputs at padding are zero, and the carry passes through padding. Flax returns what
   the cell computes there, and for a length of 0 the carry of a padded step.
3. Cells are those of `lnrepro.nnx`, or of `lnrepro.functional`. Other cells, such as
   your own nnx.Module, run in flax.nnx.RNN.
4. Integers are refused unless the cell has a `dtype`. Complex numbers are refused.
5. There is no `state_axes` and no `broadcast_rngs`: a cell has no state besides its
   carry. For one dropout mask over a whole sequence use
   `functional.variational_dropout`.
"""

from flax import nnx

from lnrepro import functional
from lnrepro.nnx.base import Carry, CellModule
from lnrepro.nnx.cells import FunctionalCell
from lnrepro.nnx.parameters import Initializer
from lnrepro.nnx.sequence_base import SequenceMethods


class RNN(SequenceMethods, nnx.Module):
    """Run any cell over a sequence: x [..., T, D] -> y [..., T, H].

    Args:
      cell: an `LSTMCell`, `GRUCell`, `SimpleCell` or `FunctionalCell`, or a cell of
        `lnrepro.functional`, for which a `FunctionalCell` is made. It is the attribute
        `cell`.
      in_features: D, for a cell of `lnrepro.functional`. A module knows its own.
      return_carry: whether the call returns (carry, y) in place of y.
      time_major: whether x is [T, ..., D] in place of [..., T, D].
      reverse: whether to run from the end to the start.
      keep_order: with reverse, whether y stands in the order of x.
      unroll: steps per iteration of the loop, as in flax.nnx.RNN.
      options: how the scan runs and what its backward pass keeps.
      max_steps: for batch norm, the number of time steps with running statistics of
        their own. Later steps use the last ones.
      momentum: for batch norm, the weight of the old value in the running statistics.
      use_running_average: for batch norm, True normalises by the running statistics, as
        `model.eval()` does.
      rngs: keys of the parameters and the noise of a cell of `lnrepro.functional`. A
        module has its own.

    Raises:
      TypeError: the cell is of another kind.
      ValueError: a cell of `lnrepro.functional` without in_features or rngs; batch norm
        without max_steps.

    >>> import jax.numpy as jnp
    >>> from lnrepro.nnx import LSTMCell
    >>> x = jnp.ones((2, 5, 3))
    >>> layer = RNN(LSTMCell(3, 4, rngs=nnx.Rngs(0)))
    >>> layer(x, seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 4)

    A cell of `lnrepro.functional`, here two layers in one scan:

    >>> cell = functional.stack(functional.GRUCell(4), functional.GRUCell(4))
    >>> layer = RNN(cell, in_features=3, rngs=nnx.Rngs(0))
    >>> layer(x).shape
    (2, 5, 4)
    """

    def __init__(
        self,
        cell: CellModule | functional.Cell,
        *,
        in_features: int | None = None,
        return_carry: bool = False,
        time_major: bool = False,
        reverse: bool = False,
        keep_order: bool = False,
        unroll: int = 1,
        options: functional.ScanOptions | None = None,
        max_steps: int | None = None,
        momentum: float = 0.9,
        use_running_average: bool = False,
        rngs: nnx.Rngs | None = None,
    ):
        if isinstance(cell, functional.Cell):
            # A functional cell has no parameters of its own, so they are drawn here.
            if in_features is None or rngs is None:
                raise ValueError(
                    "RNN: a cell of lnrepro.functional needs in_features=... and "
                    "rngs=nnx.Rngs(...) for its parameters"
                )
            cell = FunctionalCell(cell, in_features, rngs=rngs)
        # A module with another `__call__` would not run as written: only its functional
        # cell does.
        elif not _runs_functional_cell(cell):
            raise TypeError(
                f"RNN: the cell is a {type(cell).__name__}; it must be a cell of "
                "lnrepro.nnx whose __call__ is not overridden, or one of "
                "lnrepro.functional. For other cells use flax.nnx.RNN"
            )
        self.cell = cell
        self.set_sequence_options(
            return_carry=return_carry,
            time_major=time_major,
            reverse=reverse,
            keep_order=keep_order,
            unroll=unroll,
            options=options,
            max_steps=max_steps,
            momentum=momentum,
            use_running_average=use_running_average,
        )

    @property
    def parameter_module(self) -> CellModule:
        """The cell."""
        return self.cell

    @property
    def hidden_features(self) -> int:
        """H, the size of the output."""
        return self.cell.hidden_features

    def initialize_carry(
        self,
        input_shape: tuple[int, ...],
        rngs: nnx.Rngs | nnx.RngStream | None = None,
        carry_init: Initializer | None = None,
    ) -> Carry:
        """Return the carry before the first step, as the cell's `initialize_carry`.

        Args:
          input_shape: shape [..., D] of the inputs of one step.
          rngs: keys for `carry_init`, of the stream "carry".
          carry_init: overrides that of the cell.

        Returns:
          The carry.
        """
        return self.cell.initialize_carry(input_shape, rngs, carry_init)

    def set_view(self, use_running_average: bool | None = None):
        """Set the attribute that `nnx.view` was given.

        Args:
          use_running_average: for batch norm, True takes the running statistics.
        """
        if use_running_average is not None:
            self.use_running_average = use_running_average


def _runs_functional_cell(cell):
    """Whether a step of the module is a step of its functional cell."""
    return isinstance(cell, CellModule) and type(cell).__call__ is CellModule.__call__
