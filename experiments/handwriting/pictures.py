"""Handwriting as pictures: ink as uint8 (H, W, 3) and as SVG, the density it was drawn from, and what the window saw."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lnrepro.data.official.iam_ondb import encode
from lnrepro.engine.experiment import Evaluation

from . import mixture
from .lines import Lines
from .writing import Written, read_alignment, write

HEIGHT = 110  # pixels of a picture's row of ink at most, and the room for it
MARGIN = 14
INK = (20, 30, 90)
FINE = 3  # ink is drawn so many times larger and then reduced


def all_of(network, params: dict, lines: Lines, config) -> Evaluation:
    """Pictures of a trained network: `samples` (as .png and .svg) of config.samples.texts, each unbiased and with
    config.samples.bias; `alignment` and `density` of the first; `reading`, the window on a line of the test set."""
    import jax

    wanted, key = config.samples, jax.random.key(config.seed)
    texts = [encode(text)[0] for text in wanted.texts]
    made = [
        written
        for i, bias in enumerate((wanted.bias, 0.0))
        for written in write(
            network,
            params,
            texts,
            jax.random.fold_in(key, i),
            bias=bias,
            steps=wanted.steps,
        )
    ]
    strokes = [strokes_of(lines.original(w.steps)) for w in made]
    longest = int(
        np.argmax([len(lines[i]["text"]) for i in range(min(20, len(lines)))])
    )
    line = lines[longest]
    phi = read_alignment(network, params, line["steps"], line["text"])
    reading = strokes_of(lines.original(line["steps"]))
    images = {
        "samples": page(strokes),
        "alignment": aligned(strokes[0], made[0].phi, wanted.texts[0]),
        "density": density(made[0], lines),
        "reading": aligned(reading, phi, lines.text(longest)),
    }
    return Evaluation({}, images, {"samples.svg": svg(strokes)})


def strokes_of(steps: np.ndarray, lifted: bool = False) -> list[np.ndarray]:
    """Offsets (t, 3) in the data's coordinates -> strokes, each (n, 2) points, y downwards, the pen starting at (0, 0).

    lifted: it was up there, so that the first offset is no ink.
    """
    points = np.concatenate([[[0.0, 0.0]], np.cumsum(steps[:, :2], axis=0)])
    ends = np.flatnonzero(steps[:, 2] > 0.5) + 1
    cuts = [*([1] if lifted else []), *(ends + 1)]
    strokes = np.split(points, cuts)[lifted:] if len(steps) else []
    return [stroke for stroke in strokes if len(stroke)]


def page(lines: list[list[np.ndarray]]) -> np.ndarray:
    """Lines of strokes below one another, all at one scale: (H, W, 3) uint8."""
    frames = [_frame(line) for line in lines]
    scale = min(
        HEIGHT / max(np.median([h for *_, h in frames]), 1.0),
        2400 / max(max(w for _, _, w, _ in frames), 1.0),
    )
    rows = [_ink(line, frame, scale) for line, frame in zip(lines, frames, strict=True)]
    return _stacked(rows)


def svg(lines: list[list[np.ndarray]]) -> str:
    """The same as an SVG document, a path a line, in the data's coordinates."""
    paths, top, wide = [], 0.0, 1.0
    frames = [_frame(line) for line in lines]
    gap = 0.3 * max(max(h for *_, h in frames), 1.0)
    thick = 0.03 * max(np.median([h for *_, h in frames]), 1.0)
    for line, (left, up, width, height) in zip(lines, frames, strict=True):
        moves = []
        for stroke in line:
            x, y = (stroke - [left, up] + [gap, top + gap]).T
            places = [f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True)]
            moves.append("M" + " L".join(places if len(places) > 1 else places * 2))
        paths.append(f'<path d="{" ".join(moves)}"/>')
        top, wide = top + height + gap, max(wide, width)
    colour = "#{:02x}{:02x}{:02x}".format(*INK)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide + 2 * gap:.1f} {top + gap:.1f}">\n'
        f'<g fill="none" stroke="{colour}" stroke-width="{thick:.1f}" stroke-linecap="round" stroke-linejoin="round">\n'
        + "\n".join(paths)
        + "\n</g>\n</svg>\n"
    )


def aligned(strokes: list[np.ndarray], phi: np.ndarray, text: str) -> np.ndarray:
    """The line, and below it the window's weights phi (t, U): a row of pixels for a character of the text, darker where
    it weighs more, against the place in the line that the step reached."""
    frame = _frame(strokes)
    ink = _ink(strokes, frame, _scale(frame))
    scale, cell = _scale(frame), 14
    x = (np.concatenate(strokes)[-len(phi) :, 0] - frame[0]) * scale + MARGIN
    weight, count = np.zeros((phi.shape[1], ink.shape[1])), np.zeros(ink.shape[1])
    for place, row in zip(
        np.clip(x.astype(int), 0, ink.shape[1] - 1), phi, strict=False
    ):
        weight[:, place : place + 3] += row[:, None]
        count[place : place + 3] += 1
    weight = np.clip(weight / np.maximum(count, 1), 0, 1)
    grey = np.kron(
        np.rint(255 * (1 - weight)).astype(np.uint8), np.ones((cell, 1), np.uint8)
    )
    table = Image.fromarray(np.repeat(grey[..., None], 3, -1))
    letters = Image.new("RGB", (20, table.height), "white")
    font = ImageFont.load_default(12)
    for u, character in enumerate(text):
        ImageDraw.Draw(letters).text((6, u * cell), character, fill="black", font=font)
    wide = lambda picture, left: np.concatenate([left, picture], axis=1)  # noqa: E731
    blank = np.full((len(ink), 20, 3), 255, np.uint8)
    return _stacked([wide(ink, blank), wide(np.asarray(table), np.asarray(letters))])


def density(written: Written, lines: Lines) -> np.ndarray:
    """Where the network expected the next point, summed over the steps of a line, over the line itself (Graves, fig. 10).

    Brightness is the square root of the density, each step's scaled to its largest value.
    """
    strokes = strokes_of(lines.original(written.steps), written.lifted)
    frame = _frame(strokes)
    ink, scale = _ink(strokes, frame, _scale(frame)), _scale(frame)
    heat = np.zeros(ink.shape[:2])
    at = np.concatenate(
        [[[0.0, 0.0]], np.cumsum(lines.original(written.steps)[:-1, :2], axis=0)]
    )
    m = mixture.split(written.outputs)
    mu, sigma = (
        np.stack(m.mu, -1) * lines.std + lines.mean,
        np.exp(np.stack(m.log_sigma, -1)) * lines.std,
    )
    centres = (at[:, None] + mu - frame[:2]) * scale + MARGIN
    sigma, rho, pi = (
        np.maximum(sigma * scale, 0.7),
        np.tanh(np.asarray(m.rho_hat)),
        np.exp(np.asarray(m.log_pi)),
    )
    for c, s, r, p in zip(centres, sigma, rho, pi, strict=True):
        heavy = p > 0.02
        low = np.clip(np.floor((c - 3 * s)[heavy].min(0)), 0, None).astype(int)
        high = np.minimum(
            np.ceil((c + 3 * s)[heavy].max(0)).astype(int) + 1, heat.shape[::-1]
        )
        if (high <= low).any():
            continue
        x, y = np.meshgrid(np.arange(low[0], high[0]), np.arange(low[1], high[1]))
        a, b = (
            (v[..., None] - c[heavy, i]) / s[heavy, i] for i, v in enumerate((x, y))
        )
        z = (a**2 + b**2 - 2 * r[heavy] * a * b) / (1 - r[heavy] ** 2)
        one = (
            p[heavy] * np.exp(-z / 2) / (s[heavy].prod(-1) * np.sqrt(1 - r[heavy] ** 2))
        ).sum(-1)
        heat[low[1] : high[1], low[0] : high[0]] += one / max(one.max(), 1e-12)
    heat = np.sqrt(heat / max(heat.max(), 1e-12))
    colours = np.stack([np.clip(3 * heat - k, 0, 1) for k in range(3)], -1)
    return _stacked([ink, np.rint(255 * colours).astype(np.uint8)])


def _frame(strokes: list[np.ndarray]) -> tuple[float, float, float, float]:
    """Left, top, width, height of a line."""
    points = np.concatenate(strokes) if strokes else np.zeros((1, 2))
    low, high = points.min(0), points.max(0)
    return (*low, *(high - low))


def _scale(frame) -> float:
    return min(HEIGHT / max(frame[3], 1.0), 2400 / max(frame[2], 1.0))


def _ink(strokes, frame, scale: float) -> np.ndarray:
    left, top, width, height = frame
    size = [int(v * scale) + 2 * MARGIN for v in (width, height)]
    picture = Image.new("RGB", tuple(FINE * v for v in size), "white")
    pen = ImageDraw.Draw(picture)
    thick = 2 * FINE
    for stroke in strokes:
        points = [tuple(p) for p in ((stroke - [left, top]) * scale + MARGIN) * FINE]
        if len(points) > 1:
            pen.line(points, fill=INK, width=thick, joint="curve")
        for x, y in (points[0], points[-1]):
            pen.ellipse(
                [x - thick / 2, y - thick / 2, x + thick / 2, y + thick / 2], fill=INK
            )
    return np.asarray(picture.resize(size, Image.Resampling.LANCZOS))


def _stacked(pictures: list[np.ndarray]) -> np.ndarray:
    """Pictures of different widths below one another, on white."""
    wide = max(p.shape[1] for p in pictures)
    return np.concatenate(
        [
            np.pad(p, ((0, 0), (0, wide - p.shape[1]), (0, 0)), constant_values=255)
            for p in pictures
        ]
    )
