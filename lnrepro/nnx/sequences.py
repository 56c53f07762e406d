"""The LSTM, the GRU and the simple recurrent network over whole sequences."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from lnrepro import functional
from lnrepro.functional.cells.gated import glorot_uniform, orthogonal, zeros
from lnrepro.functional.flax_modules import Wrap
from lnrepro.nnx.base import origins_of
from lnrepro.nnx.parameters import NO_METADATA, Initializer, Metadata
from lnrepro.nnx.sequence_base import SequenceModule

Activation = Callable[[jax.Array], jax.Array]
DTypeLike = jax.typing.DTypeLike


class LSTM(SequenceModule):
    """Run an LSTM (eq. 20-22) over a sequence: x [..., T, D] -> y [..., T, H].

    Short for `RNN(LSTMCell(...))`, with the parameters in the module itself. They have
    the names of `lnrepro.functional.LSTMCell`. `step` and `initialize_carry` run the
    same parameters step by step.

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

    >>> layer = LSTM(3, 4, rngs=nnx.Rngs(0))
    >>> x = jnp.ones((2, 5, 3))
    >>> layer(x, seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 4)
    >>> carry = layer.initialize_carry(x[:, 0].shape)
    >>> carry, y = layer.step(carry, x[:, 0])
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
        return_carry: bool = False,
        time_major: bool = False,
        reverse: bool = False,
        keep_order: bool = False,
        unroll: int = 1,
        options: functional.ScanOptions | None = None,
        max_steps: int | None = None,
        momentum: float = 0.9,
        use_running_average: bool = False,
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
        # After the cell is known: batch norm gets running statistics for each of its
        # sites.
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


class GRU(SequenceModule):
    """Run a GRU (eq. 26-28) over a sequence: x [..., T, D] -> y [..., T, H].

    Short for `RNN(GRUCell(...))`, with the parameters in the module itself. They have
    the names of `lnrepro.functional.GRUCell`. `step` and `initialize_carry` run the
    same parameters step by step.

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

    >>> layer = GRU(3, 4, rngs=nnx.Rngs(0))
    >>> x = jnp.ones((2, 5, 3))
    >>> layer(x, seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 4)
    >>> carry = layer.initialize_carry(x[:, 0].shape)
    >>> carry, y = layer.step(carry, x[:, 0])
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
        return_carry: bool = False,
        time_major: bool = False,
        reverse: bool = False,
        keep_order: bool = False,
        unroll: int = 1,
        options: functional.ScanOptions | None = None,
        max_steps: int | None = None,
        momentum: float = 0.9,
        use_running_average: bool = False,
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
        # After the cell is known: batch norm gets running statistics for each of its
        # sites.
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


class SimpleRNN(SequenceModule):
    """Run eq. 4, a simple network, over a sequence: x [..., T, D] -> y [..., T, H].

    Short for `RNN(SimpleCell(...))`, with the parameters in the module itself. They
    have the names of `lnrepro.functional.SimpleCell`. `step` and `initialize_carry` run
    the same parameters step by step.

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

    >>> layer = SimpleRNN(3, 4, rngs=nnx.Rngs(0))
    >>> x = jnp.ones((2, 5, 3))
    >>> layer(x, seq_lengths=jnp.array([5, 2])).shape
    (2, 5, 4)
    >>> carry = layer.initialize_carry(x[:, 0].shape)
    >>> carry, y = layer.step(carry, x[:, 0])
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
        return_carry: bool = False,
        time_major: bool = False,
        reverse: bool = False,
        keep_order: bool = False,
        unroll: int = 1,
        options: functional.ScanOptions | None = None,
        max_steps: int | None = None,
        momentum: float = 0.9,
        use_running_average: bool = False,
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
        # After the cell is known: batch norm gets running statistics for each of its
        # sites.
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
