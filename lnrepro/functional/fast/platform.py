"""The platform that a piece of code is lowered for, which may not be the process's own.

`jax.export`, `jit` on another device and ahead-of-time compilation lower for platforms
that `jax.default_backend()` does not name. `choose` traces a function once for each
form, and the lowering takes the one of its platform. While it is traced, the functions
that it calls ask `is_cpu`.
"""

import contextvars
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

_is_cpu = contextvars.ContextVar("is_cpu", default=False)


class PerPlatform(NamedTuple):
    """A value for CPUs, one for TPUs and one for all other platforms."""

    cpu: Any
    tpu: Any
    default: Any


def is_cpu() -> bool:
    """Return whether the code that is traced now is that of CPUs."""
    return _is_cpu.get()


def choose(function: Callable, plans: PerPlatform, *args: Any) -> Any:
    """Return function(plan, *args) for the plan of the platform of the lowering.

    Args:
      function: (plan, *args) -> pytree, whose shapes and dtypes all plans share.
      plans: a plan for every platform.
      *args: pytrees of arrays.
    """

    def on_cpu(*args):
        token = _is_cpu.set(True)
        try:
            return function(plans.cpu, *args)
        finally:
            _is_cpu.reset(token)

    return jax.lax.platform_dependent(
        *args,
        cpu=on_cpu,
        tpu=functools.partial(function, plans.tpu),
        default=functools.partial(function, plans.default),
    )
