"""Whether layer norm helps an agent with memory: figure and table of kept runs.

    python -m scripts.paper.ppo docs/pictures/ppo_norms.csv --out PAGE
    python -m scripts.paper.ppo docs/pictures/ppo_norms.csv --pack FOLDER

The file has the curves of docs/examples/recurrent_ppo.py, a row for each update:
norm, learning_rate, seed, environment steps, return. --pack makes it of that example's
files NORM-RATE-SEED.csv. The table goes to the page, the figure beside the file.
"""

import csv
import pathlib
import re
from collections.abc import Mapping

import numpy as np

from lnrepro.engine.command_line import Parser
from lnrepro.errors import UserError, ended
from scripts import markdown, page_sections
from scripts.paper import compare
from scripts.paper.compare import Pairs

FIELDS = ("norm", "learning_rate", "seed", "environment steps", "return")
NORMS = ("none", "layer", "rms")
SAME_RATE = 1e-3
# A policy has learned the task where the mean return of so many updates is this high.
# Guessing has 0.5.
LEARNED, UPDATES = 0.9, 5
# {(norm, learning rate): {seed: [updates, (environment steps, return)]}}
Curves = Mapping[tuple[str, float], Mapping[int, np.ndarray]]


def main(argv: list[str]) -> None:
    """Pack curves, or draw packed ones.

    Raises:
      UserError: a wrong flag, or a file that has no such curves.
    """
    parser = Parser(description=__doc__)
    parser.add_argument("file", type=pathlib.Path, metavar="CSV")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--pack", type=pathlib.Path, help="folder of the example's files")
    what.add_argument("--out", type=pathlib.Path, help="page that gets the table")
    args = parser.parse_args(argv)
    if args.pack:
        pack(args.pack, args.file)
        return
    curves = read(args.file)
    draw(curves, args.file.with_suffix(".png"))
    page_sections.write(args.out, "scripts/paper/ppo.py", table(curves))


def pack(folder: pathlib.Path, file: pathlib.Path) -> None:
    """Write one file of the files NORM-RATE-SEED.csv of a folder.

    Raises:
      UserError: there is none.
    """
    rows = []
    for path in sorted(folder.glob("*.csv")):
        if named := re.fullmatch(r"([a-z_]+)-([\d.e-]+)-(\d+)", path.stem):
            with path.open(newline="", encoding="utf-8") as curve:
                rows += [(*named.groups(), *row) for row in list(csv.reader(curve))[1:]]
    if not rows:
        raise UserError(f"{folder}: has no file NORM-RATE-SEED.csv")
    with file.open("w", newline="", encoding="utf-8") as packed:
        csv.writer(packed, lineterminator="\n").writerows([FIELDS, *rows])


def read(file: pathlib.Path) -> Curves:
    """Return the curves of a file.

    Raises:
      UserError: it has other columns, or values that are no numbers.
    """
    found: dict = {}
    with file.open(newline="", encoding="utf-8") as rows:
        reader = csv.reader(rows)
        if tuple(next(reader, ())) != FIELDS:
            raise UserError(f"{file}: the columns must be {', '.join(FIELDS)}")
        for row in reader:
            try:
                norm, rate, seed, steps, value = row
                curve = found.setdefault((norm, float(rate)), {}).setdefault(
                    int(seed), []
                )
                curve.append((int(steps), float(value)))
            except ValueError:
                line = reader.line_num
                raise UserError(f"{file}, line {line}: {row} is no update") from None
    return {
        key: {seed: np.array(curve) for seed, curve in sorted(of_seeds.items())}
        for key, of_seeds in found.items()
    }


def learned_after(curve: np.ndarray) -> float:
    """Return the environment steps after which a policy has learned, or infinity."""
    means = np.convolve(curve[:, 1], np.full(UPDATES, 1 / UPDATES), "valid")
    reached = means >= LEARNED
    return curve[reached.argmax() + UPDATES - 1, 0] if reached.any() else np.inf


def share(pairs: Pairs) -> float:
    """Return the share of the steps of the other norm, of means over seeds."""
    return float(pairs.better.mean() / pairs.baseline.mean())


def mean_steps(curves: Curves, norm: str, rate: float) -> float:
    """Return the mean over seeds of `learned_after`."""
    return float(np.mean([*map(learned_after, curves[norm, rate].values())]))


def best_rates(curves: Curves) -> dict[str, float]:
    """Return the learning rate at which each norm learns soonest."""
    return {
        norm: min(
            (rate for of, rate in curves if of == norm),
            key=lambda rate, norm=norm: mean_steps(curves, norm, rate),
        )
        for norm in NORMS
    }


def compared(curves: Curves, norm: str, rate: float, baseline: float) -> str:
    """Return the share of a norm's steps of those without a norm, with its interval.

    Args:
      curves: the curves.
      norm: the norm.
      rate: its learning rate.
      baseline: the learning rate without a norm.
    """
    ours, theirs = curves[norm, rate], curves["none", baseline]
    seeds = sorted(ours.keys() & theirs.keys())
    steps = [
        np.array([[learned_after(runs[seed])] for seed in seeds])
        for runs in (ours, theirs)
    ]
    pairs = Pairs(np.zeros(1), *steps, sign=1)
    low, high = compare.interval(share, pairs)
    return f"{share(pairs):.0%} ({low:.0%} to {high:.0%})"


def table(curves: Curves) -> str:
    """Return a row for each learning rate, and one with the best rate of each norm."""
    best = best_rates(curves)
    rows = []
    for rate in sorted({rate for _, rate in curves}):
        name = f"{rate:g}" + (", Adam's default" if rate == SAME_RATE else "")
        rows.append((name, dict.fromkeys(NORMS, rate)))
    named = ", ".join(f"{norm} {rate:g}" for norm, rate in best.items())
    rows.append((f"the best of each ({named})", best))
    cells = []
    for name, rates in rows:
        learned = [mean_steps(curves, norm, rates[norm]) for norm in NORMS]
        shares = [
            compared(curves, norm, rates[norm], rates["none"]) for norm in NORMS[1:]
        ]
        cells.append([name, *(f"{steps:,.0f}" for steps in learned), *shares])
    return markdown.table(
        ("learning rate", *NORMS, "layer / none", "rms / none"), cells
    )


def draw(curves: Curves, file: pathlib.Path) -> None:
    """Draw the returns: a panel for each learning rate, seeds as a band."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rates = sorted({rate for _, rate in curves})
    figure, panels = plt.subplots(
        1, len(rates), figsize=(9, 3), sharey=True, layout="constrained"
    )
    for panel, rate in zip(panels, rates, strict=True):
        for norm in NORMS:
            runs = np.stack([*curves[norm, rate].values()])
            steps, returns = runs[0, :, 0], runs[:, :, 1]
            (line,) = panel.plot(steps, np.median(returns, 0), label=norm)
            panel.fill_between(
                steps,
                returns.min(0),
                returns.max(0),
                color=line.get_color(),
                alpha=0.2,
            )
        panel.axhline(0.5, color="grey", linewidth=0.8, linestyle="--")
        panel.set(title=f"learning rate {rate:g}", xlabel="environment steps")
    panels[0].set(ylabel="return", ylim=(0, 1.05))
    panels[0].legend()
    figure.savefig(file, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    ended(main, "this comparison")
