"""How a kernel is laid out on a GPU: blocks, rows and registers."""

from typing import NamedTuple

import jax

from lnrepro.functional.fast.gpu import driver, text
from lnrepro.functional.fast.gpu.program import Program
from lnrepro.functional.fast.kernels import NoKernel

# Of an H100.
CORES, SHARED_MEMORY = 132, 227 * 1024
# Blocks of a cluster. XLA launches no larger ones.
CLUSTERS = (1, 2, 4, 8)
# Registers of a thread for weights: {(rows of a cluster, units of a lane): number},
# and 0 for all others. With more, ptxas spills other values to memory.
REGISTERS = {(8, 1): 128, (8, 2): 56, (16, 1): 8}
# Bytes of weights of a block. What does not fit on chip is read in every step. At H 512
# the kernel takes 0.4 of the scan's time (512 KiB), at H 1024 1.4 (2 MiB; on an H200).
MOST_WEIGHTS = 640 * 1024
# Of the clusters that the multiprocessors would hold by their number, so many are not
# counted on where no driver is asked: an H200 holds 15 of 8 blocks, not 16.
SPARE_CLUSTERS = 2


class Kernel(NamedTuple):
    """A kernel for so many rows and steps."""

    source: str  # In CUDA.
    results: list  # Shapes and dtypes of last carries and outputs [T, ...].
    clusters: int
    blocks: int  # Of all clusters.
    threads: int  # Of a block.


def candidates(program: Program, rows: int, steps: int) -> list:
    """Return up to three layouts; the first one is taken without a measurement."""
    return [None]


def kernel(
    program: Program, rows: int, steps: int, reverse: bool, layout: None = None
) -> Kernel:
    """Return the kernel of a program for B rows and T steps.

    Raises:
      NoKernel: its weights are too large.
    """
    # The fewest blocks in which every lane has one unit.
    enough = [c for c in CLUSTERS if program.units <= 32 * c]
    blocks = min(enough, default=CLUSTERS[-1])
    weights = [product.weight.aval for product in program.products]
    size = sum(w.size * w.dtype.itemsize for w in weights)
    if size > blocks * MOST_WEIGHTS:
        raise NoKernel(
            f"weights of {size // 1024} KiB; {blocks} blocks have room for "
            f"{blocks * MOST_WEIGHTS // 1024}"
        )
    cores = _multiprocessors()
    if cores < blocks:
        raise NoKernel(
            f"a cluster of {blocks} blocks; {cores} multiprocessors hold none"
        )
    # More clusters than the GPU holds at once would wait for each other: at B 128,
    # H 256, a step takes 4.4 us in place of 2.2 (H200).
    at_once = None
    if jax.default_backend() == "gpu":
        at_once = driver.clusters(blocks, 32 * 8, SHARED_MEMORY)
    if at_once == 0:
        raise NoKernel(f"a cluster of {blocks} blocks; the driver holds none")
    if at_once is None:
        at_once = cores // blocks - SPARE_CLUSTERS
    height = 16 if rows > 8 * at_once else 8
    clusters, of_lane = -(-rows // height), -(-program.units // (32 * blocks))
    results = []
    for i, a in enumerate(program.types):
        time = (steps,) if i >= len(program.carries) else ()
        shape = (*time, rows, *a.shape[1:])
        results.append(jax.ShapeDtypeStruct(shape, a.dtype))
    numbers = {"C": blocks, "R": height, "H": program.units}
    numbers["REVERSE"] = int(reverse)
    numbers["REGISTERS"] = REGISTERS.get((height, of_lane), 0)
    numbers["SHARED"] = SHARED_MEMORY
    source = text.source(program, numbers)
    return Kernel(source, results, clusters, clusters * blocks, 32 * height)


def _multiprocessors():
    """Those of the GPU at hand, which is a part of one under MIG, or of an H100."""
    if jax.default_backend() != "gpu":
        return CORES
    return getattr(jax.local_devices()[0], "core_count", CORES)
