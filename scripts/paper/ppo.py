"""Pictures and table of PPO on the T-maze, from the kept curves.

Lines are medians over seeds, bands are their range.
"""

import pathlib

import numpy as np

from scripts import markdown as md
from scripts.paper import compare, plot
from scripts.paper.claims import NORMS
from scripts.paper.style import LOOKS

PICTURES = pathlib.Path(__file__).resolve().parents[2] / "docs/pictures"
NORMED = "layer", "rms"
# The mean return of so many updates that counts as learned.
UPDATES, LEARNED = 5, 0.9


def draw() -> None:
    """Draw the norms at each learning rate, and both GRUs beside no memory at two."""
    norms = {norm: NORMS[norm] for norm in ("none", *NORMED)}
    rates = np.unique(_rows()["learning_rate"])
    # Of two arms, one is right.
    panels = [_panel(rate, norms, printed={"guessing": 0.5}) for rate in rates]
    plot.draw(panels, PICTURES / "ppo_norms.png", columns=2)
    files = sorted((PICTURES / "recurrent_ppo").glob("none-*.csv"))
    runs = [np.genfromtxt(file, delimiter=",", names=True) for file in files]
    without = [_line("no memory", "weight", runs)]
    grus = {"layer": "LN-GRU", "none": "GRU"}
    # Later nothing changes.
    panels = [_panel(rate, grus, without, xlim=(0, 3e5)) for rate in (3e-4, 3e-3)]
    plot.draw(panels, PICTURES / "recurrent_ppo.png", columns=2)


def _panel(rate, labels, others=(), printed=None, **settings):
    """Return a panel of {norm: label} at a learning rate, and of other lines."""
    rows = _rows()
    own, lines = rows[rows["learning_rate"] == rate], []
    for norm, label in labels.items():
        lines.append(_line(label, norm, [own[own["norm"] == norm]]))
    settings |= {"xlabel": "environment steps", "ylabel": "return", "ylim": (0, 1.05)}
    settings["title"] = f"learning rate {rate:g}"
    return plot.Subplot([*lines, *others], settings, printed or {})


def table() -> str:
    """Return the environment steps to `LEARNED`, and the shares of those of no norm."""
    rows, lines = _rows(), []
    for rate in np.unique(rows["learning_rate"]):
        own = rows[rows["learning_rate"] == rate]
        steps = {norm: _steps(own[own["norm"] == norm]) for norm in ("none", *NORMED)}
        cells = [f"{rate:g}", *(f"{of.mean():,.0f}" for of in steps.values())]
        for norm in NORMED:
            pairs = compare.Pairs(np.zeros(1), steps[norm], steps["none"], sign=1)
            low, high = compare.interval(_share, pairs)
            share = 100 * _share(pairs)
            cells.append(f"{share:.0f} % ({100 * low:.0f} to {100 * high:.0f})")
        lines.append(cells)
    head = ["learning rate", "none", *NORMED, *(f"{norm} / none" for norm in NORMED)]
    return md.table(head, lines)


def _steps(rows):
    """Return the steps [S, 1] after which each seed has learned."""
    steps = []
    for seed in np.unique(rows["seed"]):
        own = rows[rows["seed"] == seed]
        means = np.convolve(own["return_"], np.full(UPDATES, 1 / UPDATES), "valid")
        # The step of the last of these updates.
        after = own["environment_steps"][UPDATES - 1 :]
        steps.append([min(after[means >= LEARNED], default=np.inf)])
    return np.array(steps)


def _share(pairs):
    return pairs.better.mean() / pairs.baseline.mean()


def _rows():
    path = PICTURES / "ppo_norms.csv"
    return np.genfromtxt(path, delimiter=",", names=True, dtype=None)


def _line(label, look, tables):
    points = []
    for rows in tables:
        # NumPy renames the column `return`.
        points += zip(rows["environment_steps"], rows["return_"], strict=True)
    return plot.median_line(label, points, *LOOKS[look])
