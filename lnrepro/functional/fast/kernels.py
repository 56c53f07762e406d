"""Loops that run as one kernel where they can: what kernels of all platforms share."""

import contextlib
import contextvars
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax

from lnrepro.functional.fast import platform

logger = logging.getLogger("lnrepro.kernels")
# What is noted of a loop that runs as a kernel. Of others it is the reason.
KERNEL = "kernel"
_seen = contextvars.ContextVar["Seen | None"]("seen", default=None)


class NoKernel(Exception):
    """There can be no kernel for a loop. The text says why, in one line."""


class Implementation(NamedTuple):
    """How a scan runs.

    Attributes:
      kernel: whether its loops run as kernels where they can.
      layout: (blocks, rows) of a cluster of a kernel for GPUs, which was measured. None
        takes the usual one.
      reason: why there is no kernel.
    """

    kernel: bool
    layout: tuple[int, int] | None = None
    reason: str = ""


class Seen(list[str]):
    """What loops run as: `KERNEL`, or the reason against one.

    Attributes:
      layouts: those that the kernels for GPUs can have, the usual one first.
    """

    def __init__(self):
        """Start with nothing."""
        self.layouts: list[tuple[int, int]] = []


def watched() -> contextlib.AbstractContextManager[Seen]:
    """Collect what the loops that are traced inside run as.

    Returns:
      A context manager of a list, to which each loop adds. A function that was traced
      before adds nothing.
    """
    return platform.setting(_seen, Seen())


def note(words: str) -> None:
    """Tell those who watch what a loop runs as; without them, log it."""
    seen = _seen.get()
    if seen is not None:
        seen.append(words)
    else:
        logger.info(words if words == KERNEL else f"scan: {words}")


def note_layout(words: str) -> None:
    """Log the layout of a kernel. Who watches compiles kernels that are not taken."""
    if _seen.get() is None:
        logger.info(f"{KERNEL}: {words}")


def note_layouts(layouts: Iterable[tuple[int, int]]) -> None:
    """Tell those who watch which layouts a kernel can have."""
    seen = _seen.get()
    if seen is not None:
        seen.layouts += [one for one in layouts if one not in seen.layouts]


def with_kernel(kernel: Callable, plain: Callable, required: bool) -> Callable:
    """Return a loop, as `jax.lax.scan` is one, that runs as a kernel where it can.

    Args:
      kernel: (body, carry, xs, *, reverse) -> (last carry, outputs). It raises NoKernel
        where there can be none.
      plain: the loop that runs there, unless a kernel is required.
      required: whether to raise ValueError there.
    """

    def loop(body, carry, xs, *, reverse=False, unroll=1):
        try:
            if any(0 in a.shape for a in jax.tree.leaves((carry, xs))):
                raise NoKernel("there are no steps, or no rows")
            results = kernel(body, carry, xs, reverse=reverse)
        except NoKernel as reason:
            if required:
                raise ValueError(
                    f"scan: kernels='on' cannot be used here: {reason}"
                ) from None
            note(str(reason))
            return plain(body, carry, xs, reverse=reverse, unroll=unroll)
        note(KERNEL)
        return results

    return loop


def with_derivative(kernel: Callable, plain: Callable) -> Callable:
    """Return a function that is `kernel`, and has the derivative of `plain`."""
    run = jax.custom_jvp(kernel)

    @run.defjvp
    def _(primals, tangents):
        return jax.jvp(plain, primals, tangents)

    return run
