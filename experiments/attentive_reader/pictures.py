"""Validation passages with the attention over their words.

Shape letters: B batch, T words of a passage.
"""

from collections.abc import Callable, Iterable, Sequence

import jax
import numpy as np

from experiments.rendering import pixels_of

from .data import Batch

# Number of questions that are shown.
EXAMPLES = 4
# Letters in a line of the picture.
COLUMNS = 96
# Sizes in inches, and of the font in points.
LETTER_WIDTH = 0.087
LINE_HEIGHT = 0.22
FONT_SIZE = 10
TEXT_COLOUR = "#141414"
RIGHT_COLOUR = "#006e28"
WRONG_COLOUR = "#b41414"
# The background of the word with the largest attention. No attention is white.
ATTENTION_COLOUR = (1.0, 0.6, 0.2)


def draw(
    batches: Iterable[Batch], words: Sequence[str], read: Callable, caption: str
) -> np.ndarray:
    """Draw questions, the words that a reader looked at, and its answers.

    Args:
      batches: the questions.
      words: the vocabulary.
      read: batch -> (attention [B, T], numbers of the chosen words [B]).
      caption: the heading.

    Returns:
      uint8 [height, width, 3]
    """
    from matplotlib.figure import Figure

    # (column, line, word, its colour, how strong its background is)
    placed, line = [], 0

    def paragraph(texts, colour, shares=None):
        nonlocal line
        column = 0
        shares = np.zeros(len(texts)) if shares is None else shares
        for text, share in zip(texts, shares, strict=True):
            if column and column + len(text) > COLUMNS:
                column, line = 0, line + 1
            placed.append((column, line, text, colour, share))
            column += len(text) + 1
        line += 1

    paragraph(caption.split(), TEXT_COLOUR)
    for batch in batches:
        attention, chosen = jax.device_get(read(batch))
        for b, length in enumerate(batch["passage_length"]):
            line += 1
            question = batch["question"][b, : batch["question_length"][b]]
            paragraph([words[i] for i in question], TEXT_COLOUR)
            passage = [words[i] for i in batch["passage"][b, :length]]
            # The scale is that of each passage: attention over many words is small
            # everywhere.
            shares = attention[b, :length] / max(attention[b].max(), 1e-30)
            paragraph(passage, TEXT_COLOUR, shares)
            answer = batch["answer"][b]
            verdict = f"chosen {words[chosen[b]]}, answer {words[answer]}"
            colour = RIGHT_COLOUR if chosen[b] == answer else WRONG_COLOUR
            paragraph(verdict.split(), colour)
    figure = Figure(figsize=(COLUMNS * LETTER_WIDTH, line * LINE_HEIGHT), dpi=100)
    axes = figure.add_axes((0.01, 0, 0.98, 1), xlim=(0, COLUMNS), ylim=(line, -0.5))
    axes.axis("off")
    style = {"family": "monospace", "size": FONT_SIZE, "va": "top"}
    # Words are not formulas.
    style["parse_math"] = False
    for x, y, text, colour, share in placed:
        background = (*ATTENTION_COLOUR, share)
        bbox = {"facecolor": background, "edgecolor": "none", "pad": 1}
        axes.text(x, y, text, color=colour, bbox=bbox, **style)
    return pixels_of(figure)
