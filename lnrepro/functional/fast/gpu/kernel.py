"""How a kernel is laid out on a GPU: blocks, rows and registers."""

from typing import NamedTuple

import jax

from lnrepro.functional.fast.gpu import text
from lnrepro.functional.fast.gpu.program import Program
from lnrepro.functional.fast.kernels import NoKernel

# Of an H100.
CORES, SHARED_MEMORY = 132, 227 * 1024
# Blocks of a cluster. XLA launches no larger ones.
CLUSTERS = (1, 2, 4, 8)
# Registers of a thread for weights: {(rows of a cluster, units of a lane): number},
# and 0 for all others. With more, ptxas spills other values to memory.
REGISTERS = {(8, 1): 128, (8, 2): 48, (16, 1): 32}
# Bytes of weights of a block. About a third of so many are read in every step.
MOST_WEIGHTS = 400 * 1024


class Kernel(NamedTuple):
    """A kernel for so many rows and steps."""

    source: str  # In CUDA.
    results: list  # Shapes and dtypes of last carries and outputs [T, ...].
    blocks: int  # Of all clusters.
    threads: int  # Of a block.


def kernel(program: Program, rows: int, steps: int, reverse: bool) -> Kernel:
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
    # More clusters than the GPU holds at once would wait for each other.
    height = 16 if rows > 8 * (CORES // blocks) else 8
    clusters, of_lane = -(-rows // height), -(-program.units // (32 * blocks))
    results = []
    for i, a in enumerate(program.types):
        time = (steps,) if i >= len(program.carries) else ()
        shape = (*time, rows, *a.shape[1:])
        results.append(jax.ShapeDtypeStruct(shape, a.dtype))
    numbers = {"C": blocks, "R": height, "H": program.units, "B": rows, "T": steps}
    numbers["REVERSE"] = int(reverse)
    numbers["REGISTERS"] = REGISTERS.get((height, of_lane), 0)
    numbers["SHARED"] = SHARED_MEMORY
    source = text.source(program, numbers)
    return Kernel(source, results, clusters * blocks, 32 * height)
