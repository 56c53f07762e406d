"""Pictures of the statistics of units, one map for each convolution and statistic."""

from collections.abc import Sequence

import numpy as np

from experiments.rendering import pixels_of

from .evaluate import Maps

TITLES = {
    "on": "fraction of cases a unit is on",
    "std": "std of its summed input",
    "normalised std": "std after the normaliser",
}


def statistics(layers: Sequence[Maps], title: str) -> np.ndarray:
    """Draw the statistics of all convolutions, averaged over channels.

    Args:
      layers: the statistics of each convolution, from the first.
      title: stands above the picture.

    Returns:
      uint8 [height, width, 3]: a row for each convolution, a column for each statistic.
    """
    from matplotlib.figure import Figure

    columns = len(layers[0])
    size = (3 * columns, 2.6 * len(layers) + 0.5)
    figure = Figure(figsize=size, layout="constrained", dpi=100)
    axes = figure.subplots(len(layers), columns, squeeze=False)
    for n, (row, maps) in enumerate(zip(axes, layers, strict=True), 1):
        height, width, _ = maps["on"].shape
        for ax, (name, values) in zip(row, maps.items(), strict=True):
            image = ax.imshow(values.mean(-1), vmin=0.0)
            figure.colorbar(image, ax=ax, shrink=0.85)
            ax.set(xticks=[], yticks=[])
            if n == 1:
                ax.set_title(TITLES[name], fontsize=10)
        row[0].set_ylabel(f"convolution {n}\n{height} x {width} positions")
    figure.suptitle(title)
    return pixels_of(figure)
