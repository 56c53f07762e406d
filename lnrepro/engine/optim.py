"""Optimisers of the paper's experiments as optax transformations, chosen by `config.optimizer`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from lnrepro.engine.errors import UserError


class KirosAdamState(NamedTuple):
    """Step count and the two moments, shaped like the parameters."""

    count: jax.Array
    mu: optax.Updates
    nu: optax.Updates


def scale_by_kiros_adam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
    """Adam as in the code of order-embeddings and skip-thoughts: in effect without bias correction.

    The moments decay by b1 and b2 as usual, but that code corrects with (1 - b1)^t and (1 - b2)^t where Kingma and Ba
    have b1^t and b2^t, so after a few steps nothing is corrected. For a constant gradient the first steps are 3.51,
    4.29 and 4.96 learning rates long (peak 6.57 at t = 12) and approach 1 only after thousands of steps.
    """

    def init(params):
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)  # noqa: E731
        return KirosAdamState(jnp.zeros([], jnp.int32), zeros(), zeros())

    def update(updates, state, params=None):
        del params
        count = state.count + 1
        mu = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, updates, state.mu)
        nu = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * g * g, updates, state.nu)
        t = count.astype(jnp.float32)
        correction = jnp.sqrt(1 - (1 - b2) ** t) / (1 - (1 - b1) ** t)
        updates = jax.tree.map(
            lambda m, v: correction * m / (jnp.sqrt(v) + eps), mu, nu
        )
        return updates, KirosAdamState(count, mu, nu)

    return optax.GradientTransformation(init, update)


def clip_each_tensor(max_norm: float) -> optax.GradientTransformation:
    """Rescale every gradient tensor whose own 2-norm exceeds `max_norm` to that norm (order-embeddings' clipping)."""

    def clip(g):
        norm = jnp.linalg.norm(g.ravel())
        return jnp.where(
            norm > max_norm, g * (max_norm / jnp.maximum(norm, max_norm)), g
        )

    return optax.stateless(lambda updates, _: jax.tree.map(clip, updates))


def clip_squared(max_norm: float) -> optax.GradientTransformation:
    """The attentive reader's clipping as its code has it: the global norm n, meant to be squared, is compared with
    max_norm^2, and larger gradients are multiplied by max_norm / sqrt(n), which leaves the norm max_norm sqrt(n).

    At max_norm = 10 nothing happens up to a norm of 100; one of 400 becomes 200.
    """

    def clip(updates, _):
        n = optax.tree.norm(updates)
        scale = jnp.where(
            n > max_norm**2, max_norm * jax.lax.rsqrt(jnp.maximum(n, max_norm**2)), 1.0
        )
        return jax.tree.map(lambda g: g * scale.astype(g.dtype), updates)

    return optax.stateless(clip)


SCALINGS = {"adam": optax.scale_by_adam, "kiros_adam": scale_by_kiros_adam}
CLIPS = {
    "global": optax.clip_by_global_norm,
    "per_tensor": clip_each_tensor,
    "attentive_reader": clip_squared,
}


def make(config: ConfigDict) -> optax.GradientTransformation:
    """Clipping (if `clip` > 0), then `name`'s scaling, then the learning rate.

    Reads `name`, `learning_rate`, `b1`, `b2`, `eps`, `clip`, `clip_mode`. Raises UserError for an unknown name or mode.
    """
    if config.name not in SCALINGS:
        raise UserError(
            f"config.optimizer.name = {config.name!r}: choose one of {', '.join(SCALINGS)}"
        )
    if config.clip_mode not in CLIPS:
        raise UserError(
            f"config.optimizer.clip_mode = {config.clip_mode!r}: choose one of {', '.join(CLIPS)}"
        )
    chain = [CLIPS[config.clip_mode](config.clip)] if config.clip > 0 else []
    chain.append(SCALINGS[config.name](b1=config.b1, b2=config.b2, eps=config.eps))
    return optax.chain(*chain, optax.scale_by_learning_rate(config.learning_rate))
