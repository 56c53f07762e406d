"""Validation passages with the attention over their words, as a picture and as HTML.

Shape letters: B batch, T words of a passage.
"""

import html
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments.rendering import pixels_of
from lnrepro.data.batches import eval_batches, evenly_spaced

from .data import Columns, Shapes, select

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
ATTENTION_COLOUR = np.array([255, 150, 40])
STYLE = (
    "body{max-width:55em;margin:2em auto;font:1.05em/1.7 sans-serif}"
    f"h1{{font-size:1.1em}}.right{{color:{RIGHT_COLOUR}}}.wrong{{color:{WRONG_COLOUR}}}"
    "span{padding:2px 1px}"
)


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

    def backgrounds(self) -> list[str]:
        """Return the background of each word, by its share of the largest attention."""
        # The scale is that of each passage: attention over many words is small
        # everywhere.
        share = self.attention / max(self.attention.max(), 1e-30)
        colours = np.rint(255 + (ATTENTION_COLOUR - 255) * share[:, None]).astype(int)
        return ["#{:02x}{:02x}{:02x}".format(*colour) for colour in colours]


def read_examples(
    config: ConfigDict, columns: Columns, words: Sequence[str], read: Callable
) -> list[Example]:
    """Let a reader answer some questions, evenly spaced.

    Args:
      config: the config of the run.
      columns: the questions.
      words: the vocabulary.
      read: batch -> (attention [B, T], numbers of the chosen words [B]).
    """
    # Neighbouring questions may be about one story.
    columns = select(columns, evenly_spaced(len(columns["answer"]), EXAMPLES))
    pad = Shapes(config, columns).largest()
    examples = []
    for batch in eval_batches(columns, len(columns["answer"]), pad=pad):
        attention, best = (np.asarray(array) for array in read(batch))
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


def html_page(examples: Sequence[Example], caption: str) -> str:
    """Write examples as an HTML page.

    The title of each word is its attention.

    Args:
      examples: the examples.
      caption: the heading.
    """
    heading = html.escape(caption)
    parts = [f"<h1>{heading}</h1>"]
    for example in examples:
        spans = []
        for word, attention, colour in zip(
            example.passage, example.attention, example.backgrounds(), strict=True
        ):
            spans.append(
                f'<span title="{attention:.4f}" style="background:{colour}">'
                f"{html.escape(word)}</span>"
            )
        kind = "right" if example.best_word == example.answer else "wrong"
        parts.append(
            f"<p><b>{html.escape(' '.join(example.question))}</b></p>"
            f"<p>{' '.join(spans)}</p>"
            f'<p>chosen <b class="{kind}">{html.escape(example.best_word)}</b>, '
            f"answer <b>{html.escape(example.answer)}</b></p><hr>"
        )
    return (
        f'<!DOCTYPE html><html><head><meta charset="utf-8"><title>{heading}</title>'
        f"<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def draw(examples: Sequence[Example], caption: str) -> np.ndarray:
    """Draw examples as a picture, uint8 [height, width, 3].

    Args:
      examples: the examples.
      caption: the heading.
    """
    from matplotlib.figure import Figure

    # (column, line, word, colour, background)
    words, line = [], 0

    def paragraph(texts, colour, backgrounds=None):
        nonlocal line
        column = 0
        for text, background in zip(
            texts, backgrounds or ["white"] * len(texts), strict=True
        ):
            if column and column + len(text) > COLUMNS:
                column, line = 0, line + 1
            words.append((column, line, text, colour, background))
            column += len(text) + 1
        line += 1

    paragraph(caption.split(), TEXT_COLOUR)
    for example in examples:
        line += 1
        paragraph(example.question, TEXT_COLOUR)
        paragraph(example.passage, TEXT_COLOUR, example.backgrounds())
        verdict = f"chosen {example.best_word}, answer {example.answer}"
        is_right = example.best_word == example.answer
        paragraph(verdict.split(), RIGHT_COLOUR if is_right else WRONG_COLOUR)
    figure = Figure(figsize=(COLUMNS * LETTER_WIDTH, line * LINE_HEIGHT), dpi=100)
    axes = figure.add_axes((0.01, 0, 0.98, 1), xlim=(0, COLUMNS), ylim=(line, -0.5))
    axes.axis("off")
    for x, y, text, colour, background in words:
        axes.text(
            x,
            y,
            text,
            color=colour,
            family="monospace",
            size=FONT_SIZE,
            va="top",
            # Words are not formulas.
            parse_math=False,
            bbox={"facecolor": background, "edgecolor": "none", "pad": 1},
        )
    return pixels_of(figure)
