"""What code is traced for: a platform, which chooses its form, and JAX's settings.

JAX traces a function before it knows where it will run. So the platform is that of the
process, unless `ScanOptions(platform=...)` or `tracing_for` names another. A program
that runs elsewhere computes the same numbers, in a form that is slower there.

JAX may trace a derivative outside of the context managers around the call, such as
`jax.enable_x64`. So a derivative rule is traced in the context of the call.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

# JAX's settings that change what is traced. Each is the name of a context manager.
SETTINGS = (
    "allow_f16_reductions",
    "auto_pcast",
    "debug_infs",
    "debug_nans",
    "default_matmul_precision",
    "default_prng_impl",
    "enable_custom_prng",
    "enable_x64",
    "legacy_prng_key",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "remove_size_one_mesh_axis_from_type",
    "softmax_custom_jvp",
    "threefry_partitionable",
)

_current = contextvars.ContextVar("current", default="")


def current() -> str:
    """Return the platform that code is traced for: "cpu", "gpu" or "tpu"."""
    return _current.get() or jax.default_backend()


def is_forced() -> bool:
    """Return whether code is traced inside of `tracing_for`."""
    return bool(_current.get())


@contextlib.contextmanager
def setting(variable: contextvars.ContextVar, value: Any) -> Iterator[Any]:
    """Give a variable a value in the code inside."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def tracing_for(name: str) -> contextlib.AbstractContextManager:
    """Trace the code inside for a platform.

    Args:
      name: "cpu", "gpu" or "tpu".
    """
    return setting(_current, name)


class Context(NamedTuple):
    """What code is traced for.

    Attributes:
      platform: "cpu", "gpu" or "tpu".
      settings: the values of `SETTINGS`.
    """

    platform: str
    settings: tuple[Any, ...]


def context(platform: str | None = None) -> Context:
    """Return the context of the caller.

    Args:
      platform: the platform; None takes that of the caller.
    """
    settings = tuple(getattr(jax.config, f"jax_{name}") for name in SETTINGS)
    return Context(platform or current(), settings)


@contextlib.contextmanager
def tracing_in(context: Context) -> Iterator[None]:
    """Trace the code inside in a context.

    Args:
      context: what `context` has returned elsewhere.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(setting(_current, context.platform))
        for name, value in zip(SETTINGS, context.settings, strict=True):
            stack.enter_context(getattr(jax, name)(value))
        yield
