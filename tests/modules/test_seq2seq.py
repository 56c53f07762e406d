"""docs/examples/seq2seq.py: the task, the padding, both ways to decode, a training."""

import functools

import jax
import numpy as np
import pytest

from docs.examples import seq2seq

SHORT = seq2seq.Settings(digits=2, features=8, batch=6, steps=4)


@pytest.mark.parametrize(("a", "b"), [(57, 8), (0, 999), (999, 999), (100, 10)])
def test_a_sum_is_written_as_in_python(a, b):
    write = jax.jit(seq2seq.write_sum, static_argnums=0)
    source, length, answer = jax.device_get(write(3, a, b))
    found = "".join("0123456789+"[token] for token in source[:length])
    assert found == f"{a}+{b}"
    assert "".join(map(str, answer)) == f"{a + b:04}"[::-1]


def test_padding_and_both_ways_to_decode():
    model = seq2seq.make_model(SHORT)

    @jax.jit
    def start():
        params = seq2seq.start(model, SHORT, jax.random.key(0)).params
        return params, seq2seq.draw(SHORT, jax.random.key(1))

    params, sums = jax.device_get(start())
    run = jax.jit(model.apply)
    logits = run(params, sums)
    padding = np.arange(5) >= sums.lengths[:, None]
    assert padding.any()
    other = sums._replace(source=np.where(padding, 3, sums.source))
    np.testing.assert_array_equal(run(params, other), logits)
    # Fed with its own answer, the model gives this answer.
    decode = jax.jit(model.apply, static_argnums=3, static_argnames="method")
    answer = decode(params, sums.source, sums.lengths, 3, method="answer")
    logits = run(params, sums._replace(answer=answer))
    np.testing.assert_array_equal(np.argmax(logits, -1), answer)


def test_a_training_is_one_program():
    train = functools.partial(seq2seq.train, SHORT)
    losses, right = jax.eval_shape(train, jax.random.key(0))
    assert (losses.shape, right.shape) == ((SHORT.steps,), ())


@pytest.mark.slow
def test_a_short_training():
    losses, right = seq2seq.train(SHORT, jax.random.key(0))
    assert np.isfinite(losses).all()
    assert 0 <= right <= 1
