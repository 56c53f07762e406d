"""What was retrieved, as one picture: captions for held-out images on the left, images for held-out captions on the right."""

from collections.abc import Mapping
from textwrap import fill
from typing import Any

import numpy as np

from lnrepro.data.official.captions import PER_IMAGE, Captions
from lnrepro.data.text import Vocabulary

EXAMPLES = 6  # rows of either half
BEST_CAPTIONS, BEST_IMAGES = 4, 5
RIGHT, WRONG = "#1a7f37", "#b42318"


def retrievals(
    errors: np.ndarray,
    columns: Mapping[str, Any],
    captions: Captions,
    facts: Mapping[str, Any],
    name: str,
) -> np.ndarray:
    """Errors (5 N, N) of a fold -> a picture uint8 (H, W, 3); what belongs together is green, with the error beside it.

    Images are shown where the data set has them ("picture"), else by their number ("id").
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    words = Vocabulary([*facts["words"], *facts.get("dev_words", ())])
    count = errors.shape[1]
    shown = np.unique(
        np.linspace(0, count - 1, min(EXAMPLES, count)).round().astype(int)
    )
    figure = Figure(figsize=(17, 1.75 * len(shown) + 0.6), layout="constrained", dpi=90)
    canvas = FigureCanvasAgg(figure)
    figure.suptitle(
        f"held-out images of {name}: best captions, best images (green: its own; numbers: errors)"
    )
    grid = figure.add_gridspec(
        len(shown), 3 + BEST_IMAGES, width_ratios=[1, 4, 2.2] + [1] * BEST_IMAGES
    )

    def text(caption: int, width: int) -> str:
        return fill(
            " ".join(words.decode(captions.ids(caption))),
            width,
            max_lines=3,
            placeholder=" ...",
        )

    def draw_image(axes, image: int, colour: str) -> None:
        if "picture" in columns:
            axes.imshow(columns["picture"][image], interpolation="nearest")
        else:
            axes.text(
                0.5,
                0.5,
                f"id\n{columns['id'][image]}",
                ha="center",
                va="center",
                fontsize=9,
            )
            axes.set(xlim=(0, 1), ylim=(0, 1), aspect=1)
        axes.set(xticks=[], yticks=[])
        for side in axes.spines.values():
            side.set(color=colour, linewidth=3)

    for row, image in enumerate(shown):
        draw_image(figure.add_subplot(grid[row, 0]), image, "black")
        axes = figure.add_subplot(grid[row, 1])
        axes.axis("off")
        for i, caption in enumerate(
            np.argsort(errors[:, image], kind="stable")[:BEST_CAPTIONS]
        ):
            own = caption // PER_IMAGE == image
            line = f"{errors[caption, image]:.3f}  {text(caption, 78)}"
            axes.text(
                0,
                1 - (i + 0.5) / BEST_CAPTIONS,
                line,
                color=RIGHT if own else WRONG,
                va="center",
                fontsize=8,
            )
        caption = PER_IMAGE * image + row % PER_IMAGE
        axes = figure.add_subplot(grid[row, 2])
        axes.axis("off")
        axes.text(1, 0.5, text(caption, 34), ha="right", va="center", fontsize=9)
        for i, found in enumerate(
            np.argsort(errors[caption], kind="stable")[:BEST_IMAGES]
        ):
            axes = figure.add_subplot(grid[row, 3 + i])
            draw_image(axes, found, RIGHT if found == image else WRONG)
            axes.set_xlabel(f"{errors[caption, found]:.3f}", fontsize=8, labelpad=1)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]
