"""Checks of what users pass to a trained network.

Shape letters: N examples.
"""

from collections.abc import Iterable

import numpy as np

from lnrepro.errors import UserError


def texts(values: Iterable[str], what: str) -> list[str]:
    """Return texts as a list.

    Args:
      values: the texts.
      what: what they are, for messages, such as "sentences".

    Raises:
      TypeError: it is one text, or something in it is no text.
    """
    found = list(values)
    # A text is an iterable of its characters, which nobody means.
    is_text = isinstance(values, str | bytes)
    if is_text or not all(isinstance(value, str) for value in found):
        raise TypeError(f"{what}: give a list of str")
    return found


def rows(values: np.ndarray, shape: tuple[int, ...], what: str) -> np.ndarray:
    """Return finite float32 numbers [N, *shape].

    Args:
      values: the numbers.
      shape: the shape of an example.
      what: what they are, for messages.

    Raises:
      UserError: they have another shape, or one is not finite.
    """
    found = np.asarray(values)
    if found.dtype.kind not in "biuf" or found.shape[1:] != shape or not found.ndim:
        wanted = ", ".join(map(str, ("N", *shape)))
        raise UserError(
            f"{what}: an array of numbers [{wanted}] is needed, not {found.dtype} "
            f"{list(found.shape)}"
        )
    # A number that float32 cannot hold becomes infinite.
    with np.errstate(over="ignore"):
        found = found.astype(np.float32)
    return finite(found, what)


def finite(values: np.ndarray, what: str, advice: str = "") -> np.ndarray:
    """Return numbers [N, ...] if all of them are finite.

    Args:
      values: the numbers.
      what: what they are, for messages.
      advice: what to do about others.

    Raises:
      UserError: a number is not finite. The message names the row.
    """
    axes = tuple(range(1, values.ndim))
    is_finite = np.isfinite(values).all(axis=axes)
    if bad := np.flatnonzero(~is_finite).tolist():
        raise UserError(
            f"{what}, row {bad[0]}: some numbers are not finite ({len(bad)} such rows)"
            + advice
        )
    return values


# Of a network whose results are not finite.
BROKEN = (
    "; the inputs are too large for the network, or its parameters are not finite: "
    "take another checkpoint, or train again"
)


def pixels(values: np.ndarray, shape: tuple[int, ...], largest: float) -> np.ndarray:
    """Return images [N, *shape] float32 whose pixels lie between 0 and `largest`.

    Args:
      values: the images.
      shape: the shape of an image.
      largest: the pixel of full ink.

    Raises:
      UserError: they have another shape or another scale.
    """
    found = rows(values, shape, "images")
    if not found.size:
        return found
    low, high = found.min(), found.max()
    # Fractions up to 1 are images that were scaled already.
    is_scaled = largest > 1 and high <= 1 and (found % 1).any()
    if low < 0 or high > largest or is_scaled:
        raise UserError(
            f"images: the pixels lie between {low:g} and {high:g}; this network reads "
            f"0 to {largest:g}, as in its data"
        )
    return found
