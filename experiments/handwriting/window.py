"""The soft window over a text (Graves 2013, eq. 46-51) as a wrapper of a recurrent cell: the cell that reads and writes.

    h_t = cell([x_t; w_{t-1}], h_{t-1});   (alpha^, beta^, kappa^) = W h_t + b
    alpha = exp(alpha^);   beta = exp(beta^);   kappa_t = kappa_{t-1} + exp(kappa^)
    phi(t, u) = sum_k alpha_k exp(-beta_k (kappa_k - u)^2);   w_t = sum_u phi(t, u) c_u,   u = 1..U

Letters: B batch, U characters, V symbols, K Gaussians of the window, H units, N pre-activations.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional import Cell, Tick

_NO_TICK = Tick()


class Reading(NamedTuple):
    """The carry: the cell's own, where the K Gaussians stand (B, K), and what the window shows, w (B, V)."""

    inner: tuple
    kappa: jax.Array
    seen: jax.Array


def reading(cell: Cell, symbols: int, gaussians: int, kappa_bias: float) -> Cell:
    """The cell (without batch norm) and a window of K = `gaussians` on a text; its output is [h_t; w_t] (..., H + V).

    The text is the `constants` of `unroll` and `Tick`: (B, U, V), one-hot characters and zeros after the text's end.
    Parameters besides the cell's: "w_w" (V, N), the part of W_x for the window, under the same norm as the part for
    x_t; "window" (H, 3K) and "window_bias" (3K,), whose part for kappa^ starts at `kappa_bias`.
    """
    K = gaussians

    def spec(features_in):
        made = cell.spec(features_in)
        start, (_, pre) = made["w_x"]
        bias = jnp.repeat(jnp.array([0.0, 0.0, kappa_bias]), K)
        return made | {
            "w_w": (start, (symbols, pre)),
            "window": (
                lambda key, shape, dtype: 0.075 * jax.random.normal(key, shape, dtype),
                (cell.features, 3 * K),
            ),
            "window_bias": (lambda key, shape, dtype: bias.astype(dtype), (3 * K,)),
        }

    def carry(params, like):
        inner = cell.carry(params, like)
        zero = cell.output(inner)[..., :1] * 0
        return Reading(
            inner,
            zero + jnp.zeros(K, zero.dtype),
            zero + jnp.zeros(symbols, zero.dtype),
        )

    def local(params):
        own = {
            name: v
            for name, v in params.items()
            if name not in ("w_w", "window", "window_bias")
        }
        from_window = cell.kernels(own | {"w_x": params["w_w"]}).x
        return {
            "cell": cell.local(own),
            "w_w": from_window,
            "w": params["window"],
            "b": params["window_bias"],
        }

    def pointwise(params, before, px, ph, tick=_NO_TICK):
        px = px + before.seen @ params["w_w"].astype(px.dtype)
        inner, aside = cell.pointwise(params["cell"], before.inner, px, ph, tick)
        gaussians = spread(cell.output(inner) @ params["w"] + params["b"], before.kappa)
        seen = jnp.einsum(
            "...u,...uv->...v",
            weights(*gaussians, tick.constants.shape[-2]),
            tick.constants,
        )
        return Reading(inner, gaussians[2], seen), aside

    def output(carry):
        return jnp.concatenate([cell.output(carry.inner), carry.seen], axis=-1)

    return cell._replace(
        features=cell.features + symbols,
        spec=spec,
        carry=carry,
        pointwise=pointwise,
        output=output,
        reads=lambda carry, tick: cell.reads(carry.inner, tick),
        local=local,
    )


def spread(
    numbers: jax.Array, kappa: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Numbers (..., 3K) and the last kappa (..., K) -> alpha, beta, kappa, each (..., K) (eq. 48-51)."""
    alpha, beta, step = jnp.split(jnp.exp(numbers), 3, axis=-1)
    return alpha, beta, kappa + step


def weights(
    alpha: jax.Array, beta: jax.Array, kappa: jax.Array, characters: int
) -> jax.Array:
    """phi(t, u), u = 1..U: (..., U) (eq. 46)."""
    distance = kappa[..., None] - jnp.arange(1, characters + 1)
    return jnp.sum(
        alpha[..., None] * jnp.exp(-beta[..., None] * jnp.square(distance)), axis=-2
    )


def alignment(params: dict, h: jax.Array, characters: int) -> jax.Array:
    """phi of a whole sequence from the cell's outputs h (T, ..., H): (T, ..., U)."""
    alpha, beta, step = spread(h @ params["window"] + params["window_bias"], 0.0)
    return weights(alpha, beta, jnp.cumsum(step, axis=0), characters)


def one_hot(tokens: jax.Array, lengths: jax.Array, symbols: int) -> jax.Array:
    """Symbol numbers (B, U) of texts of given lengths (B,) -> (B, U, V), zeros beyond a text's end."""
    there = jnp.arange(tokens.shape[-1]) < lengths[:, None]
    return jax.nn.one_hot(tokens, symbols) * there[..., None]
