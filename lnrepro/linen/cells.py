"""Recurrent cells as linen modules: one step of an LSTM, a GRU, a simple network.

`FunctionalCell` takes any cell of `lnrepro.functional` with all of its options. The
modules that are named after a kind of cell have the options of Flax's cells, and norms.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from lnrepro import functional
from lnrepro.functional.cells.base import Initializer
from lnrepro.functional.cells.gated import GatedCell, glorot_uniform, orthogonal, zeros
from lnrepro.functional.flax_modules import NamedModule
from lnrepro.linen.base import CellModule, ParameterModule

Activation = Callable[[jax.Array], jax.Array]
DTypeLike = jax.typing.DTypeLike


class FunctionalCell(CellModule):
    """One step of any cell of `lnrepro.functional`: (carry, x [..., D]) -> (carry, y).

    `RNN(cell)` wraps a functional cell in this module.

    Attributes:
      cell: a `lnrepro.functional.Cell`, such as an LSTMCell with peepholes, a stack, or
        a cell of your own.
      carry_init: initialiser of the carry before the first step, as in Flax. A reset
        restores the cell's own carry.
      dtype: dtype of the computation and the result; None takes the one that inputs and
        parameters promote to.
      param_dtype: dtype of the parameters.
      deterministic: True switches noise off. A cell with noise needs it here or in the
        call.

    >>> x = jnp.ones((2, 3))
    >>> stack = functional.stack(functional.GRUCell(4), functional.GRUCell(4))
    >>> cell = FunctionalCell(stack)
    >>> carry = cell.initialize_carry(jax.random.key(0), x.shape)
    >>> variables = cell.init(jax.random.key(1), carry, x)
    >>> list(variables["params"]), list(variables["params"]["0"])
    (['0', '1'], ['bias', 'w_h', 'w_x'])
    """

    cell: functional.Cell
    carry_init: Initializer = zeros
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    deterministic: bool | None = None

    @property
    def functional_cell(self) -> functional.Cell:
        """The cell of `lnrepro.functional` that the module stands for."""
        return self.cell


class NamedFields(NamedModule, ParameterModule):
    """The fields of all modules that are named after a kind of cell."""

    features: int
    _: dataclasses.KW_ONLY
    norm: str = "layer"
    activation_fn: Activation = jnp.tanh
    kernel_init: Initializer = glorot_uniform
    recurrent_kernel_init: Initializer = orthogonal
    bias_init: Initializer = zeros
    scale_init: Initializer | None = None
    carry_init: Initializer = zeros
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32

    @property
    def functional_cell(self) -> GatedCell:
        """The cell of `lnrepro.functional` that the module stands for."""
        return self.cell_class(
            self.features,
            self.norm,
            activation_fn=self.activation_fn,
            kernel_init=self.kernel_init,
            recurrent_kernel_init=self.recurrent_kernel_init,
            bias_init=self.bias_init,
            scale_init=self.scale_init,
        )


class GatedFields(NamedFields):
    """The fields of those modules whose cell has gates."""

    _: dataclasses.KW_ONLY
    gate_fn: Activation = jax.nn.sigmoid

    @property
    def functional_cell(self) -> GatedCell:
        """The cell of `lnrepro.functional` that the module stands for."""
        return dataclasses.replace(super().functional_cell, gate_fn=self.gate_fn)


class LSTMCell(GatedFields, CellModule):
    """One step of an LSTM (eq. 20-22): ((c, h), x [..., D]) -> ((c, h), h [..., H]).

    The module has Flax's interface of a cell: it works in `lnrepro.linen.RNN`, and in
    flax.linen.RNN. The equations, norms and parameter names are those of
    `lnrepro.functional.LSTMCell`, and so are the fields norm, gate_fn, activation_fn,
    kernel_init, recurrent_kernel_init, bias_init and scale_init. Its other options are
    set on it: `FunctionalCell(functional.LSTMCell(...))`.

    Attributes:
      features: H, the number of hidden units. All other fields are given by name.
      norm: "layer" by default.
      carry_init: as in `FunctionalCell`, and so are dtype and param_dtype.

    >>> x = jnp.ones((2, 3))
    >>> cell = LSTMCell(4)
    >>> carry = cell.initialize_carry(jax.random.key(0), x.shape)
    >>> variables = cell.init(jax.random.key(1), carry, x)
    >>> carry, y = cell.apply(variables, carry, x)
    >>> y.shape
    (2, 4)
    """

    cell_class = functional.LSTMCell


class GRUCell(GatedFields, CellModule):
    """One step of a GRU (eq. 26-28): (h, x [..., D]) -> (h, h [..., H]).

    As `LSTMCell`, but for the cell, `lnrepro.functional.GRUCell`.

    >>> x = jnp.ones((2, 3))
    >>> cell = GRUCell(4)
    >>> carry = cell.initialize_carry(jax.random.key(0), x.shape)
    >>> cell.init(jax.random.key(1), carry, x)["params"]["w_x"].shape
    (3, 12)
    """

    cell_class = functional.GRUCell


class SimpleCell(NamedFields, CellModule):
    """One step of eq. 4, a simple network: (h, x [..., D]) -> (h, h [..., H]).

    As `LSTMCell`, but for the cell, `lnrepro.functional.SimpleCell`, and gate_fn.

    >>> x = jnp.ones((2, 3))
    >>> cell = SimpleCell(4)
    >>> carry = cell.initialize_carry(jax.random.key(0), x.shape)
    >>> cell.init(jax.random.key(1), carry, x)["params"]["w_x"].shape
    (3, 4)
    """

    cell_class = functional.SimpleCell
