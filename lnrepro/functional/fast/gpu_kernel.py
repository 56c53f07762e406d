"""The sequential part of a loop as rounds of one CUDA kernel, and how it is laid out.

    carry, inputs of a step --> [ element-wise | sums | product ] --> carry, outputs

A step is a few rounds. In each, a block computes what it can, sends what others need
(parts of sums, or the input of a product), computes what needs no answer, and waits.

What a sender overwrites, all have read: with two rounds in a step, each exchange proves
it for the other. With one round, what arrives has two buffers.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional.fast import fission, gpu_text
from lnrepro.functional.fast.gpu_values import (
    TYPES,
    Array,
    Atom,
    Argument,
    Product,
    Tracer,
)
from lnrepro.functional.fast.kernels import NoKernel

# Of an H100. XLA launches clusters of at most 8 blocks.
CORES, SHARED_MEMORY, CLUSTER = 132, 227 * 1024, 8
# Bytes of weights that a block may read from the L2 cache in every step.
FROM_CACHE = 192 * 1024
# Registers of a thread that hold weights, for 8 and 16 rows a cluster. More are spilled.
REGISTERS = {8: 128, 16: 48}


class Program(NamedTuple):
    """What a step computes, for any number of rows.

    Attributes:
      rows: B of the equations.
      units: H.
      arguments: those that the kernel reads, the carries among them.
      with_rows: numbers of those that have a batch axis.
      carries: numbers of the leaves of the carry that change.
      start, carry, outputs: arrays of atoms: these, their new values, what is stacked.
      types: shape and dtype of `carry`, and of `outputs` without the axis of time.
      atoms: all that are made, in an order in which they can be.
      products: the products.
      rounds: the rounds of a step.
    """

    rows: int
    units: int
    arguments: list[Argument]
    with_rows: set[int]
    carries: list[int]
    start: list[Array]
    carry: list[Array]
    outputs: list[Array]
    types: list
    atoms: list[Atom]
    products: list[Product]
    rounds: list["Round"]


class Round(NamedTuple):
    """A round of a step.

    Attributes:
      first: atoms that are made before it sends.
      sums: exchanges, each of up to four sums, or of the two atoms of moments.
      product: atoms of the products, which no sums share a round with.
      then: atoms that are made while it waits.
    """

    first: list
    sums: list
    product: list
    then: list


class Layout(NamedTuple):
    """How a product is laid out: gpu_source/parts.cuh has the same formulas.

    Attributes:
      parameters: the arguments of its template.
      registers: of a thread, that hold weights.
      shared: bytes of shared memory.
      scratch: float32 numbers of a block that are read from the L2 cache.
    """

    parameters: str
    registers: int
    shared: int
    scratch: int


class Kernel(NamedTuple):
    """A kernel for so many rows and steps.

    Attributes:
      source: in CUDA.
      results: shapes and dtypes of last carries, outputs [T, ...] and scratch memory.
      blocks, threads, shared: all blocks, threads and bytes of shared memory of one.
      layouts: those of the products.
    """

    source: str
    results: list
    blocks: int
    threads: int
    shared: int
    layouts: list[Layout]


def trace(parts: fission.Parts) -> tuple[Program, list]:
    """Return what a step computes, and the variables that the kernel reads.

    Args:
      parts: the body of the loop, of which the kernel is the sequential part.

    Raises:
      NoKernel: there is none for these equations.
    """
    # Sums of gradients may be carries that pass through unchanged.
    pairs = list(zip(parts.carry, parts.new_carry, strict=True))
    changing = [i for i, (old, new) in enumerate(pairs) if old is not new]
    carry = [parts.carry[i] for i in changing]
    shapes = [v.aval.shape for v in carry]
    if not shapes or any(len(shape) != 2 for shape in shapes):
        raise NoKernel(f"a carry of the shapes {shapes}; it must be [B, H]")
    if not all(isinstance(n, int) for shape in shapes for n in shape):
        raise NoKernel("a size is symbolic")
    units = min(shape[1] for shape in shapes)
    tracer = Tracer(shapes[0][0], units)
    kinds = dict.fromkeys([*parts.constants, *parts.carry], "constant")
    kinds |= dict.fromkeys(carry, "carry") | dict.fromkeys(parts.to_loop, "stack")
    values = {v: tracer.argument(v.aval, what) for v, what in kinds.items()}
    tracer.evaluate(parts.loop, values)

    results = [*(parts.new_carry[i] for i in changing), *parts.to_after]
    arrays = [tracer.result(v, values) for v in results]
    start = [tracer.array(values[v]) for v in carry]
    atoms = _live(tracer.atoms, [*arrays, *start])
    _merge_moments(atoms, units)
    atoms = _live(atoms, [*arrays, *start])
    products = tracer.products
    if {a.how[0] for a in atoms if a.kind == "product"} != set(range(len(products))):
        raise NoKernel("a product that nothing reads")
    if not products:
        raise NoKernel("no product [B, K] by a weight [K, N] in a step, K and N of H")
    inputs = [a.how for a in atoms if a.kind == "input"]
    read = {place.argument.number for place in inputs}
    read |= {p.weight.number for p in products}
    program = Program(
        tracer.rows,
        units,
        [a for a in tracer.arguments if a.number in read],
        {place.argument.number for place in inputs if "row" in place.roles},
        changing,
        start,
        arrays[: len(carry)],
        arrays[len(carry) :],
        [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in results],
        atoms,
        products,
        _rounds(atoms),
    )
    return program, [v for i, v in enumerate(kinds) if i in read]


def _live(atoms, arrays):
    """The atoms that some arrays need."""
    needed = _needed([x for a in arrays for x in a.cells.ravel()])
    return [a for a in atoms if a in needed]


def _needed(atoms):
    """Some atoms, and those that they are made of."""
    needed, waiting = set(), list(atoms)
    while waiting:
        a = waiting.pop()
        if a.value is None and a not in needed:
            needed.add(a)
            waiting += a.args
            waiting += [a.how] if isinstance(a.how, Atom) else []
    return needed


def _merge_moments(atoms, units):
    """Exchange sums of squared deviations with the sum that their mean is made of."""
    for a in atoms:
        if a.kind != "sum" or any(x.how != "{0} * {0}" for x in a.args):
            continue
        deviations = [x.args[0] for x in a.args]
        if any(d.how != "{0} - {1}" for d in deviations):
            continue
        values = tuple(d.args[0] for d in deviations)
        mean = deviations[0].args[1]
        if mean.how != "{0} / {1}" or any(d.args[1] is not mean for d in deviations):
            continue
        total, count = mean.args
        is_mean = total.kind == "sum" and count.value == units * len(values)
        if is_mean and total.args == values:
            total.kind = a.kind = "moments"
            a.args, a.how = values, total


def _rounds(atoms):
    """Rounds of exchanges, as early as they can be."""
    done = {a for a in atoms if not a.varies or a.kind == "input"}
    todo = [a for a in atoms if a not in done]

    def is_made(a):
        return all(x.value is not None or x in done for x in a.args)

    rounds = []
    while todo:
        ready = []
        for a in todo:
            if a.kind == "local" and is_made(a):
                ready.append(a)
                done.add(a)
        pending = [a for a in todo if a.kind != "local" and is_made(a)]
        product = [a for a in pending if a.kind == "product"]
        sums = [a for a in pending if a.kind == "sum"]
        exchanges: list = [(a.how, a) for a in pending if isinstance(a.how, Atom)]
        exchanges += [sums[i : i + 4] for i in range(0, len(sums), 4)]
        if exchanges:
            product = []
        sent = [a for exchange in exchanges for a in exchange] + product
        urgent = _needed(sent)
        first = [a for a in ready if a in urgent]
        then = [a for a in ready if a not in urgent]
        rounds.append(Round(first, exchanges, product, then))
        done |= set(sent)
        todo = [a for a in todo if a not in done]
    return rounds


def kernel(program: Program, rows: int, steps: int, reverse: bool) -> Kernel:
    """Return the kernel of a program for B rows and T steps.

    Raises:
      NoKernel: its weights are too large.
    """
    # The fewest blocks in which every lane has one unit.
    blocks = next((c for c in (1, 2, 4) if program.units <= 32 * c), CLUSTER)
    # More clusters than the GPU holds at once would wait for each other.
    height = 16 if rows > 8 * (CORES // blocks) else 8
    exchanges = sum(len(r.sums) for r in program.rounds)
    is_single = sum(bool(r.sums or r.product) for r in program.rounds) == 1
    buffers = 2 if is_single else 1
    registers = REGISTERS[height]
    free = SHARED_MEMORY - max(exchanges, 1) * (16 * height * blocks + 8) - 128
    layouts = []
    for product in program.products:
        one = _layout(product, program.units, blocks, height, buffers, registers, free)
        layouts.append(one)
        registers -= one.registers
        free -= one.shared
    scratch = sum(one.scratch for one in layouts)
    if free < 0 or 4 * scratch > FROM_CACHE:
        needed = (4 * scratch + max(-free, 0)) // 1024
        raise NoKernel(
            f"the weights of {program.units} units take {needed} KiB more than a "
            "block has"
        )
    clusters = -(-rows // height)
    carry, outputs = len(program.carries), len(program.outputs)
    shapes = [(rows, *a.shape[1:]) for a in program.types]
    shapes[carry:] = [(steps, *shape) for shape in shapes[carry:]]
    types = zip(shapes, program.types, strict=True)
    results = [jax.ShapeDtypeStruct(shape, a.dtype) for shape, a in types]
    results += [
        jax.ShapeDtypeStruct((clusters * blocks, one.scratch), jnp.float32)
        for one in layouts
        if one.scratch
    ]
    constants = {
        "C": blocks,
        "R": height,
        "H": program.units,
        "B": rows,
        "T": steps,
        "EXCHANGES": exchanges,
        "REVERSE": int(reverse),
    }
    return Kernel(
        gpu_text.source(program, constants, layouts),
        results,
        clusters * blocks,
        32 * height,
        SHARED_MEMORY - free,
        layouts,
    )


def _layout(product, units, blocks, rows, buffers, registers, free):
    """Lay a product out: its weights in registers, shared memory and the L2 cache."""
    weight = product.weight.aval
    sizes = [n // units for n in weight.shape]
    go, gi = sizes if product.is_transposed else sizes[::-1]
    own = -(-units // blocks // 4) * 4
    scatter = gi > go
    size = (1 if scatter else blocks) * gi * own
    tiles = -(-(blocks if scatter else 1) * go * own // 16)

    def split(wm):
        """Work of a warp, and traffic to shared memory, with wm parts of the columns."""
        wk = rows // wm
        mw, groups = -(-tiles // wm), -(-size // (16 * wk))
        # wm warps read the same input, and wk warps write and read parts of the result.
        return mw * groups, wm * size + 32 * wk * tiles, mw, groups, wm, wk

    *_, mw, groups, wm, wk = min(map(split, (16, 8, 4, 2, 1)[rows == 8 :]))
    fragments = mw * (1 if weight.dtype == jnp.bfloat16 else 2)
    in_registers = min(groups, registers // (4 * fragments))
    ldi = -(-groups * wk * 16 // 32) * 32 + 16
    ldp = -(-tiles * 16 // 32) * 32 + 4
    arrives = blocks * go * own if scatter else ldi
    stays = ldi if scatter else go * own
    floats = rows * (buffers * arrives + stays + wk * ldp)
    of_group = fragments * rows * 32 * 4
    # 128 bytes are for barriers. No array is empty in C++.
    left = (free - 4 * floats - 128) // (4 * of_group)
    in_shared = min(groups - in_registers, max(left, 0))
    shared = 4 * (floats + max(in_shared * of_group, 128)) + 128
    words = [
        TYPES[weight.dtype],
        gi,
        go,
        str(scatter).lower(),
        wm,
        wk,
        in_registers,
        in_shared,
        str(product.is_transposed).lower(),
        buffers,
    ]
    rest = groups - in_registers - in_shared
    return Layout(
        ", ".join(map(str, words)),
        in_registers * 4 * fragments,
        shared,
        rest * of_group,
    )
