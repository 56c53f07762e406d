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
    parameters = [
        f"const {TYPES[a.aval.dtype]}* __restrict__ a{a.number}"
        for a, *_ in program.arguments
    ]
    parameters.append("const int* __restrict__ sizes")
    for i, a in enumerate(program.types):
        parameters.append(f"{TYPES[a.dtype]}* __restrict__ y{i}")
    products, start, expected = [], [], []
    pairs = zip(program.products, fits, strict=True)
    for i, ((weight, is_transposed, _), fit) in enumerate(pairs):
        words = [TYPES[weight.aval.dtype], int(is_transposed), *fit.chunks]
        words += [fit.buffers, fit.parts, *fit.groups]
        products.append(f"typedef Product<{', '.join(map(str, words))}> P{i};")
        start.append(f"P{i}::Weights w{i}; P{i}::Local l{i};")
        start.append(f"sm.p{i}.start(w{i}, l{i}, a{weight.number}, me);")
        expected.append(f"sm.p{i}.expect_step(t);")
    stacks = _stacks(program)
    places = dict.fromkeys(stacks.values())
    start += [place.first() for place in places]
    start += [_define(a, _read(a, stacks)) for a in program.inputs]
    read = [a for a in program.inputs if a.how.argument.what == "stack"]
    next_inputs = [place.next() for place in places]
    next_inputs += [_define(a, _read(a, stacks, "next_"), "next_") for a in read]

    old = [a for array in program.start for _, a, _ in array]
    new = [a for array in program.carry for _, a, _ in array]
    new_carry = [_define(a, _value(b), "next_") for a, b in zip(old, new, strict=True)]
    new_carry += [_set(a, _value(a, "next_")) for a in old + read]
    new_carry += [place.move() for place in places]
    results, outputs, totals = [], {}, []
    for i, array in enumerate((*program.start, *program.sums, *program.outputs)):
        for offset, a, is_units in array:
            value, in_step = _value(a), outputs.setdefault(a, [])
            if len(program.start) <= i < program.once:
                value = f"sm.total{len(totals)}[n][tid]"
                totals.append(f"volatile float total{len(totals)}[NU][32 * R];")
                start.append(f"EACH {value} = 0.f;")
                in_step.append(f"EACH {value} += {_value(a)};")
            line = _store(i, program, stacks, offset, value, is_units)
            (results if i < program.once else in_step).append(line)
    sections = {
        "of_group": _of_group(program),
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


def _of_group(program):
    """The statements that move pointers to what a group has for itself."""
    for i, (a, has_row, size, _) in enumerate(program.arguments, 2):
        words = "T * " * (a.what == "stack") + "B * " * has_row + str(size)
        yield f"a{a.number} += sizes[{i}] * group * {words};"
    for i, a in enumerate(program.types):
        time = "T * " * (i >= program.once)
        yield f"y{i} += group * {time}B * {math.prod(a.shape)};"


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
    is_moments = exchange[0].kind == "moments"
    sums = [[a] for a in exchange[1].args] if is_moments else [a.args for a in exchange]
    yield f"constexpr int N{i} = {len(sums)};"
    yield f"float x{i}[N{i}][NU];"
    for j, atoms in enumerate(sums):
        yield f"EACH x{i}[{j}][n] = {' + '.join(map(_value, atoms))};"
    yield f"send_{'moments' if is_moments else 'sums'}(sm.sums, {i}, x{i}, me);"


def _wait(i, exchange):
    name = "wait_moments" if exchange[0].kind == "moments" else "wait_sums"
    yield f"float s{i}[4]; {name}<N{i}>(sm.sums, {i}, t & 1, s{i}, me);"
    for j, a in enumerate(exchange):
        yield _define(a, f"s{i}[{j}]")


def _value(a, prefix="v"):
    """An atom in an expression of unit n."""
    if a.value is None:
        return f"{prefix}{a.number}[n]" if a.per_unit else f"{prefix}{a.number}"
    if a.type == "bool":
        return str(a.value).lower()
    if not math.isfinite(a.value):
        raise NoKernel("a constant that is not finite")
    return f"({float(a.value)!r}f)"


def _expression(a):
    expression = ELEMENTWISE[a.how].format(*map(_value, a.args))
    return f"rounded({expression})" if a.type == "bf16" else expression


def _define(a, expression, prefix="v"):
    """Declare a variable for an atom, and give it a value."""
    type, axis = "bool" if a.type == "bool" else "float", "[NU]" * a.per_unit
    return f"{type} {prefix}{a.number}{axis}; {_set(a, expression, prefix)}"


def _set(a, expression, prefix="v"):
    return f"{'EACH ' * a.per_unit}{_value(a, prefix)} = {expression};"


class Stack(NamedTuple):
    """Where a kernel is in an array [T, ...]: a number that grows from step to step.

    Arrays of one size share it. Products by B for every array in each step, in place of
    it, were a tenth of all instructions; a pointer for every array takes registers.
    """

    has_row: bool
    size: int  # Numbers of a row.
    has_units: bool  # Whether it counts to the unit of a lane.

    @property
    def name(self) -> str:
        """The name of its variable."""
        return f"at{self.size}{'b' * self.has_row}{'u' * self.has_units}"

    def first(self) -> str:
        """Return the statement that starts it at the first step."""
        row = "((long long)first * B + row)" if self.has_row else "(long long)first"
        unit = " + unit" * self.has_units
        return f"long long {self.name} = {row} * {self.size}{unit};"

    def next(self) -> str:
        """Return the statement that names its place at the next step."""
        place = f"{self.name} + {self._by('to_next')}"
        return f"const long long next_{self.name} = {place};"

    def move(self) -> str:
        """Return the statement that moves it to the next step."""
        return f"{self.name} += {self._by('ahead')};"

    def _by(self, steps):
        rows = f"{steps} * B" if self.has_row else steps
        return f"(long long)({rows}) * {self.size}"

    def index(self, offset: int, is_units: bool) -> str:
        """Return where an atom lies."""
        if is_units:
            return f"{self.name} + {offset} + 32 * n"
        return f"{self.name} + {offset}{' - unit' * self.has_units}"


def _stacks(program):
    """The arrays of all steps that a kernel reads and writes, by name."""
    found = {}
    for a in program.inputs:
        argument, has_row, size, _ = a.how
        if argument.what == "stack":
            name = f"a{argument.number}"
            has_units = a.per_unit or (name in found and found[name].has_units)
            found[name] = Stack(has_row, size, has_units)
    for i, array in enumerate(program.outputs, program.once):
        has_units = any(is_units for *_, is_units in array)
        size = math.prod(program.types[i].shape)
        found[f"y{i}"] = Stack(True, size, has_units)
    return found


def _index(name, stacks, has_row, size, offset, is_units):
    """Where an atom lies in an array, at the step of its pointer if it is a stack."""
    if name in stacks:
        return stacks[name].index(offset, is_units)
    unit = " + unit + 32 * n" * is_units
    return f"{f'(size_t)row * {size} + ' * has_row}{offset}{unit}"


def _read(a, stacks, step=""):
    argument, has_row, size, offset = a.how
    name = f"a{argument.number}"
    at = step + _index(name, stacks, has_row, size, offset, a.per_unit)
    conditions = ["has_row"] * has_row + ["me.has(n)"] * a.per_unit
    value = f"number({name}[{at}])"
    if not conditions:
        return value
    zero = "false" if a.type == "bool" else "0.f"
    return f"{' && '.join(conditions)} ? {value} : {zero}"


def _store(i, program, stacks, offset, value, is_units):
    """The statement that stores a value in result i."""
    size = math.prod(program.types[i].shape)
    at = _index(f"y{i}", stacks, True, size, offset, is_units)
    put = f"put(&y{i}[{at}], {value});"
    if is_units:
        return f"if (has_row) EACH if (me.has(n)) {put}"
    return f"if (has_row && me.block == 0 && me.lane == 0) {{ const int n = 0; {put} }}"
