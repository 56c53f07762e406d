"""What the recurrent modules do, whichever cell they hold.

A module describes a cell of `lnrepro.functional` and keeps its parameters. The
equations are in `lnrepro.functional.cells`, the loop over time is
`lnrepro.functional.unroll`.

Shape letters: B batch (any number of axes), T time, D input features, H hidden units.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lnrepro import functional
from lnrepro.functional.flax_modules import chosen, drawn_carry, scan_options
from lnrepro.linen.parameters import (
    declare_parameters,
    parameter_shapes,
    stored_parameters,
)

Carry = Any


class CellModule(nn.RNNCellBase):
    """One step of a cell, with the interface of Flax's cells.

    A subclass has the fields dtype, param_dtype, carry_init and deterministic, and
    defines `functional_cell` and `initializers`.
    """

    @property
    def functional_cell(self) -> functional.Cell:
        """The cell of `lnrepro.functional` that the module stands for."""
        raise NotImplementedError

    @nn.nowrap
    def initializers(self) -> dict[str, Any]:
        """Initialisers by the names that `declare_parameters` takes."""
        return {}

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
          deterministic: True switches noise off. A cell with noise needs it here or as
            an attribute. The noise is drawn from the rng "dropout".

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit, a noise mask that lasts for a sequence,
            or batch norm, which needs the number of the step.
        """
        cell, inputs = self.functional_cell, jnp.asarray(inputs)
        params = declare_parameters(self, cell, _features(inputs), self.initializers())
        # A step does not know its number in the sequence. `init` needs no statistics.
        if cell.sites and not self.is_initializing():
            raise ValueError(
                f"{type(self).__name__}: batch norm has statistics of each time step; "
                "use lnrepro.linen.RNN over the sequence"
            )
        params, x = cast(self.dtype, params, inputs)
        key = noise_key(self, cell, deterministic)
        refuse_sequence_noise(type(self).__name__, cell, key, x)
        return functional.step(cell, params, carry, x, key=key)

    @nn.nowrap
    def initialize_carry(
        self, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> Carry:
        """Return the carry before the first step.

        Args:
          rng: random key for `carry_init`; zeros do not need it.
          input_shape: shape [..., D] of the inputs of one step.

        Returns:
          The carry in `dtype` (or `param_dtype`): zeros, what `carry_init` draws, or
          the learned carry. It is h [..., H], or (c, h) for an LSTM.

        Raises:
          ValueError: a learned carry of a module that is not bound to its parameters.
        """
        return first_carry(self, rng, input_shape)

    @property
    def num_feature_axes(self) -> int:
        """The number of feature axes of the inputs, 1."""
        return 1


class SequenceModule(nn.Module):
    """A cell over a whole sequence, with the interface of flax.linen.RNN.

    A subclass has the attributes dtype, param_dtype, carry_init and deterministic, the
    fields of `RNN` about sequences, and defines `functional_cell` and `initializers`,
    or `parameters`.
    """

    @property
    def functional_cell(self) -> functional.Cell:
        """The cell of `lnrepro.functional` that the module stands for."""
        raise NotImplementedError

    @nn.nowrap
    def initializers(self) -> dict[str, Any]:
        """Initialisers by the names that `declare_parameters` takes."""
        return {}

    @nn.nowrap
    def parameters(self, cell: functional.Cell, features_in: int) -> Any:
        """Return the parameters of the cell; make them if the module has none."""
        return declare_parameters(self, cell, features_in, self.initializers())

    @nn.compact
    def __call__(
        self,
        inputs: jax.Array,
        *,
        initial_carry: Carry | None = None,
        init_key: jax.Array | None = None,
        seq_lengths: jax.Array | None = None,
        mask: jax.Array | None = None,
        resets: jax.Array | None = None,
        return_carry: bool | None = None,
        time_major: bool | None = None,
        reverse: bool | None = None,
        keep_order: bool | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
        use_running_average: bool | None = None,
    ) -> Any:
        """Run the cell over a sequence.

        Args:
          inputs: x [..., T, D], or [T, ..., D] with time_major.
          initial_carry: the carry before the first step. None takes the cell's own.
          init_key: random key for `carry_init`; None takes jax.random.key(0).
          seq_lengths: integers [...] in [0, T]. Steps at and beyond a length are
            padding: the carry passes through them, and their output is zero.
          mask: [..., T], False where a step is padding, anywhere in the sequence.
          resets: [..., T], True at the first observation of an episode: the carry
            starts anew before that step, at zeros or at the learned carry. See the
            picture at `lnrepro.functional.unroll`.
          return_carry: overrides the attribute, as do time_major, reverse and
            keep_order.
          time_major: see above.
          reverse: see above.
          keep_order: see above.
          memory: what every step of the cell reads.
          deterministic: True switches noise off. A cell with noise needs it here or as
            an attribute. The noise is drawn from the rng "dropout".
          use_running_average: for batch norm, as in flax.linen.BatchNorm: True takes
            the running statistics, False those of the batch. It is given here or as an
            attribute.

        Returns:
          y [..., T, H], or (carry, y) with return_carry.

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit; an option that is not given, or given
            twice.
        """
        return_carry = chosen(return_carry, self.return_carry)
        time_major = chosen(time_major, self.time_major)
        cell, inputs = self.functional_cell, jnp.asarray(inputs)
        params = self.parameters(cell, _features(inputs))
        params, x = cast(self.dtype, params, inputs)
        # Zeros and learned carries are made by the cell itself.
        if initial_carry is None and self.carry_init is not nn.initializers.zeros:
            time_axis = 0 if time_major else x.ndim - 2
            step_shape = x.shape[:time_axis] + x.shape[time_axis + 1 :]
            initial_carry = self.initialize_carry(init_key, step_shape)
            initial_carry = drawn_carry(cell, params, x, initial_carry)

        running = running_statistics(self, cell)
        # None lets `unroll` take the statistics of the batch.
        statistics = None
        if cell.sites and nn.merge_param(
            "use_running_average", self.use_running_average, use_running_average
        ):
            statistics = _values(running)
        result = functional.unroll(
            cell,
            params,
            x,
            initial_carry=initial_carry,
            seq_lengths=seq_lengths,
            mask=mask,
            resets=resets,
            reverse=chosen(reverse, self.reverse),
            keep_order=chosen(keep_order, self.keep_order),
            time_major=time_major,
            key=noise_key(self, cell, deterministic),
            memory=memory,
            statistics=statistics,
            options=scan_options(self.options, self.unroll),
        )
        # The batch's own statistics were used, so the running ones move. `init` only
        # makes the variables.
        if result.statistics is not None and not self.is_initializing():
            moved = functional.track(_values(running), result.statistics, self.momentum)
            for site, variables in running.items():
                for variable, value in zip(variables, moved[site], strict=True):
                    variable.value = value
        return (result.carry, result.outputs) if return_carry else result.outputs

    @nn.compact
    def step(
        self,
        carry: Carry,
        inputs: jax.Array,
        *,
        mask: jax.Array | None = None,
        reset: jax.Array | None = None,
        memory: Any = None,
        deterministic: bool | None = None,
    ) -> tuple[Carry, jax.Array]:
        """Take one step with the same parameters: module.apply(..., method="step").

        Args:
          carry: what `initialize_carry`, a step or a whole sequence returned.
          inputs: x [..., D].
          mask: [...], False where the step is padding.
          reset: [...], True where the carry starts anew before the step.
          memory: what the step reads.
          deterministic: as in the call.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit, a noise mask that lasts for a sequence,
            or batch norm, which needs the number of the step.
        """
        cell, inputs = self.functional_cell, jnp.asarray(inputs)
        # A step does not know its number in the sequence.
        if cell.sites:
            raise ValueError(
                f"{type(self).__name__}: batch norm has statistics of each time step; "
                "call the module on a sequence"
            )
        params = self.parameters(cell, _features(inputs))
        params, x = cast(self.dtype, params, inputs)
        key = noise_key(self, cell, deterministic)
        refuse_sequence_noise(type(self).__name__, cell, key, x)
        return functional.step(
            cell, params, carry, x, mask=mask, reset=reset, key=key, memory=memory
        )

    @nn.nowrap
    def initialize_carry(
        self, rng: jax.Array | None, input_shape: tuple[int, ...]
    ) -> Carry:
        """Return the carry before the first step, as the cells' `initialize_carry`.

        Args:
          rng: random key for `carry_init`; zeros do not need it.
          input_shape: shape [..., D] of the inputs of one step.

        Returns:
          The carry: h [..., H], or (c, h) for an LSTM.

        Raises:
          ValueError: a learned carry of a module that is not bound to its parameters.
        """
        return first_carry(self, rng, input_shape)


def cast(dtype: jax.typing.DTypeLike | None, params: Any, x: jax.Array) -> tuple:
    """Return parameters and inputs in `dtype`, or as they are where it is None.

    Raises:
      TypeError: complex inputs, whose imaginary part a cast would drop.
    """
    if dtype is None:
        return params, x
    if jnp.iscomplexobj(x):
        raise TypeError(f"inputs have dtype {x.dtype}; they must be real")
    return jax.tree.map(lambda p: p.astype(dtype), params), x.astype(dtype)


def noise_key(
    module: nn.Module, cell: functional.Cell, deterministic: bool | None
) -> jax.Array | None:
    """Return a key for the noise of a cell, None without noise.

    As flax.linen.Dropout: `deterministic` is given in the call or as an attribute of a
    module with noise, and the rng is "dropout", or "params" where there is no such rng.
    """
    if not cell.is_noisy:
        return None
    if nn.merge_param("deterministic", module.deterministic, deterministic):
        return None
    return module.make_rng("dropout")


def refuse_sequence_noise(
    name: str, cell: functional.Cell, key: jax.Array | None, x: jax.Array
) -> None:
    """Raise ValueError where a step would draw noise that lasts for a sequence."""
    if key is None:
        return
    # `sample` draws what lasts for a sequence. eval_shape tells whether there is any
    # without drawing it.
    if jax.tree.leaves(jax.eval_shape(cell.sample, key, x)):
        raise ValueError(
            f"{name}: variational dropout has one mask for a whole sequence, which one "
            "step cannot keep; run the module over the sequence, or draw the mask with "
            "cell.sample and pass it to lnrepro.functional.step(noise=...)"
        )


def first_carry(
    module: nn.Module,
    rng: jax.Array | None,
    input_shape: tuple[int, ...],
) -> Carry:
    """Return zeros, the learned carry, or what `carry_init` draws.

    Args:
      module: a cell or sequence module.
      rng: random key for `carry_init`; None takes jax.random.key(0).
      input_shape: [..., D].
    """
    cell, features_in = module.functional_cell, input_shape[-1]
    dtype = module.param_dtype if module.dtype is None else module.dtype
    params = None
    if module.scope is not None:
        params = stored_parameters(module, cell, features_in)
    elif cell.learns_carry:
        raise ValueError(
            f"{type(module).__name__}: a learned carry is among the parameters; call "
            "module.bind(variables).initialize_carry(...)"
        )
    if params is None:
        # Before the parameters exist: a learned carry starts at zero too.
        shapes = parameter_shapes(cell, features_in, module.param_dtype)
        params = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    params, x = cast(module.dtype, params, jnp.zeros(input_shape, dtype))
    # Only the batch axes and the dtype of x matter.
    carry = cell.initial_carry(params, x)
    # The default stands for the cell's own carry: zeros, or the learned one.
    if module.carry_init is nn.initializers.zeros:
        return carry
    leaves, structure = jax.tree.flatten(carry)
    rng = jax.random.key(0) if rng is None else rng
    # Flax's cells split the key for c and h, and use it as it is for a single h.
    keys = jax.random.split(rng, len(leaves)) if len(leaves) > 1 else [rng]
    drawn = [
        module.carry_init(key, leaf.shape, leaf.dtype)
        for key, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)


def running_statistics(module: nn.Module, cell: functional.Cell) -> dict:
    """Return the running statistics of batch norm, {site: (mean, var)} as variables.

    They are "mean_x", "var_x" and so on in the collection "batch_stats", [T_max, n].
    """
    if not cell.sites:
        return {}
    if module.max_steps is None:
        raise ValueError(
            f"{type(module).__name__}: batch norm keeps running statistics of each "
            "time step; give their number, max_steps=..."
        )
    running = {}
    for site, size in cell.sites.items():
        # A stack has sites such as "1/x", and "/" separates modules in Flax.
        suffix, shape = site.replace("/", "_"), (module.max_steps, size)
        mean = module.variable(
            "batch_stats", f"mean_{suffix}", jnp.zeros, shape, jnp.float32
        )
        var = module.variable(
            "batch_stats", f"var_{suffix}", jnp.ones, shape, jnp.float32
        )
        running[site] = (mean, var)
    return running


def _values(running):
    return {site: (mean.value, var.value) for site, (mean, var) in running.items()}


def _features(inputs):
    """The size of the last axis; 0 for a scalar, which no cell accepts."""
    return inputs.shape[-1] if inputs.ndim else 0
