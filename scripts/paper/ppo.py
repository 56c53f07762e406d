"""Kept curves of docs/examples/recurrent_ppo.py: when a policy has learned the task.

Shape letters: S seeds, T updates.
"""

import pathlib
from collections.abc import Mapping

import numpy as np

from scripts import markdown
from scripts.paper import compare, plot

# The file has a row for each update, sorted by norm, learning rate and seed.
NORMS = ("layer", "none", "rms")
RATES = (1e-2, 1e-3, 3e-3, 3e-4)
SEEDS = 5
SHOWN = ("none", "layer", "rms")
HEAD = ("learning rate", *SHOWN, "layer / none", "rms / none")
# A policy has learned the task where the mean return of so many updates is this high.
# Guessing has 0.5.
LEARNED, UPDATES = 0.9, 5
# {(learning rate, norm): environment steps and returns, [S, T, 2]}.
Curves = Mapping[tuple[float, str], np.ndarray]


def read(file: pathlib.Path) -> Curves:
    """Read the curves from a CSV file."""
    rows = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(3, 4))
    curves = rows.reshape(len(NORMS), len(RATES), SEEDS, -1, 2)
    found = {}
    for norm, of_norm in zip(NORMS, curves, strict=True):
        for rate, of_rate in zip(RATES, of_norm, strict=True):
            found[rate, norm] = of_rate
    return found


def learned_after(steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the step [T] after which each seed [S, T] has learned, or infinity."""
    windows = np.lib.stride_tricks.sliding_window_view(values, UPDATES, axis=1)
    reached = windows.mean(-1) >= LEARNED
    first = steps[reached.argmax(1) + UPDATES - 1]
    return np.where(reached.any(1), first, np.inf)[:, None]


def table(curves: Curves) -> str:
    """Return when the norms have learned, and their shares of the steps of none."""
    lines = []
    for rate in sorted(RATES):
        own = [curves[rate, norm] for norm in SHOWN]
        learned = [learned_after(one[0, :, 0], one[..., 1]) for one in own]
        cells = [f"{rate:g}", *(f"{steps.mean():,.0f}" for steps in learned)]
        for steps in learned[1:]:
            pairs = compare.Pairs(np.zeros(1), steps, learned[0], sign=1)
            low, high = compare.interval(_share, pairs)
            cells.append(f"{_share(pairs):.0%} ({low:.0%} to {high:.0%})")
        lines.append(cells)
    return markdown.table(HEAD, lines)


def _share(pairs):
    return float(pairs.better.mean() / pairs.baseline.mean())


def draw(curves: Curves, stem: pathlib.Path) -> None:
    """Write STEM.png and STEM.svg: the returns at each learning rate."""
    subplots = []
    for rate in sorted(RATES):
        settings = {"title": f"learning rate {rate:g}", "ylim": (0, 1.05)}
        settings |= {"xlabel": "environment steps (thousands)", "ylabel": "return"}
        lines = []
        for norm in SHOWN:
            steps, values = np.moveaxis(curves[rate, norm], 2, 0)
            band = np.median(values, 0), values.min(0), values.max(0)
            line = plot.Line(norm, steps[0] / 1000, *band, plot.COLOURS[norm])
            lines.append(line)
        subplots.append(plot.Subplot(lines, settings, {"guessing": 0.5}))
    plot.draw(subplots, stem, columns=2)
