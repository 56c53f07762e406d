"""A functional cell as an nnx module: its parameters, its carry, one step.

`FunctionalCell` takes any cell of `lnrepro.functional` with all of its options. The
modules that are named after a kind of cell have the options of Flax's cells, and norms.
The equations are in `lnrepro.functional.cells`.

Shape letters: B batch (any number of axes), T time, D input features, H hidden units.
"""

import dataclasses
import operator
from dataclasses import InitVar
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from lnrepro import functional
from lnrepro.flax_modules import (
    DTypeLike,
    Sharding,
    as_drawn,
    cast,
    first_carry,
    map_with_axes,
    own_params,
    refuse_batch_norm,
    run_step,
)
from lnrepro.functional.cells.base import Activation, Carry, Initializer
from lnrepro.functional.cells.gated import GatedCell, glorot_uniform, orthogonal, zeros

Keys = nnx.Rngs | nnx.RngStream | jax.Array


@dataclasses.dataclass(eq=False, repr=False)
class CellParameters(nnx.Module):
    """The parameters of a functional cell, and its first carry.

    A subclass has the fields in_features and deterministic, and calls `_keep`.
    """

    _: dataclasses.KW_ONLY
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    sharding: InitVar[Sharding | None] = None
    rngs: InitVar[nnx.Rngs]

    def _keep(self: Any, cell, drawing_cell, sharding, rngs):
        """Keep a cell, what the other one draws, and a stream of keys."""
        refuse_batch_norm(self, cell)
        # operator.index accepts NumPy integers and refuses floats.
        self.in_features = operator.index(self.in_features)
        drawn = drawing_cell.init(rngs.params(), self.in_features, self.param_dtype)
        # The parameters of a stack are a tuple, which has no names.
        drawn = {"cells": drawn} if isinstance(drawn, tuple) else drawn
        for name, value in map_with_axes(_variable, drawn, sharding).items():
            # A parameter must not hide a method or another attribute.
            if hasattr(self, name):
                raise ValueError(
                    f"{type(self).__name__}: the cell has a parameter {name!r}, which "
                    "is the name of an attribute of the module"
                )
            # A value may be a tuple or a dict of variables, such as that of a stack.
            setattr(self, name, nnx.data(value))
        self.parameter_names = tuple(drawn)
        # nnx.data lets the attribute become a random stream later.
        self.rngs = nnx.data(None)
        # As nnx.Dropout: without a stream "dropout" it is the default stream.
        if cell.is_noisy and ("dropout" in rngs or "default" in rngs):
            # A stream of its own, which other modules that share `rngs` do not change.
            self.rngs = rngs["dropout"].fork()

    @property
    def parameter_module(self) -> "CellParameters":
        """The module that keeps the parameters."""
        return self

    def initialize_carry(
        self: Any,
        input_shape: tuple[int, ...],
        rngs: Keys | None = None,
    ) -> Carry:
        """Return the carry before the first step.

        Args:
          input_shape: shape [..., D] of the inputs of one step. D may be None.
          rngs: accepted as Flax does, and ignored.

        Returns:
          Zeros, or the learned carry, in float32 at least: h [..., H], or (c, h) for an
          LSTM.
        """
        del rngs
        cell, batch = self.functional_cell, input_shape[:-1]
        return first_carry(self, cell, self.parameters, batch, self.in_features)

    @property
    def parameters(self) -> Any:
        """The parameters as arrays, as the cell has them."""
        # Some may be frozen by another type, and `nnx.update` may have added those of
        # another norm.
        own = own_params(self.parameter_names, vars(self))
        params = as_drawn(arrays(own))
        return params["cells"] if isinstance(params.get("cells"), tuple) else params

    def _prepare(self: Any, inputs, deterministic, rngs):
        """Return cell, parameters, inputs in `dtype`, and a key for noise or None.

        As with nnx.Dropout, rngs of the call come before those of the module, and the
        stream is "dropout", or the default stream.
        """
        cell = self.functional_cell
        # An attribute may have changed since the module was made.
        refuse_batch_norm(self, cell)
        x, params = cast(self.dtype, inputs, self.parameters)
        is_quiet = self.deterministic if deterministic is None else deterministic
        if is_quiet or not cell.is_noisy:
            return cell, params, x, None
        # Flax's RNN and Bidirectional pass a stream for the initialisation of carries.
        if rngs is None or getattr(rngs, "tag", None) == "carry":
            rngs = self.rngs
        if rngs is None:
            raise ValueError(
                f"{type(self).__name__}: the cell has noise, but neither the module "
                "nor the call has rngs; give rngs=nnx.Rngs(...) or deterministic=True"
            )
        if isinstance(rngs, jax.Array):
            return cell, params, x, rngs
        stream = rngs["dropout"] if isinstance(rngs, nnx.Rngs) else rngs
        return cell, params, x, stream()

    def _step(self, carry, inputs, deterministic, rngs, mask, reset, memory):
        """Take one step: (carry, y)."""
        prepared = self._prepare(inputs, deterministic, rngs)
        # They may hold variables, such as a learned carry.
        return run_step(self, prepared, *arrays((carry, mask, reset, memory)))

    def set_view(self, deterministic: bool | None = None):
        """Set the attribute that `nnx.view` was given.

        Args:
          deterministic: True switches noise off.
        """
        if deterministic is not None:
            self.deterministic = deterministic


class CellModule(CellParameters):
    """One step of a functional cell, with the interface of Flax's cells."""

    num_feature_axes = 1

    def __call__(
        self,
        carry: Carry,
        inputs: jax.Array,
        *,
        mask: jax.Array | None = None,
        reset: jax.Array | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
        rngs: Keys | None = None,
    ) -> tuple[Carry, jax.Array]:
        """Take one step.

        Args:
          carry: what `initialize_carry` or the step before returned.
          inputs: x [..., D].
          mask: [...], False where the step is padding.
          reset: [...], True where the carry starts anew before the step.
          memory: what the step reads.
          deterministic: overrides the attribute; True switches noise off.
          rngs: keys for the noise; None takes those that the module was built with.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit; parameters of another cell; noise that
            lasts for a sequence, or noise without rngs.
        """
        return self._step(carry, inputs, deterministic, rngs, mask, reset, memory)


@dataclasses.dataclass(eq=False, repr=False)
class FunctionalCell(CellModule):
    """One step of any cell of `lnrepro.functional`: (carry, x [..., D]) -> (carry, y).

    The parameters have the cell's names. Those of a stack are the tuple `cells`.

    Args:
      cell: a `lnrepro.functional.Cell`, such as an LSTMCell with peepholes, a stack, or
        a cell of your own.
      in_features: D, the number of input features.
      dtype: dtype of the computation and the result; None takes the one that inputs and
        parameters promote to.
      param_dtype: dtype of the parameters.
      sharding: mesh axes of parameters by name, such as {"w_x": (None, "model")}: the
        metadata "out_sharding" of such a parameter.
      deterministic: True switches noise off, as `model.eval()` does.
      rngs: keys for the initialisers (stream "params") and for the noise (stream
        "dropout"). A missing stream is the default stream.

    >>> stack = functional.stack(functional.GRUCell(4), functional.GRUCell(4))
    >>> cell = FunctionalCell(stack, in_features=3, rngs=nnx.Rngs(0))
    >>> x = jnp.ones((2, 3))
    >>> carry, y = cell(cell.initialize_carry(x.shape), x)
    >>> y.shape, cell.cells[1]["w_h"].shape
    ((2, 4), (4, 12))
    """

    cell: InitVar[functional.Cell]
    in_features: int
    _: dataclasses.KW_ONLY
    deterministic: bool = False

    def __post_init__(self, sharding, rngs, cell):
        """Draw the parameters."""
        self.functional_cell, self.hidden_features = cell, cell.features
        self._keep(cell, cell, sharding, rngs)


@dataclasses.dataclass(eq=False, repr=False)
class NamedFields(CellParameters):
    """The fields of all modules that are named after a kind of cell."""

    cell_class: ClassVar[type[GatedCell]]
    # The fields of the cell that are fields here.
    cell_fields: ClassVar[tuple[str, ...]] = ("activation_fn",)

    in_features: int
    hidden_features: int
    _: dataclasses.KW_ONLY
    norm: str | functional.Norm = "layer"
    activation_fn: Activation = jnp.tanh
    # What draws the parameters is no part of the module, so that two modules that were
    # drawn by different functions have equal graph definitions.
    kernel_init: InitVar[Initializer] = glorot_uniform
    recurrent_kernel_init: InitVar[Initializer] = orthogonal
    bias_init: InitVar[Initializer] = zeros
    scale_init: InitVar[Initializer | None] = None

    def __post_init__(
        self,
        sharding,
        rngs,
        kernel_init,
        recurrent_kernel_init,
        bias_init,
        scale_init,
    ):
        """Make the cell and its parameters."""
        cell = self.functional_cell
        drawing_cell = dataclasses.replace(
            cell,
            kernel_init=kernel_init,
            recurrent_kernel_init=recurrent_kernel_init,
            bias_init=bias_init,
            scale_init=scale_init,
        )
        # A cell without noise, which only a functional cell has.
        self.deterministic = False
        self._keep(cell, drawing_cell, sharding, rngs)

    @property
    def functional_cell(self) -> GatedCell:
        """The cell of `lnrepro.functional`, with its default initialisers."""
        options = {name: getattr(self, name) for name in self.cell_fields}
        return self.cell_class(self.hidden_features, self.norm, **options)


@dataclasses.dataclass(eq=False, repr=False)
class GatedFields(NamedFields):
    """The fields of those modules whose cell has gates."""

    _: dataclasses.KW_ONLY
    gate_fn: Activation = jax.nn.sigmoid

    cell_fields = ("gate_fn", *NamedFields.cell_fields)


class LSTMCell(GatedFields, CellModule):
    """One step of an LSTM (eq. 20-22): ((c, h), x [..., D]) -> ((c, h), h [..., H]).

    The module works in `lnrepro.nnx.RNN`, and in flax.nnx.RNN. Arguments are the
    attributes of `lnrepro.linen.LSTMCell`, and these:

    Args:
      in_features: D, the number of input features.
      hidden_features: H, the number of hidden units.
      rngs: keys for the initialisers, of the stream "params".

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


def arrays(tree: Any) -> Any:
    """Return a tree with the arrays of nnx variables, such as a learned carry."""

    def array_of(leaf):
        return leaf[...] if isinstance(leaf, nnx.Variable) else leaf

    return jax.tree.map(
        array_of, tree, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable)
    )


def _variable(value, axes):
    """A parameter as a variable; mesh axes are its metadata "out_sharding"."""
    return nnx.Param(value) if axes is None else nnx.Param(value, out_sharding=axes)
