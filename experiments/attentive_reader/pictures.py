"""Validation passages with the attention over their words.

Shape letters: B batch, T words of a passage.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from experiments.rendering import pixels_of
from lnrepro.data.batches import evenly_spaced

from .data import Columns, evaluation_batches

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


class Example(NamedTuple):
    """A question that a reader has answered.

    Attributes:
      passage: T words.
      attention: [T].
      question: words.
      best_word: the word with the largest score.
      answer: the right word.
    """

    passage: list[str]
    attention: np.ndarray
    question: list[str]
    best_word: str
    answer: str


def read_examples(
    config: ConfigDict,
    columns: Columns,
    rows: np.ndarray,
    words: Sequence[str],
    read: Callable,
) -> list[Example]:
    """Let a reader answer some questions, evenly spaced, from short to long.

    Args:
      config: the config of the run.
      columns: the questions.
      rows: those that are evaluated.
      words: the vocabulary.
      read: batch -> (attention [B, T], numbers of the chosen words [B]).
    """
    # Neighbouring questions may be about one story.
    shown = rows[evenly_spaced(len(rows), EXAMPLES)]
    examples = []
    for batch in evaluation_batches(config, columns, shown, len(shown)):
        attention, best = jax.device_get(read(batch))
        for b, length in enumerate(batch["passage_length"]):
            question = batch["question"][b, : batch["question_length"][b]]
            example = Example(
                passage=[words[i] for i in batch["passage"][b, :length]],
                attention=attention[b, :length],
                question=[words[i] for i in question],
                best_word=words[best[b]],
                answer=words[batch["answer"][b]],
            )
            examples.append(example)
    return examples


def draw(examples: Sequence[Example], caption: str) -> np.ndarray:
    """Draw examples as a picture, uint8 [height, width, 3].

    Args:
      examples: the examples.
      caption: the heading.
    """
    from matplotlib.figure import Figure

    # (column, line, word, its colour, how strong its background is)
    words, line = [], 0

    def paragraph(texts, colour, shares=None):
        nonlocal line
        column = 0
        shares = np.zeros(len(texts)) if shares is None else shares
        for text, share in zip(texts, shares, strict=True):
            if column and column + len(text) > COLUMNS:
                column, line = 0, line + 1
            words.append((column, line, text, colour, share))
            column += len(text) + 1
        line += 1

    paragraph(caption.split(), TEXT_COLOUR)
    for example in examples:
        line += 1
        paragraph(example.question, TEXT_COLOUR)
        # The scale is that of each passage: attention over many words is small
        # everywhere.
        shares = example.attention / max(example.attention.max(), 1e-30)
        paragraph(example.passage, TEXT_COLOUR, shares)
        verdict = f"chosen {example.best_word}, answer {example.answer}"
        is_right = example.best_word == example.answer
        paragraph(verdict.split(), RIGHT_COLOUR if is_right else WRONG_COLOUR)
    figure = Figure(figsize=(COLUMNS * LETTER_WIDTH, line * LINE_HEIGHT), dpi=100)
    axes = figure.add_axes((0.01, 0, 0.98, 1), xlim=(0, COLUMNS), ylim=(line, -0.5))
    axes.axis("off")
    style = {"family": "monospace", "size": FONT_SIZE, "va": "top"}
    # Words are not formulas.
    style["parse_math"] = False
    for x, y, text, colour, share in words:
        background = (*ATTENTION_COLOUR, share)
        bbox = {"facecolor": background, "edgecolor": "none", "pad": 1}
        axes.text(x, y, text, color=colour, bbox=bbox, **style)
    return pixels_of(figure)
