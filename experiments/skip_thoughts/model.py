"""Skip-thought vectors.

The vector of a sentence is the last state of a GRU. From it, two more GRUs predict the
words of the sentences before and after:

    v = GRU_encoder(current)
    h_next = GRU_next(v; <0, next_1, next_2, ...>)
    h_previous = GRU_previous(v; <0, previous_1, previous_2, ...>)
    loss = -sum log(softmax(W h_t + b)[word_t] + 1e-8)

The sum runs over both neighbours, all sentences and all words. One embedding table and
one output layer serve all GRUs. norm="layer" normalises all three GRUs (eq. 23-28) and
nothing else.

As in the authors' code, v is the first state of the decoders and nothing more. In their
paper it is also an input of every step.

Shape letters: B batch, T steps of the encoder, S steps of the decoders, D word size,
H units, V vocabulary, G groups.

References:
  Kiros et al. (2015), "Skip-Thought Vectors".
"""

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.initializers import uniform
from lnrepro.functional import GRUCell, ScanOptions, unroll

from .softmax import cross_entropy

# The two decoders, in the order in which their arrays are stacked.
SIDES = ("previous", "next")
# Of all kernels but the recurrent ones.
UNIFORM = uniform(0.1)


class SkipThoughts:
    """The model of a config: its sizes, and functions of its parameters."""

    def __init__(self, config: ConfigDict):
        """Take the sizes of `config.model`."""
        self.sizes = config.model
        self.cell = GRUCell(self.sizes.units, norm=config.norm, kernel_init=UNIFORM)
        self.options = ScanOptions(kernels=config.kernels)
        # Compiled here, so that all encoders of a run share the programs.
        self.encode_compiled = jax.jit(self.encode)

    def init(self, key: jax.Array) -> dict:
        """Draw fresh parameters.

        Kernels are uniform in +-0.1, recurrent kernels orthogonal, biases 0.

        Returns:
          {"embedding": [V, D], "encoder": parameters of a cell, "decoders": {side:
          parameters of a cell}, "output": {"w": [H, V], "bias": [V]}}
        """
        sizes = self.sizes
        keys = jax.random.split(key, 3 + len(SIDES))
        words_key, encoder_key, *decoder_keys, output_key = keys
        return {
            "embedding": UNIFORM(words_key, (sizes.vocabulary, sizes.word_size)),
            "encoder": self.cell.init(encoder_key, sizes.word_size),
            "decoders": {
                side: self.cell.init(decoder_key, sizes.word_size)
                for side, decoder_key in zip(SIDES, decoder_keys, strict=True)
            },
            "output": {
                "w": UNIFORM(output_key, (sizes.units, sizes.vocabulary)),
                "bias": jnp.zeros(sizes.vocabulary, jnp.float32),
            },
        }

    def encode(self, params: dict, x: jax.Array, lengths: jax.Array) -> jax.Array:
        """Compute the vectors [B, H] of sentences.

        Args:
          params: as `init` returns them.
          x: [T, B, D], word vectors, with the end token where it is wanted.
          lengths: [B].
        """
        result = unroll(
            self.cell,
            params["encoder"],
            x,
            seq_lengths=lengths,
            time_major=True,
            options=self.options,
        )
        return result.carry

    def decode(self, params: dict, vector: jax.Array, words: jax.Array) -> jax.Array:
        """Compute the states of the decoders before each word, [2, S, B, H].

        Args:
          params: as `init` returns them.
          vector: [B, H], vectors of sentences.
          words: [2, S, B, D], word vectors of their neighbours.
        """
        # Step s reads word s - 1 (teacher forcing). The first step reads a zero vector.
        x = jnp.pad(words[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0)))
        states = []
        for side, words_before in zip(SIDES, x, strict=True):
            result = unroll(
                self.cell,
                params["decoders"][side],
                words_before,
                initial_carry=vector,
                time_major=True,
                options=self.options,
            )
            states.append(result.outputs)
        return jnp.stack(states)

    def loss(self, params: dict, batch: dict) -> tuple[jax.Array, jax.Array]:
        """Compute the loss of a batch of sentence triples.

        Args:
          params: as `init` returns them.
          batch: "previous", "current" and "next", numbers of words [B, S or T] padded
            with 0, and their lengths "previous_length", ... [B] with the end token.

        Returns:
          (sum of the cross-entropies in nats, number of predicted words)
        """
        # Time-major: current [T, B], targets [2, S, B], lengths [2, B].
        current = batch["current"].T
        targets = jnp.stack([batch[side].T for side in SIDES])
        lengths = jnp.stack([batch[f"{side}_length"] for side in SIDES])
        # One gather for all words has one scatter in the backward pass.
        numbers = jnp.concatenate([current.ravel(), targets.ravel()])
        x, words = jnp.split(params["embedding"][numbers], [current.size])
        x = x.reshape(*current.shape, -1)
        vector = self.encode(params, x, batch["current_length"])
        h = self.decode(params, vector, words.reshape(*targets.shape, -1))
        # [2, S, B], True on words and on the end token.
        valid = jnp.arange(targets.shape[1])[:, None] < lengths[:, None]
        groups = _groups(targets.shape[-1])
        total = cross_entropy(
            _by_group(h, groups),
            params["output"]["w"],
            params["output"]["bias"],
            _by_group(targets, groups),
            _by_group(valid, groups),
            self.sizes.chunk_rows,
        )
        return total, valid.sum()


def _groups(batch: int) -> int:
    """Return the number of parts of a batch that may lie on different devices."""
    return jax.device_count() if batch % jax.device_count() == 0 else 1


def _by_group(a: jax.Array, groups: int) -> jax.Array:
    """Reorder [2, S, B, ...] as [G, 2 S B / G, ...]; a group is one part of B."""
    a = a.reshape(*a.shape[:2], groups, -1, *a.shape[3:])
    return jnp.moveaxis(a, 2, 0).reshape(groups, -1, *a.shape[4:])
