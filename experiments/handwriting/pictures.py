"""Pictures of handwriting: ink, and the window.

Pictures are uint8 [height, width, 3]. Ink is also written as SVG.

Shape letters: t steps, n points, U characters.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from experiments.rendering import pixels_of
from lnrepro.data.readers.handwriting import encode
from lnrepro.engine.experiment import Evaluation

from .data import Lines
from .model import Network
from .writing import strokes_of, write

# Width of a picture, and height of a character's row, in inches.
WIDTH = 12.0
ROW_HEIGHT = 0.16
# Width of the pen, in points.
LINE_WIDTH = 1.4
INK = "#141e5a"
# Speed of the pen in an SVG, and how long the written lines stay, in seconds.
STEPS_PER_SECOND = 60
PAUSE = 3.0

Strokes = Sequence[np.ndarray]


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
      `config.samples.bias` and without a bias; `alignment` of the first of them.
    """
    wanted = config.samples
    key = jax.random.key(config.seed)
    texts = [encode(text) for text in wanted.texts]
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

    biased = f"with a bias of {wanted.bias:g}"
    files = {
        "samples.svg": svg(strokes),
        "samples.txt": f"written by the network: each text {biased}, then without one",
        "alignment.txt": f"above: written {biased}. Below: the weight of each "
        "character (from top to bottom) while this part was written",
    }
    images = {
        "samples": page(strokes),
        "alignment": alignment(strokes[0], written[0].phi, wanted.texts[0]),
    }
    return Evaluation({}, images, files)


def page(lines: Sequence[Strokes]) -> np.ndarray:
    """Draw lines below one another, all at one scale."""
    placed, _, _, _ = _placed(lines)
    figure, _ = _figure([stroke for line in placed for stroke in line])
    return pixels_of(figure)


def _placed(lines):
    """Return lines below one another, the width and height of all, and of a line."""
    corners, sizes = zip(*map(_frame, lines), strict=True)
    widths, heights = np.transpose(sizes)
    usual_height = max(1.0, np.median(heights))
    gap = 0.3 * usual_height
    placed, top = [], gap
    for line, corner, height in zip(lines, corners, heights, strict=True):
        offset = np.array([gap, top]) - corner
        placed.append([stroke + offset for stroke in line])
        top += height + gap
    return placed, max(1.0, widths.max()) + 2 * gap, top, usual_height


def svg(lines: Sequence[Strokes]) -> str:
    """Write the same as an SVG document in which the pen writes, again and again.

    Each line is a group, each stroke a path. The finished lines are shown first, and
    alone by programs without animation.
    """
    placed, width, height, usual_height = _placed(lines)
    steps = sum(len(stroke) for line in lines for stroke in line)
    seconds = steps / STEPS_PER_SECOND + PAUSE
    written, step = [], 0
    for line in placed:
        paths = []
        for stroke in line:
            first, step = step, step + len(stroke)
            times = [(PAUSE + t / STEPS_PER_SECOND) / seconds for t in (first, step)]
            paths.append(_svg_path(stroke, times, seconds))
        written.append("\n".join(["<g>", *paths, "</g>"]))
    body = "\n".join(written)
    # A dash as long as a stroke is moved onto it. Without animation there is no dash.
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {width:.1f} {height:.1f}">\n'
        '<rect width="100%" height="100%" fill="white"/>\n'
        f'<g fill="none" stroke="{INK}" stroke-width="{0.03 * usual_height:.1f}" '
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
    # The dash lies on the stroke, then a little before it, where its round end is not
    # seen, and moves onto it.
    pause = f"{PAUSE / seconds:.4f}"
    return (
        f'<path pathLength="1" d="{moves}">'
        '<animate attributeName="stroke-dashoffset" values="0;0;1.1;1.1;0;0" '
        f'keyTimes="0;{pause};{pause};{times[0]:.4f};{times[1]:.4f};1" '
        f'dur="{seconds:.2f}s" '
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
    phi = phi[-len(x) :]
    place, character = np.meshgrid(x, np.arange(len(text)), indexing="ij")
    # The largest weights are drawn last, and so are seen.
    order = np.argsort(phi, axis=None)
    axes.scatter(
        place.ravel()[order],
        character.ravel()[order],
        c=phi.ravel()[order],
        cmap="Greys",
        vmin=0,
        vmax=1,
        marker="s",
        linewidths=0,
    )
    axes.set_ylim(len(text) - 0.5, -0.5)
    axes.set_yticks(range(len(text)), list(text))
    return pixels_of(figure)


def _figure(strokes: Strokes, below: float = 0.0) -> tuple[Any, Any]:
    """Draw a line of ink.

    Args:
      strokes: the line.
      below: height in inches of the axes below the line, which share its x.

    Returns:
      (figure, the axes below the line)
    """
    from matplotlib.figure import Figure

    _, (width, height) = _frame(strokes)
    height = np.clip(WIDTH * height / max(width, 1.0), 0.5, WIDTH)
    figure = Figure(figsize=(WIDTH, height + below), dpi=100, layout="constrained")
    ratios = (height, max(below, 1e-3))
    ink, axes = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
    for stroke in strokes:
        # The markers are round ends, and the dot of a stroke of one point.
        ink.plot(*stroke.T, color=INK, linewidth=LINE_WIDTH, marker=".", ms=2)
    ink.set_aspect("equal", "datalim")
    ink.invert_yaxis()
    ink.axis("off")
    axes.tick_params(bottom=False, labelbottom=False, left=False)
    axes.set_visible(bool(below))
    return figure, axes


def _frame(strokes: Strokes) -> tuple[np.ndarray, np.ndarray]:
    """Return the upper left corner [2] and the size [2] of a line."""
    points = np.concatenate(strokes)
    return points.min(0), np.ptp(points, 0)
