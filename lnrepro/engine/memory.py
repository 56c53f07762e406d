"""Whether a run can fit into the memory of its devices, before it is compiled."""

import math
import os
from typing import Any

import jax

from lnrepro.errors import UserError

GIB = 2**30


def size(tree: Any) -> int:
    """Return the number of bytes of arrays, or of what has their shapes."""
    leaves = jax.tree.leaves(tree)
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves)


def check(state: int, sharers: int) -> None:
    """Check that the state of a run fits. Activations come on top and are not counted.

    Args:
      state: bytes of the parameters and of the optimiser's moments.
      sharers: number of devices that share one state, where all of it is split.

    Raises:
      UserError: it does not fit.
    """
    needed, here = state / sharers, available()
    if needed > here:
        raise UserError(
            f"the parameters and the optimiser's moments need {needed / GIB:,.0f} GiB "
            f"on a device that has {here / GIB:,.0f} GiB; make config.model smaller"
        )


def available() -> float:
    """Return the bytes of memory of a device; infinite where they are not known."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        # Devices that the CPU is split into share its memory.
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total / jax.local_device_count()
    return (device.memory_stats() or {}).get("bytes_limit", math.inf)
