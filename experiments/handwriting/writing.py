"""Sampling of handwriting (Graves 2013, sections 5.3 and 5.4).

Shape letters: B texts, T time, t steps of one line, n points, U characters, V symbols,
M Gaussians.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import mixture
from .model import START, Network
from .window import gaussians_of, one_hot, weights_of_characters

# Steps in one call of the compiled program.
CHUNK = 50
# Texts are padded to a multiple of this length, so that few programs are compiled.
PAD_TEXTS_TO = 16


class WrittenLine(NamedTuple):
    """A sampled line.

    Attributes:
      steps: [t, 3], normalised.
      phi: [t, U], weights of the window when the step was drawn.
      ended: whether the text ended before the steps did.
    """

    steps: np.ndarray
    phi: np.ndarray
    ended: bool


class _State(NamedTuple):
    """The carry of sampling from step to step.

    Attributes:
      carry: the carry of the network.
      density: [B, 1 + 6M], the density of the next step.
      done: [B], whether the text has ended.
    """

    carry: dict
    density: jax.Array
    done: jax.Array


def write(
    network: Network,
    params: dict,
    texts: list[np.ndarray],
    key: jax.Array,
    *,
    bias: float = 0.0,
    steps: int = 1000,
) -> list[WrittenLine]:
    """Sample lines of handwriting.

    A line ends when the window has left its text, or after `steps` steps.

    Args:
      network: the network.
      params: its parameters.
      texts: numbers of the symbols of each text.
      key: random key.
      bias: 0 samples from the density itself; larger values write more neatly (eq. 61,
        62).
      steps: largest number of steps of a line.
    """
    lengths = jnp.array([len(text) for text in texts])
    width = -(-int(lengths.max()) // PAD_TEXTS_TO) * PAD_TEXTS_TO
    padded = np.stack([np.pad(text, (0, width - len(text))) for text in texts])
    text = one_hot(padded, lengths, network.sizes.symbols)
    state = _start(network, params, text)
    parts, taken = [], 0
    while taken < steps and not state.done.all():
        # The key depends on the step, so that a longer limit writes the same beginning.
        chunk_key = jax.random.fold_in(key, taken)
        state, part = _draw_chunk(
            network, params, state, text, lengths, chunk_key, jnp.float32(bias)
        )
        parts.append(jax.device_get(part))
        taken += CHUNK
    drawn, phi, done = (
        np.concatenate(arrays)[:steps] for arrays in zip(*parts, strict=True)
    )
    lines = []
    # Texts end at different steps. What was drawn after the end is dropped.
    for b, symbols in enumerate(texts):
        ended = bool(done[-1, b])
        t = int(done[:, b].argmax()) + 1 if ended else len(done)
        line = WrittenLine(
            steps=drawn[:t, b],
            phi=phi[:t, b, : len(symbols)],
            ended=ended,
        )
        lines.append(line)
    return lines


def strokes_of(steps: np.ndarray) -> list[np.ndarray]:
    """Turn steps into strokes, each [n, 2] points with y downwards.

    Args:
      steps: [t, 3], offsets in the coordinates of the data. The pen starts at (0, 0).
    """
    # Point 0 is the start of the pen, so that step i leads to point i + 1, and a stroke
    # that ends there is cut behind it.
    points = np.concatenate([[[0.0, 0.0]], np.cumsum(steps[:, :2], axis=0)])
    strokes = np.split(points, np.flatnonzero(steps[:, 2] > 0.5) + 2)
    return [stroke for stroke in strokes if len(stroke)]


@partial(jax.jit, static_argnums=0)
def _start(network: Network, params: dict, text: jax.Array) -> _State:
    """Return the state after `START` for all texts [B, U, V], as in training."""
    rows = len(text)
    x = jnp.broadcast_to(jnp.array(START, jnp.float32), (1, rows, 3))
    result = network.run(params, x, text)
    return _State(result.carry, result.density[-1], jnp.zeros(rows, bool))


@partial(jax.jit, static_argnums=0)
def _draw_chunk(network, params, state, text, lengths, key, bias):
    """Draw CHUNK steps.

    A text has ended when the window gives the place behind it the largest weight and
    the stroke has ended.

    Returns:
      (state, (steps [CHUNK, B, 3], phi [CHUNK, B, U + 1], done [CHUNK, B]))
    """
    places = text.shape[1] + 1
    beyond = jnp.arange(places) > lengths[:, None]
    layer1 = params["lstm1"]

    def one_step(state, key):
        x = mixture.draw(key, mixture.split(state.density, bias))
        result = network.step(params, state.carry, x, text)
        # The window of this step, once more: the cell returns what the window shows,
        # not its weights. One place more than characters tells when it has left the
        # text (Graves 2013, section 5.3).
        _, h = result.carry["lstm1"].lstm
        numbers = h @ layer1["window"] + layer1["window_bias"]
        gaussians = gaussians_of(numbers, state.carry["lstm1"].kappa)
        phi = weights_of_characters(*gaussians, places)
        # Behind its own end, a padded text has no places that count.
        place = jnp.argmax(jnp.where(beyond, -1.0, phi), axis=-1)
        # Ending within a stroke would cut the last letter.
        stroke_ends = x[:, 2] > 0.5
        done = state.done | ((place == lengths) & stroke_ends)
        new_state = _State(result.carry, result.density, done)
        return new_state, (x, phi, done)

    return jax.lax.scan(one_step, state, jax.random.split(key, CHUNK))
