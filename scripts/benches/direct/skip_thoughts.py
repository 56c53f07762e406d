"""Skip-thoughts in direct Flax: nn.RNN, GRU cells, nn.LayerNorm, all logits at once.

It has the equations of `experiments.skip_thoughts`. Command:

    python scripts/bench.py train --config=configs/skip_thoughts.py
"""

import contextlib

import flax.linen as nn
import jax.numpy as jnp
import ml_collections
import numpy as np

from experiments.skip_thoughts.data import open_books
from experiments.skip_thoughts.triples import STEPS, EqualLengths
from lnrepro.data.batches import train_batches
from lnrepro.errors import DataError
from scripts.benches.direct.cells_jax import LayerNormGRUCell


class SkipThoughts(nn.Module):
    """Summed loss of a batch of triples in nats."""

    config: ml_collections.ConfigDict
    norm: str

    @nn.compact
    def __call__(self, batch):
        """Return the loss."""
        c = self.config
        embed = nn.Embed(c.vocabulary, c.word_size)
        output = nn.Dense(c.vocabulary)

        def rnn(name):
            cell = LayerNormGRUCell(c.units, self.norm == "layer")
            return nn.RNN(cell, return_carry=True, name=name)

        vector, _ = rnn("encoder")(
            embed(batch["current"]), seq_lengths=batch["current_length"]
        )
        total = 0.0
        for side in ("previous", "next"):
            words, lengths = batch[side], batch[f"{side}_length"]
            # Step s reads word s - 1, and the first step reads zeros.
            x = jnp.pad(embed(words)[:, :-1], ((0, 0), (1, 0), (0, 0)))
            if c.condition:
                every = jnp.broadcast_to(vector[:, None], (*x.shape[:2], c.units))
                x = jnp.concatenate([x, every], axis=-1)
            _, h = rnn(side)(x, initial_carry=vector)
            # All probabilities at once, [B, S, V].
            p = jnp.take_along_axis(nn.softmax(output(h)), words[..., None], axis=-1)[
                ..., 0
            ]
            total += jnp.sum(
                -jnp.log(p + 1e-8) * (jnp.arange(words.shape[1]) < lengths[:, None])
            )
        return total


def make(config: ml_collections.ConfigDict):
    """Return init(key) -> params and loss(params, batch, key) -> scalar."""
    model = SkipThoughts(config.model, config.norm)

    def init(key):
        some = {
            "current": jnp.zeros((1, 2), int),
            "previous": jnp.zeros((1, 2), int),
            "next": jnp.zeros((1, 2), int),
        }
        return model.init(key, some | {f"{k}_length": jnp.ones(1, int) for k in some})

    def loss(params, batch, key):
        return model.apply(params, batch)

    return init, loss


def batch(config: ml_collections.ConfigDict) -> dict[str, np.ndarray]:
    """Return a batch with the longest current sentences: ids [B, STEPS], lengths [B].

    It is taken from the config's books where they are prepared. Otherwise it is random,
    and all sentences have STEPS words.
    """
    try:
        books = open_books(config)
    except DataError:
        return _made_up(config)
    lengths = EqualLengths(
        books.by_length, config.batch_size, config.seed, config.data.buckets
    )
    # The number of the first batch of the epoch with the longest sentences.
    longest = max(range(lengths.steps_per_epoch), key=lengths.length)
    with contextlib.closing(
        train_batches(books, lengths, start_step=longest, pad=books.pad)
    ) as stream:
        return next(stream)


def _made_up(config):
    rng, shape = np.random.default_rng(0), (config.batch_size, STEPS)
    made = {}
    for side in ("previous", "current", "next"):
        made[side] = rng.integers(2, config.model.vocabulary, shape, dtype=np.int32)
        made[f"{side}_length"] = np.full(config.batch_size, STEPS, np.int32)
    return made
