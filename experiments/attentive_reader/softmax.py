"""The softmax over the answers.

Shape letters: B batch, V vocabulary.
"""

import jax
import jax.numpy as jnp

# Is added to the answer's probability, as in the authors' code.
FLOOR = 1e-8


@jax.custom_vjp
def answered(scores: jax.Array, answer: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compare an answer with the softmax over the scores of all words.

    Its backward pass forms the gradient of the scores [B, V] once. On two CPU cores at
    V = 65,830 this takes half the time of JAX's own derivative, which computes the
    softmax in three places.

    Args:
      scores: [B, V].
      answer: [B], word numbers.

    Returns:
      (log(p(answer) + 1e-8) in nats [B], whether another word scores higher [B]).
    """
    return _forward(scores, answer)[0]


def _forward(scores, answer):
    of_answer = jnp.take_along_axis(scores, answer[:, None], 1)[:, 0]
    log_total = jax.nn.logsumexp(scores, 1)
    # log(p + FLOOR) = logaddexp(log p, log FLOOR), without forming p.
    floor = jnp.log(FLOOR).astype(scores.dtype)
    log_p = jnp.logaddexp(of_answer - log_total, floor)
    is_wrong = scores.max(1) > of_answer
    return (log_p, is_wrong), (scores, log_total, of_answer, answer)


def _backward(saved, gradients):
    scores, log_total, of_answer, answer = saved
    p = jnp.exp(of_answer - log_total)
    # d log(p + FLOOR) / d log p = p / (p + FLOOR)
    factor = (gradients[0] * p / (p + FLOOR))[:, None]
    # d log p(answer) / d scores = one-hot(answer) - softmax(scores), [B, V].
    is_answer = jnp.arange(scores.shape[1]) == answer[:, None]
    d_scores = factor * (is_answer - jnp.exp(scores - log_total[:, None]))
    # Without the barrier XLA computes this anew for each of its uses.
    return jax.lax.optimization_barrier(d_scores), None


answered.defvjp(_forward, _backward)
