"""Sampling: a text in the network's hand, or in the style of a given line (Graves 2013, sections 5.3 to 5.5)."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import mixture
from .model import START, Network
from .window import alignment, gaussians_of, one_hot, weights_of_characters

CHUNK = 50  # steps per call of the compiled program


class Written(NamedTuple):
    """One text: steps (t, 3) normalised; y^ (t, 1 + 6M) of the density each was drawn from; phi (t, U), the window when
    it was drawn; whether the text came to its end before the steps did, and whether the pen was up at first."""

    steps: np.ndarray
    outputs: np.ndarray
    phi: np.ndarray
    ended: bool
    lifted: bool = False


class Style(NamedTuple):
    """A line to write like: its steps (t, 3), normalised, and its text's symbol numbers (u,)."""

    steps: np.ndarray
    text: np.ndarray


def write(
    network: Network,
    params: dict,
    texts: list[np.ndarray],
    key: jax.Array,
    *,
    bias: float = 0.0,
    steps: int = 1000,
    style: Style | None = None,
) -> list[Written]:
    """Draw each of some texts (symbol numbers) until the window has left it, in at most `steps` steps.

    bias: 0 draws from the density itself, larger values more neatly (eq. 61, 62). With a style, the network reads that
    line first and goes on with the new text behind it; what is returned begins there.
    """
    before = (
        np.zeros(0, int) if style is None else np.append(style.text, 1)
    )  # symbol 1 is the space
    whole = [np.concatenate([before, text]).astype(np.int32) for text in texts]
    lengths = jnp.array([len(text) for text in whole])
    longest = -(-max(len(text) for text in whole) // 16) * 16  # few compiled shapes
    padded = np.stack([np.pad(text, (0, longest - len(text))) for text in whole])
    text = one_hot(padded, lengths, network.sizes.symbols)
    read = (
        np.array([START], np.float32)
        if style is None
        else np.concatenate([[START], style.steps]).astype(np.float32)
    )
    state, y = _read(network, params, jnp.asarray(read), text)
    state = (state, y, jnp.zeros(len(texts), bool))
    parts, done = [], 0
    while done < steps and not state[2].all():
        state, part = _draw(
            network,
            params,
            state,
            text,
            lengths,
            jax.random.fold_in(key, done),
            jnp.float32(bias),
        )
        parts.append(jax.tree.map(np.asarray, part))
        done += CHUNK
    drawn, outputs, phi, over = (
        np.concatenate(p)[:steps] for p in zip(*parts, strict=True)
    )
    made = []
    for b in range(len(texts)):
        t = int(over[:, b].argmax()) + 1 if over[-1, b] else len(over)
        seen = phi[:t, b, len(before) : len(whole[b])]
        made.append(
            Written(
                drawn[:t, b], outputs[:t, b], seen, bool(over[-1, b]), style is not None
            )
        )
    return made


def read_alignment(
    network: Network, params: dict, steps: np.ndarray, text: np.ndarray
) -> np.ndarray:
    """phi (t, U) while the network reads a line, steps (t, 3) normalised, text (U,) symbol numbers."""
    seen = one_hot(
        jnp.asarray(text)[None], jnp.array([len(text)]), network.sizes.symbols
    )
    x = jnp.concatenate([jnp.array([START]), jnp.asarray(steps)[:-1]])[:, None]
    h = jax.jit(lambda params: network.run(params, x, seen)[2])(params)
    return np.asarray(alignment(params["lstm1"], h, len(text)))[:, 0]


@partial(jax.jit, static_argnums=0)
def _read(network, params, steps, text):
    """The state after steps (T, 3), the same for all texts (B, U, V), and the last y^ (B, 1 + 6M)."""
    x = jnp.broadcast_to(steps[:, None], (len(steps), len(text), 3))
    state, y, _ = network.run(params, x, text)
    return state, y[-1]


@partial(jax.jit, static_argnums=0)
def _draw(network, params, state, text, lengths, key, bias):
    """CHUNK steps; a row is done when the window weighs the place behind its text most, and the stroke has ended."""
    places = text.shape[1] + 1
    beyond = jnp.arange(places) > lengths[:, None]
    p = params["lstm1"]

    def one_step(state, key):
        carry, y, done = state
        x = mixture.draw(key, mixture.split(y, bias))
        new, later, h = network.step(params, carry, x, text)
        numbers = h @ p["window"] + p["window_bias"]
        gaussians = gaussians_of(numbers, carry["lstm1"].kappa)
        phi = weights_of_characters(*gaussians, places)
        left = jnp.argmax(jnp.where(beyond, -1.0, phi), axis=-1) == lengths
        done = done | (left & (x[:, 2] > 0.5))
        return (new, later, done), (x, y, phi, done)

    return jax.lax.scan(one_step, state, jax.random.split(key, CHUNK))
