"""The recurrent block of purejaxrl, Stoix, Mava and the programs that follow them."""

import dataclasses

import flax.linen as nn
import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from lnrepro import functional
from lnrepro.functional.arguments import choice
from lnrepro.functional.cells.base import Carry
from lnrepro.linen.cells import FunctionalCell
from lnrepro.linen.sequences import RNN

# Names of cells as in Stoix. Both names of the LSTM are one cell here.
CELLS = {
    "gru": functional.GRUCell,
    "lstm": functional.LSTMCell,
    "optimised_lstm": functional.LSTMCell,
    "simple": functional.SimpleCell,
}


class ScannedRNN(nn.Module):
    """Run a cell over rollouts: (carry, (x, resets)) -> (carry, y), time first.

    It takes the place of the class of this name in other programs, with the names of
    their arguments. It is short for `RNN(cell, time_major=True, return_carry=True)`,
    which has others besides. The page "Recurrent RL" shows the change.

    Attributes:
      hidden_state_dim: H, the number of hidden units. None takes it from the carry.
      cell_type: "gru", "lstm", "optimised_lstm" (the same cell) or "simple".
      norm: given by name; "layer" by default. "none" is Flax's cell. Its
        parameters have the same place, and `convert.load("flax", ...)` makes them.
      options: how the scan runs; None takes `functional.ScanOptions()`.

    >>> import jax.numpy as jnp
    >>> x, resets = jnp.ones((5, 2, 3)), jnp.zeros((5, 2), bool)
    >>> carry = ScannedRNN.initialize_carry(2, 4)
    >>> (carry, y), _ = ScannedRNN().init_with_output(
    ...     jax.random.key(0), carry, (x, resets)
    ... )
    >>> carry.shape, y.shape
    ((2, 4), (5, 2, 4))
    """

    hidden_state_dim: int | None = None
    cell_type: str = "gru"
    _: dataclasses.KW_ONLY
    norm: str = "layer"
    options: functional.ScanOptions | None = None

    @nn.compact
    def __call__(
        self, carry: Carry, x: tuple[jax.Array, jax.Array]
    ) -> tuple[Carry, jax.Array]:
        """Run over a rollout.

        Args:
          carry: what `initialize_carry` or the call before returned. With
            hidden_state_dim it may be None, for zeros.
          x: (inputs [T, ..., D], resets [T, ...]). resets is True at the first
            observation of an episode: the carry is zero before that step. It holds
            booleans, or numbers that are 0 or 1, and traced ones count unless 0.

        Returns:
          (carry, y [T, ..., H]).

        Raises:
          TypeError: x is no pair, a carry of another dtype.
          ValueError: no carry and no hidden_state_dim, a shape that does not fit, an
            unknown cell or norm, resets other than 0 and 1.
        """
        if not isinstance(x, tuple | list) or len(x) != 2:
            raise TypeError("ScannedRNN: x is a pair, (inputs [T, ..., D], resets)")
        inputs, resets = x
        features = self.hidden_state_dim
        if features is None:
            if carry is None:
                raise ValueError("ScannedRNN: give a carry, or hidden_state_dim")
            features = jax.tree.leaves(carry)[0].shape[-1]
        cell = _make(self.cell_type, features, self.norm)
        # The name that Flax gives to its cell.
        module = FunctionalCell(cell, name=f"{type(cell).__name__}_0")
        rnn = RNN(module, time_major=True, return_carry=True, options=self.options)
        return rnn(inputs, initial_carry=carry, resets=_as_flags(resets))

    @staticmethod
    def initialize_carry(
        batch_size: int | tuple[int, ...], hidden_size: int, cell_type: str = "gru"
    ) -> Carry:
        """Return the carry before the first step, zeros.

        Args:
          batch_size: the number of environments, or all batch axes: Mava has
            (environments, agents).
          hidden_size: H.
          cell_type: as the attribute.

        Returns:
          h [..., H], or (c, h) for an LSTM.
        """
        batch = batch_size if isinstance(batch_size, tuple | list) else (batch_size,)
        cell = FunctionalCell(_make(cell_type, hidden_size, "none"), parent=None)
        return cell.initialize_carry(None, (*batch, hidden_size))


def _as_flags(resets):
    """Resets as booleans. Programs of this kind write `done` as floats too."""
    is_known = not isinstance(resets, jax.core.Tracer)
    if is_known and not np.isin(resets, (0, 1)).all():
        raise ValueError(
            "ScannedRNN: resets must be 0 or 1: done, and not a discount, which is 0 "
            "where an episode ends"
        )
    return jnp.asarray(resets) != 0


def _make(cell_type, features, norm):
    """The functional cell of a name."""
    choice("ScannedRNN", "cell_type", cell_type, tuple(CELLS))
    if cell_type == "gru" and norm == "none":
        # Flax's GRU has this bias at the candidate.
        return functional.GRUCell(features, norm, recurrent_bias=True)
    return CELLS[cell_type](features, norm)
