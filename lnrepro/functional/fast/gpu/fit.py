"""Where the weights of a kernel lie: in registers, in shared memory, or behind L2.

A block multiplies by its part of a weight, in groups of 16 terms of the sum. Each warp
has some groups of some columns. source/parts.cuh does what is decided here.
"""

from typing import NamedTuple

from lnrepro.functional.fast.gpu.atoms import Product
from lnrepro.functional.fast.gpu.program import Program

# Registers of a thread for weights: {(rows of a cluster, units of a lane): number},
# and 0 for all others. With more, ptxas spills other values to memory.
REGISTERS = {(8, 1): 128, (8, 2): 56, (8, 3): 48, (8, 4): 64, (16, 1): 8}


class Layout(NamedTuple):
    """How blocks share the work: a cluster of them has all units of its rows."""

    blocks: int  # Of a cluster.
    rows: int  # Of a cluster. Each is a warp in every block.

    def units(self, program: Program) -> int:
        """Return how many units a block has."""
        return -(-program.units // self.blocks)

    def of_lane(self, program: Program) -> int:
        """Return how many units a lane has."""
        return -(-self.units(program) // 32)


class Fit(NamedTuple):
    """How the warps of a block share a product, and where its weight lies."""

    chunks: tuple[int, int]  # Of H in its input and in its result.
    buffers: int  # Of what arrives from other blocks.
    parts: int  # Warps that share the columns. The others share the sum.
    # Groups of a warp: in registers, in shared memory, and read in every step.
    groups: tuple[int, int, int]
    size: int  # Bytes of a group of all warps.
    registers: int  # Of a thread.
    shared: int  # Bytes of shared memory.


def fits(program: Program, layout: Layout, shared: int) -> list[Fit]:
    """Return where the weights of a program lie.

    Args:
      program: what a step computes.
      layout: the layout.
      shared: bytes of shared memory of a block.

    Returns:
      A fit for each product, or none at all where that memory is too small.
    """
    rounds = [r for r in program.rounds if r.sums or r.product]
    # Where no other exchange tells that all have read, what arrives has two buffers.
    buffers = 1 + (len(rounds) == 1 and layout.blocks > 1)
    registers = REGISTERS.get((layout.rows, layout.of_lane(program)), 0)
    # Each exchange of sums has 16 bytes a block, and a barrier.
    exchanges = max(1, sum(len(r.sums) for r in rounds))
    shared -= exchanges * layout.rows * (16 * layout.blocks + 8) + 16
    # A sum over the steps is a number of each unit of a thread.
    sums = sum(len(a.array) for a in program.results if a.what == "sum")
    shared -= sums * 4 * 32 * layout.rows * layout.of_lane(program)
    found = []
    for i, product in enumerate(program.products):
        # An equal share of what those before it have left.
        share = shared // (len(program.products) - i)
        fit = _fit(program, product, layout, buffers, registers, share)
        registers -= fit.registers
        shared -= fit.shared
        found.append(fit)
    return found if shared >= 0 else []


def _fit(program, product: Product, layout, buffers, registers, share):
    """Fit a product into so many registers of a thread, and bytes of a block."""
    blocks, warps = layout
    weight, inputs = product.weight.aval, len(product.inputs)
    results = weight.size // (program.units**2 * inputs)
    width = _rounded(layout.units(program), 4)
    # What is the smaller travels between the blocks: the input or the result.
    scatters = blocks > 1 and inputs > results
    terms = (1 if scatters else blocks) * inputs * width
    tiles = -(-(blocks if scatters else 1) * results * width // 16)

    def of_warp(parts):
        return -(-tiles // parts), -(-terms // (16 * (warps // parts)))

    def cost(parts):
        columns, groups = of_warp(parts)
        # Then the least traffic to shared memory: `parts` warps read the same input,
        # and the others write and read parts of the result.
        return columns * groups, parts * terms + warps // parts * 32 * tiles

    # Parts of the result take at most half of the memory.
    choices = [warps >> i for i in range(warps.bit_length())]
    choices = [n for n in choices if 128 * warps * tiles * (warps // n) <= share]
    parts = min(choices or [warps], key=cost)
    columns, groups = of_warp(parts)
    # In bfloat16 a group is one fragment of four words a lane, in TF32 two.
    fragments = columns * (1 if weight.dtype.itemsize == 2 else 2)
    size = fragments * warps * 512
    in_registers = min(groups, registers // (4 * fragments))
    sums = warps // parts
    read = _rounded(groups * sums * 16, 32) + 16
    written = sums * (_rounded(tiles * 16, 32) + 4)
    arriving = buffers * blocks * results * width if scatters else buffers * read
    numbers = written + arriving + (read if scatters else 4)
    other = 4 * warps * numbers + 640
    in_shared = min(groups - in_registers, max(0, share - other) // size)
    left = groups - in_registers - in_shared
    return Fit(
        (inputs, results),
        buffers,
        parts,
        (in_registers, in_shared, left),
        size,
        4 * fragments * in_registers,
        other + in_shared * size,
    )


def _rounded(size, to):
    return -(-size // to) * to
