"""One step of a functional cell as a linen module, which keeps its parameters.

The equations are in `lnrepro.functional.cells`.

Shape letters: B batch (any number of axes), T time, D input features, H hidden units.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro import functional
from lnrepro.functional import flax_modules
from lnrepro.functional.flax_modules import StepCall
from lnrepro.linen.parameters import (
    declare_parameters,
    parameter_shapes,
    stored_parameters,
)

Carry = Any


class ParameterModule(nn.Module):
    """The parameters of one cell, and its carry.

    A subclass has the fields carry_init, dtype and param_dtype, and defines
    `functional_cell`.
    """

    # A field of `FunctionalCell`; other modules have cells without noise.
    deterministic = None

    @property
    def functional_cell(self) -> functional.Cell:
        """The cell of `lnrepro.functional` that the module stands for."""
        raise NotImplementedError

    @nn.nowrap
    def initialize_carry(
        self: Any, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> Carry:
        """Return the carry before the first step.

        Args:
          rng: random key for `carry_init`; None takes jax.random.key(0). Zeros do not
            need it.
          input_shape: shape [..., D] of the inputs of one step. D may be None.

        Returns:
          The carry in `dtype` (or `param_dtype`): zeros, what `carry_init` draws, or
          the learned carry. It is h [..., H], or (c, h) for an LSTM.

        Raises:
          ValueError: a learned carry of a module that is not bound to its parameters.
        """
        cell, (*batch, features_in) = self.functional_cell, input_shape
        # As with Flax's cells, D may not be known yet: the carry does not depend on it.
        features_in = 1 if features_in is None else features_in
        dtype = self.param_dtype if self.dtype is None else self.dtype
        shapes = parameter_shapes(self, features_in)
        params = None
        if self.scope is not None:
            params = stored_parameters(self, shapes)
        elif cell.learns_carry:
            raise ValueError(
                f"{type(self).__name__}: a learned carry is among the parameters; call "
                "module.bind(variables).initialize_carry(...)"
            )
        if params is None:
            # Before the parameters exist: a learned carry starts at zero too.
            params = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        x = jnp.zeros((*batch, features_in), dtype)
        x, params = flax_modules.cast(self.dtype, x, params)
        # Only the batch axes and the dtype of x matter.
        carry = cell.initial_carry(params, x)
        # The default stands for the cell's own carry: zeros, or the learned one.
        if self.carry_init is nn.initializers.zeros:
            return carry
        leaves, structure = jax.tree.flatten(carry)
        rng = jax.random.key(0) if rng is None else rng
        # Flax's cells split the key for c and h, and use it as it is for a single h.
        keys = jax.random.split(rng, len(leaves)) if len(leaves) > 1 else [rng]
        drawn = [
            self.carry_init(key, leaf.shape, leaf.dtype)
            for key, leaf in zip(keys, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, drawn)


class CellModule(ParameterModule, nn.RNNCellBase):
    """One step of a functional cell, with the interface of Flax's cells."""

    generic_module = "FunctionalCell"

    @nn.compact
    def __call__(
        self,
        carry: Carry,
        inputs: jax.Array,
        *,
        deterministic: bool | None = None,
    ) -> tuple[Carry, jax.Array]:
        """Take one step.

        Args:
          carry: what `initialize_carry` or the step before returned.
          inputs: x [..., D].
          deterministic: True switches noise off, which the rng "dropout" draws. A cell
            with noise needs it here or as an attribute.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit; noise or a norm of whole sequences.
        """
        call = StepCall(deterministic=deterministic)
        return take_step(self, self, carry, inputs, call)

    @property
    def num_feature_axes(self) -> int:
        """The number of feature axes of the inputs, 1."""
        return 1


def inputs_and_parameters(owner: nn.Module, inputs: jax.Array) -> tuple[jax.Array, Any]:
    """Return inputs and parameters of a module, made if needed, in its dtype."""
    inputs = jnp.asarray(inputs)
    # A scalar has no features, and no cell accepts it.
    features_in = inputs.shape[-1] if inputs.ndim else 0
    params = declare_parameters(owner, features_in)
    return flax_modules.cast(owner.dtype, inputs, params)


def take_step(
    module: nn.Module, owner: nn.Module, carry: Carry, inputs: jax.Array, call: StepCall
) -> tuple[Carry, jax.Array]:
    """Take one step of a module's cell and return (carry, y [..., H]).

    Args:
      module: the module that draws the noise.
      owner: the module that keeps the parameters.
      carry: the carry before the step.
      inputs: x [..., D].
      call: the other arguments of the step.
    """
    name, cell = type(module).__name__, owner.functional_cell
    # `init` makes the parameters of any cell.
    if not module.is_initializing():
        flax_modules.refuse_step_of_batch_norm(name, cell)
    x, params = inputs_and_parameters(owner, inputs)
    key = noise_key(module, owner, call.deterministic)
    return flax_modules.step_cell(name, cell, params, carry, x, call, key=key)


def noise_key(
    module: nn.Module, owner: nn.Module, deterministic: bool | None
) -> jax.Array | None:
    """Return a key for the noise of a module's cell, None without noise.

    As flax.linen.Dropout: `deterministic` is given in the call or as an attribute of a
    module with noise, and the rng is "dropout", or "params" where there is no such rng.
    """
    if not owner.functional_cell.is_noisy:
        return None
    if nn.merge_param("deterministic", owner.deterministic, deterministic):
        return None
    return module.make_rng("dropout")
