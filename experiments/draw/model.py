"""DRAW's network and its bound: Gregor et al. (2015) with the LSTM of Ba, Kiros, Hinton (2016), section 6.4.

    error_t = x - s(c_{t-1});             r_t = read(x, error_t; h_dec_{t-1})
    h_enc_t = LSTM([r_t, h_dec_{t-1}], h_enc_{t-1});    mu_t, log s_t = affine(h_enc_t);    z_t = mu_t + s_t eps_t
    h_dec_t = LSTM(z_t, h_dec_{t-1});     c_t = c_{t-1} + write(h_dec_t)

with c_0 = h_0 = 0, and x Bernoulli with mean s(c_G). Letters: B batch, G glimpses, H units, Z latents, S pixels a side.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.errors import UserError
from lnrepro.functional import cells, norms

from . import attention
from .recurrence import Tape, plain, scan

NORMS = ("none", "weight", "layer_cell", "layer")
CELLS = ("encoder", "decoder")
Params = dict[str, dict[str, jax.Array]]


class Seen(NamedTuple):
    """What a glimpse leaves: `kl` (B,), `log_ratio` = log p(z) - log q(z|x) (B,), its windows' numbers (B, 5)."""

    kl: jax.Array
    log_ratio: jax.Array
    read: jax.Array
    write: jax.Array


class Draw:
    """The network of a config: its sizes, and functions of its parameters."""

    def __init__(self, config: ConfigDict):
        m = self.sizes = config.model
        if config.norm not in NORMS:
            raise UserError(f"config.norm = {config.norm!r}: choose one of {', '.join(NORMS)}")
        for name in ("glimpses", "units", "latents", "image_size"):
            if m[name] < 1:
                raise UserError(f"config.model.{name} = {m[name]}: at least 1 is needed")
        for name in ("read_size", "write_size") if m.attention else ():
            if not 1 <= m[name] <= m.image_size:
                raise UserError(
                    f"config.model.{name} = {m[name]}: a window has 1 to image_size = {m.image_size} points a side"
                )
        self.norm = config.norm
        kernel, gain = jax.nn.initializers.lecun_normal(), jax.nn.initializers.constant(m.init.gain)
        self.cell = cells.lstm(m.units, norm=config.norm, kernel_init=kernel, recurrent_init=kernel, gain_init=gain)
        patch, pixels = 2 * m.read_size**2, m.image_size**2
        self.inputs = {"encoder": (patch if m.attention else 2 * pixels) + m.units, "decoder": m.latents}
        self.outputs = {"latent": 2 * m.latents, "write": 5 + m.write_size**2 if m.attention else pixels}
        if m.attention:
            self.outputs["read"] = 5

    def init(self, key: jax.Array) -> Params:
        """Two LSTMs (`lnrepro.functional.cells`) and affine maps from their H units, weights N(0, init.NAME^2)."""
        m = self.sizes
        keys = dict(zip((*CELLS, *self.outputs), jax.random.split(key, len(CELLS) + len(self.outputs)), strict=True))
        params = {name: cells.init(self.cell, keys[name], self.inputs[name]) for name in CELLS}
        for name, size in self.outputs.items():
            w = m.init[name] * jax.random.normal(keys[name], (m.units, size))
            params[name] = {"w": w, "bias": jnp.zeros(size)}
            if self.norm == "weight":
                params[name]["length"] = norms.weight_norm_preserving(w)[1]
        return params

    def weights(self, params: Params) -> dict[str, jax.Array]:
        """The matrices of a glimpse, ready to multiply; an LSTM's two as one where neither product is normalised."""
        made = {}
        for name in CELLS:
            kernels = self.cell.kernels(params[name])
            if self.norm == "layer":
                made |= {f"{name}_x": kernels.x, f"{name}_h": kernels.h}
            else:
                made[name] = jnp.concatenate([kernels.x, kernels.h])
        for name in self.outputs:
            p = params[name]
            made[name] = norms.weight_norm(p["w"], p["length"]) if self.norm == "weight" else p["w"]
        return made

    def rest(self, params: Params) -> Params:
        """The parameters that are not in `weights`: biases, and the LSTMs' gains."""
        return {name: {k: v for k, v in p.items() if not k.startswith(("w", "length"))} for name, p in params.items()}

    def start(self, rows: int, dtype=jnp.float32) -> tuple:
        """The carry before the first glimpse: encoder and decoder (c, h), and the canvas (B, S, S), all zero."""
        zeros = jnp.zeros((rows, self.sizes.units), dtype)
        side = self.sizes.image_size
        return (zeros, zeros), (zeros, zeros), jnp.zeros((rows, side, side), dtype)

    def lstm(self, tape: Tape, rest: Params, name: str, carry, x: jax.Array):
        """One step of an LSTM on x (B, D): (carry, h (B, H))."""
        h = self.cell.output(carry)
        if self.norm == "layer":
            px, ph = tape.product(f"{name}_x", x), tape.product(f"{name}_h", h)
        else:
            px, ph = tape.product(name, jnp.concatenate([x, h], axis=-1)), jnp.zeros((), x.dtype)
        carry, _ = self.cell.pointwise(rest[name], carry, px, ph)
        return carry, self.cell.output(carry)

    def affine(self, tape: Tape, rest: Params, name: str, h: jax.Array) -> jax.Array:
        """The affine map `name` of h (B, H)."""
        return tape.product(name, h) + rest[name]["bias"]

    def read(self, tape: Tape, rest: Params, x: jax.Array, canvas: jax.Array, h: jax.Array):
        """What the encoder sees of x and of x - s(canvas), both (B, S, S): (B, 2 N^2), without attention (B, 2 S^2)."""
        drawn = tape.sigmoid("canvas", canvas)
        if not self.sizes.attention:
            return jnp.concatenate([x, x - drawn], axis=-1).reshape(len(x), -1), jnp.zeros((len(x), 5), x.dtype)
        numbers = self.affine(tape, rest, "read", h)
        window = attention.window(numbers, self.sizes.read_size, self.sizes.image_size)
        # reading is linear: read(x - s) = read(x) - read(s) spares an image per glimpse
        image, other = jnp.split(attention.read(window, x, drawn), 2, axis=-1)
        return jnp.concatenate([image, image - other], axis=-1), numbers

    def decode(self, tape: Tape, rest: Params, decoder, canvas: jax.Array, z: jax.Array):
        """z (B, Z) -> (decoder carry, canvas, write numbers (B, 5))."""
        decoder, h = self.lstm(tape, rest, "decoder", decoder, z)
        out = self.affine(tape, rest, "write", h)
        if not self.sizes.attention:
            return decoder, canvas + out.reshape(canvas.shape), jnp.zeros((len(z), 5), z.dtype)
        points = self.sizes.write_size
        window = attention.window(out[:, :5], points, self.sizes.image_size)
        return decoder, canvas + attention.write(window, out[:, 5:].reshape(-1, points, points)), out[:, :5]

    def glimpse(self, tape: Tape, shared: tuple[Params, jax.Array], carry, noise: jax.Array):
        """One glimpse at x with noise (B, Z): shared = (rest, x (B, S, S)); returns (carry, Seen)."""
        rest, x = shared
        encoder, decoder, canvas = carry
        with jax.named_scope("read"):
            r, read = self.read(tape, rest, x, canvas, self.cell.output(decoder))
        with jax.named_scope("encoder"):
            encoder, h = self.lstm(tape, rest, "encoder", encoder, jnp.concatenate([r, self.cell.output(decoder)], -1))
        with jax.named_scope("latent"):
            mu, log_s = jnp.split(self.affine(tape, rest, "latent", h), 2, axis=-1)
            z = mu + jnp.exp(log_s) * noise
            kl = kl_from_standard(mu, log_s)
            log_ratio = jnp.sum(0.5 * (jnp.square(noise) - jnp.square(z)) + log_s, axis=-1)
        with jax.named_scope("decoder_and_write"):
            decoder, canvas, write = self.decode(tape, rest, decoder, canvas, z)
        return (encoder, decoder, canvas), Seen(kl, log_ratio, read, write)

    def infer(self, params: Params, x: jax.Array, noise: jax.Array) -> tuple[jax.Array, Seen]:
        """x (B, S, S), noise (G, B, Z) -> the last canvas (B, S, S) and all Seen, stacked (G, B, ..)."""
        shared = (self.rest(params), x)
        carry, seen = scan(self.glimpse, self.weights(params), shared, self.start(len(x), x.dtype), noise)
        return carry[2], seen

    def trace(self, params: Params, x: jax.Array, noise: jax.Array) -> tuple[jax.Array, Seen]:
        """As `infer`, with the canvas after every glimpse, (G, B, S, S)."""
        step = partial(self.glimpse, plain(self.weights(params)), (self.rest(params), x))

        def tick(carry, noise):
            carry, seen = step(carry, noise)
            return carry, (carry[2], seen)

        return jax.lax.scan(tick, self.start(len(x), x.dtype), noise)[1]

    def generate(self, params: Params, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        """z (G, B, Z) from the prior -> canvas (G, B, S, S) and write numbers (G, B, 5) after every glimpse."""
        tape, rest = plain(self.weights(params)), self.rest(params)

        def tick(carry, z):
            decoder, canvas, write = self.decode(tape, rest, *carry, z)
            return (decoder, canvas), (canvas, write)

        return jax.lax.scan(tick, self.start(z.shape[1], z.dtype)[1:], z)[1]


def kl_from_standard(mu: jax.Array, log_s: jax.Array) -> jax.Array:
    """KL of N(mu, s^2) from N(0, 1) in nats, summed over the last axis: sum 1/2 (mu^2 + s^2 - log s^2 - 1)."""
    return 0.5 * jnp.sum(jnp.square(mu) + jnp.exp(2 * log_s) - 2 * log_s - 1, axis=-1)


def cross_entropy(canvas: jax.Array, x: jax.Array) -> jax.Array:
    """-log p(x | canvas) in nats per image (B,): x (B, S, S) in 0..1, independent pixels with means s(canvas)."""
    return jnp.sum(jax.nn.softplus(canvas) - x * canvas, axis=(-2, -1))


def noise_of(key: jax.Array, index: jax.Array, sizes: Any) -> jax.Array:
    """Noise (G, B, Z) of the examples numbered `index` (B,): an example's does not depend on the batch it comes in."""
    draw = lambda i: jax.random.normal(jax.random.fold_in(key, i), (sizes.glimpses, sizes.latents))  # noqa: E731
    return jnp.moveaxis(jax.vmap(draw)(index), 0, 1)


def importance_weighted(draw: Draw, params: Params, x: jax.Array, index: jax.Array, key: jax.Array, samples: int):
    """Estimate of log p(x) in nats, (B,): log mean_k p(x | z_k) p(z_k) / q(z_k | x) over `samples` draws from q.

    A lower bound in expectation that tightens as `samples` grows. Source: Burda, Grosse, Salakhutdinov (2015), eq. 8.
    """

    def log_weight(key):
        canvas, seen = draw.infer(params, x, noise_of(key, index, draw.sizes))
        return seen.log_ratio.sum(0) - cross_entropy(canvas, x)

    weights = jax.lax.map(log_weight, jax.random.split(key, samples))
    return jax.nn.logsumexp(weights, axis=0) - jnp.log(samples)
