"""The two encoders of order-embeddings (section 6.1): captions by a GRU, images by a linear map, into one positive orthant.

    s = |u / ||u||, u the GRU's state after the end token of the embedded words (eq. 23-25, with layer norm eq. 26-28)
    im = |v / ||v||, v = W f + b of the image's features f

Both norms are without an epsilon, as in the authors' code; the symmetric variant leaves the absolute value out.
Letters: B batch, T tokens with the end token, V words, D image features, K dimensions of the joint space.
"""

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro import functional
from lnrepro.errors import UserError

from .ranking import ERRORS

NORMS = ("none", "layer")
NOTHING = 1e-30  # the square of a vector without direction, such as an image of zeros gives: it is left as it is
Params = dict[str, dict]


def uniform(scale: float):
    """Initialiser: uniform in [-scale, scale]."""
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -scale, scale)


class Encoders:
    """The encoders of a config: functions of their parameters."""

    def __init__(self, config: ConfigDict):
        m = self.sizes = config.model
        if config.norm not in NORMS:
            raise UserError(f"config.norm = {config.norm!r}: choose one of {', '.join(NORMS)}")
        if m.similarity not in ERRORS:
            raise UserError(f"config.model.similarity = {m.similarity!r}: choose one of {', '.join(ERRORS)}")
        for name in ("features", "words", "units"):
            if m[name] < 1:
                raise UserError(f"config.model.{name} = {m[name]}: at least 1 is needed")
        if config.data.vocabulary < 3:
            raise UserError(f"config.data.vocabulary = {config.data.vocabulary}: <eos>, <unk> and a word are needed")
        self.vocabulary, self.positive = config.data.vocabulary, m.similarity == "order"
        self.cell = functional.gru(m.units, norm=config.norm, kernel_init=uniform(0.1))  # recurrent: orthogonal

    def init(self, key: jax.Array) -> Params:
        """Words and the GRU's input kernels uniform in +-0.1, its recurrent ones orthogonal, the map Xavier uniform.

        The GRU's gates and candidate are parameters of their own, as in the authors' code: clipping goes tensor by
        tensor, so it matters which tensors there are.
        """
        m, (words, gru, image) = self.sizes, jax.random.split(key, 3)
        edge = (6 / (m.features + m.units)) ** 0.5
        return {
            "words": uniform(0.1)(words, (self.vocabulary, m.words)),
            "gru": _apart(functional.init(self.cell, gru, m.words), m.units),
            "image": {"w": uniform(edge)(image, (m.features, m.units)), "bias": jnp.zeros(m.units)},
        }

    def captions(self, params: Params, tokens: tuple[jax.Array, ...], length: jax.Array) -> jax.Array:
        """Tokens in parts ((B, T_0), (b_1, T_1), ...), zero (the end token) from `length` - 1 (B,) on -> (B, K).

        The parts follow one another in time; each holds the first b rows, for rows behind them have ended.
        """
        gru, done, state = _together(params["gru"]), 0, None
        for part in tokens:
            rows, steps = part.shape
            with jax.named_scope("words"):
                x = params["words"][part]
            with jax.named_scope("gru"):
                left = jnp.clip(length[:rows] - done, 0, steps)
                before = None if state is None else state[:rows]
                new, _ = functional.unroll(self.cell, gru, x, carry=before, lengths=left)
            state = new if state is None else jnp.concatenate([new, state[rows:]])
            done += steps
        return self._onto_sphere(state)

    def images(self, params: Params, features: jax.Array) -> jax.Array:
        """Features (B, D) -> (B, K)."""
        with jax.named_scope("image"):
            return self._onto_sphere(features @ params["image"]["w"] + params["image"]["bias"])

    def _onto_sphere(self, v: jax.Array) -> jax.Array:
        square = jnp.sum(jnp.square(v), axis=-1, keepdims=True)
        v = v / jnp.sqrt(jnp.where(square > NOTHING, square, 1))
        return jnp.abs(v) if self.positive else v


def _apart(params: dict[str, jax.Array], units: int) -> Params:
    """A GRU's parameters (..., 3H) as those of its two gates (..., 2H) and of its candidate (..., H)."""
    cut = {name: jnp.split(value, [2 * units], axis=-1) for name, value in params.items()}
    return {part: {name: value[i] for name, value in cut.items()} for i, part in enumerate(("gates", "candidate"))}


def _together(parts: Params) -> dict[str, jax.Array]:
    return {name: jnp.concatenate([value, parts["candidate"][name]], -1) for name, value in parts["gates"].items()}
