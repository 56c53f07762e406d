"""Pictures of handwriting: ink, the density it was drawn from, and the window.

Pictures are uint8 [height, width, 3]. Ink is also written as SVG.

Shape letters: t steps, n points, U characters.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from experiments.rendering import pixels_of
from lnrepro.data.readers.handwriting import encode
from lnrepro.engine.experiment import Evaluation

from . import mixture
from .data import Lines
from .model import Network
from .writing import WrittenLine, positions, read_alignment, strokes_of, write

# Width of a picture, and height of a character's row, in inches.
WIDTH = 12.0
ROW_HEIGHT = 0.16
# Width of the pen, in points.
LINE_WIDTH = 1.4
INK = (20, 30, 90)
# Rows of the points at which a density is computed.
GRID = 48
# Speed of the pen in an SVG, and how long the written lines stay, in seconds.
STEPS_PER_SECOND = 60
PAUSE = 3.0
# `reading` shows the line with the longest text among this many.
READING_LINES = 20

Strokes = Sequence[np.ndarray]


class Frame(NamedTuple):
    """The rectangle around a line, in the coordinates of the data."""

    left: float
    top: float
    width: float
    height: float


def draw_all(
    network: Network, params: dict, lines: Lines, config: ConfigDict
) -> Evaluation:
    """Draw every picture of a trained network.

    Args:
      network: the network.
      params: its parameters.
      lines: a split of the data.
      config: `samples` says what is written; `seed` is the seed of the samples.

    Returns:
      Evaluation: `samples` (.png and .svg), each text of `config.samples.texts` with
      `config.samples.bias` and without a bias; `alignment` and `density` of the first
      of them; `reading`, the window on a line of the data.
    """
    wanted = config.samples
    key = jax.random.key(config.seed)
    texts = [encode(text)[0] for text in wanted.texts]
    written = []
    # Each text twice: neatly, and as the density has it.
    for i, bias in enumerate((wanted.bias, 0.0)):
        written += write(
            network,
            params,
            texts,
            jax.random.fold_in(key, i),
            bias=bias,
            steps=wanted.steps,
        )
    strokes = [strokes_of(lines.denormalise(line.steps)) for line in written]

    # A long line shows the most of the window.
    lengths = [len(lines[i]["text"]) for i in range(min(READING_LINES, len(lines)))]
    longest = int(np.argmax(lengths))
    line = lines[longest]
    phi = read_alignment(network, params, line["steps"], line["text"])
    read = strokes_of(lines.denormalise(line["steps"]))
    biased = f"with a bias of {wanted.bias:g}"
    captions = {
        "samples": f"written by the network: each text {biased}, then without a bias",
        "alignment": f"above: written {biased}. Below: the weight of each character "
        "(from top to bottom) while this part was written",
        "density": f"above: written {biased}. Below: the density of the next position",
        "reading": "above: a line of the data. Below: the weight of each character "
        "(from top to bottom) while this part was read",
    }
    images = {
        "samples": page(strokes),
        "alignment": alignment(strokes[0], written[0].phi, wanted.texts[0]),
        "density": density(written[0], lines),
        "reading": alignment(read, phi, lines.text(longest)),
    }
    return Evaluation({}, images, {"samples.svg": svg(strokes)}, captions)


def page(lines: Sequence[Strokes]) -> np.ndarray:
    """Draw lines below one another, all at one scale."""
    frames = [_frame(line) for line in lines]
    below, top = [], 0.0
    for line, frame in zip(lines, frames, strict=True):
        below += [stroke - [frame.left, frame.top - top] for stroke in line]
        top += 1.3 * max(frame.height, 1.0)
    figure, _ = _figure(below)
    return pixels_of(figure)


def svg(lines: Sequence[Strokes]) -> str:
    """Write the same as an SVG document in which the pen writes, again and again.

    Each line is a group, each stroke a path. Programs without animation show all of it.
    """
    frames = [_frame(line) for line in lines]
    gap = 0.3 * max(1.0, *(frame.height for frame in frames))
    usual_height = np.median([frame.height for frame in frames])
    line_width = 0.03 * max(usual_height, 1.0)
    steps = sum(len(stroke) for line in lines for stroke in line)
    seconds = steps / STEPS_PER_SECOND + PAUSE
    written, step, top, right = [], 0, 0.0, 1.0
    for line, frame in zip(lines, frames, strict=True):
        offset = np.array([gap - frame.left, top + gap - frame.top])
        paths = []
        for stroke in line:
            first, step = step, step + len(stroke)
            times = [t / STEPS_PER_SECOND / seconds for t in (first, step)]
            paths.append(_svg_path(stroke + offset, times, seconds))
        written.append("\n".join(["<g>", *paths, "</g>"]))
        top += frame.height + gap
        right = max(right, frame.width)
    colour = "#{:02x}{:02x}{:02x}".format(*INK)
    body = "\n".join(written)
    # A dash as long as a stroke is moved onto it. Without animation there is no dash.
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {right + 2 * gap:.1f} {top + gap:.1f}">\n'
        '<rect width="100%" height="100%" fill="white"/>\n'
        f'<g fill="none" stroke="{colour}" stroke-width="{line_width:.1f}" '
        'stroke-linecap="round" stroke-linejoin="round">\n'
        '<set attributeName="stroke-dasharray" to="1 2"/>\n'
        f"{body}\n</g>\n</svg>\n"
    )


def _svg_path(points: np.ndarray, times: Sequence[float], seconds: float) -> str:
    """Return a stroke that is written between two times, as shares of `seconds`."""
    if len(points) == 1:
        # A path of one point draws nothing, and one without length has no dash.
        points = np.concatenate([points, points + 0.1])
    places = [f"{x:.1f},{y:.1f}" for x, y in points]
    moves = "M" + " L".join(places)
    # The dash starts a little before the stroke, where its round end is not seen.
    return (
        f'<path pathLength="1" d="{moves}">'
        '<animate attributeName="stroke-dashoffset" values="1.1;1.1;0;0" '
        f'keyTimes="0;{times[0]:.4f};{times[1]:.4f};1" dur="{seconds:.2f}s" '
        'repeatCount="indefinite"/></path>'
    )


def alignment(strokes: Strokes, phi: np.ndarray, text: str) -> np.ndarray:
    """Draw a line and, below it, the weights of the window.

    Each character has a row, which is darker where the window weighs it more. A step's
    weights stand below the place that the pen had reached.

    Args:
      strokes: the line.
      phi: [t, U].
      text: U characters.
    """
    figure, axes = _figure(strokes, below=ROW_HEIGHT * len(text))
    x = np.concatenate(strokes)[-len(phi) :, 0]
    place, character = np.meshgrid(x, np.arange(len(text)), indexing="ij")
    # The largest weights are drawn last, and so are seen.
    order = np.argsort(phi[-len(x) :], axis=None)
    axes.scatter(
        place.ravel()[order],
        character.ravel()[order],
        c=phi[-len(x) :].ravel()[order],
        cmap="Greys",
        vmin=0,
        vmax=1,
        marker="s",
        linewidths=0,
    )
    axes.set_ylim(len(text) - 0.5, -0.5)
    axes.set_yticks(range(len(text)), list(text))
    return pixels_of(figure)


def density(written: WrittenLine, lines: Lines) -> np.ndarray:
    """Draw a line and, below it, where the network expected the next point.

    The densities of all steps are added, each scaled to its largest value. Brightness
    is the square root of the sum (Graves 2013, fig. 10).

    Args:
      written: the line.
      lines: gives the scale of the coordinates.
    """
    steps = lines.denormalise(written.steps)
    strokes = strokes_of(steps)
    frame = _frame(strokes)
    shape = (GRID, max(2, int(GRID * frame.width / max(frame.height, 1.0))))
    y, x = (np.linspace(0, 1, n) for n in shape)
    x, y = np.meshgrid(frame.left + x * frame.width, frame.top + y * frame.height)
    places = np.stack([x, y], axis=-1)

    def add_step(total, step):
        outputs, before = step
        m = mixture.split(outputs)
        offset = (places - before - lines.mean) / lines.std
        log_p = jax.nn.logsumexp(m.log_pi + mixture.log_normals(m, offset), axis=-1)
        return total + jnp.exp(log_p - log_p.max()), None

    before = positions(steps)[:-1].astype(np.float32)
    each = (jnp.asarray(written.outputs), before)
    heat, _ = jax.jit(lambda each: jax.lax.scan(add_step, jnp.zeros(shape), each))(each)
    figure, axes = _figure(strokes, below=None)
    extent = (frame.left, frame.left + frame.width, frame.top + frame.height, frame.top)
    axes.imshow(np.sqrt(heat), "hot", extent=extent, aspect="auto")
    axes.axis("off")
    return pixels_of(figure)


def _figure(strokes: Strokes, below: float | None = 0.0) -> tuple[Any, Any]:
    """Draw a line of ink.

    Args:
      strokes: the line.
      below: height in inches of the axes below the line, which share its x. None takes
        the height of the line.

    Returns:
      (figure, the axes below the line)
    """
    from matplotlib.figure import Figure

    frame = _frame(strokes)
    height = np.clip(WIDTH * frame.height / max(frame.width, 1.0), 0.5, WIDTH)
    below = height if below is None else below
    figure = Figure(figsize=(WIDTH, height + below), dpi=100, layout="constrained")
    ratios = (height, max(below, 1e-3))
    ink, axes = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
    colour = np.divide(INK, 255)
    for stroke in strokes:
        # The markers are round ends, and the dot of a stroke of one point.
        ink.plot(*stroke.T, color=colour, linewidth=LINE_WIDTH, marker=".", ms=2)
    ink.set_aspect("equal", "datalim")
    ink.invert_yaxis()
    ink.axis("off")
    axes.tick_params(bottom=False, labelbottom=False, left=False)
    axes.set_visible(bool(below))
    return figure, axes


def _frame(strokes: Strokes) -> Frame:
    points = np.concatenate(strokes) if strokes else np.zeros((1, 2))
    low, high = points.min(0), points.max(0)
    return Frame(*low, *(high - low))
