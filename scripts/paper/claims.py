"""What the paper claims about its curves, computed from ours."""

from collections.abc import Sequence

import numpy as np

from scripts.paper.axes import Figure
from scripts.paper.curves import Curve, PanelCurves

BASELINE = "none"


def sentences(figure: Figure, panels: Sequence[PanelCurves]) -> list[str]:
    """Compare every curve with the baseline on the same data.

    Args:
      figure: the figure.
      panels: its panels with their curves.

    Returns:
      For each curve, a sentence about when it reaches the baseline's best value, and
      about the last difference.
    """
    found = []
    for panel, curves, _ in panels:
        for base in curves:
            if base.norm != BASELINE:
                continue
            # Curves of other data sets are not comparable with this baseline.
            for other in curves:
                if other.norm != BASELINE and other.data == base.data:
                    found.append(_sentence(figure, panel, other, base))
    return found


def _sentence(figure, panel, other, base):
    title = f" ({panel.title})" if panel.title else ""
    names = _name(figure, other), _name(figure, base)
    # Errors go down also in a figure whose other panels go up.
    best = "min" if "MSE" in panel.ylabel else figure.best
    when = reach(other, base, names, best, figure.xlabel)
    return f"{panel.ylabel}{title}, {base.data}: {when}; {gap(other, base, names)}."


def _name(figure, curve):
    """Return the legend of a curve, with the settings that others of its norm lack."""
    note = f" ({curve.note})" if curve.note else ""
    return figure.legends[curve.norm] + note


def reach(
    other: Curve, base: Curve, names: tuple[str, str], best: str, unit: str
) -> str:
    """Say when a curve's median reaches the best median of the baseline.

    Args:
      other: the curve.
      base: the baseline.
      names: their names.
      best: "min" or "max".
      unit: the label of the x axis.
    """
    # With this sign, smaller is better for both kinds of metrics.
    sign = 1 if best == "min" else -1
    i = int(np.argmin(sign * base.median))
    value, at = base.median[i], base.x[i]
    target = f"{names[1]}'s best, {value:.4g} (at {unit} {at:.4g})"
    reached = np.flatnonzero(sign * other.median <= sign * value)
    if not len(reached):
        return f"{names[0]} does not reach {target}, by {other.x[-1]:.4g}"
    first = other.x[reached[0]]
    # The paper states such shares: "60 % of the time".
    share = f", {100 * first / at:.0f} % of its" if at else ""
    return f"{names[0]} reaches {target}, at {first:.4g}{share}"


def gap(other: Curve, base: Curve, names: tuple[str, str]) -> str:
    """Say how much the medians differ at the last x that both curves have.

    Args:
      other: the curve.
      base: the baseline.
      names: their names.
    """
    # Runs may differ in length, so the last x of one may lie beyond the other.
    common = np.intersect1d(other.x, base.x)
    if not len(common):
        return "no x in common"
    medians, spreads = [], []
    for curve in (other, base):
        i = int(np.flatnonzero(curve.x == common[-1])[0])
        medians.append(curve.median[i])
        n_seeds = len(curve.seeds)
        if n_seeds > 1:
            low, high = curve.low[i], curve.high[i]
            spreads.append(f"{low:.4g} to {high:.4g} over {n_seeds} seeds")
    spread = ", one seed each"
    if spreads:
        spread = f"; {' and '.join(spreads)}"
    a, b = medians
    return (
        f"at {common[-1]:.4g}: {names[0]} {a:.4g}, {names[1]} {b:.4g} "
        f"(difference {a - b:+.3g}{spread})"
    )
