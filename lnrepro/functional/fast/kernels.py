"""Loops that run as one kernel where they can: what kernels of all platforms share."""

from collections.abc import Callable

import jax


class NoKernel(Exception):
    """There can be no kernel for a loop. The text says why, in one line."""


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
            return kernel(body, carry, xs, reverse=reverse)
        except NoKernel as reason:
            if required:
                raise ValueError(
                    f"scan: kernels='on' cannot be used here: {reason}"
                ) from None
            return plain(body, carry, xs, reverse=reverse, unroll=unroll)

    return loop


def with_derivative(kernel: Callable, plain: Callable) -> Callable:
    """Return a function that is `kernel`, and has the derivative of `plain`."""
    run = jax.custom_jvp(kernel)

    @run.defjvp
    def _(primals, tangents):
        return jax.jvp(plain, primals, tangents)

    return run
