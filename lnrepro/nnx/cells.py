"""Recurrent cells as nnx modules: one step of an LSTM, a GRU, a simple network."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from lnrepro import functional
from lnrepro.functional.cells.gated import glorot_uniform, orthogonal, zeros
from lnrepro.functional.flax_modules import Wrap
from lnrepro.nnx.base import CellModule, origins_of
from lnrepro.nnx.parameters import NO_METADATA, Initializer, Metadata

Activation = Callable[[jax.Array], jax.Array]
DTypeLike = jax.typing.DTypeLike


class LSTMCell(CellModule):
    """One step of an LSTM (eq. 20-22): ((c, h), x [..., D]) -> ((c, h), h [..., H]).

    The equations, norms and parameter names are those of `lnrepro.functional.LSTMCell`.
    The module has Flax's interface of a cell: it works in `lnrepro.nnx.RNN`, and in
    flax.nnx.RNN.

    Args:
      in_features: D, the number of input features.
      hidden_features: H, the number of hidden units.
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
      carry_init: initialiser of the carry before the first step; None means zeros, or
        the learned carry. A reset restores these.
      wrap: function from functional cell to functional cell, such as
        `functools.partial(functional.zoneout, rate_h=0.1)`.
      dtype: dtype of the computation and the result; None takes the one that inputs and
        parameters promote to.
      param_dtype: dtype of the parameters.
      deterministic: True switches noise off, as `model.eval()` does.
      kernel_metadata: metadata of w_x, such as {"out_sharding": (None, "model")}.
      recurrent_kernel_metadata: metadata of w_h.
      bias_metadata: metadata of the bias.
      scale_metadata: metadata of the gains.
      rngs: keys for the initialisers (stream "params") and for the noise (stream
        "dropout"). A missing stream is the default stream.

    >>> cell = LSTMCell(3, 4, rngs=nnx.Rngs(0))
    >>> x = jnp.ones((2, 3))
    >>> carry, y = cell(cell.initialize_carry(x.shape), x)
    >>> y.shape
    (2, 4)
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        norm: str = "layer",
        norm_site: str = "products",
        norm_groups: str = "all",
        blocks: int = 1,
        cell_norm: str = "output",
        forget_bias: float = 0.0,
        peephole: bool = False,
        inner_bias: bool = False,
        gradient_clip: float | None = None,
        use_bias: bool = True,
        learned_carry: bool = False,
        recurrent_dropout: float = 0.0,
        epsilon: float = 1e-5,
        gate_fn: Activation = jax.nn.sigmoid,
        activation_fn: Activation = jnp.tanh,
        kernel_init: Initializer = glorot_uniform,
        recurrent_kernel_init: Initializer = orthogonal,
        bias_init: Initializer = zeros,
        scale_init: Initializer | None = None,
        carry_init: Initializer | None = None,
        wrap: Wrap | None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        deterministic: bool = False,
        kernel_metadata: Metadata = NO_METADATA,
        recurrent_kernel_metadata: Metadata = NO_METADATA,
        bias_metadata: Metadata = NO_METADATA,
        scale_metadata: Metadata = NO_METADATA,
        rngs: nnx.Rngs,
    ):
        # The equations are those of the functional cell. The module keeps its
        # parameters.
        cell = functional.LSTMCell(
            features=hidden_features,
            norm=norm,
            norm_site=norm_site,
            norm_groups=norm_groups,
            blocks=blocks,
            cell_norm=cell_norm,
            forget_bias=forget_bias,
            peephole=peephole,
            inner_bias=inner_bias,
            gradient_clip=gradient_clip,
            use_bias=use_bias,
            learned_carry=learned_carry,
            recurrent_dropout=recurrent_dropout,
            epsilon=epsilon,
            gate_fn=gate_fn,
            activation_fn=activation_fn,
        )
        # What draws each parameter, and the metadata of its variable.
        origins = origins_of(
            kernel_init,
            recurrent_kernel_init,
            bias_init,
            scale_init,
            kernel_metadata,
            recurrent_kernel_metadata,
            bias_metadata,
            scale_metadata,
        )
        super().__init__(
            cell,
            in_features,
            origins=origins,
            wrap=wrap,
            carry_init=carry_init,
            dtype=dtype,
            param_dtype=param_dtype,
            deterministic=deterministic,
            rngs=rngs,
        )


class GRUCell(CellModule):
    """One step of a GRU (eq. 26-28): (h, x [..., D]) -> (h, h [..., H]).

    The equations, norms and parameter names are those of `lnrepro.functional.GRUCell`.
    The module has Flax's interface of a cell: it works in `lnrepro.nnx.RNN`, and in
    flax.nnx.RNN.

    Args:
      in_features: D, the number of input features.
      hidden_features: H, the number of hidden units.
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
      carry_init: initialiser of the carry before the first step; None means zeros, or
        the learned carry. A reset restores these.
      wrap: function from functional cell to functional cell, such as
        `functools.partial(functional.zoneout, rate_h=0.1)`.
      dtype: dtype of the computation and the result; None takes the one that inputs and
        parameters promote to.
      param_dtype: dtype of the parameters.
      deterministic: True switches noise off, as `model.eval()` does.
      kernel_metadata: metadata of w_x, such as {"out_sharding": (None, "model")}.
      recurrent_kernel_metadata: metadata of w_h.
      bias_metadata: metadata of the bias.
      scale_metadata: metadata of the gains.
      rngs: keys for the initialisers (stream "params") and for the noise (stream
        "dropout"). A missing stream is the default stream.

    >>> cell = GRUCell(3, 4, rngs=nnx.Rngs(0))
    >>> x = jnp.ones((2, 3))
    >>> carry, y = cell(cell.initialize_carry(x.shape), x)
    >>> y.shape
    (2, 4)
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        norm: str = "layer",
        norm_groups: str = "paper",
        blocks: int = 1,
        reset: str = "after",
        recurrent_bias: bool = False,
        use_bias: bool = True,
        learned_carry: bool = False,
        recurrent_dropout: float = 0.0,
        epsilon: float = 1e-5,
        gate_fn: Activation = jax.nn.sigmoid,
        activation_fn: Activation = jnp.tanh,
        kernel_init: Initializer = glorot_uniform,
        recurrent_kernel_init: Initializer = orthogonal,
        bias_init: Initializer = zeros,
        scale_init: Initializer | None = None,
        carry_init: Initializer | None = None,
        wrap: Wrap | None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        deterministic: bool = False,
        kernel_metadata: Metadata = NO_METADATA,
        recurrent_kernel_metadata: Metadata = NO_METADATA,
        bias_metadata: Metadata = NO_METADATA,
        scale_metadata: Metadata = NO_METADATA,
        rngs: nnx.Rngs,
    ):
        # The equations are those of the functional cell. The module keeps its
        # parameters.
        cell = functional.GRUCell(
            features=hidden_features,
            norm=norm,
            norm_groups=norm_groups,
            blocks=blocks,
            reset=reset,
            recurrent_bias=recurrent_bias,
            use_bias=use_bias,
            learned_carry=learned_carry,
            recurrent_dropout=recurrent_dropout,
            epsilon=epsilon,
            gate_fn=gate_fn,
            activation_fn=activation_fn,
        )
        # What draws each parameter, and the metadata of its variable.
        origins = origins_of(
            kernel_init,
            recurrent_kernel_init,
            bias_init,
            scale_init,
            kernel_metadata,
            recurrent_kernel_metadata,
            bias_metadata,
            scale_metadata,
        )
        super().__init__(
            cell,
            in_features,
            origins=origins,
            wrap=wrap,
            carry_init=carry_init,
            dtype=dtype,
            param_dtype=param_dtype,
            deterministic=deterministic,
            rngs=rngs,
        )


class SimpleCell(CellModule):
    """One step of eq. 4, a simple network: (h, x [..., D]) -> (h, h [..., H]).

    The equation, norms and parameter names are those of
    `lnrepro.functional.SimpleCell`. The module has Flax's interface of a cell: it works
    in `lnrepro.nnx.RNN`, and in flax.nnx.RNN.

    Args:
      in_features: D, the number of input features.
      hidden_features: H, the number of hidden units.
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
      carry_init: initialiser of the carry before the first step; None means zeros, or
        the learned carry. A reset restores these.
      wrap: function from functional cell to functional cell, such as
        `functools.partial(functional.zoneout, rate_h=0.1)`.
      dtype: dtype of the computation and the result; None takes the one that inputs and
        parameters promote to.
      param_dtype: dtype of the parameters.
      deterministic: True switches noise off, as `model.eval()` does.
      kernel_metadata: metadata of w_x, such as {"out_sharding": (None, "model")}.
      recurrent_kernel_metadata: metadata of w_h.
      bias_metadata: metadata of the bias.
      scale_metadata: metadata of the gains.
      rngs: keys for the initialisers (stream "params") and for the noise (stream
        "dropout"). A missing stream is the default stream.

    >>> cell = SimpleCell(3, 4, rngs=nnx.Rngs(0))
    >>> x = jnp.ones((2, 3))
    >>> carry, y = cell(cell.initialize_carry(x.shape), x)
    >>> y.shape
    (2, 4)
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        norm: str = "layer",
        use_bias: bool = True,
        learned_carry: bool = False,
        recurrent_dropout: float = 0.0,
        epsilon: float = 1e-5,
        activation_fn: Activation = jnp.tanh,
        kernel_init: Initializer = glorot_uniform,
        recurrent_kernel_init: Initializer = orthogonal,
        bias_init: Initializer = zeros,
        scale_init: Initializer | None = None,
        carry_init: Initializer | None = None,
        wrap: Wrap | None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        deterministic: bool = False,
        kernel_metadata: Metadata = NO_METADATA,
        recurrent_kernel_metadata: Metadata = NO_METADATA,
        bias_metadata: Metadata = NO_METADATA,
        scale_metadata: Metadata = NO_METADATA,
        rngs: nnx.Rngs,
    ):
        # The equations are those of the functional cell. The module keeps its
        # parameters.
        cell = functional.SimpleCell(
            features=hidden_features,
            norm=norm,
            use_bias=use_bias,
            learned_carry=learned_carry,
            recurrent_dropout=recurrent_dropout,
            epsilon=epsilon,
            activation_fn=activation_fn,
        )
        # What draws each parameter, and the metadata of its variable.
        origins = origins_of(
            kernel_init,
            recurrent_kernel_init,
            bias_init,
            scale_init,
            kernel_metadata,
            recurrent_kernel_metadata,
            bias_metadata,
            scale_metadata,
        )
        super().__init__(
            cell,
            in_features,
            origins=origins,
            wrap=wrap,
            carry_init=carry_init,
            dtype=dtype,
            param_dtype=param_dtype,
            deterministic=deterministic,
            rngs=rngs,
        )


class FunctionalCell(CellModule):
    """One step of any cell of `lnrepro.functional`: (carry, x [..., D]) -> (carry, y).

    Args:
      cell: a `lnrepro.functional.Cell`, such as a stack or a cell of your own.
      in_features: D, the number of input features.
      carry_init: initialiser of the carry before the first step; None means the cell's
        own carry, which a reset restores.
      dtype: dtype of the computation and the result; None takes the one that inputs and
        parameters promote to.
      param_dtype: dtype of the parameters.
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

    def __init__(
        self,
        cell: functional.Cell,
        in_features: int,
        *,
        carry_init: Initializer | None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        deterministic: bool = False,
        rngs: nnx.Rngs,
    ):
        super().__init__(
            cell,
            in_features,
            carry_init=carry_init,
            dtype=dtype,
            param_dtype=param_dtype,
            deterministic=deterministic,
            rngs=rngs,
        )
