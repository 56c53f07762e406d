"""How a scan runs: what the user chooses, and what is chosen for a platform.

Shape letters: T time, D inputs of a product.
"""

import dataclasses
import functools
import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro import defaults
from lnrepro.functional.arguments import choice, positive_integer
from lnrepro.functional.fast import fission, kernels
from lnrepro.functional.fast.kernels import Implementation
from lnrepro.functional.fast.tuning import PLATFORMS
from lnrepro.functional.products import Weights


class Form(NamedTuple):
    """How a scan runs on a platform.

    Attributes:
      loop: runs a loop over steps, as `jax.lax.scan` does.
      in_place: whether a step computes all of its products, and the loop of the
        backward pass is `in_place.scan`, which writes gradients over what it has read.
        Otherwise products of x are computed for all steps before the loop.
      adds_in_loop: whether the loop of the backward pass adds up the gradients of all
        parameters, so that its chunks bound no memory.
      least_steps: the fewest steps of a chunk.
      chunk_sizes: (rows, T, weights, save) -> sizes of a chunk, the best first, where a
        longer one than `least_steps` asks for is faster.
      forward_chunk, backward_chunk: steps in a chunk of a sequence, in either pass.
    """

    loop: Callable
    in_place: bool
    adds_in_loop: bool
    least_steps: int
    chunk_sizes: Callable | None = None
    forward_chunk: int = 0
    backward_chunk: int = 0


# One slice per step saves a GPU kernels, and would cost a TPU copies.
_one_slice = functools.partial(fission.scan, one_slice=True)
# The form of every platform.
#   cpu  measured on two cores of an AMD EPYC, 2026-11-24: a product leaves its result
#        in the cache, so that a step computes its own
#   tpu  of the programs that the compiler makes for a v5e: docs/log.md of commit
#        47dd3db, 2026-11-26
#   gpu  measured on an H100: docs/log.md, 2026-11-26. It serves all other platforms
FORMS = {
    "cpu": Form(jax.lax.scan, in_place=True, adds_in_loop=True, least_steps=4),
    "tpu": Form(fission.scan, in_place=False, adds_in_loop=False, least_steps=32),
    "gpu": Form(_one_slice, in_place=False, adds_in_loop=False, least_steps=16),
}


@dataclasses.dataclass(frozen=True)
class ScanOptions:
    """How a scan runs and what its backward pass keeps.

    Results agree up to rounding, whatever it is.

    Attributes:
      backward: "lean", or "autodiff" for JAX's own derivative, which forward mode
        needs.
      save: what the lean backward pass keeps beside the carries. "products": all
        products. "recurrent": those that depend on the carry. "carries": no product.
        What is not kept is computed again, chunk by chunk, but for products of noise of
        other generators than JAX's default.
      chunk: number of steps in a chunk; the last one may have fewer. None chooses
        enough steps for a large matrix product.
      unroll: steps per iteration of the loop, as in `jax.lax.scan`. Where `jax.export`
        leaves the number of steps open, `chunk` and `unroll` are not used.
      kernels: whether the steps run as one kernel, which there is for TPUs
        (`fast.tpu`) and for NVIDIA GPUs from compute capability 8.0 on (`fast.gpu`).
        "off" never; "on" raises where there can be none; "auto" where `autotune` has
        measured on this machine that it is right and faster.
      platform: "cpu", "gpu" or "tpu": the platform that the scan is traced for. None
        takes that of the process. A program for another one, as `jax.export` makes it,
        has the same results either way, and is slower in a form that is not its own.

    Raises:
      ValueError: an unknown value.
    """

    backward: str = "lean"
    save: str = "products"
    chunk: int | None = None
    unroll: int = 1
    kernels: str = defaults.KERNELS
    platform: str | None = None

    def __post_init__(self):
        """Check the values."""
        words = {
            "backward": ("lean", "autodiff"),
            "save": ("products", "recurrent", "carries"),
            "kernels": ("off", "auto", "on"),
            "platform": (None, "cpu", "gpu", "tpu"),
        }
        for name, allowed in words.items():
            choice("ScanOptions", name, getattr(self, name), allowed)
        positive_integer("ScanOptions", "unroll", self.unroll)
        if self.chunk is not None:
            positive_integer("ScanOptions", "chunk", self.chunk)


def form_for(
    name: str,
    x: Any,
    steps: int,
    weights: Weights,
    options: ScanOptions,
    implementation: Implementation,
) -> Form:
    """Return how a scan runs.

    Args:
      name: of the platform.
      x: pytree of [T, ...], the inputs, for their shapes.
      steps: T.
      weights: {name: weight}, for their shapes.
      options: how to run.
      implementation: whether its loops are kernels where they can.
    """
    form = FORMS.get(name, FORMS["gpu"])
    if implementation.kernel:
        form = _with_kernel(name, form, options.kernels == "on", implementation.layout)
    # Chunks bound the memory of what is computed for many steps at once. Where the
    # forward pass keeps that anyway, and the backward pass computes nothing so, they
    # bound nothing.
    leaves, chunk = jax.tree.leaves(x), steps
    # jax.export has symbolic sizes.
    if leaves and isinstance(math.prod(leaves[0].shape), int):
        # A leaf is [T, batch axes..., D].
        rows = math.prod(leaves[0].shape[1:-1])
        chunk = _chunk(rows, steps, form.least_steps)
        if form.chunk_sizes is not None:
            sizes = form.chunk_sizes(rows, steps, weights, options.save)
            chunk = max(chunk, _divisor(steps, sizes))
    if options.chunk is not None:
        chunk = min(options.chunk, steps)
    keeps_all = options.chunk is None and options.save == "products"
    return form._replace(
        forward_chunk=steps if keeps_all or form.in_place else chunk,
        backward_chunk=steps if keeps_all and form.adds_in_loop else chunk,
    )


def _with_kernel(name, form, required, layout):
    """The form of a platform, with its loop as a kernel."""
    if name not in PLATFORMS:
        raise ValueError(
            "scan: kernels='on' cannot be used here: there are kernels for "
            f"{' and '.join(PLATFORMS)}, and this is traced for {name}; name another "
            "with ScanOptions(platform=...)"
        )
    # Only those who use a kernel wait until its module is imported.
    module = importlib.import_module(f"lnrepro.functional.fast.{name}.loop")
    run = functools.partial(module.scan, layout=layout) if layout else module.scan
    loop = kernels.with_kernel(run, form.loop, required)
    # The module of a kernel says what else it changes.
    return form._replace(loop=loop, **module.FORM)


def _chunk(rows, steps, least_steps):
    """The fewest steps that give a product enough rows to run at full speed."""
    # Measured on a CPU: larger products are not faster.
    enough_rows = 512
    # A product over `chunk` steps has chunk * rows rows.
    chunk = max(1, least_steps, -(-enough_rows // max(rows, 1)))
    if 2 * chunk > steps:
        return steps
    return _divisor(steps, range(chunk, 2 * chunk))


def _divisor(steps, sizes):
    """The first of some sizes of a chunk that divides the steps, or the first of all.

    A last chunk of fewer steps is a second program to compile.
    """
    return next((size for size in sizes if steps % size == 0), sizes[0])


def over_chunks(
    function: Callable, state: Any, inputs: Any, size: int, reverse: bool
) -> tuple[Any, Any]:
    """`jax.lax.scan` of a function of chunks of `size` steps; the last may be shorter.

    Args:
      function: (state, inputs of a chunk [size, ...]) -> (state, outputs of a chunk).
      state: the state before the first chunk.
      inputs: pytree of [T, ...].
      size: steps per chunk. With one chunk there is no loop around it.
      reverse: take the chunks from the last to the first.

    Returns:
      (last state, outputs [T, ...]).
    """
    steps = jax.tree.leaves(inputs)[0].shape[0]
    if steps == size:
        return function(state, inputs)
    left_over = steps % size

    def of_chunk(state, first, length=size):
        # Chunks are read from the whole arrays. These split into chunks, without what
        # is left over, would be a copy.
        def read(a):
            return jax.lax.dynamic_slice_in_dim(a, first, length)

        return function(state, jax.tree.map(read, inputs))

    if left_over and reverse:
        state, rest = of_chunk(state, steps - left_over, left_over)
    starts = jnp.arange(0, steps - left_over, size)
    state, stacked = jax.lax.scan(of_chunk, state, starts, reverse=reverse)
    # Without a copy: [chunks, size, ...] -> [chunks * size, ...].
    outputs = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), stacked)
    if not left_over:
        return state, outputs
    if not reverse:
        state, rest = of_chunk(state, steps - left_over, left_over)
    return state, jax.tree.map(lambda *a: jnp.concatenate(a), outputs, rest)
