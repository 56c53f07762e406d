"""The attentive reader in direct Flax: nn.RNN, nn.OptimizedLSTMCell, nn.LayerNorm.

It has the equations of `experiments.attentive_reader`. `batch` makes questions with the
lengths of four CNN sentences, so that no data is needed. Command:

    python scripts/bench.py train --config=configs/attentive_reader.py:paper
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from scripts.benches.direct.cells_jax import LayerNormLSTMCell

PASSAGE, QUESTION = 128, 16  # words, a shape of the paper's buckets


class AttentiveReader(nn.Module):
    """Mean -log p(answer) of a batch, nats."""

    config: ml_collections.ConfigDict

    @nn.compact
    def __call__(self, batch):
        """Return the loss."""
        c, m = self.config, self.config.model
        units = m.units
        dropout = nn.Dropout(m.dropout, deterministic=False)
        embed = nn.Embed(c.data.vocabulary, units)
        lengths = batch["passage_length"]
        d = dropout(embed(batch["passage"]))
        d = nn.RNN(self.cell("passage"), name="passage_rnn")(
            d, seq_lengths=lengths, initial_carry=self.start(d, "passage")
        )
        q = dropout(embed(batch["question"]))
        (_, u), _ = nn.RNN(
            self.cell("question"), return_carry=True, name="question_rnn"
        )(
            q,
            seq_lengths=batch["question_length"],
            initial_carry=self.start(q, "question"),
        )
        # Unlike ours, arrays are batch-major here, [B, T, ...], as Flax has them.
        mask = jnp.arange(d.shape[1]) < lengths[:, None]
        similarity = nn.Dense(units, use_bias=False, name="similarity")
        # (M D_t) . (M u), [B, T]: one M for both.
        s = jnp.sum(similarity(d) * similarity(u)[:, None], axis=-1)
        asked = nn.Dense(units, use_bias=False, name="attend_question")(u)
        hidden = nn.tanh(
            nn.Dense(units, name="attend_passage")(d) + asked[:, None] + s[..., None]
        )
        scores = nn.Dense(1, use_bias=False, name="attention")(hidden)[..., 0]
        weights = nn.softmax(scores, axis=-1, where=mask)
        # The passage as the attention sees it, and below its mean over time.
        r = jnp.einsum("bt,btf->bf", weights, d)
        mean = jnp.sum(jnp.where(mask[..., None], d, 0), 1) / lengths[:, None]
        g = nn.tanh(
            nn.Dense(units, use_bias=False, name="read_passage")(r)
            + nn.Dense(units, name="read_question")(u)
            + nn.Dense(units, use_bias=False, name="read_mean")(mean)
        )
        # The softmax over all words, [B, V], as one array.
        p = nn.softmax(nn.Dense(c.data.vocabulary, name="output")(dropout(g)))
        return -jnp.mean(
            jnp.log(jnp.take_along_axis(p, batch["answer"][:, None], 1)[:, 0] + 1e-8)
        )

    def cell(self, name: str) -> nn.Module:
        """Return the recurrent cell of `config.norm`."""
        units, norm = self.config.model.units, self.config.norm
        if norm not in ("none", "layer"):
            raise ValueError(
                f"the direct version has no norm {norm!r}; choose none or layer"
            )
        return (nn.OptimizedLSTMCell if norm == "none" else LayerNormLSTMCell)(
            units, name=name
        )

    def start(self, x, name):
        """Return the carry before the first word: c = 0 and a learned h."""
        h = self.param(f"{name}_h0", nn.initializers.zeros, (self.config.model.units,))
        zeros = jnp.zeros((len(x), self.config.model.units))
        return zeros, zeros + h


def make(config: ml_collections.ConfigDict):
    """Return init(key) -> params and loss(params, batch, key) -> scalar."""
    model = AttentiveReader(config)

    def init(key):
        return model.init({"params": key, "dropout": key}, batch(config, rows=1))

    def loss(params, batch, key):
        keys = jax.random.split(key)
        # Entities are renamed anew in every training batch, as in
        # `experiments.attentive_reader`.
        permuted = jax.random.permutation(keys[0], config.data.entities)
        ids = (
            jnp.arange(config.data.vocabulary)
            .at[1 : 1 + config.data.entities]
            .set(1 + permuted)
        )
        renamed = {
            **batch,
            **{name: ids[batch[name]] for name in ("passage", "question", "answer")},
        }
        return model.apply(params, renamed, rngs={"dropout": keys[1]})

    return init, loss


def batch(
    config: ml_collections.ConfigDict, rows: int | None = None
) -> dict[str, np.ndarray]:
    """Return random questions, ids [B, PASSAGE] and [B, QUESTION].

    Every text takes 80 to 100 % of its bucket.
    """
    rng, rows = np.random.default_rng(0), rows or config.batch_size
    made = {"answer": rng.integers(1, 1 + config.data.entities, rows, dtype=np.int32)}
    for name, length in (("passage", PASSAGE), ("question", QUESTION)):
        n = rng.integers(
            round(0.8 * length), length, rows, endpoint=True, dtype=np.int32
        )
        ids = rng.integers(1, config.data.vocabulary, (rows, length), dtype=np.int32)
        made |= {
            name: np.where(np.arange(length) < n[:, None], ids, 0),
            f"{name}_length": n,
        }
    return made
