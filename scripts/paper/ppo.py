"""Curves of docs/examples/recurrent_ppo.py: after how many steps a norm has learned."""

import csv
import pathlib
from collections.abc import Mapping

import numpy as np

from lnrepro.config import SAME_RATE
from scripts import markdown
from scripts.paper import compare, plot

NORMS = ("none", "layer", "rms")
# A policy has learned the task where the mean return of so many updates is this high.
# Guessing has 0.5.
LEARNED, UPDATES = 0.9, 5
# {learning rate: {norm: {seed: [updates, (environment steps, return)]}}}
Curves = Mapping[float, Mapping[str, Mapping[int, np.ndarray]]]


def read(file: pathlib.Path) -> Curves:
    """Return the curves of a file with a row for each update.

    Its columns are norm, learning_rate, seed, environment steps and return.
    """
    found: dict = {}
    with file.open(newline="", encoding="utf-8") as lines:
        for row in sorted(csv.DictReader(lines), key=lambda row: int(row["seed"])):
            norms = found.setdefault(float(row["learning_rate"]), {})
            seeds = norms.setdefault(row["norm"], {})
            update = float(row["environment steps"]), float(row["return"])
            seeds.setdefault(int(row["seed"]), []).append(update)
    for norms in found.values():
        for norm, seeds in norms.items():
            norms[norm] = {seed: np.array(curve) for seed, curve in seeds.items()}
    return dict(sorted(found.items()))


def learned_after(curve: np.ndarray) -> float:
    """Return the environment steps after which a policy has learned, or infinity."""
    means = np.convolve(curve[:, 1], np.full(UPDATES, 1 / UPDATES), "valid")
    reached = means >= LEARNED
    return curve[reached.argmax() + UPDATES - 1, 0] if reached.any() else np.inf


def table(curves: Curves) -> str:
    """Return a row for each learning rate, and one with the best rate of each norm."""
    learned = {}
    for rate, norms in curves.items():
        for norm, seeds in norms.items():
            learned[rate, norm] = np.array([[learned_after(c)] for c in seeds.values()])
    rows = []
    for rate in curves:
        name = f"{rate:g}" + (", Adam's default" if rate == SAME_RATE else "")
        rows.append([name, *_cells({norm: learned[rate, norm] for norm in NORMS})])
    best = {n: min(curves, key=lambda rate: learned[rate, n].mean()) for n in NORMS}
    named = ", ".join(f"{norm} {rate:g}" for norm, rate in best.items())
    of_best = {norm: learned[rate, norm] for norm, rate in best.items()}
    rows.append([f"the best of each ({named})", *_cells(of_best)])
    head = ("learning rate", *NORMS, "layer / none", "rms / none")
    return markdown.table(head, rows)


def _cells(learned):
    """Return the mean of each norm, and the shares of the steps of none."""
    cells = [f"{learned[norm].mean():,.0f}" for norm in NORMS]
    for norm in NORMS[1:]:
        pairs = compare.Pairs(np.zeros(1), learned[norm], learned["none"], sign=1)
        low, high = compare.interval(_share, pairs)
        cells.append(f"{_share(pairs):.0%} ({low:.0%} to {high:.0%})")
    return cells


def _share(pairs):
    return float(pairs.better.mean() / pairs.baseline.mean())


def draw(curves: Curves, stem: pathlib.Path) -> None:
    """Write STEM.png and STEM.svg: the returns at each learning rate."""
    subplots = []
    for rate, norms in curves.items():
        lines = []
        for norm in NORMS:
            runs = np.stack([*norms[norm].values()])
            steps, returns = runs[0, :, 0] / 1000, runs[:, :, 1]
            median, low, high = np.median(returns, 0), returns.min(0), returns.max(0)
            colour = plot.COLOURS[norm]
            lines.append(plot.Line(norm, steps, median, low, high, colour))
        labels = {"title": f"learning rate {rate:g}", "ylim": (0, 1.05)}
        labels |= {"xlabel": "environment steps (thousands)", "ylabel": "return"}
        subplots.append(plot.Subplot(lines, labels, {"guessing": 0.5}))
    plot.draw(subplots, stem, columns=2)
