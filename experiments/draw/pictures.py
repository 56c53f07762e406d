"""Pictures of a trained DRAW network.

Pictures are uint8 arrays [height, width, 3]: white ink on black. Windows are coloured
frames.
"""

import jax
import jax.numpy as jnp
import numpy as np

from .attention import geometry
from .bound import noise_of
from .model import Draw, dtype_of

# Number of test images that are shown.
EXAMPLES = 10
# Number of images drawn from the prior, and of those whose drawing is animated.
SAMPLES = 100
ANIMATED = 16
# Largest number of glimpses in a row of the picture `glimpses`.
MAX_GLIMPSES = 12
# Picture pixels for a pixel of an image, where windows are shown.
ZOOM = 4
# The animation shows its last frame this many times more.
LAST_FRAMES = 12
CAPTIONS = {
    "samples": "images drawn from the prior: the mean of each pixel",
    "samples_over_glimpses": "images drawn from the prior, glimpse by glimpse; "
    "red: the window that is written to",
    "glimpses": "two rows for each test image, glimpses from left to right. Upper row: "
    "the image, and the window that is read (green). Lower row: what is drawn so far, "
    "and the window that is written to (red). Thicker lines are wider filters.",
    "reconstructions": "pairs: test image | its reconstruction",
}
READ_COLOUR = (80, 220, 80)
WRITE_COLOUR = (255, 70, 70)


def draw_all(
    draw: Draw, params: dict, images: np.ndarray, key: jax.Array
) -> dict[str, np.ndarray]:
    """Draw every picture of a network.

    Args:
      draw: the network.
      params: its parameters.
      images: test images [N, S, S] of zeros and ones.
      key: key of the noise.

    Returns:
      samples: images from the prior.
      samples_over_glimpses: how they are drawn, as frames [F, height, width, 3].
      glimpses: two rows for each image: what is read (green), what is written (red).
      reconstructions: pairs of an image and the mean of its reconstruction.
    """
    sample_key, noise_key = jax.random.split(key)
    return draw_samples(draw, params, sample_key) | draw_examples(
        draw, params, images, noise_key
    )


def draw_samples(draw: Draw, params: dict, key: jax.Array) -> dict[str, np.ndarray]:
    """Draw `samples` and `samples_over_glimpses`, see `draw_all`."""
    sizes = draw.sizes
    shape = (sizes.glimpses, SAMPLES, sizes.latents)
    z = jax.random.normal(key, shape, dtype_of(params))
    canvases, windows = jax.device_get(jax.jit(draw.generate)(params, z))
    frames = []
    # A frame for each glimpse: the canvas so far, and the window that is written to.
    for canvas, numbers in zip(canvases, windows, strict=True):
        cells = [
            _with_window(draw, "write_size", WRITE_COLOUR, image, window)
            for image, window in zip(
                _mean(canvas[:ANIMATED]), numbers[:ANIMATED], strict=True
            )
        ]
        frames.append(grid(cells, 8))
    # The last frames have no windows, so that the images can be seen.
    last = _mean(canvases[-1])
    without_windows = grid([_zoomed(image) for image in last[:ANIMATED]], 8)
    return {
        "samples": grid([_zoomed(image, 2) for image in last], 10),
        "samples_over_glimpses": np.stack([*frames, *[without_windows] * LAST_FRAMES]),
    }


def draw_examples(
    draw: Draw, params: dict, images: np.ndarray, key: jax.Array
) -> dict[str, np.ndarray]:
    """Draw `glimpses` and `reconstructions`, see `draw_all`."""
    x = images.astype(np.float32)
    noise = noise_of(key, jnp.arange(len(x)), draw.sizes, dtype_of(params))
    canvases, record = jax.device_get(jax.jit(draw.trace)(params, x, noise))
    glimpses = draw.sizes.glimpses
    # The first and the last glimpse are always shown.
    spaced = np.linspace(0, glimpses - 1, min(MAX_GLIMPSES, glimpses))
    shown = np.unique(spaced.round().astype(int))
    cells, pairs = [], []
    for i, image in enumerate(x):
        for g in shown:
            window = record.read[g, i]
            cells.append(_with_window(draw, "read_size", READ_COLOUR, image, window))
        for g in shown:
            window, drawn = record.write[g, i], _mean(canvases[g, i])
            cells.append(_with_window(draw, "write_size", WRITE_COLOUR, drawn, window))
        pairs += [_zoomed(image, 2), _zoomed(_mean(canvases[-1, i]), 2)]
    return {"glimpses": grid(cells, len(shown)), "reconstructions": grid(pairs, 10)}


def grid(cells: list[np.ndarray], columns: int) -> np.ndarray:
    """Put pictures of one size side by side, row by row, with a grey line between them.

    Args:
      cells: pictures [height, width, 3].
      columns: pictures in a row.
    """
    height, width, _ = cells[0].shape
    rows = -(-len(cells) // columns)
    shape = (rows * (height + 1) + 1, columns * (width + 1) + 1, 3)
    page = np.full(shape, 70, np.uint8)
    for i, cell in enumerate(cells):
        row, column = divmod(i, columns)
        top, left = row * (height + 1) + 1, column * (width + 1) + 1
        page[top : top + height, left : left + width] = cell
    return page


def _mean(canvas: np.ndarray) -> np.ndarray:
    """Return the mean of the pixels, sigmoid(canvas)."""
    return 0.5 * np.tanh(0.5 * canvas) + 0.5


def _zoomed(image: np.ndarray, zoom: int = ZOOM) -> np.ndarray:
    """Return an image [S, S] of 0 to 1 as a picture [zoom S, zoom S, 3]."""
    grey = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    large = np.kron(grey, np.ones((zoom, zoom), np.uint8))
    return np.repeat(large[..., None], 3, axis=-1)


def _with_window(
    draw: Draw,
    size_name: str,
    colour: tuple[int, int, int],
    image: np.ndarray,
    numbers: np.ndarray,
) -> np.ndarray:
    """Draw an image [S, S] with a frame through the outermost points of a window.

    The line is as thick as the standard deviation of a filter.
    """
    sizes = draw.sizes
    picture = _zoomed(image)
    if not sizes.attention:
        return picture
    where = geometry(jnp.asarray(numbers)[None], sizes[size_name], sizes.image_size)
    outermost = np.asarray(where.centres)[0][:, [0, -1]]
    # Pixel a, counted from 1, covers ZOOM (a - 1) to ZOOM a of the picture.
    (left, right), (top, bottom) = np.clip(ZOOM * (outermost - 0.5), -1e6, 1e6)
    sigma = np.sqrt(np.asarray(where.variance)[0])
    half = np.clip(ZOOM * sigma / 2, 0.5, ZOOM)
    y, x = np.mgrid[: picture.shape[0], : picture.shape[1]] + 0.5
    distance_x = np.maximum(left - x, x - right)
    distance_y = np.maximum(top - y, y - bottom)
    on_line = np.abs(np.maximum(distance_x, distance_y)) <= half
    return np.where(on_line[..., None], np.array(colour, np.uint8), picture)
