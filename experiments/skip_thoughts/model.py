"""Skip-thought vectors: a sentence's vector is the last state of a GRU, from which two more GRUs say its neighbours.

    v = GRU_encoder(current);   h_next = GRU_next(v; <0, next_1, ...>);   h_previous = GRU_previous(v; <0, previous_1, ...>)
    loss = - sum over both, all sentences and words, of log(softmax(W h_t + b)[word_t] + 1e-8)

One embedding table and one output layer serve all. norm="layer" normalises all three GRUs (eq. 23-28) and nothing else.
Source: Kiros et al. (2015) as in the authors' code, which conditions the decoders through their first state alone;
`condition` feeds v to them at every step, as that paper has it.

Letters: B batch, T steps of the encoder, S steps of the decoders, D word size, H units, V vocabulary.
"""

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.engine.errors import UserError
from lnrepro.functional import GRUCell, unroll

from .softmax import cross_entropy

NORMS = ("none", "layer")
SIDES = ("previous", "next")  # the order of the two decoders wherever they lie stacked


class SkipThoughts:
    """The network of a config: its sizes, and functions of its parameters."""

    def __init__(self, config: ConfigDict):
        m = self.sizes = config.model
        if config.norm not in NORMS:
            raise UserError(
                f"config.norm = {config.norm!r}: choose one of {', '.join(NORMS)}"
            )
        for name, least in (
            ("units", 1),
            ("word_size", 1),
            ("vocabulary", 3),
            ("chunk_rows", 1),
        ):
            if m[name] < least:
                raise UserError(
                    f"config.model.{name} = {m[name]}: at least {least} is needed"
                )
        self.cell = GRUCell(m.units, norm=config.norm, kernel_init=_uniform)
        self.encode_compiled = jax.jit(
            self.encode
        )  # here, so that all encoders of a run share its programs

    def init(self, key: jax.Array) -> dict:
        """Embeddings (V, D), encoder, a decoder for each of SIDES, output (H, V): uniform in +-0.1, recurrent blocks
        orthogonal, biases 0."""
        m = self.sizes
        words, encoder, *decoders, output = jax.random.split(key, 3 + len(SIDES))
        reads = m.word_size + (m.units if m.condition else 0)
        return {
            "embedding": _uniform(words, (m.vocabulary, m.word_size)),
            "encoder": self.cell.init(encoder, m.word_size),
            "decoders": {
                side: self.cell.init(key, reads)
                for side, key in zip(SIDES, decoders, strict=True)
            },
            "output": {
                "w": _uniform(output, (m.units, m.vocabulary)),
                "bias": jnp.zeros(m.vocabulary),
            },
        }

    def encode(self, params: dict, x: jax.Array, lengths: jax.Array) -> jax.Array:
        """Word vectors (T, B, D) of sentences with their lengths (B,), end token included where wanted -> (B, H)."""
        result = unroll(
            self.cell, params["encoder"], x, seq_lengths=lengths, time_major=True
        )
        return result.carry

    def decode(self, params: dict, vector: jax.Array, words: jax.Array) -> jax.Array:
        """Sentence vectors (B, H) and the neighbours' word vectors (2, S, B, D) -> states before each word (2, S, B, H)."""
        x = jnp.pad(words[:, :-1], ((0, 0), (1, 0), (0, 0), (0, 0)))
        if self.sizes.condition:
            every = jnp.broadcast_to(vector, (*x.shape[:-1], vector.shape[-1]))
            x = jnp.concatenate([x, every], axis=-1)

        def one(params, x):
            result = unroll(self.cell, params, x, initial_carry=vector, time_major=True)
            return result.outputs

        each = [params["decoders"][side] for side in SIDES]
        if self.sizes.decoders_together:
            return jax.vmap(one)(jax.tree.map(lambda *a: jnp.stack(a), *each), x)
        return jnp.stack([one(p, x) for p, x in zip(each, x, strict=True)])

    def loss(self, params: dict, batch: dict) -> tuple[jax.Array, jax.Array]:
        """(sum of the cross-entropies in nats, number of words predicted) of a batch of triples.

        batch: "previous", "current", "next" (B, S or T) word numbers padded with 0, and their lengths "..._length" (B,),
        the end token counted.
        """
        current = batch["current"].T
        targets = jnp.stack([batch[side].T for side in SIDES])
        lengths = jnp.stack([batch[f"{side}_length"] for side in SIDES])
        flat = jnp.concatenate(
            [current.ravel(), targets.ravel()]
        )  # one gather, so one scatter in the backward pass
        x, words = jnp.split(params["embedding"][flat], [current.size])
        vector = self.encode(
            params, x.reshape(*current.shape, -1), batch["current_length"]
        )
        h = self.decode(params, vector, words.reshape(*targets.shape, -1))
        valid = jnp.arange(targets.shape[1])[:, None] < lengths[:, None]
        groups = _groups(targets.shape[-1])
        out = params["output"]
        parts = [_grouped(a, groups) for a in (h, targets, valid)]
        total = cross_entropy(
            parts[0], out["w"], out["bias"], *parts[1:], self.sizes.chunk_rows
        )
        return total, valid.sum()


def _uniform(key: jax.Array, shape: tuple[int, ...], dtype=jnp.float32) -> jax.Array:
    return jax.random.uniform(key, shape, dtype, -0.1, 0.1)


def _groups(batch: int) -> int:
    """How many parts of a batch may lie on devices of their own."""
    return jax.device_count() if batch % jax.device_count() == 0 else 1


def _grouped(a: jax.Array, groups: int) -> jax.Array:
    """(2, S, B, ...) -> (G, 2 S B / G, ...), the part of the batch on one device together."""
    a = a.reshape(*a.shape[:2], groups, -1, *a.shape[3:])
    return jnp.moveaxis(a, 2, 0).reshape(groups, -1, *a.shape[4:])
