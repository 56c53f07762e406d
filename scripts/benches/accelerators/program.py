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

_NAME = re.compile(r"%([\w.\-]+)")
_BRANCHES = re.compile(
    r"branch_computations=\{.*?\}|true_computation=\S+ false_computation=\S+"
)
# [ENTRY] %name (parameters) -> shape { lines }.
_COMPUTATION = re.compile(
    r"^(ENTRY )?%?([\w.\-]+) \([^\n]*\) -> [^\n]*\{\n(.*?)^\}", re.M | re.S
)
_INSTRUCTION = re.compile(
    r" *(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(([^)]*)\)(.*)"
)
_ARRAY = re.compile(r"\b([a-z]+)([0-9]*)\w*\[([0-9,<=]*)\]")


class Instruction(NamedTuple):
    """A line [ROOT] %name = shape operation(operands), attributes; all are text."""

    root: str | None
    name: str
    shape: str
    operation: str
    operands: str
    attributes: str

    @property
    def names(self) -> list[str]:
        """Names of the operands."""
        return _NAME.findall(self.operands)

    def attribute(self, name: str) -> str:
        """Return the word behind an attribute of this name, or ""."""
        found = re.search(rf'\b{name}"?[=:]"?%?([\w.\-$]+)', self.attributes)
        return found[1] if found else ""


Computation = dict[str, Instruction]
# {name of a computation: its instructions}. The one that runs is called ENTRY.
Program = dict[str, Computation]


def unreadable(what: str) -> UserError:
    """Return the error of a text that is not understood."""
    return UserError(
        f"the text of the compiled program cannot be read: {what}; "
        "scripts/benches/accelerators/program.py knows that of jax 0.10"
    )


def read(text: str) -> Program:
    """Read the text of a compiled program, what its `as_text()` returns.

    Raises:
      UserError: a line that is not understood.
    """
    program = {}
    for is_entry, name, lines in _COMPUTATION.findall(text):
        computation = program["ENTRY" if is_entry else name] = {}
        for line in lines.splitlines():
            found = _INSTRUCTION.fullmatch(line)
            if not found:
                raise unreadable(repr(line.strip()[:80]))
            computation[found[2]] = Instruction(*found.groups())
    if "ENTRY" not in program:
        raise unreadable("it has no ENTRY")
    return program


def size(shape: str) -> int:
    """Return the bytes of all arrays of a shape."""
    total = 0
    for kind, bits, sizes in _ARRAY.findall(shape):
        elements = math.prod(map(int, re.findall(r"\d+", sizes)))
        total += elements * int("8" if kind == "pred" else bits) // 8
    return total


def count(
    program: Program, name: str = "ENTRY", assumed_trips: int | None = None
) -> Counter[str]:
    """Return what a computation does, by default the whole program.

    Args:
      program: what `read` returned.
      name: that of the computation.
      assumed_trips: of loops whose number of trips is data; None refuses them.

    Returns:
      "kernels": instructions that start something on the device. "cycles": the TPU
      compiler's estimates. KIND and "KIND bytes": of each kind of collectives.

    Raises:
      UserError: the program cannot be read.
    """
    total = Counter()

    def inner(name):
        return count(program, name, assumed_trips)

    for instruction in program[name].values():
        if instruction.operation == "while":
            n = trips(program, program[name], instruction, assumed_trips)
            for what, number in inner(instruction.attribute("body")).items():
                total[what] += n * number
        elif instruction.operation == "call":
            total.update(inner(instruction.attribute("to_apply")))
        elif instruction.operation == "conditional":
            branches = _BRANCHES.search(instruction.attributes)[0]
            found = map(inner, _NAME.findall(branches))
            total.update(max(found, key=lambda one: (one["cycles"], one["kernels"])))
        else:
            total.update(_of_instruction(instruction))
    return total


def _of_instruction(instruction):
    """Return what an instruction without a body of its own does."""
    operation, target = (
        instruction.operation,
        instruction.attribute("custom_call_target"),
    )
    if _FREE.fullmatch(operation) or target in _FREE_TARGETS:
        return {}
    if target == PALLAS:
        raise unreadable(f"the Pallas kernel {instruction.name} states no cycles")
    cycles = int(instruction.attribute("estimated_cycles") or 0)
    found = {"kernels": 1, "cycles": cycles}
    kind = operation.removesuffix("-start")
    if kind in COLLECTIVES:
        found[kind] = 1
        # The result of a start has the operand beside it.
        part = 2 if operation == "all-gather-start" else 1
        found[f"{kind} bytes"] = size(instruction.shape) // part
    return found


def trips(
    program: Program,
    computation: Computation,
    loop: Instruction,
    assumed_trips: int | None = None,
) -> int:
    """Return how often a while loop runs.

    XLA's GPU programs state it. In TPU programs it follows from the condition,
    `counter < constant`, and from the counter's first value.

    Args:
      program: the program.
      computation: where the loop is.
      loop: the loop.
      assumed_trips: see `count`.

    Raises:
      UserError: it cannot be read.
    """
    stated = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes)
    if stated:
        return int(stated[1])
    condition = program[loop.attribute("condition")]
    compare = root = _root(condition)
    if root.operation == "fusion":
        # A fusion of the comparison alone: its operands are the loop's state.
        compare = _root(program[root.attribute("calls")])
    counter, limit = (_without_copies(condition, name) for name in root.names[:2])
    is_counted = compare.attribute("direction") == "LT"
    if is_counted and limit.operation == "get-tuple-element" and assumed_trips:
        return assumed_trips
    start = computation[loop.names[0]]
    if is_counted and start.operation == "tuple":
        name = start.names[int(counter.attribute("index"))]
        first = _without_copies(computation, name)
        if limit.operation == first.operation == "constant":
            return int(limit.operands) - int(first.operands)
    raise unreadable(f"the trips of {loop.name}: {compare.name}")


def _root(computation: Computation) -> Instruction:
    return next(i for i in computation.values() if i.root)


def _without_copies(computation: Computation, name: str) -> Instruction:
    instruction = computation[name]
    while instruction.operation in ("copy", "copy-start", "copy-done", "bitcast"):
        instruction = computation[instruction.names[0]]
    return instruction
