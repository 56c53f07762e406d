"""Pictures of a trained DRAW network.

Pictures are uint8 arrays [height, width, 3]: white ink on black. Windows are coloured
frames.

Shape letters: N images, G glimpses, S pixels per side.
"""

import operator
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from experiments.rendering import pixels_of
from lnrepro.data.batches import evenly_spaced

from .attention import geometry
from .model import Draw, dtype_of

# Number of test images that are shown.
EXAMPLES = 10
# Number of images drawn from the prior, and of those whose drawing is animated.
SAMPLES = 100
ANIMATED = 16
# Largest number of glimpses in a row of the picture `glimpses`.
MAX_GLIMPSES = 12
# Picture pixels for a pixel of an image in `glimpses`.
ZOOM = 4
# The animation shows the finished images for this many frames.
HELD_FRAMES = 24
# What the pictures show.
TEXTS = {
    "samples.txt": "images drawn from the prior: the mean of each pixel",
    "samples_over_glimpses.txt": "drawn from the prior, glimpse by glimpse; "
    "red: where it writes",
    "glimpses.txt": "two rows for each test image, glimpses from left to right. "
    "Upper row: the image, and the window that is read (green). Lower row: what is "
    "drawn so far, and the window that is written to (red). Thicker lines are wider "
    "filters.",
}
COLOURS = {"read": "#50dc50", "write": "#ff4646"}
# Brightness of the lines between images.
LINE = 0.27
DPI = 100


class Window(NamedTuple):
    """A window on an image.

    Attributes:
      outermost: [2, 2], the outermost points of the grid along x and along y.
      sigma: standard deviation of the filters, in pixels.
      colour: of its frame.
    """

    outermost: np.ndarray
    sigma: float
    colour: str


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
    """
    sample_key, noise_key = jax.random.split(key)
    shape = (draw.sizes.glimpses, SAMPLES, draw.sizes.latents)
    z = jax.random.normal(sample_key, shape, dtype_of(params))
    canvases, windows = jax.device_get(jax.jit(draw.generate)(params, z))
    # The mean of each pixel.
    samples = expit(canvases)
    return {
        "samples": page(samples[-1], 10),
        "samples_over_glimpses": animation(draw, samples, windows),
        "glimpses": draw_glimpses(draw, params, images, noise_key),
    }


def animation(
    draw: Draw, images: np.ndarray, windows: Sequence[np.ndarray]
) -> np.ndarray:
    """Draw `samples_over_glimpses`, see `draw_all`.

    Args:
      draw: the network.
      images: [G, N, S, S], of 0 to 1, after each glimpse.
      windows: [G, N, 5], what was written to, see `attention.geometry`.
    """
    # The finished images come first, without windows, so that a still shows them.
    frames = [page(images[-1, :ANIMATED], 8)] * HELD_FRAMES
    # A frame for each glimpse: the canvas so far, and the window that is written to.
    for image, numbers in zip(images, windows, strict=True):
        shown = windows_of(draw, "write", numbers[:ANIMATED])
        # Thin lines, since these images are small.
        shown = [window._replace(sigma=0.0) for window in shown]
        frames.append(page(image[:ANIMATED], 8, shown))
    return np.stack(frames)


def draw_glimpses(
    draw: Draw, params: dict, images: np.ndarray, key: jax.Array
) -> np.ndarray:
    """Draw `glimpses`, see `draw_all`."""
    x = images.astype(np.float32)
    noise = draw.noise(params, key, jnp.arange(len(x)))
    infer = jax.jit(draw.infer, static_argnums=3)
    result = infer(params, x, noise, operator.attrgetter("canvas"))
    result = jax.device_get(result)
    # The first and the last glimpse are always shown.
    shown = evenly_spaced(draw.sizes.glimpses, MAX_GLIMPSES)
    rows, windows = [], []
    # Two rows for each image.
    for i, image in enumerate(x):
        rows += [image] * len(shown)
        windows += windows_of(draw, "read", result.aux.read[shown, i])
        rows += list(expit(result.outputs[shown, i]))
        windows += windows_of(draw, "write", result.aux.write[shown, i])
    return page(np.stack(rows), len(shown), windows, ZOOM)


def windows_of(draw: Draw, kind: str, numbers: np.ndarray) -> list[Window]:
    """Return the windows of some images.

    Args:
      draw: the network.
      kind: "read" or "write".
      numbers: [N, 5], see `attention.geometry`.
    """
    points = draw.sizes[f"{kind}_size"]
    where = geometry(jnp.asarray(numbers), points, draw.sizes.image_size)
    outermost = np.asarray(where.centres)[..., [0, -1]]
    sigma = np.sqrt(np.asarray(where.variance))
    return [Window(*one, COLOURS[kind]) for one in zip(outermost, sigma, strict=True)]


def page(
    images: np.ndarray, columns: int, windows: Sequence[Window] = (), zoom: int = 2
) -> np.ndarray:
    """Draw images side by side, row by row, with a grey line between them.

    Args:
      images: [N, S, S] of 0 to 1.
      columns: images in a row.
      windows: those of the first images. Their lines are as thick as the standard
        deviation of a filter.
      zoom: pixels of the picture for a pixel of an image.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    side = images.shape[-1] + 1
    padding = ((0, -len(images) % columns), (1, 0), (1, 0))
    rows = np.pad(images, padding, constant_values=LINE)
    rows = rows.reshape(-1, columns, side, side).swapaxes(1, 2)
    joined = rows.reshape(-1, columns * side)
    height, width = joined.shape
    size = (width * zoom / DPI, height * zoom / DPI)
    figure = Figure(figsize=size, dpi=DPI)
    # Pixel a of an image, counted from 1, covers a to a + 1, and its centre is a + 1/2.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    extent = (0, width, height, 0)
    axes.imshow(
        joined,
        "gray",
        vmin=0,
        vmax=1,
        extent=extent,
        aspect="auto",
        interpolation="nearest",
    )
    for i, (outermost, sigma, colour) in enumerate(windows):
        row, column = divmod(i, columns)
        corner = np.array([column * side, row * side])
        # Far outside of the image, a window need not be exact.
        places = np.clip(outermost + 0.5, -side, 2 * side)
        frame = Rectangle(
            places[:, 0] + corner,
            *(places[:, 1] - places[:, 0]),
            fill=False,
            edgecolor=colour,
            # Lines are measured in 72nds of an inch.
            linewidth=np.clip(zoom * sigma, 1, 2 * zoom) * 72 / DPI,
        )
        axes.add_patch(frame)
        image = Rectangle(corner + 1, side - 1, side - 1, transform=axes.transData)
        frame.set_clip_path(image)
    return pixels_of(figure)
