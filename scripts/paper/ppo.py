"""Kept curves of docs/examples/recurrent_ppo.py: when a policy has learned the task.

Shape letters: N norms, R learning rates, S seeds, T updates.
"""

import pathlib

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


def read(file: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the environment steps [T] and the returns [N, R, S, T] of a CSV file."""
    rows = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(3, 4))
    curves = rows.reshape(len(NORMS), len(RATES), SEEDS, -1, 2)
    return curves[0, 0, 0, :, 0], curves[..., 1]


def learned_after(steps: np.ndarray, returns: np.ndarray) -> np.ndarray:
    """Return the steps after which each policy has learned, or infinity.

    Args:
      steps: [T].
      returns: [..., T].
    """
    windows = np.lib.stride_tricks.sliding_window_view(returns, UPDATES, axis=-1)
    reached = windows.mean(-1) >= LEARNED
    first = steps[reached.argmax(-1) + UPDATES - 1]
    return np.where(reached.any(-1), first, np.inf)


def table(steps: np.ndarray, returns: np.ndarray) -> str:
    """Return when the norms have learned, and their shares of the steps of none."""
    learned = learned_after(steps, returns)
    lines = []
    for r in np.argsort(RATES):
        of_norm = dict(zip(NORMS, learned[:, r, :, None], strict=True))
        cells = [f"{RATES[r]:g}", *(f"{of_norm[n].mean():,.0f}" for n in SHOWN)]
        for norm in SHOWN[1:]:
            pairs = compare.Pairs(np.zeros(1), of_norm[norm], of_norm["none"], sign=1)
            low, high = compare.interval(_share, pairs)
            cells.append(f"{_share(pairs):.0%} ({low:.0%} to {high:.0%})")
        lines.append(cells)
    return markdown.table(HEAD, lines)


def _share(pairs):
    return float(pairs.better.mean() / pairs.baseline.mean())


def draw(steps: np.ndarray, returns: np.ndarray, stem: pathlib.Path) -> None:
    """Write STEM.png and STEM.svg: the returns at each learning rate."""
    subplots = []
    for r in np.argsort(RATES):
        settings = {"title": f"learning rate {RATES[r]:g}", "ylim": (0, 1.05)}
        settings |= {"xlabel": "environment steps (thousands)", "ylabel": "return"}
        lines = []
        for norm in SHOWN:
            values = returns[NORMS.index(norm), r]
            band = np.median(values, 0), values.min(0), values.max(0)
            line = plot.Line(norm, steps / 1000, *band, plot.COLOURS[norm])
            lines.append(line)
        subplots.append(plot.Subplot(lines, settings, {"guessing": 0.5}))
    plot.draw(subplots, stem, columns=2)
