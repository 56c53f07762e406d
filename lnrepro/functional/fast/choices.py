"""The fastest settings of the scan, by backend and size, as they were measured.

`ScanOptions` takes them where its own are None. `python scripts/bench.py switches`
measures them. An entry covers sizes up to its limits, and the first that fits counts.
"""

from typing import NamedTuple


class Choice(NamedTuple):
    """Settings of the scan.

    Attributes:
      backend: name of JAX's backend, or None for all others.
      rows: largest number of batch rows, or None for any.
      width: largest number of hidden units, or None for any.
      hoist: whether the projections of a chunk are computed before its steps.
      unroll: steps in an iteration of the loop.
      measured: device and date of the measurement.
    """

    backend: str | None
    rows: int | None
    width: int | None
    hoist: bool
    unroll: int
    measured: str


CHOICES = (
    # One product per step leaves its result in the cache of a CPU.
    Choice("cpu", None, None, False, 1, "AMD EPYC, 2 cores, 2026-11-24"),
    # One large product is expected to be faster than many small ones.
    Choice(None, None, None, True, 1, "not measured"),
)


def best(backend: str, rows: int, width: int) -> Choice:
    """Return the first choice that fits.

    Args:
      backend: name of JAX's backend.
      rows: number of batch rows.
      width: number of hidden units.
    """
    for choice in CHOICES:
        if choice.backend not in (backend, None):
            continue
        if choice.rows is not None and rows > choice.rows:
            continue
        if choice.width is not None and width > choice.width:
            continue
        return choice
    return CHOICES[-1]
