"""An LN-LSTM encoder and decoder that learn to add, compiled as one program.

    python docs/examples/seq2seq.py
    python docs/examples/seq2seq.py --norm none --steps 3000

The source is a sum of two numbers, such as `57+8`, highest digit first. The answer is
the result, lowest digit first and filled up with zeros: `5600`.

- Sources differ in length, so the encoder gets `seq_lengths`. Its carry is the one
  after the last character of each row, whatever stands at the padding.
- The decoder starts from the encoder's carry. In training it reads the right digits
  (teacher forcing), one step behind. In use it reads its own.
- Encoder and decoder are modules with the interface of `flax.linen.RNN`.

Sources: Sutskever et al. (2014) for the model, Zaremba and Sutskever (2014) for the
task.

Shape letters: B rows, S characters of a source, A digits of an answer, V characters.
"""

import argparse
import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

from lnrepro.linen import RNN, LSTMCell

# The digits are their own tokens.
PLUS, START = 10, 11
CHARACTERS = 12


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes and rates.

    Attributes:
      norm: norm of both LSTMs.
      digits: of the longest number, at most 9: larger sums do not fit into int32.
      features: units of an LSTM.
      batch: B, rows of a batch.
      steps: number of optimiser steps.
      learning_rate: of Adam.
    """

    norm: str = "layer"
    digits: int = 3
    features: int = 256
    batch: int = 128
    steps: int = 1000
    learning_rate: float = 2e-3


# The task


class Sums(NamedTuple):
    """Rows of the task: source [B, S], lengths [B], answer [B, A]."""

    source: jax.Array
    lengths: jax.Array
    answer: jax.Array


def write_sum(digits: int, a: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
    """Write one row.

    Args:
      digits: of the longest number.
      a, b: the numbers, int32 below 10**digits.

    Returns:
      (source [S = 2 digits + 1], its length, answer [A = digits + 1]).
    """
    powers = 10 ** jnp.arange(digits + 1)
    len_a, len_b = (jnp.maximum((n >= powers).sum(), 1) for n in (a, b))
    position = jnp.arange(2 * digits + 1)
    # A number is read from the highest digit, which the padding repeats.
    of_a = a // 10 ** jnp.clip(len_a - 1 - position, 0) % 10
    of_b = b // 10 ** jnp.clip(len_a + len_b - position, 0) % 10
    source = jnp.where(position < len_a, of_a, of_b)
    source = jnp.where(position == len_a, PLUS, source)
    return source, len_a + 1 + len_b, (a + b) // powers % 10


def draw(settings: Settings, key: jax.Array) -> Sums:
    """Draw a batch; short numbers are as frequent as long ones."""
    length_key, key = jax.random.split(key)
    shape = (2, settings.batch)
    lengths = jax.random.randint(length_key, shape, 1, settings.digits + 1)
    a, b = jax.random.randint(key, shape, 0, 10**lengths)
    return Sums(*jax.vmap(functools.partial(write_sum, settings.digits))(a, b))


# The model


class Seq2seq(nn.Module):
    """Logits of an answer.

    Attributes:
      encoder: a sequence module with the interface of `flax.linen.RNN`.
      decoder: another one, whose carry has the same shape.
    """

    encoder: Any
    decoder: Any

    def setup(self):
        """Define the last layer."""
        self.logits = nn.Dense(10)

    def encode(self, source: jax.Array, lengths: jax.Array):
        """Return the carry after the last character of each row."""
        x = jax.nn.one_hot(source, CHARACTERS)
        return self.encoder(x, seq_lengths=lengths, return_carry=True)[0]

    def __call__(self, sums: Sums) -> jax.Array:
        """Return the logits [B, A, 10], each from the right digits before it."""
        start = jnp.full_like(sums.answer[:, :1], START)
        before = jnp.concatenate([start, sums.answer[:, :-1]], axis=1)
        x = jax.nn.one_hot(before, CHARACTERS)
        carry = self.encode(sums.source, sums.lengths)
        return self.logits(self.decoder(x, initial_carry=carry))

    def answer(self, source: jax.Array, lengths: jax.Array, size: int) -> jax.Array:
        """Return the most likely digits [B, A = size], each from those before it."""
        carry = self.encode(source, lengths)
        token = jnp.full(len(source), START)
        found = []
        for _ in range(size):
            x = jax.nn.one_hot(token[:, None], CHARACTERS)
            carry, y = self.decoder(x, initial_carry=carry, return_carry=True)
            token = self.logits(y[:, 0]).argmax(-1)
            found.append(token)
        return jnp.stack(found, axis=1)


def make_model(settings: Settings) -> Seq2seq:
    """Return the model of settings."""
    cell = LSTMCell(settings.features, norm=settings.norm)
    return Seq2seq(RNN(cell), RNN(cell))


def loss(params, model: Seq2seq, sums: Sums) -> jax.Array:
    """Return the mean cross-entropy of a digit."""
    logits = model.apply(params, sums)
    return optax.softmax_cross_entropy_with_integer_labels(logits, sums.answer).mean()


def start(model: Seq2seq, settings: Settings, key: jax.Array) -> TrainState:
    """Return the state before the first step: parameters and those of Adam."""
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(settings.learning_rate)
    )
    params = model.init(key, draw(settings, key))
    return TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)


def update(
    model: Seq2seq, settings: Settings, state: TrainState, key: jax.Array
) -> tuple[TrainState, jax.Array]:
    """Take one step on a new batch; return its loss too."""
    sums = draw(settings, key)
    value, gradients = jax.value_and_grad(loss)(state.params, model, sums)
    return state.apply_gradients(grads=gradients), value


@functools.partial(jax.jit, static_argnums=0)
def train(settings: Settings, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Train a model.

    Args:
      settings: sizes and rates.
      key: random key.

    Returns:
      (losses [steps], share of a new batch whose answers are right in all digits).
    """
    model = make_model(settings)
    init_key, test_key, key = jax.random.split(key, 3)
    state = start(model, settings, init_key)
    keys = jax.random.split(key, settings.steps)
    one_step = functools.partial(update, model, settings)
    state, losses = jax.lax.scan(one_step, state, keys)
    test = draw(settings, test_key)
    size = test.answer.shape[1]
    found = model.apply(state.params, test.source, test.lengths, size, method="answer")
    return losses, (found == test.answer).all(axis=1).mean()


def main() -> None:
    """Train, and print the progress and the share of right answers."""
    parser = argparse.ArgumentParser(description="Addition by a seq2seq.")
    parser.add_argument("--norm", choices=("none", "layer", "rms"), default="layer")
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    settings = Settings(norm=args.norm, steps=args.steps)

    losses, right = train(settings, jax.random.key(args.seed))
    for number in range(100, settings.steps + 1, 100):
        print(f"step {number}/{settings.steps}  loss {losses[number - 1]:.3f}")
    print(f"right answers: {100 * right:.0f} %")


if __name__ == "__main__":
    main()
