"""What a compiled XLA program does, read in the text that `as_text()` prints.

    ENTRY %main.2 (x.1: f32[8,128]) -> f32[8,128] {
      %x.1 = f32[8,128]{1,0} parameter(0)
      ROOT %fusion = f32[8,128]{1,0} fusion(%x.1), kind=kLoop, calls=%fused_computation
    }

Loops count with their trips, conditionals with their most expensive branch. XLA
promises no stable text. What cannot be read is therefore an error, never a zero.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from lnrepro.errors import UserError

# Instructions and custom calls that start nothing on the device.
_FREE = re.compile(
    "parameter|get-tuple-element|tuple|constant|bitcast|after-all|partition-id|"
    "replica-id|opt-barrier|add-dependency|.*-done|.*-update"
)
_FREE_TARGETS = ("AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound")
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
COLLECTIVES += ("ragged-all-to-all", "collective-permute", "collective-broadcast")
# A Pallas kernel of a TPU has no estimate in the program.
PALLAS = "tpu_custom_call"

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"^ *(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(([^)]*)\)")
_ARRAY = re.compile(r"\b([a-z]+)([0-9]*)\w*\[([0-9,<=]*)\]")
# Types of elements whose names do not tell their bits.
_BITS = {"pred": 8, "token": 0, "opaque": 0}


class Instruction(NamedTuple):
    """A line %name = shape operation(operands), attributes; all are text."""

    name: str
    shape: str
    operation: str
    operands: str
    line: str

    @property
    def names(self) -> list[str]:
        """Names of the operands."""
        return re.findall(r"%([\w.\-]+)", self.operands)

    @property
    def target(self) -> str:
        """What a custom call runs, or ""."""
        found = re.search(r'custom_call_target="([^"]*)"', self.line)
        return found[1] if found else ""


Computation = dict[str, Instruction]


class Program(NamedTuple):
    """A program.

    Attributes:
      computations: {name of a computation: its instructions}.
      entry: the name of the computation that runs.
      assumed_trips: of loops whose number of trips is data; None refuses them.
    """

    computations: Mapping[str, Computation]
    entry: str
    assumed_trips: int | None = None

    def called(self, instruction: Instruction, attribute: str) -> str:
        """Return the name of the computation that an attribute names."""
        name = _found(rf"\b{attribute}=%?([\w.\-]+)", instruction.line)[1]
        if name not in self.computations:
            raise unreadable(f"{instruction.name}: {attribute} {name!r} is not there")
        return name


def unreadable(what: str) -> UserError:
    """Return the error of a text that is not understood."""
    return UserError(
        f"the text of the compiled program cannot be read: {what}; "
        "scripts/benches/accelerators/program.py knows that of jax 0.10"
    )


def _found(pattern, line) -> re.Match:
    if found := re.search(pattern, line):
        return found
    raise unreadable(repr(line.strip()[:80]))


def read(text: str, assumed_trips: int | None = None) -> Program:
    """Read the text of a compiled program.

    Args:
      text: what `as_text()` of a compiled function returns.
      assumed_trips: see `Program`.

    Raises:
      UserError: a line that is not understood.
    """
    computations, entry, current = {}, None, None
    for line in text.splitlines():
        # Tables of source lines stand before the first computation.
        if line.startswith(("%", "ENTRY")):
            found = _found(_HEADER, line)
            current = computations[found[2]] = {}
            entry = found[2] if found[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and line.strip():
            found = _found(_INSTRUCTION, line)
            current[found[2]] = Instruction(*found.groups()[1:], line.strip())
    if entry is None:
        raise unreadable("it has no entry computation")
    return Program(computations, entry, assumed_trips)


def size(shape: str) -> int:
    """Return the bytes of all arrays of a shape."""
    total = 0
    for kind, bits, sizes in _ARRAY.findall(shape):
        if kind not in _BITS and not bits:
            raise unreadable(f"elements of type {kind!r}")
        numbers = [int(re.sub(r"\D", "", n)) for n in sizes.split(",") if n]
        total += math.prod(numbers) * _BITS.get(kind, int(bits or 0)) // 8
    return total


def count(program: Program, name: str | None = None) -> Counter[str]:
    """Return what a computation does, by default the whole program.

    Returns:
      "kernels": instructions that start something on the device. "cycles": the TPU
      compiler's estimates. KIND and "KIND bytes": of each kind of collectives.

    Raises:
      UserError: the program cannot be read.
    """
    computation, total = program.computations[name or program.entry], Counter()
    for instruction in computation.values():
        if instruction.operation == "while":
            body = count(program, program.called(instruction, "body"))
            n = trips(program, computation, instruction)
            total.update({what: n * number for what, number in body.items()})
        elif instruction.operation == "call":
            total.update(count(program, program.called(instruction, "to_apply")))
        elif instruction.operation == "conditional":
            found = [count(program, branch) for branch in _branches(instruction)]
            total.update(max(found, key=lambda one: (one["cycles"], one["kernels"])))
        else:
            total.update(_of_instruction(instruction))
    return total


def _of_instruction(instruction):
    """Return what an instruction without a body of its own does."""
    operation, found = instruction.operation, Counter()
    if _FREE.fullmatch(operation) or instruction.target in _FREE_TARGETS:
        return found
    found["kernels"] = 1
    estimate = re.search(r'"estimated_cycles":"(\d+)"', instruction.line)
    found["cycles"] = int(estimate[1]) if estimate else 0
    if instruction.target == PALLAS:
        raise unreadable(f"the Pallas kernel {instruction.name} states no cycles")
    kind = operation.removesuffix("-start")
    if kind in COLLECTIVES:
        found[kind] = 1
        # The result of a start has the operand beside it.
        part = 2 if operation == "all-gather-start" else 1
        found[f"{kind} bytes"] = size(instruction.shape) // part
    return found


def _branches(instruction: Instruction) -> list[str]:
    """Return the names of the computations of a conditional."""
    listed = re.search(r"branch_computations=\{([^}]*)\}", instruction.line)
    pattern = r"%([\w.\-]+)" if listed else r"(?:true|false)_computation=%([\w.\-]+)"
    return re.findall(pattern, listed[1] if listed else instruction.line)


def trips(program: Program, computation: Computation, loop: Instruction) -> int:
    """Return how often a while loop runs.

    XLA's GPU programs state it. In TPU programs it follows from the condition,
    `counter < constant`, and from the counter's first value.

    Raises:
      UserError: it cannot be read.
    """
    stated = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.line)
    if stated:
        return int(stated[1])
    condition = program.computations[program.called(loop, "condition")]
    compare = root = _root(condition)
    if root.operation == "fusion":
        # A fusion of the comparison alone: its operands are the loop's state.
        compare = _root(program.computations[program.called(root, "calls")])
    counter, limit = (_without_copies(condition, name) for name in root.names[:2])
    is_counted = compare.operation == "compare" and "direction=LT" in compare.line
    if is_counted and limit.operation == "get-tuple-element" and program.assumed_trips:
        return program.assumed_trips
    first = computation[loop.names[0]]
    if is_counted and first.operation == "tuple":
        index = int(_found(r"index=(\d+)", counter.line)[1])
        first = _without_copies(computation, first.names[index])
    if not (is_counted and limit.operation == first.operation == "constant"):
        raise unreadable(f"the trips of {loop.name}: {compare.line[:80]}")
    return int(limit.operands) - int(first.operands)


def _root(computation: Computation) -> Instruction:
    return next(i for i in computation.values() if i.line.startswith("ROOT "))


def _without_copies(computation: Computation, name: str) -> Instruction:
    instruction = computation[name]
    while instruction.operation in ("copy", "copy-start", "copy-done", "bitcast"):
        instruction = computation[instruction.names[0]]
    return instruction
