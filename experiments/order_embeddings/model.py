"""The two encoders of order-embeddings (section 6.1).

A GRU encodes a caption and a linear map encodes an image, both into the positive
orthant of one space of K dimensions:

    s  = |u / ||u|||    u: state of the GRU after the end token (eq. 23-28)
    im = |v / ||v|||    v = W f + b of the image's features f

The symmetric variant leaves the absolute value out. The norms have no epsilon, as in
the authors' code.

Shape letters: B batch, T tokens with the end token, V words, D image features, K
dimensions of the joint space.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments.initializers import uniform
from lnrepro import functional

# A vector with a smaller squared norm has no direction and is left as it is. An image
# whose features are all zero gives one.
SMALLEST_SQUARE = 1e-30
Params = dict[str, dict]


class Encoders:
    """The encoders of a config, as functions of their parameters."""

    def __init__(self, config: ConfigDict):
        """Take the sizes of `config.model` and of the vocabulary."""
        sizes = config.model
        self.sizes = sizes
        self.vocabulary = config.data.vocabulary
        self.positive = sizes.similarity == "order"
        # The recurrent kernels keep their orthogonal default.
        self.options = functional.ScanOptions(kernels=config.kernels)
        self.cell = functional.GRUCell(
            sizes.units, norm=config.norm, kernel_init=uniform(0.1)
        )

    def init(self, key: jax.Array) -> Params:
        """Draw fresh parameters.

        Returns:
          {"words": [V, words], "gru": {"gates", "candidate"}, "image": {"w", "bias"}}.
          Words and the GRU's input kernels are uniform in +-0.1, the recurrent kernels
          orthogonal, the map of images Xavier uniform.
        """
        sizes = self.sizes
        words_key, gru_key, image_key = jax.random.split(key, 3)
        # Xavier: sqrt(6 / (inputs + outputs)).
        bound = (6 / (sizes.features + sizes.units)) ** 0.5
        return {
            "words": uniform(0.1)(words_key, (self.vocabulary, sizes.words)),
            "gru": _split_gru(self.cell.init(gru_key, sizes.words), sizes.units),
            "image": {
                "w": uniform(bound)(image_key, (sizes.features, sizes.units)),
                "bias": jnp.zeros(sizes.units, jnp.float32),
            },
        }

    def captions(self, vars: Mapping, batch: Mapping) -> jax.Array:
        """Encode captions.

        Args:
          vars: {"params": as `init` returns them}.
          batch: "length" [B], numbers of tokens with the end token; and "tokens", parts
            ([B, T_0], [b_1, T_1], ...) that follow one another in time. Each part holds
            the first rows only, those whose captions have not ended. Tokens from
            length - 1 on are 0, the end token.

        Returns:
          [B, K]
        """
        params, length = vars["params"], batch["length"]
        gru = _join_gru(params["gru"])
        steps_done, state = 0, None
        for part in batch["tokens"]:
            rows, steps = part.shape
            with jax.named_scope("words"):
                x = params["words"][part]
            with jax.named_scope("gru"):
                # A caption that ends inside this part passes its state on from there.
                new = functional.unroll(
                    self.cell,
                    gru,
                    x,
                    initial_carry=None if state is None else state[:rows],
                    seq_lengths=jnp.clip(length[:rows] - steps_done, 0, steps),
                    options=self.options,
                ).carry
            # Rows that have ended keep their state.
            state = new if state is None else jnp.concatenate([new, state[rows:]])
            steps_done += steps
        return self._normalise(state)

    def images(self, vars: Mapping, batch: Mapping) -> jax.Array:
        """Encode the features "image" [B, D] of a batch to [B, K]."""
        with jax.named_scope("image"):
            image = vars["params"]["image"]
            return self._normalise(batch["image"] @ image["w"] + image["bias"])

    def _normalise(self, v: jax.Array) -> jax.Array:
        square = jnp.sum(jnp.square(v), axis=-1, keepdims=True)
        # The inner `where` keeps the square root and its gradient finite at 0.
        v = v / jnp.sqrt(jnp.where(square > SMALLEST_SQUARE, square, 1))
        return jnp.abs(v) if self.positive else v


def _split_gru(params: dict[str, jax.Array], units: int) -> Params:
    """Split parameters [..., 3H] into those of the gates [..., 2H] and the candidate.

    They are parameters of their own in the authors' code, and gradients are clipped
    parameter by parameter.
    """
    gates, candidate = {}, {}
    for name, value in params.items():
        gates[name], candidate[name] = jnp.split(value, [2 * units], axis=-1)
    return {"gates": gates, "candidate": candidate}


def _join_gru(parts: Params) -> dict[str, jax.Array]:
    """Undo `_split_gru`."""
    gates, candidate = parts["gates"], parts["candidate"]
    return {
        name: jnp.concatenate([gates[name], candidate[name]], axis=-1) for name in gates
    }
