"""DRAW's network.

Gregor et al. (2015) with the LSTM of Ba, Kiros and Hinton (2016), section 6.4. Glimpse
t of G:

    error_t = x - sigmoid(canvas_{t-1})
    r_t = read(x, error_t; h_dec_{t-1})
    h_enc_t = LSTM([r_t, h_dec_{t-1}], h_enc_{t-1})
    mu_t, log s_t = affine(h_enc_t)
    z_t = mu_t + s_t noise_t
    h_dec_t = LSTM(z_t, h_dec_{t-1})
    canvas_t = canvas_{t-1} + write(h_dec_t)

The first carries and the first canvas are zero. x is Bernoulli with mean
sigmoid(canvas_G).

Shape letters: B batch, G glimpses, H units, Z latents, S pixels per side, N grid points
per side.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from lnrepro.errors import UserError
from lnrepro.functional import (
    LSTMCell,
    Prepared,
    ScanOptions,
    ScanResult,
    StepContext,
    arrays,
    named_dot,
    norms,
    scan,
)

from . import attention

CELLS = ("encoder", "decoder")
Params = dict[str, dict[str, jax.Array]]


class Carry(NamedTuple):
    """The state between two glimpses.

    Attributes:
      encoder: (c, h) of the encoder, each [B, H].
      decoder: (c, h) of the decoder, each [B, H].
      canvas: [B, S, S], logits of the pixels.
    """

    encoder: tuple[jax.Array, jax.Array]
    decoder: tuple[jax.Array, jax.Array]
    canvas: jax.Array


class GlimpseRecord(NamedTuple):
    """Terms of the bound and windows of one glimpse.

    Attributes:
      kl: [B], KL divergence of q(z|x) from the prior in nats.
      log_ratio: [B], log p(z) - log q(z|x).
      read: [B, 5], the numbers of the reading window.
      write: [B, 5], the numbers of the writing window.
    """

    kl: jax.Array
    log_ratio: jax.Array
    read: jax.Array
    write: jax.Array


def _nothing(carry: Carry) -> None:
    return None


class Draw:
    """The network of a config: its sizes, and functions of its parameters."""

    def __init__(self, config: ConfigDict):
        """Check the sizes of the windows.

        Raises:
          UserError: a window is larger than the image.
        """
        sizes = config.model
        for name in ("read_size", "write_size"):
            if sizes[name] > sizes.image_size:
                raise UserError(
                    f"config.model.{name} = {sizes[name]}: a window has 1 to "
                    f"image_size = {sizes.image_size} points a side"
                )
        self.sizes = sizes
        kernel_init = jax.nn.initializers.lecun_normal()
        self.options = ScanOptions(kernels=config.kernels)
        self.cell = LSTMCell(
            sizes.units,
            norm=config.norm,
            kernel_init=kernel_init,
            recurrent_kernel_init=kernel_init,
            scale_init=jax.nn.initializers.constant(sizes.init.gain),
        )
        # Eq. 29 has LN on the cell output alone, so [x, h] can be multiplied by one
        # joined kernel. A norm of W_x x and of W_h h (eq. 20) needs both products.
        self.joined = self.cell.site_norms["x"].is_plain
        # "write" holds the numbers of the window, then the patch.
        self.outputs = {
            "latent": 2 * sizes.latents,
            "write": 5 + sizes.write_size**2,
            "read": 5,
        }
        # The encoder reads [r_t, h_dec_{t-1}], the decoder z_t. r_t has N x N points of
        # the image and as many of the error.
        encoder_input = 2 * sizes.read_size**2 + sizes.units
        self.inputs = {"encoder": encoder_input, "decoder": sizes.latents}

    def init(self, key: jax.Array) -> Params:
        """Draw fresh parameters.

        Returns:
          {"encoder", "decoder"}: parameters of an `LSTMCell`; {"latent", "write",
          "read"}: affine maps of its H units, with weights N(0, config.model.init^2).
        """
        names = (*CELLS, *self.outputs)
        keys = dict(zip(names, jax.random.split(key, len(names)), strict=True))
        params = {name: self.cell.init(keys[name], self.inputs[name]) for name in CELLS}
        for name, size in self.outputs.items():
            shape = (self.sizes.units, size)
            w = self.sizes.init[name] * jax.random.normal(
                keys[name], shape, jnp.float32
            )
            params[name] = {"w": w, "bias": jnp.zeros(size, jnp.float32)}
            norm = self.cell.site_norms["h"]
            if "length" in norm.names:
                params[name]["length"] = norm.length(w)
        return params

    def prepare(self, params: Params) -> Prepared:
        """Split the parameters into weights for `dot` and the rest.

        Returns:
          Prepared: weights are named such as "encoder/w_h" and "latent"; params holds
          what the two cells' steps read besides, and the biases of the affine maps.
        """
        weights, rest = {}, {}
        for name in CELLS:
            prepared = self.cell.prepare(params[name])
            if self.joined:
                # [D, 4H] on top of [H, 4H]: [x, h] times this is W_x x + W_h h.
                kernels = [prepared.weights["w_x"], prepared.weights["w_h"]]
                weights[name] = jnp.concatenate(kernels)
            else:
                for product, weight in prepared.weights.items():
                    weights[f"{name}/{product}"] = weight
            rest[name] = prepared.params
        for name in self.outputs:
            of_map = params[name]
            weights[name] = of_map["w"]
            if "length" in of_map:
                weights[name] = norms.weight_norm(of_map["w"], of_map["length"])
            rest[name] = of_map["bias"]
        return Prepared(weights, rest)

    def initial_carry(self, x: jax.Array) -> Carry:
        """Return zeros for images x [B, S, S]."""
        zeros = jnp.zeros((len(x), self.sizes.units), x.dtype)
        return Carry((zeros, zeros), (zeros, zeros), jnp.zeros_like(x))

    def lstm(self, dot, rest: Params, name: str, carry, x: jax.Array):
        """Take one step of the LSTM `name` on x [B, D] and return its carry."""

        def dot_of_cell(product, v):
            return dot(f"{name}/{product}", v)

        # The product of h includes W_x x, so that of x is 0.
        def joined_dot(product, v):
            if product == "w_x":
                return jnp.zeros((), x.dtype)
            return dot(name, jnp.concatenate([x, v], -1))

        cell_dot = joined_dot if self.joined else dot_of_cell
        carry, _ = self.cell.step(cell_dot, rest[name], carry, x, StepContext())
        return carry

    def read(self, dot, rest: Params, x: jax.Array, canvas: jax.Array, h: jax.Array):
        """Read a patch of the image and of what the canvas still lacks.

        Args:
          dot: multiplies by a weight.
          rest: as in `prepare`.
          x: [B, S, S].
          canvas: [B, S, S].
          h: [B, H], the decoder's output.

        Returns:
          (what the encoder sees of x and of x - sigmoid(canvas), [B, 2 N^2]; numbers of
          the window [B, 5])
        """
        # The image that the canvas stands for, with pixels in (0, 1).
        drawn = jax.nn.sigmoid(canvas)
        numbers = dot("read", h) + rest["read"]
        window = attention.window(numbers, self.sizes.read_size, self.sizes.image_size)
        # Reading is linear: read(x - drawn) = read(x) - read(drawn) spares an image.
        both = attention.read(window, x, drawn)
        of_image, of_drawn = jnp.split(both, 2, axis=-1)
        return jnp.concatenate([of_image, of_image - of_drawn], axis=-1), numbers

    def decode(self, dot, rest: Params, decoder, canvas: jax.Array, z: jax.Array):
        """Draw on the canvas what the latents z [B, Z] say.

        Returns:
          (carry of the decoder, canvas [B, S, S], numbers of the window [B, 5])
        """
        decoder = self.lstm(dot, rest, "decoder", decoder, z)
        out = dot("write", self.cell.output(decoder)) + rest["write"]
        points = self.sizes.write_size
        # Five numbers place the window. The others are the patch w_t, [B, N, N].
        numbers, patch = out[:, :5], out[:, 5:].reshape(-1, points, points)
        window = attention.window(numbers, points, self.sizes.image_size)
        return decoder, canvas + attention.write(window, patch), numbers

    def glimpse(
        self,
        dot,
        params: tuple[Params, jax.Array],
        carry: Carry,
        noise: jax.Array,
        context: Any,
    ) -> tuple[Carry, GlimpseRecord]:
        """Take one glimpse, a step of `lnrepro.functional.scan`.

        Args:
          dot: multiplies by a weight.
          params: (the rest of the parameters as in `prepare`, the images x [B, S, S]).
          carry: the carry before the glimpse.
          noise: [B, Z], standard normal.
          context: unused.
        """
        del context
        rest, x = params
        h_dec = self.cell.output(carry.decoder)
        with jax.named_scope("read"):
            r, read = self.read(dot, rest, x, carry.canvas, h_dec)
        with jax.named_scope("encoder"):
            encoder_input = jnp.concatenate([r, h_dec], axis=-1)
            encoder = self.lstm(dot, rest, "encoder", carry.encoder, encoder_input)
        with jax.named_scope("latent"):
            # One affine map gives mu and log s, [B, 2 Z].
            numbers = dot("latent", self.cell.output(encoder)) + rest["latent"]
            mu, log_s = jnp.split(numbers, 2, axis=-1)
            z = mu + jnp.exp(log_s) * noise
            kl = kl_from_standard(mu, log_s)
            # log N(z; 0, 1) - log N(z; mu, s^2), where (z - mu) / s is the noise. The
            # terms log 2 pi cancel.
            log_density_ratio = 0.5 * (jnp.square(noise) - jnp.square(z)) + log_s
            log_ratio = jnp.sum(log_density_ratio, axis=-1)
        with jax.named_scope("decoder_and_write"):
            decoder, canvas, write = self.decode(
                dot, rest, carry.decoder, carry.canvas, z
            )
        record = GlimpseRecord(kl, log_ratio, read, write)
        return Carry(encoder, decoder, canvas), record

    def noise(self, params: Params, key: jax.Array, index: jax.Array) -> jax.Array:
        """Draw the noise of some examples; it does not depend on their batch.

        Args:
          params: as `init` returns them; their dtype is that of the noise.
          key: random key.
          index: [B], numbers of the examples.

        Returns:
          [G, B, Z]
        """
        shape = (self.sizes.glimpses, self.sizes.latents)

        def draw_one(i):
            example_key = jax.random.fold_in(key, i)
            return jax.random.normal(example_key, shape, dtype_of(params))

        # [B, G, Z] -> [G, B, Z].
        return jnp.moveaxis(jax.vmap(draw_one)(index), 0, 1)

    def infer(
        self, params: Params, x: jax.Array, noise: jax.Array, output=_nothing
    ) -> ScanResult:
        """Draw the images x after looking at them.

        Args:
          params: as `init` returns them.
          x: [B, S, S].
          noise: [G, B, Z], standard normal.
          output: (carry) -> what is kept of each glimpse; by default nothing.

        Returns:
          ScanResult: its carry has the last canvas [B, S, S], and aux the records of
          all glimpses, each [G, B, ...].
        """
        weights, rest = self.prepare(params)
        x = x.astype(dtype_of(params))
        return scan(
            self.glimpse,
            weights,
            (rest, x),
            self.initial_carry(x),
            noise,
            output=output,
            options=self.options,
        )

    def generate(self, params: Params, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Draw images from the prior.

        Args:
          params: as `init` returns them.
          z: [G, B, Z], standard normal.

        Returns:
          (canvas [G, B, S, S], numbers of the writing window [G, B, 5]) after every
          glimpse.
        """
        weights, rest = self.prepare(params)

        # Only the decoder runs: no image is read, and z comes from the prior.
        def one_glimpse(carry, z):
            decoder, canvas = carry
            dot = named_dot(weights)
            decoder, canvas, write = self.decode(dot, rest, decoder, canvas, z)
            return (decoder, canvas), (canvas, write)

        side = self.sizes.image_size
        start = self.initial_carry(jnp.zeros((z.shape[1], side, side), z.dtype))
        return jax.lax.scan(one_glimpse, (start.decoder, start.canvas), z)[1]


def dtype_of(params: Params) -> jax.typing.DTypeLike:
    """Return the dtype of images, noise and carry: float32 at least."""
    return arrays.wide_dtype(params["latent"]["w"].dtype)


def kl_from_standard(mu: jax.Array, log_s: jax.Array) -> jax.Array:
    """KL divergence of N(mu, s^2) from N(0, 1) in nats, summed over the last axis.

    sum 1/2 (mu^2 + s^2 - log s^2 - 1)
    """
    terms = jnp.square(mu) + jnp.exp(2 * log_s) - 2 * log_s - 1
    return 0.5 * jnp.sum(terms, axis=-1)
