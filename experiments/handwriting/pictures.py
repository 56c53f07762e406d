"""Pictures of handwriting: ink, the density it was drawn from, and the window.

Pictures are uint8 [height, width, 3]. Ink is also written as SVG.

Shape letters: t steps, n points, U characters.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from lnrepro.data.readers.handwriting import encode
from lnrepro.engine.experiment import Evaluation

from . import mixture
from .data import Lines
from .model import Network
from .writing import WrittenLine, positions, read_alignment, strokes_of, write

# Largest height and width of a line of ink, and the margin around it, in pixels.
HEIGHT = 110
WIDTH = 2400
MARGIN = 14
INK = (20, 30, 90)
# Ink is drawn this many times larger and then reduced.
OVERSAMPLING = 3
# Height of a character's row, and width of its letter, in a picture of the window.
CELL = 14
LETTER_WIDTH = 20
# Gaussians with a smaller weight are left out of a picture of the density.
MIN_WEIGHT = 0.02
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
    # One high or wide line must not make all others small.
    usual_height = np.median([frame.height for frame in frames])
    largest_width = max(frame.width for frame in frames)
    scale = _scale(usual_height, largest_width)
    rows = [_ink(line, frame, scale) for line, frame in zip(lines, frames, strict=True)]
    return _stack(rows)


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
    from PIL import Image, ImageDraw, ImageFont

    frame = _frame(strokes)
    scale = _scale(frame.height, frame.width)
    ink = _ink(strokes, frame, scale)
    width = ink.shape[1]
    x = (np.concatenate(strokes)[-len(phi) :, 0] - frame.left) * scale + MARGIN
    columns = np.clip(x.astype(int), 0, width - 1)
    weight, count = np.zeros((phi.shape[1], width)), np.zeros(width)
    # A step is drawn three pixels wide, which closes most gaps between steps.
    for column, row in zip(columns, phi, strict=False):
        weight[:, column : column + 3] += row[:, None]
        count[column : column + 3] += 1
    weight = np.clip(weight / np.maximum(count, 1), 0, 1)
    grey = np.rint(255 * (1 - weight)).astype(np.uint8)
    table = np.repeat(np.repeat(grey, CELL, axis=0)[..., None], 3, axis=-1)
    letters = Image.new("RGB", (LETTER_WIDTH, len(table)), "white")
    pen, font = ImageDraw.Draw(letters), ImageFont.load_default(12)
    for u, character in enumerate(text):
        pen.text((6, u * CELL), character, fill="black", font=font)
    blank = np.full((len(ink), LETTER_WIDTH, 3), 255, np.uint8)
    above = np.concatenate([blank, ink], axis=1)
    below = np.concatenate([np.asarray(letters), table], axis=1)
    return _stack([above, below])


def density(written: WrittenLine, lines: Lines) -> np.ndarray:
    """Draw a line and, below it, where the network expected the next point.

    The densities of all steps are added, each scaled to its largest value. Brightness
    is the square root of the sum (Graves 2013, fig. 10).

    Args:
      written: the line.
      lines: gives the scale of the coordinates.
    """
    steps = lines.denormalise(written.steps)
    strokes = strokes_of(steps, written.lifted)
    frame = _frame(strokes)
    scale = _scale(frame.height, frame.width)
    ink = _ink(strokes, frame, scale)
    m = mixture.split(written.outputs)
    before = positions(steps)[:-1]
    mean = before[:, None] + np.stack(m.mu, -1) * lines.std + lines.mean
    centre = (mean - [frame.left, frame.top]) * scale + MARGIN
    sigma = np.exp(np.stack(m.log_sigma, -1)) * lines.std * scale
    sigma = np.maximum(sigma, 0.7)
    rho, weight = np.tanh(np.asarray(m.rho_hat)), np.exp(np.asarray(m.log_pi))
    heat = np.zeros(ink.shape[:2])
    # Step by step, because most Gaussians are narrow and touch few pixels.
    for step in range(len(centre)):
        heavy = weight[step] > MIN_WEIGHT
        _add_density(
            heat,
            centre[step, heavy],
            sigma[step, heavy],
            rho[step, heavy],
            weight[step, heavy],
        )
    heat = np.sqrt(heat / max(heat.max(), 1e-12))
    colours = np.stack([np.clip(3 * heat - k, 0, 1) for k in range(3)], -1)
    return _stack([ink, np.rint(255 * colours).astype(np.uint8)])


def _add_density(
    heat: np.ndarray,
    centre: np.ndarray,
    sigma: np.ndarray,
    rho: np.ndarray,
    weight: np.ndarray,
) -> None:
    """Add a mixture, scaled to a largest value of 1, to a map of pixels.

    Args:
      heat: [height, width], changed in place within three standard deviations.
      centre: [M, 2] in pixels.
      sigma: [M, 2] in pixels.
      rho: [M].
      weight: [M].
    """
    low = np.clip(np.floor((centre - 3 * sigma).min(0)), 0, None).astype(int)
    high = np.ceil((centre + 3 * sigma).max(0)).astype(int) + 1
    high = np.minimum(high, heat.shape[::-1])
    if (high <= low).any():
        return
    x, y = np.meshgrid(np.arange(low[0], high[0]), np.arange(low[1], high[1]))
    a = (x[..., None] - centre[:, 0]) / sigma[:, 0]
    b = (y[..., None] - centre[:, 1]) / sigma[:, 1]
    one_minus_rho2 = 1 - rho**2
    z = (a**2 + b**2 - 2 * rho * a * b) / one_minus_rho2
    height = weight / (sigma.prod(-1) * np.sqrt(one_minus_rho2))
    total = (height * np.exp(-z / 2)).sum(-1)
    heat[low[1] : high[1], low[0] : high[0]] += total / max(total.max(), 1e-12)


def _frame(strokes: Strokes) -> Frame:
    points = np.concatenate(strokes) if strokes else np.zeros((1, 2))
    low, high = points.min(0), points.max(0)
    return Frame(*low, *(high - low))


def _scale(height: float, width: float) -> float:
    """Return the pixels for a unit of the data that fit HEIGHT and WIDTH."""
    return min(HEIGHT / max(height, 1.0), WIDTH / max(width, 1.0))


def _ink(strokes: Strokes, frame: Frame, scale: float) -> np.ndarray:
    from PIL import Image, ImageDraw

    size = [int(side * scale) + 2 * MARGIN for side in (frame.width, frame.height)]
    large = tuple(OVERSAMPLING * side for side in size)
    picture = Image.new("RGB", large, "white")
    pen = ImageDraw.Draw(picture)
    thickness = 2 * OVERSAMPLING
    radius = thickness / 2
    for stroke in strokes:
        moved = (stroke - [frame.left, frame.top]) * scale + MARGIN
        points = [tuple(point) for point in moved * OVERSAMPLING]
        if len(points) > 1:
            pen.line(points, fill=INK, width=thickness, joint="curve")
        for x, y in (points[0], points[-1]):
            box = [x - radius, y - radius, x + radius, y + radius]
            pen.ellipse(box, fill=INK)
    return np.asarray(picture.resize(size, Image.Resampling.LANCZOS))


def _stack(pictures: list[np.ndarray]) -> np.ndarray:
    """Put pictures of different widths below one another, on white."""
    width = max(picture.shape[1] for picture in pictures)
    padded = []
    for picture in pictures:
        missing = ((0, 0), (0, width - picture.shape[1]), (0, 0))
        padded.append(np.pad(picture, missing, constant_values=255))
    return np.concatenate(padded)
