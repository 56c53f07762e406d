"""A picture of what was retrieved.

The left half shows the best captions for held-out images, the right half the best
images for held-out captions.
"""

from collections.abc import Mapping
from textwrap import fill
from typing import Any

import numpy as np

from experiments.rendering import pixels_of
from lnrepro.data.batches import evenly_spaced
from lnrepro.data.text import Vocabulary

from .data import Split

# Rows of the picture, and what each shows.
EXAMPLES = 6
BEST_CAPTIONS = 4
BEST_IMAGES = 5
MATCH_COLOUR = "#1a7f37"
OTHER_COLOUR = "#b42318"


def retrievals(
    errors: np.ndarray, split: Split, facts: Mapping[str, Any], name: str
) -> np.ndarray:
    """Draw what was retrieved, with the errors. Matches are green.

    Args:
      errors: [C, N], of the captions and images of a fold.
      split: its columns and captions. Images are shown where there is a column
        "picture", otherwise their numbers.
      facts: the words of the data set.
      name: name of the data set.

    Returns:
      uint8 [height, width, 3]
    """
    from matplotlib.figure import Figure

    words = Vocabulary([*facts["words"], *facts.get("dev_words", ())])
    # Examples are the same for all runs, so that pictures can be compared.
    shown = evenly_spaced(errors.shape[1], EXAMPLES)
    starts, image_of = split.captions.starts, split.captions.image
    figure = Figure(figsize=(17, 1.75 * len(shown) + 0.6), layout="constrained", dpi=90)
    figure.suptitle(
        f"held-out images of {name}: best captions, best images (green: its own; "
        "numbers: errors)"
    )
    widths = [1, 4, 2.2] + [1] * BEST_IMAGES
    grid = figure.subplots(len(shown), len(widths), squeeze=False, width_ratios=widths)

    def text_of(caption, width):
        text = " ".join(words.decode(split.captions.ids(caption)))
        return fill(text, width, max_lines=3, placeholder=" ...")

    for row, image in enumerate(shown):
        own, by_image, query, *by_caption = grid[row]
        _draw_image(own, split, image, "black")
        by_image.axis("off")
        query.axis("off")
        # A stable sort shows ties in the order of the data.
        best = np.argsort(errors[:, image], kind="stable")[:BEST_CAPTIONS]
        for i, caption in enumerate(best):
            by_image.text(
                0,
                1 - (i + 0.5) / BEST_CAPTIONS,
                f"{errors[caption, image]:.3f}  {text_of(caption, 78)}",
                color=_colour(image_of[caption] == image),
                va="center",
                fontsize=8,
            )
        # Another of the captions in each row.
        caption = starts[image] + row % (starts[image + 1] - starts[image])
        query.text(1, 0.5, text_of(caption, 34), ha="right", va="center", fontsize=9)
        best = np.argsort(errors[caption], kind="stable")[:BEST_IMAGES]
        for axes, found in zip(by_caption, best, strict=False):
            _draw_image(axes, split, found, _colour(found == image))
            axes.set_xlabel(f"{errors[caption, found]:.3f}", fontsize=8, labelpad=1)
    return pixels_of(figure)


def _colour(matches: bool) -> str:
    return MATCH_COLOUR if matches else OTHER_COLOUR


def _draw_image(axes, split: Split, image: int, colour: str) -> None:
    if "picture" in split.columns:
        axes.imshow(split.columns["picture"][image], interpolation="nearest")
    else:
        label = f"id\n{split.columns['id'][image]}"
        axes.text(0.5, 0.5, label, ha="center", va="center", fontsize=9)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect=1)
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set(color=colour, linewidth=3)
