"""Sweeps that answer the questions of the paper, for config files."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lnrepro.config import grid

# How norms are compared at a small size: each with its own best learning rate, or all
# with one.
PROTOCOLS = ("tuned", "same_rate")
# The one rate of "same_rate": Adam's default. The text of the paper gives no rate. Its
# code has this one for order-embeddings. It has 8e-5 for the reader, over 800,000
# steps, and 2e-4 for skip-thoughts, over 1,000,000. Small runs have a hundredth of
# these steps, and would not leave chance with such rates.
SAME_RATE = 1e-3


def figure_sweeps(
    norms: Iterable[str], seeds: int, rates: Sequence[float]
) -> dict[str, list[dict[str, Any]]]:
    """Return the sweep of a figure, and one over learning rates.

    Args:
      norms: the norms that are compared.
      seeds: number of seeds of each norm.
      rates: the learning rates that each norm is tried with.

    Returns:
      {"": seeds 0, 1, ... of each norm; "learning_rate": each norm at each rate}.
    """
    return {
        "": grid({"norm": norms, "seed": range(seeds)}),
        "learning_rate": grid({"norm": norms, "optimizer.learning_rate": rates}),
    }


def small_sweeps(
    variant: str,
    best_rates: Mapping[str, float],
    rates: Sequence[float],
    seeds: Sequence[int] = (100,),
    **length: float,
) -> dict[str, list[dict[str, Any]]]:
    """Return the sweeps that answer the paper's question at a small size.

    Args:
      variant: name of the variant.
      best_rates: {norm: its best learning rate}, for the norms that are compared.
      rates: the learning rates that each norm is tried with.
      seeds: seeds of the tries, which no other run uses.
      **length: `steps` or `epochs` of a try, mostly a third of those of the variant.

    Returns:
      {VARIANT_rates: the tries; VARIANT: seeds 0 to 4 of each norm with its best rate,
      the protocol "tuned"; VARIANT_same_rate: those with `SAME_RATE`}.
    """
    tries = {"norm": best_rates, "optimizer.learning_rate": rates, "seed": seeds}
    tries |= {name: (value,) for name, value in length.items()}
    tuned = []
    for norm, rate in best_rates.items():
        tuned += _five_seeds((norm,), rate)
    return {
        f"{variant}_rates": grid(tries),
        variant: tuned,
        f"{variant}_same_rate": _five_seeds(best_rates, SAME_RATE),
    }


def _five_seeds(norms, rate):
    """Return seeds 0 to 4 of each norm with a learning rate."""
    runs = {"norm": norms, "optimizer.learning_rate": (rate,), "seed": range(5)}
    return grid(runs)
