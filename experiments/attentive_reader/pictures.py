"""Validation passages with the attention over their words, as a picture and as HTML.

Shape letters: B batch, T words of a passage.
"""

import html
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from lnrepro.data.batches import eval_batches, evenly_spaced

from .data import Columns, Shapes, select

# Number of questions that are shown.
EXAMPLES = 4
# Sizes in pixels.
WIDTH = 880
MARGIN = 16
LINE_HEIGHT = 26
FONT_SIZE = 16
TEXT_COLOUR = (20, 20, 20)
RIGHT_COLOUR = (0, 110, 40)
WRONG_COLOUR = (180, 20, 20)
# The background of the word with the largest attention. No attention is white.
ATTENTION_COLOUR = np.array([255, 150, 40])
STYLE = (
    "body{max-width:55em;margin:2em auto;font:1.05em/1.7 sans-serif}"
    "h1{font-size:1.1em}.right{color:rgb(0,110,40)}.wrong{color:rgb(180,20,20)}"
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

    def backgrounds(self) -> list[tuple[int, int, int]]:
        """Return the background of each word, by its share of the largest attention."""
        # The scale is that of each passage: attention over many words is small
        # everywhere.
        share = self.attention / max(self.attention.max(), 1e-30)
        colours = np.rint(255 + (ATTENTION_COLOUR - 255) * share[:, None])
        return [tuple(colour) for colour in colours.astype(int).tolist()]


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
                f'<span title="{attention:.4f}" style="background:rgb{colour}">'
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


class _Word(NamedTuple):
    x: float
    y: int
    text: str
    colour: tuple[int, int, int]
    background: tuple[int, int, int] | None
    font: object


class _Page:
    """Words that flow into lines."""

    def __init__(self):
        self.words: list[_Word] = []
        # Top of the next line.
        self.y = MARGIN

    def flow(self, texts, colour, font, backgrounds=None):
        """Add a paragraph."""
        backgrounds = backgrounds or [None] * len(texts)
        x = MARGIN
        for text, background in zip(texts, backgrounds, strict=True):
            width = font.getlength(text)
            if x > MARGIN and x + width > WIDTH - MARGIN:
                x, self.y = MARGIN, self.y + LINE_HEIGHT
            self.words.append(_Word(x, self.y, text, colour, background, font))
            x += width + font.getlength(" ")
        self.y += LINE_HEIGHT

    def skip(self):
        """Leave half a line empty."""
        self.y += LINE_HEIGHT // 2

    def draw(self) -> np.ndarray:
        """Return the page as uint8 [height, width, 3]."""
        from PIL import Image, ImageDraw

        image = Image.new("RGB", (WIDTH, self.y + MARGIN), "white")
        pen = ImageDraw.Draw(image)
        for x, y, text, colour, background, font in self.words:
            if background is not None:
                right = x + font.getlength(text) + 2
                pen.rectangle(
                    (x - 2, y - 2, right, y + LINE_HEIGHT - 5), fill=background
                )
            pen.text((x, y), text, fill=colour, font=font)
        return np.asarray(image)


def draw(examples: Sequence[Example], caption: str) -> np.ndarray:
    """Draw examples as a picture, uint8 [height, width, 3].

    Args:
      examples: the examples.
      caption: the heading.
    """
    from PIL import ImageFont

    font = ImageFont.load_default(FONT_SIZE)
    large_font = ImageFont.load_default(FONT_SIZE + 2)
    page = _Page()
    page.flow(caption.split(), TEXT_COLOUR, font)
    page.skip()
    for example in examples:
        page.flow(example.question, TEXT_COLOUR, large_font)
        page.flow(example.passage, TEXT_COLOUR, font, example.backgrounds())
        is_right = example.best_word == example.answer
        verdict = f"chosen {example.best_word}, answer {example.answer}"
        colour = RIGHT_COLOUR if is_right else WRONG_COLOUR
        page.flow(verdict.split(" "), colour, font)
        page.skip()
    return page.draw()
