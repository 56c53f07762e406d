"""The optimiser step of a config as plain JAX, without the trainer.

Shape letters: K steps in one call, B batch.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from lnrepro.engine import experiment, optim


def make(config: ConfigDict) -> tuple[Callable, Callable]:
    """Return the functions of a config's optimiser step.

    Returns:
      (key) -> state, and (state, batches [K, B, ...], key) -> (state, losses [K]).
    """
    exp = experiment.load(config)
    optimizer = optim.make(config.optimizer, experiment.total_steps(config))

    def init(key: jax.Array) -> Any:
        collections = dict(exp.init(key))
        params = collections.pop("params")
        return jnp.zeros([], jnp.int32), params, collections, optimizer.init(params)

    def one_step(state, batch, key):
        number, params, collections, opt_state = state
        key = jax.random.fold_in(key, number)

        def loss(params):
            return exp.loss({"params": params, **collections}, batch, key)

        value_and_grad = jax.value_and_grad(loss, has_aux=True)
        (value, (collections, _)), grads = value_and_grad(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return (number + 1, params, collections, opt_state), value

    def steps(state: Any, batches: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        def body(state, batch):
            return one_step(state, batch, key)

        if len(jax.tree.leaves(batches)[0]) > 1:
            return jax.lax.scan(body, state, batches)
        # A loop around a single step would only cost time.
        state, value = body(state, jax.tree.map(lambda x: x[0], batches))
        return state, value[None]

    return init, steps
