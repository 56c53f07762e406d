"""A loop over steps as one CUDA kernel, for GPUs from compute capability 8.0 on.

    before   what depends on the inputs of a step alone      XLA, all steps at once
    loop     what the next carry depends on                  one kernel
    after    all other outputs                               XLA, all steps at once

`fast.parts` takes the body of the loop apart like this. XLA starts several kernels in
every step of the loop, and each of them waits for the one before it. Here the loop is
one kernel, forward and backward, around the unchanged `Cell.step`:

    equations -- values --> numbers of a lane -- program --> rounds -- kernel --> layout
              -- text --> CUDA -- nvrtc --> PTX -- launch --> a primitive of JAX

A cluster of blocks has 8 or 16 rows of the batch and all units. The weights stay on
chip, as operands of tensor cores. Sums over units and inputs of products travel between
the blocks through distributed shared memory. Before 9.0 a cluster is one block.

On a CPU, where every thread is a fiber, values and gradients equal those of the scan:
tests/functional/test_gpu.py.

Limits:
- A carry is [B, H], where B may be several axes. Other sizes of the equations are
  multiples of H, or small.
- Products are those of TF32, which is the default of XLA on these GPUs, or of bfloat16.
- Over a mesh of Auto axes, each device has a kernel of its rows. Arrays over Explicit
  axes are refused.
- `jax.vmap` over rows is a larger batch, over weights a larger grid of blocks.
- A derivative of the kernel, for second derivatives, is that of a loop of XLA.
- What `jax.export` writes, and what runs elsewhere, has a loop of XLA in its place.
"""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from lnrepro.functional.arrays import unify_manual_axes
from lnrepro.functional.fast import fission
from lnrepro.functional.fast.gpu import launch, nvrtc
from lnrepro.functional.fast.kernels import NoKernel, with_derivative
from lnrepro.functional.fast.parts import take_apart

# Bytes of products of a sequence that are one chunk, by `save`: those of an LSTM of
# T 64, B 1024, H 256, or few, since who keeps less is short of memory. Each further
# chunk takes 0.06 to 0.19 ms (H200). A kernel stores what its loop has made, so one
# chunk takes 1.3 to 1.7 of the temporary memory of XLA's loop, and less than Flax's
# cell (compiled for an H100; T, B, H of 64, 128, 256 to 500, 8, 400 and 64, 1024, 256).
# What a device has is not asked: chunks decide the last bits of a run, and a resume may
# be on another device.
SMALL_SEQUENCE = {"products": 512 * 2**20, "recurrent": 2**24, "carries": 2**24}
# The most and the fewest steps of a chunk of longer ones, as parts of a sequence, by
# `save`. With thirds, save="recurrent" took 1.86 of the memory of XLA's loop at T 300,
# B 32, H 240, and takes 1.05 so (compiled for an H100).
PARTS = {"products": (3, 4), "recurrent": (12, 20), "carries": (12, 20)}


def chunk_sizes(rows: int, steps: int, weights: dict, save: str) -> Sequence[int]:
    """Return sizes of a chunk of the backward pass, the best first.

    Each chunk is a kernel, so that there are few of them.

    Args:
      rows: B.
      steps: T.
      weights: {name: weight}, for their shapes.
      save: that of `ScanOptions`.
    """
    # A product has as many numbers a row as its weight has columns, over all blocks.
    columns = sum(
        w.dtype.itemsize * w.size // w.shape[min(w.ndim - 2, 1)]
        for w in weights.values()
    )
    if steps * rows * columns <= SMALL_SEQUENCE[save]:
        return [steps]
    longest, shortest = (-(-steps // n) for n in PARTS[save])
    return range(longest, shortest - 1, -1)


# What differs in the form of a scan whose loop is this kernel.
FORM = {"chunk_sizes": chunk_sizes}


def scan(
    body: Callable,
    carry: Any,
    xs: Any,
    *,
    reverse: bool = False,
    layout: tuple[int, int] | None = None,
) -> tuple[Any, Any]:
    """Compute what `jax.lax.scan` does, with what is sequential as one kernel.

    Args:
      body: (carry, inputs of a step) -> (carry, outputs of a step).
      carry: pytree of arrays, the carry before the first step.
      xs: pytree of arrays [T, ...], the inputs.
      reverse: run from the last step to the first.
      layout: (blocks, rows) of a cluster, which was measured for these rows. None
        takes the usual one.

    Returns:
      (carry after the last step, outputs [T, ...]).

    Raises:
      NoKernel: a condition of the kernel does not hold.
    """
    if reason := nvrtc.reason_against_device():
        raise NoKernel(reason)
    for a in jax.tree.leaves((carry, xs)):
        if any(jax.typeof(a).sharding.spec):
            raise NoKernel("arrays are sharded over Explicit axes; use jax.shard_map")

    def loop_of(adds):
        parts = take_apart(body, carry, xs, draw_before=True, repeat=False, adds=adds)
        return parts, launch.Loop(parts, reverse, layout)

    parts, loop = loop_of(adds=False)
    with contextlib.suppress(NoKernel):
        # Sums take shared memory, which weights may need.
        others, adding = loop_of(adds=True)
        if others.to_sums and not adding.kernel(loop.rows).behind_l2:
            parts, loop = others, adding
    kernel = loop.kernel(loop.rows)
    nvrtc.ptx(kernel.source, kernel.architecture)

    def in_kernel(constants, carry, stacked):
        arguments = [*constants, *carry, *stacked]
        read = unify_manual_axes([arguments[i] for i in loop.numbers])
        results = launch.run(loop, read)
        last = list(carry)
        for i in loop.program.carries:
            last[i] = results.pop(0)
        return last, results

    in_xla = functools.partial(fission.in_xla, parts, reverse=reverse)
    return fission.around(parts, with_derivative(in_kernel, in_xla), carry, xs)
