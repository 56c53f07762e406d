"""What the modules over whole sequences do, whichever cell they hold.

The loop over time is `lnrepro.functional.unroll`.

Shape letters: B batch (any number of axes), T time, D input features, H hidden units.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from lnrepro import functional
from lnrepro.functional.flax_modules import chosen, drawn_carry, scan_options
from lnrepro.nnx.base import Carry, Keys, ParameterModule, refuse_sequence_noise


class SequenceMethods:
    """A cell over a whole sequence, with the interface of flax.nnx.RNN.

    A subclass is an nnx.Module, calls `set_sequence_options` when it is built, and
    defines `parameter_module`.
    """

    @property
    def parameter_module(self) -> ParameterModule:
        """The module that keeps the parameters."""
        raise NotImplementedError

    def set_sequence_options(
        self,
        *,
        return_carry: bool,
        time_major: bool,
        reverse: bool,
        keep_order: bool,
        unroll: int,
        options: functional.ScanOptions | None,
        max_steps: int | None,
        momentum: float,
        use_running_average: bool,
    ) -> None:
        """Set the attributes about sequences, and make running statistics."""
        self.return_carry = return_carry
        self.time_major = time_major
        self.reverse = reverse
        self.keep_order = keep_order
        self.unroll = unroll
        self.options = options
        self.momentum = momentum
        self.use_running_average = use_running_average
        cell = self.parameter_module.functional_cell
        if cell.sites and max_steps is None:
            raise ValueError(
                f"{type(self).__name__}: batch norm keeps running statistics of each "
                "time step; give their number, max_steps=..."
            )
        # Attributes such as mean_x and var_x, [T_max, n], in which nnx finds the
        # variables.
        for site, size in cell.sites.items():
            mean_name, var_name = _statistics_names(site)
            # Row t belongs to time step t.
            shape = (max_steps, size)
            setattr(self, mean_name, nnx.BatchStat(jnp.zeros(shape, jnp.float32)))
            setattr(self, var_name, nnx.BatchStat(jnp.ones(shape, jnp.float32)))

    def __call__(
        self,
        inputs: jax.Array,
        *,
        initial_carry: Carry | None = None,
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
        rngs: Keys | None = None,
    ) -> Any:
        """Run the cell over a sequence. Options override the attributes.

        Args:
          inputs: x [..., T, D], or [T, ..., D] with time_major.
          initial_carry: the carry before the first step. None takes the cell's own.
          seq_lengths: integers [...] in [0, T]. Steps at and beyond a length are
            padding: the carry passes through them, and their output is zero.
          mask: [..., T], False where a step is padding, anywhere in the sequence.
          resets: [..., T], True at the first observation of an episode: the carry
            starts anew before that step, at zeros or at the learned carry. See the
            picture at `lnrepro.functional.unroll`.
          return_carry: whether to return (carry, y).
          time_major: whether x is [T, ..., D].
          reverse: whether to run from the end to the start.
          keep_order: with reverse, whether y stands in the order of x.
          memory: what every step of the cell reads.
          deterministic: True switches noise off.
          use_running_average: for batch norm, True takes the running statistics, False
            those of the batch.
          rngs: keys for the noise; None takes those that the module was built with.

        Returns:
          y [..., T, H], or (carry, y) with return_carry.

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit, or noise without rngs.
        """
        owner = self.parameter_module
        cell = owner.functional_cell
        params, x = owner.cast(jnp.asarray(inputs))
        time_major = chosen(time_major, self.time_major)
        # Zeros and learned carries are made by the cell itself.
        if initial_carry is None and owner.carry_init is not None:
            # The shape of the inputs of one step: that of x without its time axis.
            time_axis = 0 if time_major else x.ndim - 2
            step_shape = x.shape[:time_axis] + x.shape[time_axis + 1 :]
            initial_carry = owner.initialize_carry(step_shape, _carry_stream(rngs))
            initial_carry = drawn_carry(cell, params, x, initial_carry)

        # Only batch norm has any.
        running = self._running_statistics(cell)
        takes_running = chosen(use_running_average, self.use_running_average)
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
            key=owner.noise_key(deterministic, rngs),
            memory=memory,
            statistics=_values(running) if running and takes_running else None,
            options=scan_options(self.options, self.unroll),
        )
        # The batch's own statistics were used, so that the running ones move.
        if result.statistics is not None:
            # momentum * running + (1 - momentum) * batch, step by step.
            moved = functional.track(_values(running), result.statistics, self.momentum)
            for site, variables in running.items():
                for variable, value in zip(variables, moved[site], strict=True):
                    variable[...] = value
        if chosen(return_carry, self.return_carry):
            return result.carry, result.outputs
        return result.outputs

    def step(
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
        """Take one step with the same parameters.

        Args:
          carry: what `initialize_carry`, a step or a whole sequence returned.
          inputs: x [..., D].
          mask: [...], False where the step is padding.
          reset: [...], True where the carry starts anew before the step.
          memory: what the step reads.
          deterministic: True switches noise off.
          rngs: keys for the noise; None takes those that the module was built with.
            Variational dropout needs one key for all steps of a sequence.

        Returns:
          (carry, y [..., H]).

        Raises:
          TypeError: integer inputs without `dtype`, or a carry of another dtype.
          ValueError: a shape that does not fit, variational dropout without a key, or
            batch norm, which needs the number of the step.
        """
        owner = self.parameter_module
        cell, name = owner.functional_cell, type(self).__name__
        if cell.sites:
            raise ValueError(
                f"{name}: batch norm has statistics of each time step; call the module "
                "on a sequence"
            )
        params, x = owner.cast(jnp.asarray(inputs))
        key = owner.noise_key(deterministic, rngs)
        refuse_sequence_noise(name, cell, key, rngs, x)
        return functional.step(
            cell, params, carry, x, mask=mask, reset=reset, key=key, memory=memory
        )

    def _running_statistics(self, cell):
        """The running statistics of batch norm, {site: (mean, var)} as variables."""
        running = {}
        for site in cell.sites:
            mean_name, var_name = _statistics_names(site)
            running[site] = (getattr(self, mean_name), getattr(self, var_name))
        return running


class SequenceModule(SequenceMethods, ParameterModule):
    """A cell over a whole sequence, with its parameters in the module itself."""

    @property
    def parameter_module(self) -> ParameterModule:
        """The module itself."""
        return self

    def set_view(
        self,
        deterministic: bool | None = None,
        use_running_average: bool | None = None,
    ):
        """Set the attributes that `nnx.view` was given.

        Args:
          deterministic: True switches noise off.
          use_running_average: for batch norm, True takes the running statistics.
        """
        super().set_view(deterministic)
        if use_running_average is not None:
            self.use_running_average = use_running_average


def _carry_stream(rngs):
    """The stream for carries among the rngs of a call, or None."""
    if isinstance(rngs, nnx.Rngs) and ("carry" in rngs or "default" in rngs):
        return rngs.carry
    return rngs if isinstance(rngs, nnx.RngStream) else None


def _statistics_names(site):
    suffix = site.replace("/", "_")
    return f"mean_{suffix}", f"var_{suffix}"


def _values(running):
    return {site: (mean[...], var[...]) for site, (mean, var) in running.items()}
