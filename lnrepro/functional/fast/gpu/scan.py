"""A loop over steps as one CUDA kernel, for GPUs of compute capability 9 to 11.

    before   what depends on the inputs of a step alone      XLA, all steps at once
    loop     what the next carry depends on                  one kernel
    after    all other outputs                               XLA, all steps at once

`fast.fission` takes the body of the loop apart like this. XLA starts several kernels in
every step of the loop, and each of them waits for the one before it. Here the loop is
one kernel, forward and backward, around the unchanged `Cell.step`:

    equations -- values --> numbers of a lane -- program --> rounds -- kernel --> layout
              -- text --> CUDA -- launch --> PTX in an XLA program

A cluster of blocks has 8 or 16 rows of the batch and all units. The weights stay on
chip, as operands of tensor cores. Sums over units and inputs of products travel between
the blocks through distributed shared memory.

No kernel has run on a GPU yet. On a CPU, where every thread is a fiber, values and
gradients equal those of the scan: tests/functional/test_gpu.py.

Limits:
- A carry is [B, H]. Other sizes of the equations are multiples of H, or small.
- Products are those of TF32, which is the default of XLA on these GPUs, or of bfloat16.
- XLA does not shard a kernel: call it inside `jax.shard_map(check_vma=False)`.
- `jax.vmap` over rows is a larger batch. Over weights it is a loop of kernels.
- A derivative of the kernel, for second derivatives, is that of a loop of XLA.
- `jax.export` does not take it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lnrepro.functional.fast import fission
from lnrepro.functional.fast.gpu import kernel as layout
from lnrepro.functional.fast.gpu import launch
from lnrepro.functional.fast.gpu.program import Program, trace
from lnrepro.functional.fast.kernels import NoKernel, with_derivative
from lnrepro.functional.sequences import varying_axes


def scan(
    body: Callable, carry: Any, xs: Any, *, reverse: bool = False
) -> tuple[Any, Any]:
    """Compute what `jax.lax.scan` does, with what is sequential as one kernel.

    Args:
      body: (carry, inputs of a step) -> (carry, outputs of a step).
      carry: pytree of arrays, the carry before the first step.
      xs: pytree of arrays [T, ...], the inputs.
      reverse: run from the last step to the first.

    Returns:
      (carry after the last step, outputs [T, ...]).

    Raises:
      NoKernel: a condition of the kernel does not hold.
    """
    if reason := launch.reason_against_device():
        raise NoKernel(reason)
    for a in jax.tree.leaves((carry, xs)):
        if any(jax.typeof(a).sharding.spec):
            raise NoKernel("arrays are sharded over Explicit axes; use jax.shard_map")
        if varying_axes(a):
            raise NoKernel("inside jax.shard_map, it needs check_vma=False")
    if jax.tree.leaves(xs)[0].shape[0] == 0:
        raise NoKernel("there are no steps")
    parts = fission.take_apart(body, carry, xs, draw_before=True)
    program = trace(parts)
    names = [*parts.constants, *parts.carry, *parts.to_loop]
    run = _kernel_of(program, program.rows, parts.steps, reverse)

    def in_kernel(constants, carry, stacked):
        values = dict(zip(names, (*constants, *carry, *stacked), strict=True))
        results = run(*(values[a.variable] for a in program.arguments))
        last = list(carry)
        for i in program.carries:
            last[i] = results.pop(0)
        return last, results

    def in_xla(constants, carry, stacked):
        return fission.in_xla(parts, constants, carry, stacked, reverse)

    return fission.around(parts, with_derivative(in_kernel, in_xla), carry, xs)


def _kernel_of(program: Program, rows: int, steps: int, reverse: bool) -> Callable:
    """Return a function from the arguments of a kernel to its results.

    Under `jax.vmap`, it is a kernel of more rows.
    """
    kernel = layout.kernel(program, rows, steps, reverse)
    with_rows = {a.how.argument for a in program.inputs if a.how.has_row}
    are_mapped = [True] * len(kernel.results)

    @jax.custom_batching.custom_vmap
    def run(*arguments):
        return launch.call(kernel, arguments)

    @run.def_vmap
    def _(size, is_mapped, *arguments):
        described = list(zip(program.arguments, is_mapped, arguments, strict=True))
        if any(m and a not in with_rows for a, m, _ in described):
            # With other weights for each: one kernel after the other.
            one_by_one = jax.custom_batching.sequential_vmap(run)
            axes = [0 if m else None for m in is_mapped]
            return jax.vmap(one_by_one, axes)(*arguments), are_mapped
        folded = []
        for a, is_one_mapped, x in described:
            if a in with_rows:
                axis = int(a.what == "stack")
                if not is_one_mapped:
                    x = jnp.broadcast_to(x, (size, *x.shape))
                x = jnp.moveaxis(x, 0, axis)
                x = x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
            folded.append(x)
        results = _kernel_of(program, size * rows, steps, reverse)(*folded)
        for i, x in enumerate(results):
            axis = int(i >= len(program.carries))
            x = x.reshape(*x.shape[:axis], size, -1, *x.shape[axis + 1 :])
            results[i] = jnp.moveaxis(x, axis, 0)
        return results, are_mapped

    return run
