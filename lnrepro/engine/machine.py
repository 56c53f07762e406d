"""The processor of this machine, and how much of it this process may use."""

import os
import pathlib
import platform
import re
import sys

from lnrepro.errors import UserError


def processor() -> str:
    """Return the name of the CPU."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        # Only Linux has this file.
        text = ""
    # It has not this line for every processor.
    line = re.search(r"model name\s*: (.*)", text)
    return line[1] if line else platform.processor() or platform.machine()


def cores() -> int:
    """Return the number of cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_devices() -> None:
    """Check that JAX finds the devices that JAX_PLATFORMS names.

    Raises:
      UserError: it finds none.
    """
    import jax

    try:
        jax.devices()
    # Without a plugin for "cuda", JAX fails an assertion.
    except (RuntimeError, AssertionError) as e:
        wanted = os.environ.get("JAX_PLATFORMS", "")
        reason = " ".join(str(e).split()) or "its plugin is not installed"
        raise UserError(
            f"JAX_PLATFORMS={wanted}: JAX finds no such device ({reason[:200]}); unset "
            "it, or install JAX for this device"
        ) from None
