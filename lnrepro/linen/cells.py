"""A functional cell as a linen module: its parameters, its carry, one step.

`FunctionalCell` takes any cell of `lnrepro.functional` with all of its options. The
modules that are named after a kind of cell have the options of Flax's cells, and norms.
The equations are in `lnrepro.functional.cells`.

Shape letters: B batch (any number of axes), T time, D input features, H hidden units.
"""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import serialization
from flax.core import FrozenDict

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
    shapes_of,
)
from lnrepro.functional.cells.base import Activation, Carry, Initializer
from lnrepro.functional.cells.gated import GatedCell, glorot_uniform, orthogonal, zeros


class CellParameters(nn.Module):
    """The parameters of a functional cell, and its first carry.

    A subclass defines `functional_cell`.
    """

    _: dataclasses.KW_ONLY
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    sharding: Sharding | None = None

    # A field of `FunctionalCell`; other modules have cells without noise.
    deterministic = None

    def __post_init__(self):
        """Keep mesh axes so that the module can be a static argument of `jax.jit`.

        Raises:
          TypeError: more than the sizes is given by position, where Flax has `parent`.
        """
        if isinstance(self.parent, str):
            name = type(self).__name__
            raise TypeError(
                f"{name}: only sizes may be given by position; write a keyword, such "
                f"as norm={self.parent!r}"
            )
        if self.sharding is not None:
            axes = {name: tuple(axes) for name, axes in self.sharding.items()}
            # The fields of a frozen dataclass are set by object.__setattr__.
            object.__setattr__(self, "sharding", FrozenDict(axes))
        super().__post_init__()

    @property
    def functional_cell(self) -> functional.Cell:
        """The cell of `lnrepro.functional` that the module stands for."""
        raise NotImplementedError

    @property
    def parameter_module(self) -> "CellParameters":
        """The module that keeps the parameters."""
        return self

    @nn.nowrap
    def initialize_carry(
        self, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> Carry:
        """Return the carry before the first step.

        Args:
          rng: accepted as Flax does, and ignored.
          input_shape: shape [..., D] of the inputs of one step. As with Flax's cells,
            D may be None, unless the carry is as large as the inputs.

        Returns:
          Zeros, or the learned carry, in float32 at least: h [..., H], or (c, h) for an
          LSTM.

        Raises:
          ValueError: a learned carry of a module that is not bound to its parameters.
        """
        del rng
        *batch, features_in = input_shape
        features_in = features_in or 1
        cell = self.functional_cell
        if not cell.learns_carry:
            # Such a carry depends on the shapes of the parameters alone.
            params = shapes_of(cell, features_in, self.param_dtype)
        elif self.scope is None:
            raise ValueError(
                f"{type(self).__name__}: a learned carry is among the parameters; call "
                "module.bind(variables).initialize_carry(...)"
            )
        else:
            params = self._parameters(cell, features_in)
        return first_carry(self, cell, params, batch, features_in)

    @nn.nowrap
    def _prepare(self, inputs, deterministic):
        """Return cell, parameters, inputs in `dtype`, and a key for noise or None."""
        cell, key = self.functional_cell, None
        refuse_batch_norm(self, cell)
        is_noisy = cell.is_noisy
        # A scalar has no features, and no cell accepts it.
        params = self._parameters(cell, (0, *jnp.shape(inputs))[-1])
        x, params = cast(self.dtype, inputs, params)
        if is_noisy and not nn.merge_param(
            "deterministic", self.deterministic, deterministic
        ):
            key = self.make_rng("dropout")
        return cell, params, x, key

    @nn.nowrap
    def _parameters(self, cell, features_in):
        """The parameters as the cell has them, drawn first where there are none."""
        names = serialization.to_state_dict(
            shapes_of(cell, features_in, self.param_dtype)
        )
        is_new = not names.keys() & self.variables.get("params", {}).keys()
        if is_new and self.is_mutable_collection("params"):
            key = self.make_rng("params")
            drawn = cell.init(key, features_in, self.param_dtype)
            named = serialization.to_state_dict(drawn)
            for name, value in map_with_axes(_boxed, named, self.sharding).items():
                self.put_variable("params", name, value)
        params = own_params(names, self.variables.get("params", {}))
        return as_drawn(nn.unbox(params))


class CellModule(CellParameters, nn.RNNCellBase):
    """One step of a functional cell, with the interface of Flax's cells."""

    @nn.compact
    def __call__(
        self,
        carry: Carry,
        inputs: jax.Array,
        *,
        mask: jax.Array | None = None,
        reset: jax.Array | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
    ) -> tuple[Carry, jax.Array]:
        """Take one step.

        Args:
          carry: what `initialize_carry` or the step before returned.
          inputs: x [..., D].
          mask: [...], False where the step is padding.
          reset: [...], True where the carry starts anew before the step.
          memory: what the step reads.
          deterministic: True switches noise off, which the rng "dropout" draws. A cell
            with noise needs it here or as an attribute.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit; parameters of another cell; batch norm;
            noise that lasts for a sequence.
        """
        prepared = self._prepare(inputs, deterministic)
        return run_step(self, prepared, carry, mask, reset, memory)

    @property
    def num_feature_axes(self) -> int:
        """The number of feature axes of the inputs, 1."""
        return 1


class FunctionalCell(CellModule):
    """One step of any cell of `lnrepro.functional`: (carry, x [..., D]) -> (carry, y).

    `RNN(cell)` wraps a functional cell in this module. Its parameters have the cell's
    names and initial values. Those of a stack are numbered, "0" and so on.

    Attributes:
      cell: a `lnrepro.functional.Cell`, such as an LSTMCell with peepholes, a stack, or
        a cell of your own.
      dtype: dtype of the computation and the result; None takes the one that inputs and
        parameters promote to.
      param_dtype: dtype of the parameters.
      sharding: mesh axes of parameters by name, such as {"w_x": (None, "model")}. Such
        a parameter is kept in Flax's box `Partitioned`.
      deterministic: True switches noise off. A cell with noise needs it here or in the
        call.

    >>> x = jnp.ones((2, 3))
    >>> stack = functional.stack(functional.GRUCell(4), functional.GRUCell(4))
    >>> cell = FunctionalCell(stack, sharding={"w_h": (None, "model")})
    >>> carry = cell.initialize_carry(jax.random.key(0), x.shape)
    >>> variables = cell.init(jax.random.key(1), carry, x)
    >>> list(variables["params"]), variables["params"]["1"]["w_h"].names
    (['0', '1'], (None, 'model'))
    """

    cell: functional.Cell
    _: dataclasses.KW_ONLY
    deterministic: bool | None = None

    @property
    def functional_cell(self) -> functional.Cell:
        """The cell of `lnrepro.functional` that the module stands for."""
        return self.cell


class NamedFields(CellParameters):
    """The fields of all modules that are named after a kind of cell."""

    cell_class: ClassVar[type[GatedCell]]
    # The fields of the cell that are fields here.
    cell_fields: ClassVar[tuple[str, ...]] = (
        "activation_fn",
        "kernel_init",
        "recurrent_kernel_init",
        "bias_init",
        "scale_init",
    )

    features: int
    _: dataclasses.KW_ONLY
    norm: str | functional.Norm = "layer"
    activation_fn: Activation = jnp.tanh
    kernel_init: Initializer = glorot_uniform
    recurrent_kernel_init: Initializer = orthogonal
    bias_init: Initializer = zeros
    scale_init: Initializer | None = None

    @property
    def functional_cell(self) -> GatedCell:
        """The cell of `lnrepro.functional` that the module stands for."""
        options = {name: getattr(self, name) for name in self.cell_fields}
        return self.cell_class(self.features, self.norm, **options)


class GatedFields(NamedFields):
    """The fields of those modules whose cell has gates."""

    _: dataclasses.KW_ONLY
    gate_fn: Activation = jax.nn.sigmoid

    cell_fields = ("gate_fn", *NamedFields.cell_fields)


class LSTMCell(GatedFields, CellModule):
    """One step of an LSTM (eq. 20-22): ((c, h), x [..., D]) -> ((c, h), h [..., H]).

    The module has Flax's interface of a cell: it works in `lnrepro.linen.RNN`, and in
    flax.linen.RNN. The equations, norms and parameter names are those of
    `lnrepro.functional.LSTMCell`, and so are the fields norm, gate_fn, activation_fn,
    kernel_init, recurrent_kernel_init, bias_init and scale_init. Its other options are
    set on it: `FunctionalCell(functional.LSTMCell(...))`.

    Attributes:
      features: H, the number of hidden units. All other fields are given by name.
      dtype: as in `FunctionalCell`, and so are param_dtype and sharding.

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


def _boxed(value, axes):
    """A parameter in Flax's box where it has mesh axes."""
    return value if axes is None else nn.Partitioned(value, axes)
