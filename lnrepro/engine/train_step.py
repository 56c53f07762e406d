"""The optimiser step: its state and its compiled function.

Shape letters: K steps in one call of the compiled program, B batch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lnrepro.engine.experiment import Experiment
from lnrepro.errors import UserError


class State(NamedTuple):
    """All that an optimiser step changes.

    Attributes:
      step: [], the number of steps taken.
      params: the parameters.
      collections: {name: pytree} of the experiment, such as "batch_stats".
      opt_state: state of the optimiser.
    """

    step: jax.Array
    params: Any
    collections: Any
    opt_state: Any

    @property
    def vars(self) -> dict[str, Any]:
        """Parameters and collections, for the functions of an experiment."""
        return {"params": self.params, **self.collections}


def make_step(
    exp: Experiment, optimizer: optax.GradientTransformation, key: jax.Array
) -> Callable:
    """Return the function that takes K optimiser steps.

    Args:
      exp: the experiment.
      optimizer: the optimiser.
      key: random key of the run. Step t uses fold_in(key, t).

    Returns:
      (state, batches, axis) -> (state, metrics). `batches` are K stacked batches
      [K, B, ...], and metrics are [K]. `axis` is the pmap axis over which gradients,
      collections and metrics are averaged, or None under jit.
    """

    def one_step(state: State, batch, axis):
        step_key = jax.random.fold_in(key, state.step)
        if axis is not None:
            # Each device draws numbers of its own.
            step_key = jax.random.fold_in(step_key, jax.lax.axis_index(axis))

        def loss(params):
            vars = {"params": params, **state.collections}
            try:
                return exp.loss(vars, batch, step_key)
            except ValueError as e:
                # There can be no kernel where `config.kernels` asks for it.
                if "kernels='on'" not in str(e):
                    raise
                raise UserError(f"config.kernels = 'on': {e}") from e

        value_and_grad = jax.value_and_grad(loss, has_aux=True)
        (value, (collections, metrics)), grads = value_and_grad(state.params)
        metrics = {"loss": value, **metrics}
        if axis is not None:
            grads, collections, metrics = jax.lax.pmean(
                (grads, collections, metrics), axis
            )
        # Averaged gradients are the same on every device, so the states stay equal.
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(state.step + 1, params, collections, opt_state), metrics

    def steps(state: State, batches, axis):
        def body(state, batch):
            return one_step(state, batch, axis)

        if jax.tree.leaves(batches)[0].shape[0] > 1:
            return jax.lax.scan(body, state, batches)
        # A loop around a single step would only cost time.
        state, metrics = body(state, jax.tree.map(lambda x: x[0], batches))
        # A metric may be a Python number.
        return state, jax.tree.map(lambda x: jnp.asarray(x)[None], metrics)

    return steps
