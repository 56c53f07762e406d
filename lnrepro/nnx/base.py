"""What the recurrent modules do, whichever cell they hold.

A module describes a cell of `lnrepro.functional` and keeps its parameters. The
equations are in `lnrepro.functional.cells`.

Shape letters: B batch (any number of axes), T time, D input features, H hidden units.
"""

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from lnrepro import functional
from lnrepro.functional.flax_modules import Wrap, wrapped
from lnrepro.nnx.parameters import (
    NO_METADATA,
    Initializer,
    Origin,
    Plain,
    get_parameters,
    set_parameters,
)

Carry = Any
Keys = nnx.Rngs | nnx.RngStream | jax.Array


class ParameterModule(nnx.Module):
    """The parameters of one cell, its carry, and the random keys of its noise."""

    def __init__(
        self,
        cell: functional.Cell,
        in_features: int,
        *,
        origins: Mapping[str, Origin] = NO_METADATA,
        wrap: Wrap | None = None,
        carry_init: Initializer | None = None,
        dtype: jax.typing.DTypeLike | None = None,
        param_dtype: jax.typing.DTypeLike = jnp.float32,
        deterministic: bool = False,
        rngs: nnx.Rngs,
    ):
        name = type(self).__name__
        # The module keeps a cell with the default initialisers, so that two modules
        # that were drawn by different functions have equal graph definitions.
        self.functional_cell = wrapped(name, cell, wrap)
        drawing_cell = _with_initializers(cell, origins)
        # operator.index accepts NumPy integers and refuses floats.
        self.in_features = operator.index(in_features)
        self.carry_init = carry_init
        self.dtype = dtype
        self.param_dtype = param_dtype
        self.deterministic = deterministic
        # nnx.data lets the attribute become a random stream later.
        self.rngs = nnx.data(None)
        self.carry_rngs = nnx.data(None)
        params = wrapped(name, drawing_cell, wrap).init(
            rngs.params(), self.in_features, param_dtype
        )
        set_parameters(self, params, origins)
        # As nnx.Dropout: without a stream "dropout" it is the default stream.
        has_stream = "dropout" in rngs or "default" in rngs
        if self.functional_cell.is_noisy and has_stream:
            # A stream of its own: other modules that share `rngs` do not change its
            # draws.
            self.rngs = rngs["dropout"].fork()
        if carry_init is not None:
            # As flax.nnx.RNN without rngs.
            self.carry_rngs = nnx.RngStream(0, tag="carry")

    @property
    def hidden_features(self) -> int:
        """H, the size of the output."""
        return self.functional_cell.features

    def initialize_carry(
        self,
        input_shape: tuple[int, ...],
        rngs: nnx.Rngs | nnx.RngStream | None = None,
        carry_init: Initializer | None = None,
    ) -> Carry:
        """Return the carry before the first step.

        Args:
          input_shape: shape [..., D] of the inputs of one step.
          rngs: keys for `carry_init`, of the stream "carry". None takes the module's.
          carry_init: overrides the attribute.

        Returns:
          The carry in `dtype` (or `param_dtype`): zeros, the learned carry, or what
          `carry_init` draws. It is h [..., H], or (c, h) for an LSTM.

        Raises:
          ValueError: `carry_init` is given here only, and there are no rngs.
        """
        dtype = self.param_dtype if self.dtype is None else self.dtype
        # Only the batch axes and the dtype of x matter.
        params, x = self.cast(jnp.zeros(input_shape, dtype))
        carry = self.functional_cell.initial_carry(params, x)
        carry_init = self.carry_init if carry_init is None else carry_init
        if carry_init is None:
            return carry
        rngs = self.carry_rngs if rngs is None else rngs
        if rngs is None:
            raise ValueError(f"{type(self).__name__}: carry_init needs rngs")
        # Every leaf of the carry, such as c and h, draws its own key from the stream.
        stream = rngs.carry if isinstance(rngs, nnx.Rngs) else rngs

        def draw(leaf):
            return carry_init(stream(), leaf.shape, leaf.dtype)

        return jax.tree.map(draw, carry)

    def cast(self, inputs: jax.Array) -> tuple[Any, jax.Array]:
        """Return parameters and inputs in `dtype`, or as they are where it is None.

        Raises:
          TypeError: complex inputs, whose imaginary part a cast would drop.
        """
        params = get_parameters(self)
        if self.dtype is None:
            return params, inputs
        if jnp.iscomplexobj(inputs):
            raise TypeError(f"inputs have dtype {inputs.dtype}; they must be real")
        params = jax.tree.map(lambda p: p.astype(self.dtype), params)
        return params, inputs.astype(self.dtype)

    def noise_key(
        self, deterministic: bool | None, rngs: Keys | None
    ) -> jax.Array | None:
        """Return a key for the noise of the cell, None without noise.

        As nnx.Dropout: rngs of the call come before those of the module, and the stream
        is "dropout", or the default stream.

        Raises:
          ValueError: the cell has noise, and there are no rngs.
        """
        if not self.functional_cell.is_noisy:
            return None
        if self.deterministic if deterministic is None else deterministic:
            return None
        # Flax's RNN and Bidirectional pass a stream for the initialisation of carries.
        if isinstance(rngs, nnx.RngStream) and rngs.tag == "carry":
            rngs = None
        rngs = self.rngs if rngs is None else rngs
        if rngs is None:
            raise ValueError(
                f"{type(self).__name__}: the cell has noise, but neither the module "
                "nor the call has rngs; give rngs=nnx.Rngs(...) or deterministic=True"
            )
        if isinstance(rngs, nnx.Rngs):
            return rngs["dropout"]()
        return rngs() if isinstance(rngs, nnx.RngStream) else rngs

    def set_view(self, deterministic: bool | None = None):
        """Set the attribute that `nnx.view` was given.

        Args:
          deterministic: True switches noise off.
        """
        if deterministic is not None:
            self.deterministic = deterministic


class CellModule(ParameterModule):
    """One step of a cell, with the interface of Flax's cells."""

    def __call__(
        self,
        carry: Carry,
        inputs: jax.Array,
        *,
        deterministic: bool | None = None,
        rngs: Keys | None = None,
    ) -> tuple[Carry, jax.Array]:
        """Take one step.

        Args:
          carry: what `initialize_carry` or the step before returned.
          inputs: x [..., D].
          deterministic: overrides the attribute.
          rngs: keys for the noise; None takes those that the module was built with.
            Variational dropout needs one key for all steps of a sequence.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit, variational dropout without a key, or
            batch norm, which needs the number of the step.
        """
        # A step does not know its number in the sequence.
        if self.functional_cell.sites:
            raise ValueError(
                f"{type(self).__name__}: batch norm has statistics of each time step; "
                "use lnrepro.nnx.RNN over the sequence"
            )
        params, x = self.cast(jnp.asarray(inputs))
        key = self.noise_key(deterministic, rngs)
        refuse_sequence_noise(type(self).__name__, self.functional_cell, key, rngs, x)
        return functional.step(self.functional_cell, params, carry, x, key=key)

    @property
    def num_feature_axes(self) -> int:
        """The number of feature axes of the inputs, 1."""
        return 1


def origins_of(
    kernel_init: Initializer,
    recurrent_kernel_init: Initializer,
    bias_init: Initializer,
    scale_init: Initializer | None,
    kernel_metadata: Mapping[str, Any],
    recurrent_kernel_metadata: Mapping[str, Any],
    bias_metadata: Mapping[str, Any],
    scale_metadata: Mapping[str, Any],
) -> dict[str, Origin]:
    """Return initialisers and metadata by the names that `set_parameters` takes."""
    return {
        "w_x": Origin(kernel_init, kernel_metadata),
        "w_h": Origin(recurrent_kernel_init, recurrent_kernel_metadata),
        "bias": Origin(bias_init, bias_metadata),
        "gain": Origin(scale_init, scale_metadata),
    }


def _with_initializers(cell, origins):
    """The cell with the initialisers of its origins, which return plain arrays."""
    if not origins:
        return cell
    # None keeps the cell's default: 1, and 0.1 for batch norm.
    scale_init = origins["gain"].initializer
    return dataclasses.replace(
        cell,
        kernel_init=Plain(origins["w_x"].initializer),
        recurrent_kernel_init=Plain(origins["w_h"].initializer),
        bias_init=Plain(origins["bias"].initializer),
        scale_init=None if scale_init is None else Plain(scale_init),
    )


def refuse_sequence_noise(
    name: str,
    cell: functional.Cell,
    key: jax.Array | None,
    rngs: Keys | None,
    x: jax.Array,
) -> None:
    """Raise ValueError where a step would draw a new mask of variational dropout.

    A key that the caller gives is allowed: the same key gives the same mask.
    """
    if key is None or isinstance(rngs, jax.Array):
        return
    # `sample` draws what lasts for a sequence. eval_shape tells whether there is any
    # without drawing it.
    if jax.tree.leaves(jax.eval_shape(cell.sample, key, x)):
        raise ValueError(
            f"{name}: variational dropout has one mask for a whole sequence, and a "
            "stream of keys gives another one in every step; give one key for all "
            "steps, rngs=jax.random.key(...), or run the module over the sequence"
        )
