"""Recurrent cells as nnx modules: one step of an LSTM, a GRU, a simple network.

`FunctionalCell` takes any cell of `lnrepro.functional` with all of its options. The
modules that are named after a kind of cell have the options of Flax's cells, and norms.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from lnrepro import functional
from lnrepro.functional import flax_modules
from lnrepro.functional.cells.base import Initializer
from lnrepro.functional.cells.gated import GatedCell, glorot_uniform, orthogonal, zeros
from lnrepro.nnx.base import CellModule, ParameterModule
from lnrepro.nnx.parameters import NO_METADATA, Metadata

Activation = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(eq=False, repr=False)
class FunctionalCell(CellModule):
    """One step of any cell of `lnrepro.functional`: (carry, x [..., D]) -> (carry, y).

    Arguments are the attributes of `lnrepro.linen.FunctionalCell`, and these:

    Args:
      in_features: D, the number of input features.
      carry_init: initialiser of the carry before the first step; None means the cell's
        own carry, which a reset restores.
      deterministic: True switches noise off, as `model.eval()` does.
      rngs: keys for the initialisers (stream "params") and for the noise (stream
        "dropout"). A missing stream is the default stream.

    >>> stack = functional.stack(functional.GRUCell(4), functional.GRUCell(4))
    >>> cell = FunctionalCell(stack, in_features=3, rngs=nnx.Rngs(0))
    >>> x = jnp.ones((2, 3))
    >>> carry, y = cell(cell.initialize_carry(x.shape), x)
    >>> y.shape
    (2, 4)
    """

    cell: dataclasses.InitVar[functional.Cell]
    in_features: int
    _: dataclasses.KW_ONLY
    deterministic: bool = False

    def __post_init__(self, rngs: nnx.Rngs, cell: functional.Cell):
        """Make the parameters."""
        self._keep(cell, rngs)

    @property
    def hidden_features(self) -> int:
        """H, the size of the output."""
        return self.functional_cell.features


@dataclasses.dataclass(eq=False, repr=False)
class NamedFields(flax_modules.NamedModule, ParameterModule):
    """The fields of all modules that are named after a kind of cell."""

    in_features: int
    hidden_features: int
    _: dataclasses.KW_ONLY
    norm: str = "layer"
    activation_fn: Activation = jnp.tanh
    # What makes the parameters is no part of the module, so that two modules that were
    # drawn by different functions have equal graph definitions.
    kernel_init: dataclasses.InitVar[Initializer] = glorot_uniform
    recurrent_kernel_init: dataclasses.InitVar[Initializer] = orthogonal
    bias_init: dataclasses.InitVar[Initializer] = zeros
    scale_init: dataclasses.InitVar[Initializer | None] = None
    kernel_metadata: dataclasses.InitVar[Metadata] = NO_METADATA
    recurrent_kernel_metadata: dataclasses.InitVar[Metadata] = NO_METADATA
    bias_metadata: dataclasses.InitVar[Metadata] = NO_METADATA
    scale_metadata: dataclasses.InitVar[Metadata] = NO_METADATA

    def __post_init__(self, rngs, *drawn):
        """Make the cell and its parameters."""
        # The initialisers and then the metadata, in the order of the fields above.
        names, count = flax_modules.INITIALIZERS, len(flax_modules.INITIALIZERS)
        initializers = dict(zip(names, drawn[:count], strict=True))
        metadata = dict(zip(names.values(), drawn[count:], strict=True))
        cell = dataclasses.replace(self._cell(), **initializers)
        self.hidden_features = cell.features
        # A cell without noise, which only a functional cell has.
        self.deterministic = False
        self._keep(cell, rngs, metadata)

    def _cell(self) -> GatedCell:
        """The functional cell, with its default initialisers."""
        return self.cell_class(
            self.hidden_features, self.norm, activation_fn=self.activation_fn
        )


@dataclasses.dataclass(eq=False, repr=False)
class GatedFields(NamedFields):
    """The fields of those modules whose cell has gates."""

    _: dataclasses.KW_ONLY
    gate_fn: Activation = jax.nn.sigmoid

    def _cell(self) -> GatedCell:
        return dataclasses.replace(super()._cell(), gate_fn=self.gate_fn)


class LSTMCell(GatedFields, CellModule):
    """One step of an LSTM (eq. 20-22): ((c, h), x [..., D]) -> ((c, h), h [..., H]).

    The module works in `lnrepro.nnx.RNN`, and in flax.nnx.RNN. Arguments are the
    attributes of `lnrepro.linen.LSTMCell`, and these:

    Args:
      in_features: D, the number of input features.
      hidden_features: H, the number of hidden units.
      carry_init: as in `FunctionalCell`, and so is rngs.
      kernel_metadata: metadata of w_x, such as {"out_sharding": (None, "model")}.
      recurrent_kernel_metadata: metadata of w_h.
      bias_metadata: metadata of the bias.
      scale_metadata: metadata of the gains.

    >>> cell = LSTMCell(3, 4, rngs=nnx.Rngs(0))
    >>> x = jnp.ones((2, 3))
    >>> carry, y = cell(cell.initialize_carry(x.shape), x)
    >>> y.shape
    (2, 4)
    """

    cell_class = functional.LSTMCell


class GRUCell(GatedFields, CellModule):
    """One step of a GRU (eq. 26-28): (h, x [..., D]) -> (h, h [..., H]).

    As `LSTMCell`, but for the cell, `lnrepro.functional.GRUCell`.

    >>> cell = GRUCell(3, 4, rngs=nnx.Rngs(0))
    >>> cell(cell.initialize_carry((2, 3)), jnp.ones((2, 3)))[1].shape
    (2, 4)
    """

    cell_class = functional.GRUCell


class SimpleCell(NamedFields, CellModule):
    """One step of eq. 4, a simple network: (h, x [..., D]) -> (h, h [..., H]).

    As `LSTMCell`, but for the cell, `lnrepro.functional.SimpleCell`, and gate_fn.

    >>> cell = SimpleCell(3, 4, rngs=nnx.Rngs(0))
    >>> cell(cell.initialize_carry((2, 3)), jnp.ones((2, 3)))[1].shape
    (2, 4)
    """

    cell_class = functional.SimpleCell
