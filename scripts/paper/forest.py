"""Pictures of how many of the other norm's steps a norm needs, of seeds and claims."""

import itertools
import pathlib
from collections.abc import Sequence

from scripts.paper import plot
from scripts.paper.claims import NORMS
from scripts.paper.plot import Line, Panel
from scripts.paper.protocols import SAME, TUNED
from scripts.paper.verdicts import Answer, Row

# {protocol: (text of the legend, colour, distance from the middle of its row)}.
DRAWN = {
    TUNED: ("each norm at its own best learning rate", "#d55e00", -0.15),
    SAME: ("all norms at one learning rate", "#0072b2", 0.15),
}
TICKS = (3, 10, 30, 100, 300, 1000)
# {answer to a question: colour}.
COLOURS = {
    "reproduced": "#0072b2",
    "contradicted": "#d55e00",
    "open": "0.35",
    "not finished": "0.35",
}
CAPTION = """share of the second norm's steps until the first is as good
(left of 100 %: the first is faster)"""


def draw(rows: Sequence[Row], stem: pathlib.Path) -> pathlib.Path:
    """Write STEM.png and STEM.svg, and return the path of the first.

    Args:
      rows: the verdicts, at least one.
      stem: the path without its suffix.
    """
    labels, titles, lines = [], [], []
    for part, of_part in itertools.groupby(rows, key=lambda row: row.claim.part):
        titles.append(len(labels))
        labels.append(part)
        for row in of_part:
            for protocol, (_, colour, shift) in DRAWN.items():
                if verdict := row.verdicts.get(protocol):
                    y, share = len(labels) + shift, verdict.numbers["speed"]
                    lines.append(_line(y, share, colour))
            labels.append(_label(row.claim))
    lines += [Line(text, colour=colour) for text, colour, _ in DRAWN.values()]
    panel = Panel(lines, _settings(labels, 0.6), titles=titles)
    height = 0.17 * len(labels) + 1.1
    return plot.draw(
        [panel], stem, CAPTION, kind=plot.shares, height=height, fontsize=8
    )


def _label(claim):
    """What a claim compares, without its part."""
    norms = f"{NORMS[claim.better]} vs {NORMS[claim.baseline]}"
    # Most claims are about layer norm.
    return f"{claim.quantity}: {norms}".replace(": layer norm vs", " vs")


def _line(y, share, colour):
    """Return a share with its interval."""
    value, low, high = (100 * x for x in share)
    return Line("", [y], [value], [low], [high], colour, style="")


def _settings(labels, margin):
    """Return the settings of rows with labels, and a margin above and below them."""
    return {
        "yticks": range(len(labels)),
        "yticklabels": labels,
        "xscale": "log",
        "ylim": (len(labels) - 1 + margin, -margin),
        "xticks": TICKS,
        "xticklabels": [f"{share} %" for share in TICKS],
    }


def draw_answers(answers: Sequence[Answer], stem: pathlib.Path) -> pathlib.Path:
    """Write STEM.png and STEM.svg: the questions of the plan, as far as answered.

    Args:
      answers: those of one protocol.
      stem: the path without its suffix.

    Returns:
      The path of the first.
    """
    lines, notes = [], {}
    for y, answer in enumerate(answers):
        word, colour = answer.word, COLOURS[answer.word]
        if answer.number and answer.question.number == "speed":
            lines.append(_line(y, answer.number, colour))
        notes[y] = word + answer.data_note, colour
    labels = [answer.question.name for answer in answers]
    panel = Panel(lines, {**_settings(labels, 0.5), "xlim": (2, 400)}, notes=notes)
    caption, height = CAPTION.replace("\n", " "), 0.2 * len(labels) + 0.7
    return plot.draw(
        [panel], stem, caption, kind=plot.shares, height=height, fontsize=8
    )
