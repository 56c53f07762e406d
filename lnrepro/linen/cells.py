"""Recurrent cells as linen modules: one step of an LSTM, a GRU, a simple network."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro import functional
from lnrepro.functional.cells.gated import (
    glorot_uniform,
    orthogonal,
    zeros,
)
from lnrepro.functional.flax_modules import Wrap
from lnrepro.linen import definitions
from lnrepro.linen.base import CellModule
from lnrepro.linen.parameters import Initializer

Activation = Callable[[jax.Array], jax.Array]
DTypeLike = jax.typing.DTypeLike


class LSTMCell(CellModule):
    """One step of an LSTM (eq. 20-22): ((c, h), x [..., D]) -> ((c, h), h [..., H]).

    The equations, norms and parameter names are those of `lnrepro.functional.LSTMCell`.
    The module has Flax's interface of a cell: it works in `lnrepro.linen.RNN`, and in
    flax.linen.RNN.

    Attributes:
      features: H, the number of hidden units.
      norm: "layer", "none", "layer_cell", "rms", "batch" or "weight"; see
        `lnrepro.functional.LSTMCell`.
      norm_site: "products" normalises each product by itself, "joint" their sum.
      norm_groups: "all" normalises all gates jointly, "per_gate" each by itself,
        "heads" each block by itself.
      blocks: number of blocks of the block-diagonal recurrent kernel.
      cell_norm: "output" carries c as it is; "carry" carries the normalised c.
      forget_bias: is added to the start of the forget gate's bias.
      peephole: whether there are Graves' peephole weights.
      inner_bias: whether W_x x has a bias inside its norm.
      gradient_clip: limit of the gradient of each pre-activation; None does not clip.
      use_bias: whether there is a bias on the pre-activations.
      learned_carry: whether the carry before the first step is learned.
      recurrent_dropout: probability of dropping a unit of the candidate in a step of
        training.
      epsilon: is added to the variances under the root.
      gate_fn: function of the gates.
      activation_fn: function of the candidate, and of the cell that the output shows.
      kernel_init: initialiser of each gate's part of w_x [D, H].
      recurrent_kernel_init: initialiser of each gate's part of w_h [H, H].
      bias_init: initialiser of the bias.
      scale_init: initialiser of the gains; None means 1, and 0.1 for batch norm.
      carry_init: initialiser of the carry before the first step, as in Flax. A reset
        restores zeros, or the learned carry.
      wrap: function from functional cell to functional cell, such as
        `functools.partial(functional.zoneout, rate_h=0.1)`.
      dtype: dtype of the computation and the result; None takes the one that inputs and
        parameters promote to.
      param_dtype: dtype of the parameters.
      deterministic: True switches noise off. A cell with noise needs it here or in the
        call.

    >>> x = jnp.ones((2, 3))
    >>> cell = LSTMCell(4)
    >>> carry = cell.initialize_carry(jax.random.key(0), x.shape)
    >>> variables = cell.init(jax.random.key(1), carry, x)
    >>> carry, y = cell.apply(variables, carry, x)
    >>> y.shape
    (2, 4)
    """

    features: int
    norm: str = "layer"
    norm_site: str = "products"
    norm_groups: str = "all"
    blocks: int = 1
    cell_norm: str = "output"
    forget_bias: float = 0.0
    peephole: bool = False
    inner_bias: bool = False
    gradient_clip: float | None = None
    use_bias: bool = True
    learned_carry: bool = False
    recurrent_dropout: float = 0.0
    epsilon: float = 1e-5
    gate_fn: Activation = jax.nn.sigmoid
    activation_fn: Activation = jnp.tanh
    kernel_init: Initializer = glorot_uniform
    recurrent_kernel_init: Initializer = orthogonal
    bias_init: Initializer = zeros
    scale_init: Initializer | None = None
    carry_init: Initializer = zeros
    wrap: Wrap | None = None
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    deterministic: bool | None = None

    @property
    def functional_cell(self) -> functional.Cell:
        """The cell of `lnrepro.functional` that the module stands for."""
        return definitions.lstm_cell(self)

    @nn.nowrap
    def initializers(self) -> dict[str, Initializer | None]:
        """Initialisers by the parameters that they draw."""
        return definitions.initializers(self)


class GRUCell(CellModule):
    """One step of a GRU (eq. 26-28): (h, x [..., D]) -> (h, h [..., H]).

    The equations, norms and parameter names are those of `lnrepro.functional.GRUCell`.
    The module has Flax's interface of a cell: it works in `lnrepro.linen.RNN`, and in
    flax.linen.RNN.

    Attributes:
      features: H, the number of hidden units.
      norm: "layer", "none", "rms", "batch" or "weight"; see
        `lnrepro.functional.GRUCell`.
      norm_groups: "paper" normalises the gates jointly and the candidate by itself,
        "all" all three jointly, "per_gate" each by itself, "heads" each block by
        itself.
      blocks: number of blocks of the block-diagonal recurrent kernel.
      reset: "after" multiplies by the reset gate after the recurrent product, "before"
        before it.
      recurrent_bias: whether the recurrent product has a bias too; with norm "none" or
        "weight" only.
      use_bias: whether there is a bias on the pre-activations.
      learned_carry: whether the carry before the first step is learned.
      recurrent_dropout: probability of dropping a unit of the candidate in a step of
        training.
      epsilon: is added to the variances under the root.
      gate_fn: function of the gates.
      activation_fn: function of the candidate.
      kernel_init: initialiser of each gate's part of w_x [D, H].
      recurrent_kernel_init: initialiser of each gate's part of w_h [H, H].
      bias_init: initialiser of the bias.
      scale_init: initialiser of the gains; None means 1, and 0.1 for batch norm.
      carry_init: initialiser of the carry before the first step, as in Flax. A reset
        restores zeros, or the learned carry.
      wrap: function from functional cell to functional cell, such as
        `functools.partial(functional.zoneout, rate_h=0.1)`.
      dtype: dtype of the computation and the result; None takes the one that inputs and
        parameters promote to.
      param_dtype: dtype of the parameters.
      deterministic: True switches noise off. A cell with noise needs it here or in the
        call.

    >>> x = jnp.ones((2, 3))
    >>> cell = GRUCell(4)
    >>> carry = cell.initialize_carry(jax.random.key(0), x.shape)
    >>> variables = cell.init(jax.random.key(1), carry, x)
    >>> carry, y = cell.apply(variables, carry, x)
    >>> y.shape
    (2, 4)
    """

    features: int
    norm: str = "layer"
    norm_groups: str = "paper"
    blocks: int = 1
    reset: str = "after"
    recurrent_bias: bool = False
    use_bias: bool = True
    learned_carry: bool = False
    recurrent_dropout: float = 0.0
    epsilon: float = 1e-5
    gate_fn: Activation = jax.nn.sigmoid
    activation_fn: Activation = jnp.tanh
    kernel_init: Initializer = glorot_uniform
    recurrent_kernel_init: Initializer = orthogonal
    bias_init: Initializer = zeros
    scale_init: Initializer | None = None
    carry_init: Initializer = zeros
    wrap: Wrap | None = None
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    deterministic: bool | None = None

    @property
    def functional_cell(self) -> functional.Cell:
        """The cell of `lnrepro.functional` that the module stands for."""
        return definitions.gru_cell(self)

    @nn.nowrap
    def initializers(self) -> dict[str, Initializer | None]:
        """Initialisers by the parameters that they draw."""
        return definitions.initializers(self)


class SimpleCell(CellModule):
    """One step of eq. 4, a simple network: (h, x [..., D]) -> (h, h [..., H]).

    The equation, norms and parameter names are those of
    `lnrepro.functional.SimpleCell`. The module has Flax's interface of a cell: it works
    in `lnrepro.linen.RNN`, and in flax.linen.RNN.

    Attributes:
      features: H, the number of hidden units.
      norm: "layer", "none", "rms", "batch" or "weight"; see
        `lnrepro.functional.SimpleCell`.
      use_bias: whether there is a bias on the pre-activations.
      learned_carry: whether the carry before the first step is learned.
      recurrent_dropout: probability of dropping a unit of the candidate in a step of
        training.
      epsilon: is added to the variances under the root.
      activation_fn: function of the candidate.
      kernel_init: initialiser of each gate's part of w_x [D, H].
      recurrent_kernel_init: initialiser of each gate's part of w_h [H, H].
      bias_init: initialiser of the bias.
      scale_init: initialiser of the gains; None means 1, and 0.1 for batch norm.
      carry_init: initialiser of the carry before the first step, as in Flax. A reset
        restores zeros, or the learned carry.
      wrap: function from functional cell to functional cell, such as
        `functools.partial(functional.zoneout, rate_h=0.1)`.
      dtype: dtype of the computation and the result; None takes the one that inputs and
        parameters promote to.
      param_dtype: dtype of the parameters.
      deterministic: True switches noise off. A cell with noise needs it here or in the
        call.

    >>> x = jnp.ones((2, 3))
    >>> cell = SimpleCell(4)
    >>> carry = cell.initialize_carry(jax.random.key(0), x.shape)
    >>> variables = cell.init(jax.random.key(1), carry, x)
    >>> carry, y = cell.apply(variables, carry, x)
    >>> y.shape
    (2, 4)
    """

    features: int
    norm: str = "layer"
    use_bias: bool = True
    learned_carry: bool = False
    recurrent_dropout: float = 0.0
    epsilon: float = 1e-5
    activation_fn: Activation = jnp.tanh
    kernel_init: Initializer = glorot_uniform
    recurrent_kernel_init: Initializer = orthogonal
    bias_init: Initializer = zeros
    scale_init: Initializer | None = None
    carry_init: Initializer = zeros
    wrap: Wrap | None = None
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    deterministic: bool | None = None

    @property
    def functional_cell(self) -> functional.Cell:
        """The cell of `lnrepro.functional` that the module stands for."""
        return definitions.simple_cell(self)

    @nn.nowrap
    def initializers(self) -> dict[str, Initializer | None]:
        """Initialisers by the parameters that they draw."""
        return definitions.initializers(self)


class FunctionalCell(CellModule):
    """One step of any cell of `lnrepro.functional`: (carry, x [..., D]) -> (carry, y).

    `RNN(cell)` wraps a functional cell in this module.

    Attributes:
      cell: a `lnrepro.functional.Cell`, such as a stack or a cell of your own.
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
