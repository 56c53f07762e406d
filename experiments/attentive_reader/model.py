"""The attentive reader: Hermann et al. (2015) as in Cooijmans et al.'s code (section 6.2 of Ba, Kiros, Hinton 2016).

    D_t = LSTM(E[d_t]),  u = last state of another LSTM over E[q];   w.r.t. one embedding E and D_t, u in R^H
    s_t = (M D_t) . (M u);   m_t = tanh(W_d D_t + b + W_q u + s_t);   a = softmax over the passage of v . m_t
    r = sum_t a_t D_t;   g = tanh(W_r r + W_u u + b + W_m mean_t D_t);   p(answer) = softmax over all words of W_o g + b

Letters: B batch, T and S words of passage and question, H units, V vocabulary, F = H (2H with both directions) features.
Ids are (B, T); everything computed over time is time-major, (T, B, ...).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.errors import UserError
from lnrepro.functional import cells, norms, track, unroll

NORMS = ("none", "layer", "batch", "batch_everywhere")
ENCODERS = ("passage", "question")
MAPS = ("attend_passage", "attend_question", "read_passage", "read_question", "read_mean")  # normalised "everywhere"
FLOOR = 1e-8  # added to the answer's probability, as in the authors' code
DROPPED = ("words", "readout")
Params = dict[str, Any]


class Reading(NamedTuple):
    """g (B, H) before the output layer, the attention (T, B), and what batch norm saw (see Reader.remember)."""

    readout: jax.Array
    attention: jax.Array
    seen: Any


class Reader:
    """The network of a config: functions of its parameters and of batch norm's population statistics."""

    def __init__(self, config: ConfigDict):
        m = self.sizes = config.model
        if config.norm not in NORMS:
            raise UserError(f"config.norm = {config.norm!r}: choose one of {', '.join(NORMS)}")
        for name, a, b in (("evaluation_statistics", "population", "batch"), ("dropout_scaling", "train", "test")):
            if m[name] not in (a, b):
                raise UserError(f"config.model.{name} = {m[name]!r}: choose {a} or {b}")
        for name, value in (("model.units", m.units), ("data.vocabulary", config.data.vocabulary)):
            if value < 1:
                raise UserError(f"config.{name} = {value}: at least 1 is needed")
        if not 0 <= m.dropout < 1:
            raise UserError(f"config.model.dropout = {m.dropout}: it must lie in [0, 1)")
        self.vocabulary = config.data.vocabulary
        self.batch, self.everywhere = config.norm.startswith("batch"), config.norm == "batch_everywhere"
        self.directions = 1 + bool(m.bidirectional)
        small = orthogonal(0.05)
        self.cell = cells.lstm(
            m.units,
            norm="batch" if self.batch else config.norm,
            kernel_init=small,
            recurrent_init=small,
            gain_init=jax.nn.initializers.constant(m.gain.batch if self.batch else m.gain.layer),
        )

    def init(self, key: jax.Array) -> Params:
        """Fresh parameters: LSTMs, W_d and M 0.05 times orthogonal, the others uniform, biases and h_0 zero."""
        H, V, F = self.sizes.units, self.vocabulary, self.directions * self.sizes.units
        k = iter(jax.random.split(key, 16))
        params = {name: tuple(self._encoder(next(k)) for _ in range(self.directions)) for name in ENCODERS}
        square = orthogonal(0.05) if self.directions == 1 else uniform
        params["embedding"] = uniform(next(k), (V, H))
        params["similarity"] = square(next(k), (F, H))
        params["attention"] = jax.random.uniform(next(k), (H,), minval=-1) / jnp.sqrt(H)
        for name in MAPS:
            params[name] = {"w": (square if name == "attend_passage" else uniform)(next(k), (F, H))}
            if name in ("attend_passage", "read_question"):
                params[name]["bias"] = jnp.zeros(H)
            if self.everywhere:
                params[name]["gain"] = jnp.full(H, self.sizes.gain.batch)
        params["output"] = {"w": uniform(next(k), (H, V)), "bias": jnp.zeros(V)}
        return params

    def _encoder(self, key) -> Params:
        H = self.sizes.units
        return {"lstm": cells.init(self.cell, key, H), "h0": jnp.zeros(H)}

    def population(self) -> Params:
        """Batch norm's population statistics before the first step: of every map, and of the LSTMs by time step.

        {"mean", "var", "count"} in the place of each normaliser; `count` is how many batches they are the mean of, by
        step in the LSTMs. Empty without batch norm.
        """
        steps = self.sizes.statistics_steps
        blank = lambda *shape: (jnp.zeros(shape), jnp.ones(shape))  # noqa: E731
        made = {}
        if self.batch:
            for name in ENCODERS:
                sites = {site: blank(steps, size) for site, size in self.cell.sites.items()}
                made[name] = tuple({"sites": sites, "count": jnp.zeros(steps)} for _ in range(self.directions))
        if self.everywhere:
            made |= {name: {"sites": blank(self.sizes.units), "count": jnp.zeros(())} for name in MAPS}
        return made

    def remember(self, population: Params, seen: Params) -> Params:
        """Population statistics one batch on, from what `read` has seen in training.

        The mean over batches so far, until 1 / (1 - momentum) of them make it a running average; step t counts the
        batches that had a word there. No gradient flows.
        """

        def rate(count):
            return jnp.minimum(count / (count + 1), self.sizes.momentum)

        def encoder(old, new):
            n = min(len(old["count"]), len(new[1]))  # steps beyond the table leave no trace
            momentum = rate(old["count"][:n, None])
            count = old["count"].at[:n].add(new[1][:n])
            return {"sites": track(old["sites"], new, momentum), "count": count}

        def map_(old, new):
            moved = jax.tree.map(lambda a, b: norms.running_average(a, b, rate(old["count"])), old["sites"], new)
            return {"sites": moved, "count": old["count"] + 1}

        return {
            name: tuple(encoder(o, s) for o, s in zip(old, seen[name], strict=True))
            if name in ENCODERS
            else map_(old, seen[name])
            for name, old in population.items()
        }

    def read(
        self, params: Params, batch: Params, *, key: jax.Array | None = None, population: Params | None = None
    ) -> Reading:
        """Read questions: batch has "passage" (B, T), "question" (B, S) and their "_length" (B,).

        key: for dropout; None is test time. population: batch norm's statistics; None takes the batch's own.
        """
        keys = dict.fromkeys(DROPPED) if key is None else dict(zip(DROPPED, jax.random.split(key), strict=True))
        seen = {}
        with jax.named_scope("embedding"):  # at once: each use of the table costs a gradient of its whole size
            ids = jnp.concatenate([batch[name].T for name in ENCODERS])
            x = self._dropped(keys["words"], params["embedding"][ids])
            words = dict(zip(ENCODERS, jnp.split(x, [batch["passage"].shape[1]]), strict=True))

        def encode(name):
            x = words[name]
            lengths, stats = batch[f"{name}_length"], None if population is None else population.get(name)
            done = [
                self._run(p, x, lengths, bool(i), None if stats is None else filled(stats[i]))
                for i, p in enumerate(params[name])
            ]
            last, steps, aside = zip(*done, strict=True)
            seen[name] = aside
            return jnp.concatenate(last, -1), jnp.concatenate(steps, -1)

        def apply(name, x, mask=None):
            p = params[name]
            y = (x.reshape(-1, x.shape[-1]) @ p["w"]).reshape(*x.shape[:-1], -1)  # flat: its gradient needs no copies
            if self.everywhere:
                mean, var = (None, None) if population is None else population[name]["sites"]
                y, seen[name] = norms.batch_norm(y, p["gain"], mask=mask, mean=mean, var=var)
            return y + p["bias"] if "bias" in p else y

        with jax.named_scope("passage"):
            _, d = encode("passage")
        with jax.named_scope("question"):
            u, _ = encode("question")
        with jax.named_scope("attention"):
            lengths = batch["passage_length"]
            mask = jnp.arange(len(d))[:, None] < lengths
            m = params["similarity"]
            # (M D_t) . (M u) without M D_t; sums, for XLA's CPU backend would reorder all of d for products over t or f
            similarity = jnp.sum(d * ((u @ m) @ m.T), -1)
            query = apply("attend_question", u)
            hidden = jnp.tanh(apply("attend_passage", d, mask) + query + similarity[..., None])
            attention = masked_softmax(hidden @ params["attention"], mask)
            r = jnp.sum(attention[..., None] * d, 0)
            mean = d.sum(0) / jnp.maximum(lengths, 1)[:, None].astype(d.dtype)  # D_t is zero on padding
        with jax.named_scope("readout"):
            g = jnp.tanh(apply("read_passage", r) + apply("read_question", u) + apply("read_mean", mean))
            return Reading(self._dropped(keys["readout"], g), attention, seen)

    def _run(self, p, x, lengths, reverse, statistics):
        """One direction of an encoder over x (S, B, H): (last h (B, H), all h (S, B, H), batch norm's statistics)."""
        zeros = jnp.zeros((x.shape[1], self.sizes.units), x.dtype)
        more = {"statistics": statistics, "with_statistics": True} if self.batch else {}
        more |= {"reverse": reverse, "time_major": True, "save": "recurrent"}  # passages are long: memory first
        carry = (zeros, zeros + p["h0"].astype(x.dtype))
        done = unroll(self.cell, p["lstm"], x, carry=carry, lengths=lengths, **more)
        return self.cell.output(done[0]), done[1], done[2] if self.batch else None

    def _dropped(self, key, x):
        """Dropout: kept values are divided by the probability of keeping, at training time; with scaled = "test" they are
        multiplied by it at test time instead, as in the code of the published curves."""
        keep, at_test = 1 - self.sizes.dropout, self.sizes.dropout_scaling == "test"
        if not self.sizes.dropout or key is None:
            return x * keep if at_test else x
        # two decisions from each random word, of 16 bits each: half the work of bernoulli's
        words = jax.random.bits(key, (*x.shape[:-1], -(-x.shape[-1] // 2)), jnp.uint32)
        bits = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]
        return jnp.where(bits < round(keep * 2**16), x if at_test else x / keep, 0)

    def scores(self, params: Params, g: jax.Array) -> jax.Array:
        """Scores of all words (B, V)."""
        return g @ params["output"]["w"] + params["output"]["bias"]

    def answered(self, params: Params, g: jax.Array, answer: jax.Array) -> tuple[jax.Array, jax.Array]:
        """See the function `answered`."""
        with jax.named_scope("output"):
            return answered(g, params["output"]["w"], params["output"]["bias"], answer)


def masked_softmax(scores: jax.Array, mask: jax.Array) -> jax.Array:
    """Softmax of scores (T, B) over T where mask (T, B) is True; exactly 0 elsewhere, and everywhere in an empty column."""
    best = jax.lax.stop_gradient(jnp.max(jnp.where(mask, scores, -jnp.inf), 0))
    e = jnp.where(mask, jnp.exp(jnp.where(mask, scores - jnp.where(jnp.isfinite(best), best, 0), 0)), 0)
    return e / jnp.maximum(e.sum(0), jnp.finfo(e.dtype).tiny)


def filled(running: Params) -> Params:
    """Statistics by time step {site: (mean, var)}, each (T_max, n), from the running ones: a step that no batch has had
    a word at takes those of the last one before it (source: popstats.py of the authors' code)."""
    step = jnp.where(running["count"] > 0, jnp.arange(len(running["count"])), 0)
    last = jax.lax.cummax(step)
    return jax.tree.map(lambda s: s[last], running["sites"])


@jax.custom_vjp
def answered(g: jax.Array, w: jax.Array, bias: jax.Array, answer: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log(p(answer) + 1e-8), nats, and whether another word scores higher, (B,) each, for the softmax over all words of
    g w + bias; g (B, H), w (H, V), bias (V,), answer (B,).

    Its backward pass forms the gradient of the scores (B, V) once, and of it the bias's as a product: on two CPU cores at
    V = 65,830 it takes half the time of autodiff's, which computes the softmax anew in each of three places.
    """
    return _answered(g, w, bias, answer)[0]


def _answered(g, w, bias, answer):
    scores = g @ w + bias
    right = jnp.take_along_axis(scores, answer[:, None], 1)[:, 0]
    total = jax.nn.logsumexp(scores, 1)
    likely = jnp.logaddexp(right - total, jnp.log(FLOOR).astype(scores.dtype))
    return (likely, scores.max(1) > right), (g, w, scores, total, right, answer)


def _answered_backward(saved, cotangents):
    g, w, scores, total, right, answer = saved
    p = jnp.exp(right - total)
    factor = (cotangents[0] * p / (p + FLOOR))[:, None]  # of d log(p + floor) / d log p
    d = factor * ((jnp.arange(scores.shape[1]) == answer[:, None]) - jnp.exp(scores - total[:, None]))
    d = jax.lax.optimization_barrier(d)  # or XLA computes it again for every use
    return d @ w.T, g.T @ d, jnp.ones(len(d), d.dtype) @ d, None


answered.defvjp(_answered, _answered_backward)


def orthogonal(scale: float):
    """Initialiser: scale times a random orthogonal matrix; uniform where it is not square."""

    def start(key, shape, dtype=jnp.float32):
        if shape[0] != shape[1]:
            return uniform(key, shape, dtype)
        return jax.nn.initializers.orthogonal(scale)(key, shape, dtype)

    return start


def uniform(key, shape, dtype=jnp.float32):
    """Uniform in +-sqrt(6 / (inputs + outputs + 1)), as in the authors' code."""
    bound = (6 / (shape[0] + shape[1] + 1)) ** 0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)
