"""The processor of this machine, and how much of it this process may use."""

import os
import pathlib
import platform
import re
import sys


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
