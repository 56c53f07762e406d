"""What DRAW has learnt, as pictures: uint8 arrays (H, W, 3), white ink on black, windows as coloured frames."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from .attention import geometry
from .model import Draw, noise_of

EXAMPLES = 10  # images whose drawing is shown
SAMPLES = 100
SHOWN = 12  # glimpses in a strip
ZOOM = 4
READ, WRITE = (80, 220, 80), (255, 70, 70)


def all_of(
    draw: Draw, params: dict, images: np.ndarray, key: jax.Array
) -> dict[str, np.ndarray]:
    """Every picture of a trained network on some test images (B, S, S) of zeros and ones.

    `samples`: SAMPLES images from the prior; `samples_over_glimpses`: how they are drawn, as frames (F, H, W, 3);
    `glimpses`: for each image a row with what is read (green) over a row with what is written (red);
    `reconstructions`: pairs of an image and the mean of its reconstruction.
    """
    m, (sample_key, noise_key) = draw.sizes, jax.random.split(key)
    z = jax.random.normal(sample_key, (m.glimpses, SAMPLES, m.latents))
    drawn, windows = jax.tree.map(np.asarray, jax.jit(draw.generate)(params, z))
    x = images.astype(np.float32)
    noise = noise_of(noise_key, jnp.arange(len(x)), m)
    canvases, seen = jax.tree.map(np.asarray, jax.jit(draw.trace)(params, x, noise))

    shown = np.unique(
        np.linspace(0, m.glimpses - 1, min(SHOWN, m.glimpses)).round().astype(int)
    )
    frame_write = partial(_framed, draw, "write_size", WRITE)
    frame_read = partial(_framed, draw, "read_size", READ)
    strips = []
    for i in range(len(x)):
        strips.append([frame_read(_large(x[i]), seen.read[g, i]) for g in shown])
        strips.append(
            [
                frame_write(_large(_mean(canvases[g, i])), seen.write[g, i])
                for g in shown
            ]
        )

    few = range(min(16, SAMPLES))
    frames = [
        grid([frame_write(_large(_mean(drawn[g, i])), windows[g, i]) for i in few], 8)
        for g in range(m.glimpses)
    ]
    last = grid([_large(_mean(drawn[-1, i])) for i in few], 8)
    pairs = [
        _large(image, 2)
        for i in range(len(x))
        for image in (x[i], _mean(canvases[-1, i]))
    ]
    return {
        "samples": grid([_large(_mean(canvas), 2) for canvas in drawn[-1]], 10),
        "samples_over_glimpses": np.stack([*frames, *[last] * 12]),
        "glimpses": grid([cell for strip in strips for cell in strip], len(shown)),
        "reconstructions": grid(pairs, 10),
    }


def grid(cells: list[np.ndarray], columns: int) -> np.ndarray:
    """Equal pictures (H, W, 3) side by side, row by row, with a grey line between them."""
    height, width, _ = cells[0].shape
    rows = -(-len(cells) // columns)
    page = np.full(
        (rows * (height + 1) + 1, columns * (width + 1) + 1, 3), 70, np.uint8
    )
    for i, cell in enumerate(cells):
        top, left = (i // columns) * (height + 1) + 1, (i % columns) * (width + 1) + 1
        page[top : top + height, left : left + width] = cell
    return page


def _mean(canvas: np.ndarray) -> np.ndarray:
    return 0.5 * np.tanh(0.5 * canvas) + 0.5


def _large(image: np.ndarray, zoom: int = ZOOM) -> np.ndarray:
    """Ink (S, S) in 0..1 -> a picture (zoom S, zoom S, 3)."""
    grey = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    return np.repeat(
        np.kron(grey, np.ones((zoom, zoom), np.uint8))[..., None], 3, axis=-1
    )


def _framed(
    draw: Draw,
    points: str,
    colour: tuple[int, int, int],
    picture: np.ndarray,
    numbers: np.ndarray,
):
    """The picture with a frame through the window's outermost grid points, its line as thick as a filter's sigma."""
    m = draw.sizes
    if not m.attention:
        return picture
    centres, variance, _ = (
        np.asarray(v)
        for v in geometry(jnp.asarray(numbers)[None], m[points], m.image_size)
    )
    # pixel a, counted from 1, covers ZOOM (a - 1) to ZOOM a of the picture
    (left, right), (top, bottom) = np.clip(
        ZOOM * (centres[0][:, [0, -1]] - 0.5), -1e6, 1e6
    )
    half = np.clip(ZOOM * np.sqrt(variance[0]) / 2, 0.5, ZOOM)
    y, x = np.mgrid[: picture.shape[0], : picture.shape[1]] + 0.5
    outside = np.maximum(
        np.maximum(left - x, x - right), np.maximum(top - y, y - bottom)
    )
    return np.where(
        (np.abs(outside) <= half)[..., None], np.array(colour, np.uint8), picture
    )
