"""What a compiled program does, counted in its text.

Loops count with their trips, conditionals with their most expensive branch.

The bytes of a kernel are those of its operands and results in the device's memory. Of
an operand that is only sliced, the slice counts, and of a result that is written in
place, the part that is written. Caches are not modelled: on a GPU, what is read again
soon may come from L2.
"""

import math
import re
from typing import NamedTuple

from scripts.benches.accelerators import program as programs
from scripts.benches.accelerators.program import Computation, Instruction, Program

# Instructions that start nothing on the device.
FREE = (
    "parameter",
    "get-tuple-element",
    "tuple",
    "constant",
    "bitcast",
    "after-all",
    "partition-id",
    "replica-id",
    "opt-barrier",
    "add-dependency",
)
# Custom calls that only name memory.
FREE_TARGETS = ("AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound")
COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# A Pallas kernel of a TPU has no estimate in the program.
PALLAS = "tpu_custom_call"


class Cost(NamedTuple):
    """What a part of a program does.

    Attributes:
      kernels: instructions that start something on the device.
      cycles: the TPU compiler's estimates.
      bytes: read from and written to the device's memory.
      flops: operations of matrix products and convolutions, where the program is one
        for GPUs.
      seconds: of a GPU, see `gpu_seconds`.
      pallas: (name of a Pallas kernel, times that it runs) pairs.
      collectives: (kind, times that it runs, bytes of its results) triples.
    """

    kernels: float = 0
    cycles: float = 0
    bytes: float = 0
    flops: float = 0
    seconds: float = 0
    pallas: tuple[tuple[str, float], ...] = ()
    collectives: tuple[tuple[str, float, float], ...] = ()

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, n: float) -> "Cost":
        """Return the cost of n repetitions."""
        return Cost(
            *(n * x for x in self[:5]),
            tuple((name, n * m) for name, m in self.pallas),
            tuple((kind, n * m, n * size) for kind, m, size in self.collectives),
        )


class Rates(NamedTuple):
    """Of a GPU: bytes and operations a second, and the seconds of a small kernel."""

    bytes: float
    flops: float
    launch: float


def of(program: Program, name: str | None = None, rates: Rates | None = None) -> Cost:
    """Return the cost of a computation, by default of the whole program.

    Raises:
      UserError: the program cannot be read.
    """
    computation = program.computations[name or program.entry]
    total = Cost()
    for instruction in computation.values():
        if instruction.operation == "while":
            body = of(program, program.called(instruction, "body"), rates)
            total += body.times(programs.trips(program, computation, instruction))
        elif instruction.operation == "call":
            total += of(program, program.called(instruction, "to_apply"), rates)
        elif instruction.operation == "conditional":
            names = programs.branches(program, instruction)
            of_branches = [of(program, branch, rates) for branch in names]
            total += max(of_branches, key=lambda cost: (cost.cycles, cost.kernels))
        else:
            total += _of_instruction(program, computation, instruction, rates)
    return total


def _of_instruction(program, computation, instruction, rates):
    """Return the cost of an instruction without a body of its own."""
    operation = instruction.operation
    if operation in FREE or operation.endswith(("-done", "-update")):
        return Cost()
    if operation == "custom-call" and instruction.target in FREE_TARGETS:
        return Cost()
    found = re.search(r'"estimated_cycles":"(\d+)"', instruction.rest)
    cycles = int(found[1]) if found else 0
    moved = traffic(program, computation, instruction)
    flops = 0 if rates is None else _flops(program, computation, instruction)
    seconds = 0.0
    if rates is not None:
        seconds = max(rates.launch, moved / rates.bytes, flops / rates.flops)
    pallas, collectives = (), ()
    if instruction.target == PALLAS:
        pallas = ((instruction.name, 1),)
    for kind in COLLECTIVES:
        if operation in (kind, f"{kind}-start"):
            size = sum(a.bytes for a in programs.arrays(instruction.shape))
            # The result of a start has the operand beside it.
            size = size / 2 if operation == "all-gather-start" else size
            collectives = ((kind, 1, size),)
    return Cost(1, cycles, moved, flops, seconds, pallas, collectives)


def traffic(
    program: Program, computation: Computation, instruction: Instruction
) -> float:
    """Return the bytes that an instruction reads from and writes to the memory."""
    operation = instruction.operation
    total = 0.0
    for position, name in enumerate(instruction.operands):
        total += min(
            _in_memory(computation[name].shape),
            _read(program, computation, instruction, position),
        )
    return total + _written(program, computation, instruction, operation)


def _in_memory(shape: str) -> float:
    return sum(a.bytes for a in programs.arrays(shape) if a.in_hbm)


def _all_bytes(shape: str) -> float:
    return sum(a.bytes for a in programs.arrays(shape))


def _read(program, computation, instruction, position):
    """Return the bytes that an instruction may read of one of its operands."""
    operation = instruction.operation
    operand = computation[instruction.operands[position]]
    if operation in ("dynamic-slice", "slice", "gather", "slice-start"):
        # A start returns its operand, the slice and a flag.
        slices = programs.arrays(instruction.shape)
        size = slices[1].bytes if operation == "slice-start" else slices[0].bytes
        return size if position == 0 else math.inf
    if operation in ("dynamic-update-slice", "scatter"):
        return 0.0 if position == 0 else math.inf
    if operation != "fusion":
        return _all_bytes(operand.shape)
    inner = program.computations[program.called(instruction, "calls")]
    parameter = next(
        (
            i
            for i in inner.values()
            if i.operation == "parameter" and i.rest.startswith(f"({position})")
        ),
        None,
    )
    return 0.0 if parameter is None else _read_of(program, inner, parameter)


def _read_of(program, computation, value):
    """Return the bytes that the users of a value in a fusion read of it."""
    total = 0.0
    for user in computation.values():
        for position, name in enumerate(user.operands):
            if name != value.name:
                continue
            if user.operation in ("bitcast", "reshape"):
                total += _read_of(program, computation, user)
            else:
                total += _read(program, computation, user, position)
    return total


def _written(program, computation, instruction, operation):
    """Return the bytes of the results, of those in place the part that is new."""
    if operation.endswith("-start"):
        # The tuple has the operand beside the result.
        written = programs.arrays(instruction.shape)
        result = written[1] if operation == "slice-start" else written[0]
        return result.bytes if result.in_hbm else 0.0
    if operation == "dynamic-update-slice":
        return _all_bytes(computation[instruction.operands[1]].shape)
    if operation == "scatter":
        return 2 * _all_bytes(computation[instruction.operands[-1]].shape)
    if operation == "custom-call" and "matmul" in instruction.target:
        # The second result is a workspace, of which little is used.
        return float(programs.arrays(instruction.shape)[0].bytes)
    results = _in_memory(instruction.shape)
    if operation != "fusion" or not results:
        return results
    inner = program.computations[program.called(instruction, "calls")]
    root = next(i for i in inner.values() if i.root)
    roots = [root]
    if root.operation == "tuple":
        roots = [inner[name] for name in root.operands]
    total = 0.0
    for one, array in zip(roots, programs.arrays(instruction.shape), strict=False):
        while one.operation in ("bitcast", "reshape", "copy"):
            one = inner[one.operands[0]]
        if not array.in_hbm:
            continue
        if one.operation in ("dynamic-update-slice", "scatter", "fusion"):
            total += min(array.bytes, _written(program, inner, one, one.operation))
        else:
            total += array.bytes
    return total


def _flops(program, computation, instruction):
    """Return the operations of the products of an instruction."""
    operation = instruction.operation
    if operation == "fusion":
        inner = program.computations[program.called(instruction, "calls")]
        return sum(_flops(program, inner, i) for i in inner.values())
    names = instruction.operands
    if (
        operation == "dot"
        or "matmul" in instruction.target
        or "gemm" in instruction.target
    ):
        quoted = r'(?:lhs_contracting_dims=\{|"lhs_contracting_dimensions":\[)([\d,"]*)'
        found = re.search(quoted, instruction.rest)
        sizes = programs.arrays(computation[names[0]].shape)[0].sizes
        inner_size = 1
        for axis in re.findall(r"\d+", found[1] if found else ""):
            inner_size *= sizes[int(axis)]
        result = programs.arrays(instruction.shape)[0]
        return 2.0 * math.prod(result.sizes) * inner_size
    if operation == "convolution" or "conv" in instruction.target:
        return _convolution_flops(computation, instruction)
    return 0.0


def _convolution_flops(computation, instruction):
    """Return the operations of a convolution or of one of its gradients.

    Each is 2 |outputs| |kernel| / output channels, for the outputs of the forward pass.
    """
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.rest)
    if labels is None:
        return 0.0
    target = instruction.target
    first, second = (
        programs.arrays(computation[name].shape)[0].sizes
        for name in instruction.operands[:2]
    )
    result = programs.arrays(instruction.shape)[0].sizes
    kernel, outputs = second, result
    if "BackwardFilter" in target:
        kernel, outputs = result, second
    elif "BackwardInput" in target:
        outputs = first
    channels = kernel[labels[2].index("o")]
    return 2.0 * math.prod(outputs) * math.prod(kernel) / channels
