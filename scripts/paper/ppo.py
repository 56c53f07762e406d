"""Kept curves of docs/examples/recurrent_ppo.py: when a policy has learned the task."""

import pathlib

import numpy as np

from scripts import markdown
from scripts.paper import compare, plot

NORMS = ("none", "layer", "rms")
HEAD = ("learning rate", *NORMS, "layer / none", "rms / none")
# A policy has learned the task where the mean return of so many updates is this high.
# Guessing has 0.5.
LEARNED, UPDATES = 0.9, 5


def read(file: pathlib.Path) -> np.ndarray:
    """Return a CSV file with a row for each update as a structured array."""
    names = ("norm", "learning_rate", "seed", "environment steps", "return")
    types = ("U9", float, int, int, float)
    dtype = np.dtype([*zip(names, types, strict=True)])
    rows = np.loadtxt(file, dtype, delimiter=",", skiprows=1)
    return np.sort(rows, order=["learning_rate", "seed", "environment steps"])


def returns(rows: np.ndarray, rate: float, norm: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the environment steps [T] and the returns of each seed [S, T]."""
    own = rows[(rows["learning_rate"] == rate) & (rows["norm"] == norm)]
    n_seeds = len(np.unique(own["seed"]))
    own = own.reshape(n_seeds, -1)
    return own["environment steps"][0], own["return"]


def learned_after(steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the step after which each seed has learned, or infinity, [S, 1]."""
    windows = np.lib.stride_tricks.sliding_window_view(values, UPDATES, axis=1)
    reached = windows.mean(-1) >= LEARNED
    first = steps[reached.argmax(1) + UPDATES - 1]
    return np.where(reached.any(1), first, np.inf)[:, None]


def table(rows: np.ndarray) -> str:
    """Return when the norms have learned, and their shares of the steps of none."""
    lines = []
    for rate in np.unique(rows["learning_rate"]):
        learned = [learned_after(*returns(rows, rate, norm)) for norm in NORMS]
        cells = [f"{rate:g}", *(f"{steps.mean():,.0f}" for steps in learned)]
        for steps in learned[1:]:
            pairs = compare.Pairs(np.zeros(1), steps, learned[0], sign=1)
            low, high = compare.interval(_share, pairs)
            cells.append(f"{_share(pairs):.0%} ({low:.0%} to {high:.0%})")
        lines.append(cells)
    return markdown.table(HEAD, lines)


def _share(pairs):
    return float(pairs.better.mean() / pairs.baseline.mean())


def draw(rows: np.ndarray, stem: pathlib.Path) -> None:
    """Write STEM.png and STEM.svg: the returns at each learning rate."""
    subplots = []
    for rate in np.unique(rows["learning_rate"]):
        labels = {"title": f"learning rate {rate:g}", "ylim": (0, 1.05)}
        labels |= {"xlabel": "environment steps (thousands)", "ylabel": "return"}
        lines = []
        for norm in NORMS:
            steps, values = returns(rows, rate, norm)
            band = np.median(values, 0), values.min(0), values.max(0)
            lines.append(plot.Line(norm, steps / 1000, *band, plot.COLOURS[norm]))
        subplots.append(plot.Subplot(lines, labels, {"guessing": 0.5}))
    plot.draw(subplots, stem, columns=2)
