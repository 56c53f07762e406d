"""One step of a functional cell as an nnx module, which keeps its parameters.

The equations are in `lnrepro.functional.cells`.

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
from lnrepro.functional import flax_modules
from lnrepro.functional.cells.base import Initializer
from lnrepro.functional.flax_modules import StepCall
from lnrepro.nnx.parameters import (
    NO_METADATA,
    Metadata,
    get_parameters,
    init_key,
    make_parameters,
    with_default_initializers,
)

Carry = Any
Streams = nnx.Rngs | nnx.RngStream
Keys = Streams | jax.Array


@dataclasses.dataclass(eq=False, repr=False)
class ParameterModule(nnx.Module):
    """The parameters of one cell, its carry, and the random keys of its noise.

    A subclass has the fields in_features and deterministic, and calls `_keep`.
    """

    _: dataclasses.KW_ONLY
    carry_init: Initializer | None = None
    dtype: jax.typing.DTypeLike | None = None
    param_dtype: jax.typing.DTypeLike = jnp.float32
    rngs: dataclasses.InitVar[nnx.Rngs]

    def _keep(
        self: Any,
        cell: functional.Cell,
        rngs: nnx.Rngs,
        metadata: Mapping[str, Metadata] = NO_METADATA,
    ):
        """Keep a cell, fresh parameters, and streams of keys."""
        self.functional_cell = with_default_initializers(cell)
        # operator.index accepts NumPy integers and refuses floats.
        self.in_features = operator.index(self.in_features)
        make_parameters(self, cell, init_key(self, rngs), metadata)
        # nnx.data lets the attribute become a random stream later.
        self.rngs = nnx.data(None)
        self.carry_rngs = nnx.data(None)
        # As nnx.Dropout: without a stream "dropout" it is the default stream.
        if cell.is_noisy and ("dropout" in rngs or "default" in rngs):
            # A stream of its own, which other modules that share `rngs` do not change.
            self.rngs = rngs["dropout"].fork()
        if self.carry_init is not None:
            # As flax.nnx.RNN without rngs.
            self.carry_rngs = nnx.RngStream(0, tag="carry")

    def initialize_carry(
        self,
        input_shape: tuple[int, ...],
        rngs: Streams | None = None,
        carry_init: Initializer | None = None,
    ) -> Carry:
        """Return the carry before the first step.

        Args:
          input_shape: shape [..., D] of the inputs of one step. D may be None.
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
        x = jnp.zeros((*input_shape[:-1], 1), dtype)
        x, params = inputs_and_parameters(self, x)
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

    def set_view(self, deterministic: bool | None = None):
        """Set the attribute that `nnx.view` was given.

        Args:
          deterministic: True switches noise off.
        """
        if deterministic is not None:
            self.deterministic = deterministic


class CellModule(ParameterModule):
    """One step of a cell, with the interface of Flax's cells."""

    generic_module = "FunctionalCell"

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
          deterministic: overrides the attribute; True switches noise off.
          rngs: keys for the noise; None takes those that the module was built with.
            Variational dropout needs one key for all steps of a sequence.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit; noise or a norm of whole sequences.
        """
        call = StepCall(deterministic=deterministic)
        return take_step(self, carry, inputs, call, rngs)

    @property
    def num_feature_axes(self) -> int:
        """The number of feature axes of the inputs, 1."""
        return 1


def inputs_and_parameters(
    owner: ParameterModule, inputs: jax.Array
) -> tuple[jax.Array, Any]:
    """Return inputs and parameters of a module in its dtype."""
    params = get_parameters(owner)
    return flax_modules.cast(owner.dtype, jnp.asarray(inputs), params)


def take_step(
    owner: ParameterModule,
    carry: Carry,
    inputs: jax.Array,
    call: StepCall,
    rngs: Keys | None,
) -> tuple[Carry, jax.Array]:
    """Take one step of a module's cell and return (carry, y [..., H]).

    Args:
      owner: the module that keeps the parameters.
      carry: the carry before the step.
      inputs: x [..., D].
      call: the other arguments of the step.
      rngs: keys for the noise.
    """
    name, cell = type(owner).__name__, owner.functional_cell
    flax_modules.refuse_step_of_batch_norm(name, cell)
    x, params = inputs_and_parameters(owner, inputs)
    return flax_modules.step_cell(
        name,
        cell,
        params,
        carry,
        x,
        call,
        key=noise_key(owner, call.deterministic, rngs),
        is_key_of_sequence=isinstance(rngs, jax.Array),
    )


def noise_key(
    owner: Any, deterministic: bool | None, rngs: Keys | None
) -> jax.Array | None:
    """Return a key for the noise of a module's cell, None without noise.

    As nnx.Dropout: rngs of the call come before those of the module, and the stream is
    "dropout", or the default stream.

    Raises:
      ValueError: the cell has noise, and there are no rngs.
    """
    if not owner.functional_cell.is_noisy:
        return None
    if owner.deterministic if deterministic is None else deterministic:
        return None
    # Flax's RNN and Bidirectional pass a stream for the initialisation of carries.
    if isinstance(rngs, nnx.RngStream) and rngs.tag == "carry":
        rngs = None
    rngs = owner.rngs if rngs is None else rngs
    if rngs is None:
        raise ValueError(
            f"{type(owner).__name__}: the cell has noise, but neither the module nor "
            "the call has rngs; give rngs=nnx.Rngs(...) or deterministic=True"
        )
    if isinstance(rngs, nnx.Rngs):
        return rngs["dropout"]()
    return rngs() if isinstance(rngs, nnx.RngStream) else rngs
