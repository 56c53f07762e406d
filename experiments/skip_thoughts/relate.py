"""SICK: the relatedness of two sentences from their frozen vectors, by a softmax over the scores 1 to 5 (Tai et al. 2015).

Features [|u - v|, u v]; the target of a score y is the distribution over the two whole numbers around it whose mean is y;
the prediction is the mean of the predicted distribution.
"""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax

SCORES = np.arange(1, 6)
OPTIMIZER = optax.adam(1e-3)  # Keras 0's default

Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]  # u (N, H), v (N, H), score (N,)


def target(scores: np.ndarray) -> np.ndarray:
    """Scores (N,) from 1 to 5 -> distributions (N, 5) with these means: 3.6 -> (0, 0, 0.4, 0.6, 0)."""
    scores = np.asarray(scores, np.float64)[:, None]
    return np.maximum(0, 1 - np.abs(scores - SCORES))


def expected(distributions: np.ndarray) -> np.ndarray:
    """The means (N,) of distributions (N, 5) over the scores: the inverse of `target`."""
    return distributions @ SCORES


def features(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """(N, H) and (N, H) -> (N, 2 H) float32."""
    return np.concatenate([np.abs(u - v), u * v], axis=1).astype(np.float32)


def relatedness(
    parts: Mapping[str, Pairs],
    *,
    epochs: int = 100,
    batch: int = 128,
    blocks: int = 50,
    seed: int = 1234,
) -> dict[str, float]:
    """Fit on parts["train"], stop by parts["trial"], return pearson, spearman and mse on parts["test"].

    The training pairs are shuffled once by numpy's RandomState(seed), then taken in that order by Adam, `epochs` passes in
    a block; after each block Pearson's r on the trial pairs decides whether to go on, and the best block is kept.
    """
    order = np.arange(len(parts["train"][2]))
    np.random.RandomState(seed).shuffle(order)
    u, v, scores = (a[order] for a in parts["train"])
    steps = -(-len(order) // batch)
    spare = steps * batch - len(order)
    x = np.pad(features(u, v), ((0, spare), (0, 0))).reshape(steps, batch, -1)
    y = np.pad(target(scores).astype(np.float32), ((0, spare), (0, 0))).reshape(
        steps, batch, -1
    )

    start = jax.nn.initializers.glorot_uniform()(
        jax.random.key(seed), (x.shape[-1], len(SCORES))
    )
    params = {"w": start, "bias": jnp.zeros(len(SCORES))}
    state, x, y = OPTIMIZER.init(params), jnp.asarray(x), jnp.asarray(y)
    trial, test = ((features(a, b), s) for a, b, s in (parts["trial"], parts["test"]))
    best, kept = -np.inf, params
    for _ in range(blocks):
        params, state = _block(params, state, x, y, epochs)
        now = _pearson(_predict(params, trial[0]), trial[1])
        if not now > best:
            break
        best, kept = now, params
    found = _predict(kept, test[0])
    return {
        "pearson": _pearson(found, test[1]),
        "spearman": _spearman(found, test[1]),
        "mse": float(np.mean(np.square(found - test[1]))),
    }


@functools.partial(jax.jit, static_argnums=4)
def _block(params, state, x, y, epochs):
    """`epochs` passes over x (steps, B, F) with targets y (steps, B, 5); rows of padding have an all-zero target."""

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


def _predict(params, x: np.ndarray) -> np.ndarray:
    a = x @ np.asarray(params["w"]) + np.asarray(params["bias"])
    e = np.exp(a - a.max(1, keepdims=True))
    return expected(e / e.sum(1, keepdims=True))


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    """0 where one side is constant."""
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / max(np.sqrt((a @ a) * (b @ b)), 1e-12))


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    from scipy.stats import rankdata

    return _pearson(rankdata(a), rankdata(b))
