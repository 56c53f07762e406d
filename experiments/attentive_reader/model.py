"""The attentive reader of Hermann et al. (2015), section 6.2.

It follows the code of Cooijmans et al. With one embedding table E for both texts:

    D_t = LSTM(E[d_t]), and u = last state of another LSTM over E[q]
    s_t = (M D_t) . (M u)
    m_t = tanh(W_d D_t + b + W_q u + s_t)
    a = softmax of v . m_t over the passage
    r = sum_t a_t D_t
    g = tanh(W_r r + W_u u + b + W_m mean_t D_t)
    p(answer) = softmax over all words of W_o g + b

Shape letters: B batch, T and S words of passage and question, H units, V vocabulary.
Word numbers are [B, T]; what is computed over time is time-major, [T, B, ...].
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.errors import UserError
from lnrepro.functional import LSTMCell, ScanOptions, norms, unroll

from .data import TEXTS
from .population import filled, fresh

# "layer" and "batch" normalise inside the LSTMs only. Those with "_everywhere" also
# normalise each of `MAPS`.
EVERYWHERE = "_everywhere"
# The affine maps of attention and read-out.
MAPS = (
    "attend_passage",
    "attend_question",
    "read_passage",
    "read_question",
    "read_mean",
)
Params = dict[str, Any]


class Reading(NamedTuple):
    """A batch of questions that was read.

    Attributes:
      readout: g [B, H], the input of the output layer.
      attention: a [T, B].
      statistics: batch statistics by the name of the encoder or map, for
        `update_population`.
    """

    readout: jax.Array
    attention: jax.Array
    statistics: Any


class Reader:
    """The network of a config, as functions of its parameters and statistics."""

    def __init__(self, config: ConfigDict):
        """Take the sizes of `config.model` and of the vocabulary.

        Raises:
          UserError: not all entities are words of the vocabulary.
        """
        sizes, spec = config.model, config.data
        if spec.entities >= spec.vocabulary:
            raise UserError(
                f"config.data.entities = {spec.entities}: give 1 to vocabulary - 1 = "
                f"{spec.vocabulary - 1}"
            )
        self.sizes = sizes
        self.vocabulary = spec.vocabulary
        self.everywhere = config.norm.endswith(EVERYWHERE)
        norm = config.norm.removesuffix(EVERYWHERE)
        self.batch = norm == "batch"
        # Square kernels start as in the authors' code. The gains of batch norm start
        # lower than those of layer norm, see `config.model.gain`.
        self.orthogonal = jax.nn.initializers.orthogonal(0.05)
        # Passages are long, so memory comes before speed. Of the scan's, a kernel takes
        # 1.05 with it, and 1.16 where all products are kept (compiled for an H100).
        self.options = ScanOptions(save="recurrent", kernels=config.kernels)
        self.gain = sizes.gain.batch if self.batch else sizes.gain.layer
        self.cell = LSTMCell(
            sizes.units,
            norm=norm,
            kernel_init=self.orthogonal,
            recurrent_kernel_init=self.orthogonal,
            scale_init=jax.nn.initializers.constant(self.gain),
        )

    def init(self, key: jax.Array) -> Params:
        """Draw fresh parameters.

        The LSTMs, W_d and M are 0.05 times orthogonal, the other weights uniform,
        biases and h_0 zero.
        """
        H, V = self.sizes.units, self.vocabulary
        keys = iter(jax.random.split(key, 16))
        params = {}
        for name in TEXTS:
            lstm = self.cell.init(next(keys), H)
            params[name] = {"lstm": lstm, "h0": jnp.zeros(H, jnp.float32)}
        params["embedding"] = uniform(next(keys), (V, H))
        params["similarity"] = self.orthogonal(next(keys), (H, H), jnp.float32)
        v = jax.random.uniform(next(keys), (H,), jnp.float32, minval=-1)
        params["attention"] = v / H**0.5
        for name in MAPS:
            init = self.orthogonal if name == "attend_passage" else uniform
            params[name] = {"w": init(next(keys), (H, H), jnp.float32)}
            # One bias per sum: the other maps are added to one of these two.
            if name in ("attend_passage", "read_question"):
                params[name]["bias"] = jnp.zeros(H, jnp.float32)
            if self.everywhere:
                params[name]["gain"] = jnp.full(H, self.gain, jnp.float32)
        bias = jnp.zeros(V, jnp.float32)
        params["output"] = {"w": uniform(next(keys), (H, V)), "bias": bias}
        return params

    def population(self) -> Params:
        """Return batch norm's population statistics before the first step.

        Returns:
          As described in population.py.
        """
        made = {}
        for name in TEXTS:
            made[name] = fresh(self.cell.sites, self.sizes.statistics_steps)
        for name in MAPS if self.everywhere else ():
            made[name] = fresh(self.sizes.units)
        return made

    def read(
        self,
        params: Params,
        batch: Params,
        *,
        key: jax.Array | None = None,
        population: Params | None = None,
    ) -> Reading:
        """Read passages and questions.

        Args:
          params: as `init` returns them.
          batch: "passage" [B, T] and "question" [B, S], word numbers, and their numbers
            of words "passage_length" and "question_length" [B].
          key: random key for dropout; None is test time.
          population: batch norm's statistics; None takes the batch's own.

        Returns:
          Reading
        """
        words_key, readout_key = (None, None) if key is None else jax.random.split(key)
        seen = {}
        with jax.named_scope("embedding"):
            # One lookup for both texts: each would cost a gradient of the whole table.
            ids = jnp.concatenate([batch["passage"].T, batch["question"].T])
            x = self._dropout(words_key, params["embedding"][ids])
            passage, question = jnp.split(x, [batch["passage"].shape[1]])

        def encode(name, x):
            statistics = None
            if population is not None:
                statistics = filled(population[name])
            zeros = jnp.zeros(x.shape[1:], x.dtype)
            result = unroll(
                self.cell,
                params[name]["lstm"],
                x,
                # c_0 is zero, h_0 a learned vector.
                initial_carry=(zeros, zeros + params[name]["h0"].astype(x.dtype)),
                seq_lengths=batch[f"{name}_length"],
                time_major=True,
                statistics=statistics,
                options=self.options,
            )
            seen[name] = result.statistics
            return self.cell.output(result.carry), result.outputs

        def affine(name, x, mask=None):
            weights = params[name]
            y = x @ weights["w"]
            if self.everywhere and not self.batch:
                y = norms.layer_norm(y, weights["gain"])
            elif self.everywhere:
                known = population and population[name]["sites"]
                mean, var = known or (None, None)
                y, seen[name] = norms.batch_norm(
                    y, weights["gain"], mask=mask, mean=mean, var=var
                )
            return y + weights["bias"] if "bias" in weights else y

        with jax.named_scope("passage"):
            _, d = encode("passage", passage)
        with jax.named_scope("question"):
            u, _ = encode("question", question)
        with jax.named_scope("attention"):
            # The mask [T, B] is True on words.
            lengths = batch["passage_length"]
            mask = jnp.arange(len(d))[:, None] < lengths
            # D_t is zero behind the end of a text with and without this mask. It keeps
            # the order in which the gradients of D_t are summed.
            all_states, d = d, jnp.where(mask[..., None], d, 0)
            m = params["similarity"]
            # (M D_t) . (M u) without the product M D_t. It is a sum and no einsum,
            # for which XLA's CPU backend would reorder all of d.
            similarity = jnp.sum(d * ((u @ m) @ m.T), -1)
            query = affine("attend_question", u)
            # [T, B, H]; the query [B, H] and the similarity [T, B, 1] broadcast.
            hidden = affine("attend_passage", all_states, mask) + query
            hidden = hidden + similarity[..., None]
            scores = jnp.tanh(hidden) @ params["attention"]
            # Exactly 0 behind the end of a text, also of one without any word.
            attention = jax.nn.softmax(scores, axis=0, where=mask)
            # The passage [B, H] as the attention sees it.
            r = jnp.sum(attention[..., None] * d, 0)
            mean = d.sum(0) / jnp.maximum(lengths, 1)[:, None].astype(d.dtype)
        with jax.named_scope("readout"):
            g = affine("read_passage", r) + affine("read_question", u)
            g = jnp.tanh(g + affine("read_mean", mean))
            return Reading(self._dropout(readout_key, g), attention, seen)

    def _dropout(self, key, x):
        """Drop units of x at training time, that is with a key.

        Kept values are divided by the probability of keeping.
        """
        keep = 1 - self.sizes.dropout
        if not self.sizes.dropout or key is None:
            return x
        # Two decisions from each random word, of 16 bits each: half the work of
        # jax.random.bernoulli.
        words_shape = (*x.shape[:-1], -(-x.shape[-1] // 2))
        words = jax.random.bits(key, words_shape, jnp.uint32)
        bits = jax.lax.bitcast_convert_type(words, jnp.uint16)
        bits = bits.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]
        # 16 uniform bits are below keep * 2^16 with probability `keep`.
        return jnp.where(bits < round(keep * 2**16), x / keep, 0)

    def scores(self, params: Params, g: jax.Array) -> jax.Array:
        """Return the scores of all words [B, V] for g [B, H]."""
        with jax.named_scope("output"):
            output, ones = params["output"], jnp.ones((len(g), 1), g.dtype)
            # The gradient of a product is a product too. That of a broadcast is a sum,
            # which rounds otherwise than in the kept runs.
            bias = jnp.matmul(ones, output["bias"][None], precision="highest")
            return g @ output["w"] + bias


def uniform(key: jax.Array, shape: tuple[int, ...], dtype=jnp.float32) -> jax.Array:
    """Draw from +-sqrt(6 / (inputs + outputs + 1)), as in the authors' code."""
    bound = (6 / (shape[0] + shape[1] + 1)) ** 0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)
