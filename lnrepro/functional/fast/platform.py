"""The platform that a piece of code is lowered for, which may not be the process's own.

`jax.export`, `jit` on another device and ahead-of-time compilation lower for platforms
that `jax.default_backend()` does not name. `choose` traces a function once for each
form, and the lowering takes the one of its platform. While it is traced, the functions
that it calls ask `current`.
"""

import contextvars
import functools
from collections.abc import Callable
from typing import Any

import jax

_current = contextvars.ContextVar("current", default="")


# {platform: value}; "" stands for all platforms that have no entry of their own.
PerPlatform = dict[str, Any]


def current() -> str:
    """Return "cpu" or "tpu" while code for that platform is traced, else ""."""
    return _current.get()


def choose(function: Callable, plans: PerPlatform, *args: Any) -> Any:
    """Return function(plan, *args) for the plan of the platform of the lowering.

    Args:
      function: (plan, *args) -> pytree, whose shapes and dtypes all plans share.
      plans: a plan for every platform. Where there is one alone, it serves them all,
        and nothing else is traced.
      *args: pytrees of arrays.
    """

    def traced(name, plan, *args):
        token = _current.set(name)
        try:
            return function(plan, *args)
        finally:
            _current.reset(token)

    forms = {
        name or "default": functools.partial(traced, name, plan)
        for name, plan in plans.items()
    }
    if len(forms) == 1:
        (form,) = forms.values()
        return form(*args)
    return jax.lax.platform_dependent(*args, **forms)
