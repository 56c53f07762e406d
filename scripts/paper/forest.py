"""Pictures of how many of the other norm's steps a norm needs, of seeds and claims."""

import itertools
import pathlib
from collections.abc import Sequence

from lnrepro.config import PROTOCOLS
from scripts.paper import plot
from scripts.paper.claims import NORMS
from scripts.paper.plot import plt
from scripts.paper.style import STYLE, WIDTH
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
    with plt.rc_context(STYLE | {"axes.grid": False}):
        size = WIDTH, 0.17 * len(labels) + 1.1
        fig, ax = plt.subplots(figsize=size, layout="constrained")
        ax.axvline(100, color="0.4", lw=1)
        for y, row in places.items():
            _draw_row(ax, y, row)
        for text, colour, _ in DRAWN:
            ax.plot([], [], color=colour, marker="o", label=text)
        fig.legend(loc="outside upper center", ncols=2, frameon=False)
        ax.set(xscale="log", ylim=(len(labels) - 0.4, -0.6))
        ax.set_xticks(list(TICKS), list(TICKS.values()))
        ax.set_yticks(range(len(labels)), labels)
        for y, label in enumerate(ax.get_yticklabels()):
            if y not in places:
                label.set_fontweight("bold")
        fig.supxlabel(XLABEL, fontsize=8)
        ax.minorticks_off()
        ax.grid(axis="x", alpha=0.3)
        plot.save(fig, stem)


def _label(claim):
    """What a claim compares, without its part."""
    norms = f"{NORMS[claim.better]} vs {NORMS[claim.baseline]}"
    # Most claims are about layer norm.
    return f"{claim.quantity}: {norms}".replace(": layer norm vs", " vs")


def _draw_row(ax, y, row):
    for protocol, (_, colour, shift) in zip(PROTOCOLS, DRAWN, strict=True):
        if verdict := row.verdicts.get(protocol):
            ends = 100 * verdict.low, 100 * verdict.high
            ax.plot(ends, [y + shift] * 2, color=colour, lw=1.8, alpha=0.7)
            ax.plot(100 * verdict.value, y + shift, "o", color=colour)


def draw_answers(answers: Sequence[Answer], stem: pathlib.Path) -> None:
    """Write STEM.png and STEM.svg: the questions of the plan, as far as answered.

    Args:
      answers: those of one protocol.
      stem: the path without its suffix.
    """
    with plt.rc_context(STYLE | {"axes.grid": False}):
        size = WIDTH, 0.2 * len(answers) + 0.7
        fig, ax = plt.subplots(figsize=size, layout="constrained")
        ax.axvline(100, color="0.4", lw=1)
        for y, answer in enumerate(answers):
            word, verdict = answer.word, answer.verdict
            if answer.p is None:
                word = "not run"
            elif answer.question.claim.kind == "speed":
                style = {"color": COLOURS[word]}
                ends = 100 * verdict.low, 100 * verdict.high
                ax.plot(ends, [y, y], lw=1.8, alpha=0.7, **style)
                ax.plot(100 * verdict.value, y, "o", ms=4, **style)
            # Beside the axes, in a column of its own.
            where = {"xy": (1.01, y), "xycoords": ("axes fraction", "data")}
            colour = COLOURS.get(word, COLOURS["open"])
            text = f"{word}, made data" if answer.is_proxy else word
            ax.annotate(text, **where, va="center", color=colour)
        ax.set(xscale="log", ylim=(len(answers) - 0.5, -0.5))
        ax.set_xticks(list(TICKS), list(TICKS.values()))
        ax.set_yticks(range(len(answers)), [a.question.name for a in answers])
        ax.set_xlim(2, 400)
        fig.supxlabel(XLABEL.replace("\n", " "), fontsize=8)
        ax.minorticks_off()
        ax.grid(axis="x", alpha=0.3)
        plot.save(fig, stem)
