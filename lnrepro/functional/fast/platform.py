"""The platform that a piece of code is lowered for, which may not be the process's own.

`jax.export`, `jit` on another device and ahead-of-time compilation lower for platforms
that `jax.default_backend()` does not name. `choose` traces a function once for each
form, and the lowering takes the one of its platform. While it is traced, the functions
that it calls ask `current`.
"""

import contextvars
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

_current = contextvars.ContextVar("current", default="")


class PerPlatform(NamedTuple):
    """A value for CPUs, one for TPUs and one for all other platforms."""

    cpu: Any
    tpu: Any
    default: Any


def current() -> str:
    """Return "cpu" or "tpu" while code for that platform is traced, else ""."""
    return _current.get()


def choose(function: Callable, plans: PerPlatform, *args: Any) -> Any:
    """Return function(plan, *args) for the plan of the platform of the lowering.

    Args:
      function: (plan, *args) -> pytree, whose shapes and dtypes all plans share.
      plans: a plan for every platform.
      *args: pytrees of arrays.
    """

    def traced(name, plan, *args):
        token = _current.set(name)
        try:
            return function(plan, *args)
        finally:
            _current.reset(token)

    return jax.lax.platform_dependent(
        *args,
        cpu=functools.partial(traced, "cpu", plans.cpu),
        tpu=functools.partial(traced, "tpu", plans.tpu),
        default=functools.partial(traced, "", plans.default),
    )
