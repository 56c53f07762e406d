"""Packages that training can do without.

Needed are jax, flax, optax, orbax-checkpoint, ml_collections, absl-py and numpy, and a
data set that is prepared.
"""

import functools
import importlib.util
import sys

# {package: what is left out without it}
LEFT_OUT = {
    "grain": "batches are not made ahead of time",
    "tensorboardX": "there are no TensorBoard events",
    "matplotlib": "no curves and pictures are drawn",
    "PIL": "no pictures are drawn",
}


@functools.cache
def installed(package: str) -> bool:
    """Return whether a package of LEFT_OUT is installed.

    The first time that it is not, a line on stderr says what is left out.
    """
    if importlib.util.find_spec(package) is not None:
        return True
    print(f"{package} is not installed: {LEFT_OUT[package]}", file=sys.stderr)
    return False


def can_do_without(error: ModuleNotFoundError) -> bool:
    """Return whether a module that was not found belongs to a package of LEFT_OUT."""
    package = (error.name or "").partition(".")[0]
    return package in LEFT_OUT and not installed(package)
