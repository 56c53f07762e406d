"""SICK: the relatedness of two sentences from their frozen vectors.

A softmax over the scores 1 to 5 reads the features [|u - v|, u v]. The target of a
score y is the distribution over the two integers around it whose mean is y. The
prediction is the mean of the predicted distribution.

Shape letters: N pairs, H units, F = 2 H features.

References:
  Tai, Socher and Manning (2015), section 4.2; the code of Kiros et al. (2015).
"""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.special
from ml_collections import ConfigDict

SCORES = np.arange(1, 6)
# The default of Keras 0, which the authors' code uses.
OPTIMIZER = optax.adam(1e-3)

# u [N, H], v [N, H], scores [N].
Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


def target(scores: np.ndarray) -> np.ndarray:
    """Return distributions [N, 5] whose means are the scores [N].

    The score 3.6 gives (0, 0, 0.4, 0.6, 0).
    """
    scores = np.asarray(scores, np.float64)[:, None]
    return np.maximum(0, 1 - np.abs(scores - SCORES))


def expected(distributions: np.ndarray) -> np.ndarray:
    """Return the means [N] of distributions [N, 5], the inverse of `target`."""
    return distributions @ SCORES


def features(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return [|u - v|, u v], [N, F] float32."""
    return np.concatenate([np.abs(u - v), u * v], axis=1).astype(np.float32)


def fit_and_test(parts: Mapping[str, Pairs], options: ConfigDict) -> dict[str, float]:
    """Fit the softmax with early stopping, and test it.

    The training pairs are shuffled once by numpy's RandomState(seed). After each block
    of epochs, Pearson's r is computed on the trial pairs. Training stops when it no
    longer increases, and the best block is kept.

    Args:
      parts: pairs of "train", "trial" and "test".
      options: `config.transfer`. Its seed is that of the shuffle and of the
        parameters.

    Returns:
      {"pearson", "spearman", "mse"} on the test pairs.
    """
    rng = np.random.RandomState(options.seed)
    order = rng.permutation(len(parts["train"][2]))
    u, v, scores = (array[order] for array in parts["train"])
    x = _batches(features(u, v), options.sick_batch)
    # Rows of padding have a target of zeros, which has no loss.
    y = _batches(target(scores).astype(np.float32), options.sick_batch)

    init = jax.nn.initializers.glorot_uniform()
    w = init(jax.random.key(options.seed), (x.shape[-1], len(SCORES)), jnp.float32)
    params = {"w": w, "bias": jnp.zeros(len(SCORES), jnp.float32)}
    state = OPTIMIZER.init(params)
    best, best_params = -np.inf, params
    for _ in range(options.sick_blocks):
        params, state = _train_block(params, state, x, y, options.sick_epochs)
        pearson = _test(params, parts["trial"])["pearson"]
        # Written so that NaN stops too.
        if not pearson > best:
            break
        best, best_params = pearson, params
    return _test(best_params, parts["test"])


def _batches(rows: np.ndarray, size: int) -> jax.Array:
    """Pad rows [N, ...] with zeros and cut them into batches [steps, size, ...]."""
    steps = -(-len(rows) // size)
    padded = np.pad(rows, ((0, steps * size - len(rows)), (0, 0)))
    return jnp.asarray(padded.reshape(steps, size, -1))


@functools.partial(jax.jit, static_argnums=4)
def _train_block(params, state, x, y, epochs):
    """Take `epochs` passes over x [steps, B, F] with targets y [steps, B, 5]."""

    def loss(params, x, y):
        log_p = jax.nn.log_softmax(x @ params["w"] + params["bias"])
        return -jnp.sum(y * log_p) / jnp.maximum(y.sum(), 1)

    def step(carry, batch):
        params, state = carry
        updates, state = OPTIMIZER.update(jax.grad(loss)(params, *batch), state)
        return (optax.apply_updates(params, updates), state), None

    def epoch(_, carry):
        return jax.lax.scan(step, carry, (x, y))[0]

    return jax.lax.fori_loop(0, epochs, epoch, (params, state))


def _test(params: Mapping, pairs: Pairs) -> dict[str, float]:
    from scipy.stats import rankdata

    u, v, scores = pairs
    logits = features(u, v) @ np.asarray(params["w"]) + np.asarray(params["bias"])
    predicted = expected(scipy.special.softmax(logits, axis=1))
    return {
        "pearson": _pearson(predicted, scores),
        "spearman": _pearson(rankdata(predicted), rankdata(scores)),
        "mse": float(np.mean(np.square(predicted - scores))),
    }


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's r; 0 where one side is constant."""
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / max(np.sqrt((a @ a) * (b @ b)), 1e-12))
