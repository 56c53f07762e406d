"""The platform that a scan is traced for, which chooses the forms of its parts.

JAX traces a function before it knows where it will run. So the platform is that of the
process, unless `ScanOptions(platform=...)` or `tracing_for` names another. A program
that runs elsewhere computes the same numbers, in a form that is slower there.
"""

import contextlib
import contextvars
from collections.abc import Iterator

import jax

_current = contextvars.ContextVar("current", default="")


def current() -> str:
    """Return the platform that code is traced for: "cpu", "gpu" or "tpu"."""
    return _current.get() or jax.default_backend()


def is_forced() -> bool:
    """Return whether code is traced inside of `tracing_for`."""
    return bool(_current.get())


@contextlib.contextmanager
def tracing_for(name: str) -> Iterator[None]:
    """Trace the code inside for a platform.

    Args:
      name: "cpu", "gpu" or "tpu".
    """
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)
