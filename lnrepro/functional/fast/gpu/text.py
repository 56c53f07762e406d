"""The source of a kernel, in CUDA.

source/parts.cuh has the products and sums, source/device.cuh what C++ has no
words for. Every atom is a variable, with an entry for each unit of the lane where units
differ.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from lnrepro.functional.fast.gpu.atoms import ELEMENTWISE, TYPES, Atom
from lnrepro.functional.fast.gpu.fit import Fit
from lnrepro.functional.fast.gpu.program import Program
from lnrepro.functional.fast.kernels import NoKernel

_KERNEL = """\
constexpr int {constants}, EXCHANGES = {exchanges};
#include "device.cuh"
#include "parts.cuh"
{products}
struct Shared {{ {members} Sums sums; }};
static_assert(sizeof(Shared) <= SHARED, "too large for shared memory");
KERNEL recurrence({parameters}) {{
  const int B = sizes[0], T = sizes[1], clusters = (B + R - 1) / R;
  const size_t group = GROUPED ? cluster_id() / clusters : 0;
  // Otherwise pointers are no variables, which would take registers.
  if (GROUPED) {{
    {of_group}
  }}
  Shared& sm = shared<Shared>();
  const int tid = thread_id(), row = (cluster_id() - group * clusters) * R + tid / 32;
  const Thread me = {{tid, tid / 32, tid % 32, cluster_rank(), 0.f}};
  const int unit = me.block * U + me.lane;
  const bool has_row = row < B;
  const int first = REVERSE ? T - 1 : 0, ahead = REVERSE ? -1 : 1;
  {start}
  sm.sums.start(me);
  cluster_sync();
  NO_UNROLL for (int t = 0; t < T; ++t) {{
    sm.sums.expect_step(me);
    if (tid == 0 && !me.lost()) {{
      {expected}
    }}
    // The inputs of a step are read a step before.
    const int to_next = t + 1 == T ? 0 : ahead;
    {next_inputs}
    {rounds}
    {new_carry}
  }}
  {results}
  cluster_sync();  // No block leaves while others may send to it.
}}
"""


def source(program: Program, constants: dict[str, int], fits: list[Fit]) -> str:
    """Return the source of a kernel.

    Args:
      program: what a step computes.
      constants: {name: number}, those that source/parts.cuh asks for.
      fits: where the weights of its products lie.
    """
    memory = _memory(program)
    parameters = [f"{a.type}* __restrict__ {name}" for name, a in memory.items()]
    parameters.insert(len(program.arguments), "const int* __restrict__ sizes")
    products, start, expected = [], [], []
    pairs = zip(program.products, fits, strict=True)
    for i, ((weight, is_transposed, _), fit) in enumerate(pairs):
        words = [TYPES[weight.aval.dtype], int(is_transposed), *fit.chunks]
        words += [fit.buffers, fit.parts, *fit.groups]
        products.append(f"typedef Product<{', '.join(map(str, words))}> P{i};")
        start.append(f"P{i}::Weights w{i}; P{i}::Local l{i};")
        start.append(f"sm.p{i}.start(w{i}, l{i}, a{weight.number}, me);")
        expected.append(f"sm.p{i}.expect_step(t);")
    next_inputs, moves = [], []
    names = [*(f"a{a.how.argument.number}" for a in program.inputs), *memory]
    stacks = [memory[name] for name in names if memory[name].time]
    for first, next, move in dict.fromkeys(a.moves() for a in stacks):
        start.append(first)
        next_inputs.append(next)
        moves.append(move)
    start += [_define(a, _read(a, memory)) for a in program.inputs]
    read = [a for a in program.inputs if a.how.argument.what == "stack"]
    next_inputs += [_define(a, _read(a, memory, "next_"), "next_") for a in read]

    new_carry = [_define(a, _value(new), "next_") for a, new in program.carry]
    changing = [*(a for a, _ in program.carry), *read]
    new_carry += [_set(a, _value(a, "next_")) for a in changing]
    new_carry += moves
    results, outputs, totals = [], {}, []
    for i, (what, _, array) in enumerate(program.results):
        for offset, a, is_units in array:
            value, in_step = _value(a), outputs.setdefault(a, [])
            if what == "sum":
                value = f"sm.total{len(totals)}[n][tid]"
                totals.append(f"volatile float total{len(totals)}[NU][32 * R];")
                start.append(f"EACH {value} = 0.f;")
                in_step.append(f"EACH {value} += {_value(a)};")
            line = _store(f"y{i}", memory, offset, value, is_units)
            (in_step if what == "stack" else results).append(line)
    sections = {
        "of_group": _of_group(memory, len(program.arguments)),
        "products": products,
        "start": start,
        "expected": expected,
        "next_inputs": next_inputs,
        "rounds": _rounds(program, outputs),
        "new_carry": new_carry,
        "results": results,
    }
    return _KERNEL.format(
        constants=", ".join(f"{name} = {n}" for name, n in constants.items()),
        exchanges=sum(len(r.sums) for r in program.rounds),
        members=" ".join([*(f"P{i} p{i};" for i in range(len(products))), *totals]),
        parameters=", ".join(parameters),
        **{name: "\n    ".join(lines) for name, lines in sections.items()},
    )


class Memory(NamedTuple):
    """An array in memory, of all steps or of none.

    Of all steps, a number that grows from step to step tells where a kernel is. Arrays
    of one size share it. Products by B for every array in each step, in place of it,
    were a tenth of all instructions; a pointer for every array takes registers.
    """

    type: str
    time: bool  # Whether it is [T, ...].
    has_row: bool
    size: int  # Numbers of a row.
    has_units: bool  # Whether the number counts to the unit of a lane.

    @property
    def at(self) -> str:
        """The name of the number."""
        return f"at{self.size}{'b' * self.has_row}{'u' * self.has_units}"

    def moves(self) -> tuple[str, str, str]:
        """Return the statements that start, name the next, and move the number."""
        row = "((long long)first * B + row)" if self.has_row else "(long long)first"
        unit, rows = " + unit" * self.has_units, " * B" * self.has_row
        step = f"(long long)({{}}{rows}) * {self.size}"
        return (
            f"long long {self.at} = {row} * {self.size}{unit};",
            f"const long long next_{self.at} = {self.at} + {step.format('to_next')};",
            f"{self.at} += {step.format('ahead')};",
        )

    def index(self, offset: int, is_units: bool, step: str) -> str:
        """Return where an atom lies, at this step or the "next_" one."""
        if self.time:
            place = f"{step}{self.at} + "
            unit = " - unit" * (self.has_units and not is_units)
        else:
            place = f"(size_t)row * {self.size} + " * self.has_row
            unit = " + unit" * is_units
        return f"{place}{offset}{unit}{' + 32 * n' * is_units}"


def _memory(program):
    """{name: array} of what a kernel reads, and of its results."""
    of_units, found = {a.how.argument for a in program.inputs if a.per_unit}, {}
    for a, has_row, size, _ in program.arguments:
        words = f"const {TYPES[a.aval.dtype]}", a.what == "stack", has_row, size
        found[f"a{a.number}"] = Memory(*words, a in of_units)
    for i, (what, row, array) in enumerate(program.results):
        words = TYPES[row.dtype], what == "stack", True, math.prod(row.shape)
        found[f"y{i}"] = Memory(*words, any(is_units for *_, is_units in array))
    return found


def _of_group(memory, arguments):
    """The statements that move pointers to what a group has for itself."""
    for i, (name, a) in enumerate(memory.items()):
        own = f"sizes[{i + 2}] * " * (i < arguments)
        words = f"{own}group * {'T * ' * a.time}{'B * ' * a.has_row}{a.size}"
        yield f"{name} += {words};"


def _rounds(program: Program, outputs: dict[Atom, list[str]]) -> Iterator[str]:
    """Yield the statements of a step. What is made is stored after a round has sent."""
    made = [a for a in outputs if a.kind in ("input", "literal")]
    number = 0
    for r in program.rounds:
        exchanges = list(enumerate(r.sums, number))
        number += len(exchanges)
        yield from (_define(a, _expression(a)) for a in r.first)
        for i, exchange in exchanges:
            yield from _send(i, exchange)
        used = sorted({a.how[0] for a in r.product})
        for i in used:
            for chunk, a in enumerate(program.products[i].inputs):
                yield f"{{ float x[NU]; EACH x[n] = {_value(a)};"
                yield f"  sm.p{i}.send(t, {chunk}, x, me); }}"
        yield from (_define(a, _expression(a)) for a in r.then)
        for a in (*made, *r.first, *r.then):
            yield from outputs.get(a, ())
        for i, exchange in exchanges:
            yield from _wait(i, exchange)
        for i in used:
            yield f"sm.p{i}.multiply(t, w{i}, l{i}, me);"
        for a in r.product:
            yield _define(a, f"sm.p{a.how[0]}.result(t, {a.how[1]}, n, me)")
        made = [a for exchange in r.sums for a in exchange] + r.product
    for a in made:
        yield from outputs.get(a, ())


def _send(i, exchange):
    """Send this warp's parts of the moments of some values, or of up to four sums."""
    kind, sums = exchange[0].kind, [a.args for a in exchange]
    if kind == "moments":
        sums = [[a] for a in exchange[1].args]
    yield f"constexpr int N{i} = {len(sums)};"
    yield f"float x{i}[N{i}][NU];"
    for j, atoms in enumerate(sums):
        yield f"EACH x{i}[{j}][n] = {' + '.join(map(_value, atoms))};"
    yield f"send_{kind}(sm.sums, {i}, x{i}, me);"


def _wait(i, exchange):
    call = f"wait_{exchange[0].kind}<N{i}>(sm.sums, {i}, t & 1, s{i}, me);"
    yield f"float s{i}[4]; {call}"
    for j, a in enumerate(exchange):
        yield _define(a, f"s{i}[{j}]")


def _value(a, prefix="v"):
    """An atom in an expression of unit n."""
    if a.kind != "literal":
        return f"{prefix}{a.number}{'[n]' * a.per_unit}"
    if a.type == "bool":
        return str(a.how).lower()
    if not math.isfinite(a.how):
        raise NoKernel("a constant that is not finite")
    return f"({float(a.how)!r}f)"


def _expression(a):
    expression = ELEMENTWISE[a.how].format(*map(_value, a.args))
    return f"rounded({expression})" if a.type == "bf16" else expression


def _define(a, expression, prefix="v"):
    """Declare a variable for an atom, and give it a value."""
    type, axis = "bool" if a.type == "bool" else "float", "[NU]" * a.per_unit
    return f"{type} {prefix}{a.number}{axis}; {_set(a, expression, prefix)}"


def _set(a, expression, prefix="v"):
    return f"{'EACH ' * a.per_unit}{_value(a, prefix)} = {expression};"


def _read(a, memory, step=""):
    argument, has_row, _, offset = a.how
    name = f"a{argument.number}"
    at = memory[name].index(offset, a.per_unit, step)
    conditions = ["has_row"] * has_row + ["me.has(n)"] * a.per_unit
    value = f"number({name}[{at}])"
    if not conditions:
        return value
    zero = "false" if a.type == "bool" else "0.f"
    return f"{' && '.join(conditions)} ? {value} : {zero}"


def _store(name, memory, offset, value, is_units):
    """The statement that stores a value in a result."""
    put = f"put(&{name}[{memory[name].index(offset, is_units, '')}], {value});"
    if is_units:
        return f"if (has_row) EACH if (me.has(n)) {put}"
    return f"if (has_row && me.block == 0 && me.lane == 0) {{ const int n = 0; {put} }}"
