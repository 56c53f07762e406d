"""Pictures of how many of the other norm's steps a norm needs, of seeds and claims."""

import contextlib
import itertools
import pathlib
from collections.abc import Sequence

from lnrepro.config import PROTOCOLS
from scripts.paper import plot
from scripts.paper.claims import NORMS
from scripts.paper.style import WIDTH
from scripts.paper.verdicts import Answer, Row

# For each protocol: text of the legend, colour, distance from the middle of its row.
DRAWN = (
    ("each norm at its own best learning rate", "#d55e00", -0.15),
    ("all norms at one learning rate", "#0072b2", 0.15),
)
TICKS = {share: f"{share} %" for share in (3, 10, 30, 100, 300, 1000)}
# {answer to a question: colour}.
COLOURS = {"reproduced": "#0072b2", "contradicted": "#d55e00", "open": "0.35"}
XLABEL = """share of the second norm's steps until the first is as good
(left of 100 %: the first is faster)"""


def draw(rows: Sequence[Row], stem: pathlib.Path) -> None:
    """Write STEM.png and STEM.svg, if there is a claim about speed.

    Args:
      rows: the verdicts.
      stem: the path without its suffix.
    """
    rows = [row for row in rows if row.claim.kind == "speed"]
    if not rows:
        return
    labels, places = [], {}
    for part, of_part in itertools.groupby(rows, key=lambda row: row.claim.part):
        labels.append(part)
        for row in of_part:
            places[len(labels)] = row
            labels.append(_label(row.claim))
    with _shares(stem, labels, 0.17 * len(labels) + 1.1, 0.6, XLABEL) as (fig, ax):
        for y, row in places.items():
            for protocol, (_, colour, shift) in zip(PROTOCOLS, DRAWN, strict=True):
                if verdict := row.verdicts.get(protocol):
                    _interval(ax, y + shift, verdict, color=colour)
        for text, colour, _ in DRAWN:
            ax.plot([], [], color=colour, marker="o", label=text)
        fig.legend(loc="outside upper center", ncols=2, frameon=False)
        for y, label in enumerate(ax.get_yticklabels()):
            if y not in places:
                label.set_fontweight("bold")


def _label(claim):
    """What a claim compares, without its part."""
    norms = f"{NORMS[claim.better]} vs {NORMS[claim.baseline]}"
    # Most claims are about layer norm.
    return f"{claim.quantity}: {norms}".replace(": layer norm vs", " vs")


@contextlib.contextmanager
def _shares(stem, labels, height, margin, xlabel, **settings):
    """Yield a figure and its axes for shares, with a row for each label; then write it.

    Args:
      stem: the path without its suffix.
      labels: of the rows, from above.
      height: of the figure, in inches.
      margin: above the first row and below the last one, in rows.
      xlabel: the label of the x axis.
      **settings: what else `Axes.set` takes.
    """
    with plot.figure(stem, (WIDTH, height), grid=False) as (fig, (ax,)):
        ax.axvline(100, color="0.4", lw=1)
        ax.set_yticks(range(len(labels)), labels)
        yield fig, ax
        ax.set(xscale="log", ylim=(len(labels) - 1 + margin, -margin))
        ax.set_xticks(list(TICKS), list(TICKS.values()))
        ax.set(**settings)
        fig.supxlabel(xlabel, fontsize=8)
        ax.minorticks_off()
        ax.grid(axis="x", alpha=0.3)


def _interval(ax, y, verdict, size=None, **style):
    """Draw the number of a verdict in a row, with its interval."""
    ax.plot([100 * verdict.low, 100 * verdict.high], [y, y], lw=1.8, alpha=0.7, **style)
    ax.plot(100 * verdict.value, y, "o", ms=size, **style)


def draw_answers(answers: Sequence[Answer], stem: pathlib.Path) -> None:
    """Write STEM.png and STEM.svg: the questions of the plan, as far as answered.

    Args:
      answers: those of one protocol.
      stem: the path without its suffix.
    """
    labels = [answer.question.name for answer in answers]
    sizes = 0.2 * len(labels) + 0.7, 0.5
    xlabel = XLABEL.replace("\n", " ")
    with _shares(stem, labels, *sizes, xlabel, xlim=(2, 400)) as (_, ax):
        for y, answer in enumerate(answers):
            word = "not run" if answer.p is None else answer.word
            colour = COLOURS.get(word, COLOURS["open"])
            if answer.p is not None and answer.question.claim.kind == "speed":
                _interval(ax, y, answer.verdict, 4, color=colour)
            # Beside the axes, in a column of its own.
            where = {"xy": (1.01, y), "xycoords": ("axes fraction", "data")}
            text = f"{word}, made data" if answer.is_proxy else word
            ax.annotate(text, **where, va="center", color=colour)
