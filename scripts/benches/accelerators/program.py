"""The text of a compiled XLA program, as `compiled.as_text()` prints it.

    ENTRY %main.2 (x.1: f32[8,128]) -> f32[8,128] {
      %x.1 = f32[8,128]{1,0} parameter(0)
      ROOT %fusion = f32[8,128]{1,0} fusion(%x.1), kind=kLoop, calls=%fused_computation
    }

XLA promises no stable text. What cannot be read is therefore an error, never a zero.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lnrepro.errors import UserError

# Bits of an element. The names of 8-bit and smaller floats end in their formats.
BITS = {
    "pred": 8,
    "token": 0,
    "opaque": 0,
    **{f"{kind}{bits}": bits for kind in "su" for bits in (1, 2, 4, 8, 16, 32, 64)},
    **{f"f{bits}": bits for bits in (16, 32, 64)},
    "bf16": 16,
    "c64": 64,
    "c128": 128,
}
_ARRAY = re.compile(r"\b([a-z]+[0-9]*[a-z0-9]*)\[([0-9,<=]*)\](?:\{([^{}]*)\})?")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"(ROOT )?%?([\w.\-]+) = ")
_OPERATION = re.compile(r"\s*([\w\-]+)\(")
_OPERAND = re.compile(r"%([\w.\-]+)")


class Instruction(NamedTuple):
    """An instruction of a computation.

    Attributes:
      name: its name, unique in the computation.
      shape: the text of its shape, such as "(f32[8,128]{1,0}, s32[])".
      operation: "fusion", "while", ...
      operands: names of instructions of the same computation.
      rest: the text from the operands on, with the attributes.
      root: whether the computation returns it.
    """

    name: str
    shape: str
    operation: str
    operands: tuple[str, ...]
    rest: str
    root: bool

    @property
    def target(self) -> str:
        """What a custom call runs, or ""."""
        found = re.search(r'custom_call_target="([^"]*)"', self.rest)
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
        """Return the name of the computation that an instruction's attribute names.

        Raises:
          UserError: there is none of that name.
        """
        found = re.search(rf"\b{attribute}=%?([\w.\-]+)", instruction.rest)
        name = found[1] if found else None
        if name not in self.computations:
            raise unreadable(
                f"{instruction.name}: {attribute} {name!r}, which is not there"
            )
        return name


def unreadable(what: str) -> UserError:
    """Return the error of a text that is not understood."""
    return UserError(
        f"the text of the compiled program cannot be read: {what}; "
        "scripts/benches/accelerators/program.py knows that of jax 0.10"
    )


def read(text: str, assumed_trips: int | None = None) -> Program:
    """Read the text of a compiled program.

    Args:
      text: what `as_text()` of a compiled function returns.
      assumed_trips: see `Program`.

    Raises:
      UserError: a line that is not understood.
    """
    computations, entry, current = {}, None, None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if current is None:
            # Tables of source lines stand before the first computation.
            if not line.startswith(("%", "ENTRY")):
                continue
            found = _HEADER.match(line)
            if found is None:
                raise unreadable(f"line {number}, {stripped[:80]!r}")
            current = computations[found[2]] = {}
            if found[1]:
                entry = found[2]
        elif line.startswith("}"):
            current = None
        elif stripped:
            instruction = _instruction(stripped)
            if instruction is None:
                raise unreadable(f"line {number}, {stripped[:80]!r}")
            current[instruction.name] = instruction
    if entry is None:
        raise unreadable("it has no entry computation")
    return Program(computations, entry, assumed_trips)


def _instruction(line: str) -> Instruction | None:
    """Read `ROOT %name = SHAPE operation(%operand, ...), attributes`."""
    found = _INSTRUCTION.match(line)
    if found is None:
        return None
    text = line[found.end() :]
    # A tuple's shape has blanks, the others have none.
    end = _closing(text, 0) + 1 if text.startswith("(") else text.find(" ")
    operation = _OPERATION.match(text, end)
    if end <= 0 or operation is None:
        return None
    rest = text[operation.end() - 1 :]
    closing = _closing(rest, 0)
    if closing < 0:
        return None
    operands = tuple(_OPERAND.findall(rest[:closing]))
    return Instruction(
        found[2], text[:end], operation[1], operands, rest, bool(found[1])
    )


def _closing(text: str, start: int) -> int:
    """Return the index of the parenthesis that closes the one at `start`, or -1."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    return -1


class Array(NamedTuple):
    """An array of a shape: its sizes, bytes, and whether it lies in HBM."""

    sizes: tuple[int, ...]
    bytes: int
    in_hbm: bool


def arrays(shape: str) -> list[Array]:
    """Return the arrays of a shape.

    Raises:
      UserError: an unknown type of elements.
    """
    found = []
    for dtype, sizes, layout in _ARRAY.findall(shape):
        bits = BITS.get(dtype)
        if bits is None:
            small_float = re.match(r"f([48])e\d", dtype)
            if small_float is None:
                raise unreadable(f"elements of type {dtype!r}")
            bits = int(small_float[1])
        numbers = tuple(int(re.sub(r"\D", "", n)) for n in sizes.split(",") if n)
        size = 1
        for n in numbers:
            size *= n
        # S(1) is the vector memory of a TPU, the others are scalar memories and flags.
        found.append(Array(numbers, size * bits // 8, "S(" not in layout))
    return found


def trips(program: Program, computation: Computation, loop: Instruction) -> int:
    """Return how often a while loop runs.

    XLA's GPU programs state it. In TPU programs it follows from the condition,
    `counter < constant`, and from the counter's first value.

    Raises:
      UserError: it cannot be read.
    """
    stated = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.rest)
    if stated:
        return int(stated[1])
    condition = program.computations[program.called(loop, "condition")]
    root = next(i for i in condition.values() if i.root)
    names = root.operands
    if root.operation == "fusion":
        # A fusion of the comparison alone: its operands are the loop's state.
        inner = program.computations[program.called(root, "calls")]
        root = next(i for i in inner.values() if i.root)
    if root.operation != "compare" or "direction=LT" not in root.rest:
        raise unreadable(f"the trips of {loop.name}: {root.operation}{root.rest[:80]}")
    counter, limit = (_without_copies(condition, name) for name in names[:2])
    in_state = [x.operation == "get-tuple-element" for x in (counter, limit)]
    if all(in_state) and program.assumed_trips is not None:
        return program.assumed_trips
    if not in_state[0] or limit.operation != "constant":
        raise unreadable(f"the trips of {loop.name} depend on {limit.operation}")
    index = int(re.search(r"index=(\d+)", counter.rest)[1])
    state = computation[loop.operands[0]]
    first = None
    if state.operation == "tuple":
        first = _without_copies(computation, state.operands[index])
    if first is None or first.operation != "constant":
        raise unreadable(f"the first value of the counter of {loop.name}")
    return _constant(limit) - _constant(first)


def _without_copies(computation: Computation, name: str) -> Instruction:
    instruction = computation[name]
    while instruction.operation in ("copy", "copy-start", "copy-done", "bitcast"):
        instruction = computation[instruction.operands[0]]
    return instruction


def _constant(instruction: Instruction) -> int:
    found = re.match(r"\((-?\d+)\)", instruction.rest)
    if found is None:
        raise unreadable(f"the constant {instruction.name}{instruction.rest[:40]}")
    return int(found[1])


def branches(program: Program, instruction: Instruction) -> list[str]:
    """Return the names of the computations of a conditional."""
    listed = re.search(r"branch_computations=\{([^}]*)\}", instruction.rest)
    if listed:
        return _OPERAND.findall(listed[1])
    kinds = ("true_computation", "false_computation")
    return [program.called(instruction, kind) for kind in kinds]


class Loop(NamedTuple):
    """A while loop.

    Attributes:
      depth: number of loops around it.
      trips: how often it runs, each time that it is reached.
      body: name of its body.
      scope: the path of jax.named_scope and functions that made it.
    """

    depth: int
    trips: int
    body: str
    scope: str


def loops(program: Program, name: str | None = None, depth: int = 0) -> Iterator[Loop]:
    """Yield all loops, outer before inner ones."""
    computation = program.computations[name or program.entry]
    for instruction in computation.values():
        if instruction.operation == "while":
            body = program.called(instruction, "body")
            scope = re.search(r'op_name="([^"]*)"', instruction.rest)
            yield Loop(
                depth,
                trips(program, computation, instruction),
                body,
                scope[1] if scope else "",
            )
            yield from loops(program, body, depth + 1)
        elif instruction.operation == "call":
            yield from loops(program, program.called(instruction, "to_apply"), depth)
        elif instruction.operation == "conditional":
            for branch in branches(program, instruction):
                yield from loops(program, branch, depth)
