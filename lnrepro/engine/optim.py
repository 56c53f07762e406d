"""The optimisers of the paper's experiments as optax transformations."""

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict


def scale_by_kiros_adam(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
    """Adam as in the code of order-embeddings and skip-thoughts.

    The moments decay by b1 and b2 as usual. But that code corrects their bias with
    (1 - b1)^t and (1 - b2)^t, where Kingma and Ba (2015) have b1^t and b2^t. So after a
    few steps there is no correction. For a constant gradient the first steps are 3.51,
    4.29 and 4.96 learning rates long (at most 6.57, at t = 12) and approach 1 only
    after thousands of steps.

    Args:
      b1: decay rate of the first moments.
      b2: decay rate of the second moments.
      eps: added to the root of the second moments.
    """

    def init(params):
        mu = jax.tree.map(jnp.zeros_like, params)
        nu = jax.tree.map(jnp.zeros_like, params)
        return optax.ScaleByAdamState(jnp.zeros([], jnp.int32), mu, nu)

    def update(updates, state, params=None):
        del params
        count = state.count + 1
        mu = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, updates, state.mu)
        nu = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * g * g, updates, state.nu)
        t = count.astype(float)
        # Adam's sqrt(1 - b2^t) / (1 - b1^t), with 1 - b in place of b.
        correction = jnp.sqrt(1 - (1 - b2) ** t) / (1 - (1 - b1) ** t)

        def step(m, v):
            return (correction * m / (jnp.sqrt(v) + eps)).astype(m.dtype)

        return jax.tree.map(step, mu, nu), optax.ScaleByAdamState(count, mu, nu)

    return optax.GradientTransformation(init, update)


def clip_each_tensor(max_norm: float) -> optax.GradientTransformation:
    """Clip the 2-norm of every gradient tensor by itself, as order-embeddings does."""

    def clip(g):
        norm = jnp.linalg.norm(g.ravel())
        # The maximum keeps the branch that is not taken free of a division by zero.
        clipped = g * (max_norm / jnp.maximum(norm, max_norm))
        return jnp.where(norm > max_norm, clipped, g)

    return optax.stateless(lambda updates, _: jax.tree.map(clip, updates))


def clip_squared(max_norm: float) -> optax.GradientTransformation:
    """Clip the global norm as the code of the attentive reader does.

    That code compares the global norm n, which should be squared, with max_norm^2. It
    multiplies larger gradients by max_norm / sqrt(n), which leaves the norm
    max_norm sqrt(n). With max_norm = 10, norms up to 100 stay as they are, and 400
    becomes 200.
    """

    def clip(updates, _):
        n = optax.tree.norm(updates)
        # The maximum keeps the branch that is not taken finite where n is 0.
        clipped = max_norm * jax.lax.rsqrt(jnp.maximum(n, max_norm**2))
        scale = jnp.where(n > max_norm**2, clipped, 1.0)
        return jax.tree.map(lambda g: g * scale.astype(g.dtype), updates)

    return optax.stateless(clip)


# Values of config.optimizer.name and clip_mode.
SCALINGS = {"adam": optax.scale_by_adam, "kiros_adam": scale_by_kiros_adam}
CLIPS = {
    "global": optax.clip_by_global_norm,
    "per_tensor": clip_each_tensor,
    "attentive_reader": clip_squared,
}


def make(config: ConfigDict, steps: int) -> optax.GradientTransformation:
    """Return the optimiser of `config.optimizer`.

    It clips, where `clip` is not None, then scales as `name` says, then multiplies by
    the learning rate. With decay="cosine", that of step t = 0, 1, ... is

        learning_rate (1 + cos(pi t / steps)) / 2.

    Args:
      config: the config; see `lnrepro.config.FIELDS`.
      steps: number of steps of the whole run.
    """
    own = config.optimizer
    # Clipping comes first, so that the moments see the clipped gradients.
    chain = []
    if own.clip is not None:
        chain.append(CLIPS[own.clip_mode](own.clip))
    chain.append(SCALINGS[own.name](b1=own.b1, b2=own.b2, eps=own.eps))
    rate = own.learning_rate
    if own.decay is not None:
        rate = optax.cosine_decay_schedule(rate, steps)
    chain.append(optax.scale_by_learning_rate(rate))
    return optax.chain(*chain)
