"""Pictures and table of PPO on the T-maze, from the kept curves.

Lines are medians over seeds, bands are their range. Shape letters: S seeds, T updates.
"""

import numpy as np

from scripts import markdown as md
from scripts.paper import ROOT, compare, plot, verdicts
from scripts.paper.claims import NORMS
from scripts.paper.style import LOOKS

PICTURES = ROOT / "docs/pictures"
SHOWN = "none", "layer", "rms"
# The mean return of so many updates that counts as learned.
UPDATES, LEARNED = 5, 0.9


def draw() -> None:
    """Draw the norms at each learning rate, and both GRUs beside no memory at two."""
    kept, panels = _kept(), []
    for rate, of_norm in kept.items():
        lines = [_line(NORMS[norm], norm, rows) for norm, rows in of_norm.items()]
        # Of two arms, one is right.
        panels.append(_panel(rate, lines, {"guessing": 0.5}))
    plot.draw(panels, PICTURES / "ppo_norms.png", columns=2)
    files = sorted((PICTURES / "recurrent_ppo").glob("none-*.csv"))
    without = _line("no memory", "weight", np.concatenate([*map(_read, files)]))
    panels = []
    for rate in (3e-4, 3e-3):
        ours = _line("LN-GRU", "layer", kept[rate]["layer"])
        lines = [ours, _line("GRU", "none", kept[rate]["none"]), without]
        # Later nothing changes.
        panels.append(_panel(rate, lines, {}, xlim=(0, 3e5)))
    plot.draw(panels, PICTURES / "recurrent_ppo.png", columns=2)


def _panel(rate, lines, printed, **settings):
    settings |= {"xlabel": "environment steps", "ylabel": "return", "ylim": (0, 1.05)}
    settings["title"] = f"learning rate {rate:g}"
    return plot.Panel(lines, settings, printed)


def _line(label, look, rows):
    # NumPy renames the column `return`.
    points = list(zip(rows["environment_steps"], rows["return_"], strict=True))
    return plot.median_line(label, points, *LOOKS[look])


def table() -> str:
    """Return the environment steps to `LEARNED`, and the shares of those of no norm."""
    lines = []
    for rate, of_norm in _kept().items():
        none, *others = (_steps(rows) for rows in of_norm.values())
        cells = [f"{rate:g}", *(f"{of.mean():,.0f}" for of in (none, *others))]
        for steps in others:
            pairs = compare.Pairs(np.zeros(1), steps, none, sign=1)
            cells.append(verdicts.measured(_share, pairs).text("speed"))
        lines.append(cells)
    shares = [f"{norm} / none" for norm in SHOWN[1:]]
    return md.table(["learning rate", *SHOWN, *shares], lines)


def _steps(rows):
    """Return the steps [S, 1] after which each seed has learned."""
    shape = len(np.unique(rows["seed"])), -1
    returns = rows["return_"].reshape(shape)
    mean = np.full(UPDATES, 1 / UPDATES)
    means = np.array([np.convolve(own, mean, "valid") for own in returns])
    # The step of the last of these updates.
    after = rows["environment_steps"].reshape(shape)[:, UPDATES - 1 :]
    return np.where(means >= LEARNED, after, np.inf).min(1, keepdims=True)


def _share(pairs):
    return pairs.better.mean() / pairs.baseline.mean()


def _kept():
    """Return {learning rate: {norm: rows of all seeds, [S * T]}}."""
    rows, found = _read(PICTURES / "ppo_norms.csv"), {}
    for rate in np.unique(rows["learning_rate"]):
        own = rows[rows["learning_rate"] == rate]
        found[rate] = {norm: own[own["norm"] == norm] for norm in SHOWN}
    return found


def _read(path):
    return np.genfromtxt(path, delimiter=",", names=True, dtype=None)
