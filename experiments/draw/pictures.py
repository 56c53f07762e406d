"""Pictures of a trained DRAW network.

Pictures are uint8 arrays [height, width, 3]: white ink on black. Windows are coloured
frames.

Shape letters: N images, G glimpses, S pixels per side.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.rendering import pixels_of

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
COLOURS = {"read": "#50dc50", "write": "#ff4646"}
# Brightness of the lines between images.
LINE = 0.27
DPI = 100


class Windows(NamedTuple):
    """The windows on the images of a page.

    Attributes:
      outermost: [N, 2, 2], the outermost points of each grid along x and along y.
      sigma: [N], standard deviations of the filters, in pixels.
      colours: [N].
    """

    outermost: np.ndarray
    sigma: np.ndarray
    colours: list[str]


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
    images = _mean(canvases)
    # A frame for each glimpse: the canvas so far, and the window that is written to.
    frames = [
        page(image[:ANIMATED], 8, windows_of(draw, "write", numbers[:ANIMATED]))
        for image, numbers in zip(images, windows, strict=True)
    ]
    # The last frames have no windows, so that the images can be seen.
    frames += [page(images[-1, :ANIMATED], 8)] * LAST_FRAMES
    return {
        "samples": page(images[-1], 10, zoom=2),
        "samples_over_glimpses": np.stack(frames),
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
    rows, windows = [], []
    # Two rows for each image.
    for i, image in enumerate(x):
        rows += [image] * len(shown)
        windows.append(windows_of(draw, "read", record.read[shown, i]))
        rows += list(_mean(canvases[shown, i]))
        windows.append(windows_of(draw, "write", record.write[shown, i]))
    pairs = [side for pair in zip(x, _mean(canvases[-1]), strict=True) for side in pair]
    return {
        "glimpses": page(np.stack(rows), len(shown), *windows),
        "reconstructions": page(np.stack(pairs), 10, zoom=2),
    }


def _mean(canvas: np.ndarray) -> np.ndarray:
    """Return the mean of the pixels, sigmoid(canvas)."""
    return 0.5 * np.tanh(0.5 * canvas) + 0.5


def windows_of(draw: Draw, kind: str, numbers: np.ndarray) -> Windows:
    """Return the windows of some images.

    Args:
      draw: the network.
      kind: "read" or "write".
      numbers: [N, 5], see `attention.geometry`.
    """
    sizes = draw.sizes
    points = sizes[f"{kind}_size"]
    where = geometry(jnp.asarray(numbers), points, sizes.image_size)
    outermost = np.asarray(where.centres)[..., [0, -1]]
    sigma = np.sqrt(np.asarray(where.variance))
    return Windows(outermost, sigma, [COLOURS[kind]] * len(numbers))


def page(
    images: np.ndarray, columns: int, *windows: Windows, zoom: int = ZOOM
) -> np.ndarray:
    """Draw images side by side, row by row, with a grey line between them.

    Args:
      images: [N, S, S] of 0 to 1.
      columns: images in a row.
      *windows: those of the first images, of the next ones, and so on. Their lines are
        as thick as the standard deviation of a filter.
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
    frames = [frame for some in windows for frame in zip(*some, strict=True)]
    for i, (outermost, sigma, colour) in enumerate(frames):
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
