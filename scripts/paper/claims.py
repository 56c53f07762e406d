"""What the paper claims of its curves, computed from ours."""

from collections.abc import Sequence

import numpy as np

from scripts.paper.axes import Figure, Panel
from scripts.paper.runs import Curve

BASELINE = "none"


def sentences(
    figure: Figure, panels: Sequence[tuple[Panel, list[Curve], list[Curve]]]
) -> list[str]:
    """For every panel and normaliser: when it reaches the baseline's best, over when the baseline does; and the last gap."""
    out = []
    for panel, lines, _ in panels:
        for base in (c for c in lines if c.norm == BASELINE):
            for other in (
                c for c in lines if c.norm != BASELINE and c.data == base.data
            ):
                where = f"{panel.ylabel}{f' ({panel.title})' if panel.title else ''}, {base.data}"
                names = figure.curves[other.norm], figure.curves[base.norm]
                out.append(
                    f"{where}: {reach(other, base, names, _aim(figure, panel), figure.xlabel)}; {gap(other, base, names)}."
                )
    return out


def _aim(figure: Figure, panel: Panel) -> str:
    """Errors go down even in a figure whose other panels go up."""
    return "min" if "MSE" in panel.ylabel else figure.aim


def reach(
    other: Curve, base: Curve, names: tuple[str, str], aim: str, unit: str
) -> str:
    """When the other's median reaches the baseline's best median, relative to the baseline's own time."""
    sign = 1 if aim == "min" else -1
    i = int(np.argmin(sign * base.median))
    best, at = base.median[i], base.x[i]
    hit = np.flatnonzero(sign * other.median <= sign * best)
    if not len(hit):
        return f"{names[0]} does not reach {names[1]}'s best, {best:.4g} (at {unit} {at:.4g}), by {other.x[-1]:.4g}"
    first = other.x[hit[0]]
    share = f", {100 * first / at:.0f} % of its" if at else ""
    return f"{names[0]} reaches {names[1]}'s best, {best:.4g} (at {unit} {at:.4g}), at {first:.4g}{share}"


def gap(other: Curve, base: Curve, names: tuple[str, str]) -> str:
    """The difference of the medians at the last x that both have, with each one's spread over its seeds."""
    both = np.intersect1d(other.x, base.x)
    if not len(both):
        return "no x in common"
    i, j = (int(np.flatnonzero(c.x == both[-1])[0]) for c in (other, base))
    spread = [
        f"{c.low[k]:.4g} to {c.high[k]:.4g} over {len(c.seeds)} seeds"
        for c, k in ((other, i), (base, j))
        if len(c.seeds) > 1
    ]
    text = f"at {both[-1]:.4g}: {names[0]} {other.median[i]:.4g}, {names[1]} {base.median[j]:.4g}"
    return f"{text} (difference {other.median[i] - base.median[j]:+.3g}{'; ' + ' and '.join(spread) if spread else ', one seed each'})"
