"""The source of a kernel, in CUDA.

gpu_source/parts.cuh has the products and sums, gpu_source/device.cuh what C++ has no
words for. Every atom is a variable, with an entry for each unit of the lane where units
differ.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lnrepro.functional.fast.gpu_values import TYPES
from lnrepro.functional.fast.kernels import NoKernel

_KERNEL = """\
constexpr int {constants};
#include "device.cuh"
#include "parts.cuh"
{products}
struct Shared {{ {members} Sums sums; }};
KERNEL recurrence({parameters}) {{
  Shared& sm = shared<Shared>();
  const int tid = thread_id(), row = cluster_id() * R + tid / 32;
  const Me me = {{tid, tid / 32, tid % 32, cluster_rank()}};
  const int unit = me.block * U + me.lane;
  const bool has_row = row < B;
  {start}
  // The inputs of a step are read a step before.
  int s = REVERSE ? T - 1 : 0;
  {first_inputs}
  sm.sums.start(me);
  cluster_sync();
  NO_UNROLL for (int t = 0; t < T; ++t) {{
    if (tid == 0) {{
      {expected}
    }}
    {inputs}
    const int next = t + 1 == T ? s : REVERSE ? s - 1 : s + 1;
    {next_inputs}
    {rounds}
    {new_carry}
    s = next;
  }}
  {last_carry}
  cluster_sync();  // No block leaves while others may send to it.
}}
#define CALL(in, out) recurrence({call})
"""


def source(program: Any, constants: dict[str, int], layouts: Sequence) -> str:
    """Return the source of a kernel.

    Args:
      program: a `gpu_kernel.Program`.
      constants: {name: number}, those that gpu_source/parts.cuh asks for.
      layouts: the `gpu_kernel.Layout` of each product.
    """
    products = range(len(layouts))
    read = [(TYPES[a.aval.dtype], f"a{a.number}") for a in program.arguments]
    written = [(TYPES[a.dtype], f"y{i}") for i, a in enumerate(program.types)]
    scratch = [("float4", f"scratch{i}") for i in products if layouts[i].scratch]
    parameters = [f"const {type}* __restrict__ {name}" for type, name in read]
    parameters += [f"{type}* __restrict__ {name}" for type, name in written + scratch]
    # For the run on a CPU.
    call = [f"(const {type}*)in[{i}]" for i, (type, _) in enumerate(read)]
    call += [f"({type}*)out[{i}]" for i, (type, _) in enumerate(written + scratch)]

    start = []
    for i in products:
        weight, rest = program.products[i].weight.number, "nullptr"
        if layouts[i].scratch:
            rest = f"scratch{i} + (size_t)block_id() * {layouts[i].scratch // 4}"
        start.append(f"P{i}::Weights w{i};")
        start.append(f"float4* rest{i} = {rest};")
        start.append(f"sm.p{i}.start(w{i}, a{weight}, rest{i}, me);")
    stacks = []
    for a in program.atoms:
        if a.kind == "input" and a.how.argument.what == "stack":
            stacks.append(a)
        elif a.kind == "input":
            start.append(_define(a, a.name, _read(a, "0")))
        elif a.kind == "local" and not a.varies:
            start.append(_define(a, a.name, _expression(a)))

    expected = [f"sm.p{i}.expect_step(t);" for i in products]
    exchanges = [exchange for r in program.rounds for exchange in r.sums]
    for i, exchange in enumerate(exchanges):
        size = 16 if len(exchange) > 2 else 8
        expected.append(f"expect(&sm.sums.bar[{i}], R * C * {size});")

    count = len(program.carry)
    new_carry, last_carry = [], []
    for before, after in zip(program.start, program.carry, strict=True):
        pairs = list(zip(before.cells.flat, after.cells.flat, strict=True))
        new_carry += [
            _define(old, f"new_{old.name}", _value(new)) for old, new in pairs
        ]
        new_carry += [
            _set(old, old.name, _entry(old, f"new_{old.name}")) for old, _ in pairs
        ]
    for i, array in enumerate(program.start):
        last_carry += [line for _, line in _stores(i, array, "0")]
    outputs = []
    for i, array in enumerate(program.outputs, count):
        outputs += _stores(i, array, "s")
    return _KERNEL.format(
        constants=", ".join(f"{name} = {n}" for name, n in constants.items()),
        products="\n".join(
            f"typedef Product<{layouts[i].parameters}> P{i};" for i in products
        ),
        members=" ".join(f"P{i} p{i};" for i in products),
        parameters=",\n                  ".join(parameters),
        start="\n  ".join(start),
        first_inputs="\n  ".join(
            _define(a, f"next_{a.name}", _read(a, "s")) for a in stacks
        ),
        expected="\n      ".join(expected),
        inputs="\n    ".join(
            _define(a, a.name, _entry(a, f"next_{a.name}")) for a in stacks
        ),
        next_inputs="\n    ".join(
            _set(a, f"next_{a.name}", _read(a, "next")) for a in stacks
        ),
        rounds="\n    ".join(_rounds(program, outputs)),
        new_carry="\n    ".join(new_carry),
        last_carry="\n  ".join(last_carry),
        call=", ".join(call),
    )


def _rounds(program, outputs):
    """Yield the statements of a step. Outputs are stored as early as they can be."""
    made, first = {a for a in program.atoms if not a.varies or a.kind == "input"}, 0

    def store():
        for output in list(outputs):
            if output[0].value is not None or output[0] in made:
                outputs.remove(output)
                yield output[1]

    for r in program.rounds:
        exchanges = list(enumerate(r.sums, first))
        first += len(exchanges)
        used = sorted({a.how[0] for a in r.product})
        for a in r.first:
            yield _define(a, a.name, _expression(a))
        for i, exchange in exchanges:
            yield from _send_sums(i, exchange)
        for i in used:
            for chunk, a in enumerate(program.products[i].inputs):
                yield f"{{ float x[NU]; EACH x[n] = {_value(a)};"
                yield f"  sm.p{i}.send(t, {chunk}, x, me); }}"
        for a in r.then:
            yield _define(a, a.name, _expression(a))
        made.update(r.first, r.then)
        yield from store()
        for i, exchange in exchanges:
            yield from _wait_for_sums(i, exchange)
            made.update(exchange)
        for i in used:
            yield f"sm.p{i}.multiply(t, w{i}, rest{i}, me);"
        for a in r.product:
            number, chunk = a.how
            yield _define(a, a.name, f"sm.p{number}.result(t, {chunk}, n, me)")
        made.update(r.product)
    yield from store()


def _send_sums(i, exchange):
    if isinstance(exchange, tuple):
        values = exchange[1].args
        yield f"float x{i}[{len(values)}][NU];"
        for j, a in enumerate(values):
            yield f"EACH x{i}[{j}][n] = {_value(a)};"
        yield f"send_moments(sm.sums, {i}, x{i}, me);"
        return
    yield f"float x{i}[4] = {{}};"
    for j, a in enumerate(exchange):
        total = " + ".join(map(_value, a.args))
        yield f"EACH x{i}[{j}] += me.has(n) ? {total} : 0.f;"
    yield f"send_sums<{len(exchange)}>(sm.sums, {i}, x{i}, me);"


def _wait_for_sums(i, exchange):
    if isinstance(exchange, tuple):
        total, squares = exchange
        count = len(squares.args)
        yield f"const float2 m{i} = wait_moments<{count}>(sm.sums, {i}, t & 1, me);"
        yield f"const float {total.name} = m{i}.x, {squares.name} = m{i}.y;"
        return
    yield f"wait_sums<{len(exchange)}>(sm.sums, {i}, t & 1, x{i}, me);"
    for j, a in enumerate(exchange):
        yield f"const float {a.name} = x{i}[{j}];"


def _value(a):
    """An atom in an expression of unit n."""
    if a.value is None:
        return _entry(a, a.name)
    if a.type == "bool":
        return str(a.value).lower()
    if not math.isfinite(a.value):
        raise NoKernel("a constant that is not finite")
    return f"({float(a.value)!r}f)"


def _expression(a):
    return a.how.format(*map(_value, a.args))


def _entry(a, name):
    return f"{name}[n]" if a.per_unit else name


def _define(a, name, expression):
    """Declare a variable for an atom, and give it a value."""
    axis = "[NU]" if a.per_unit else ""
    type = "bool" if a.type == "bool" else "float"
    return f"{type} {name}{axis}; {_set(a, name, expression)}"


def _set(a, name, expression):
    each = "EACH " if a.per_unit else ""
    return f"{each}{_entry(a, name)} = {expression};"


def _offset(shape, roles, index, step):
    """Where an atom lies in memory at a step; the batch is the first axis, if any."""
    stride, terms = 1, []
    for size, role, i in reversed(list(zip(shape, roles, index, strict=True))):
        if role == "row":
            terms.append(f"(size_t)row * {stride}")
            size = 1
        elif role == "units":
            terms.append(f"{i} * H + unit + 32 * n")
        else:
            terms.append(f"{i * stride}")
        stride *= size
    rows = "B" if "row" in roles else "1"
    return " + ".join([f"(size_t){step} * {rows} * {stride}", *terms])


def _read(a, step):
    argument, roles, index = a.how
    step = step if argument.what == "stack" else "0"
    at = _offset(argument.aval.shape, roles, index, step)
    conditions = ["has_row"] * ("row" in roles) + ["me.has(n)"] * a.per_unit
    value = f"number(a{argument.number}[{at}])"
    if not conditions:
        return value
    zero = "false" if a.type == "bool" else "0.f"
    return f"{' && '.join(conditions)} ? {value} : {zero}"


def _stores(i, array, step):
    """(atom, the statement that stores it) of all atoms of a result."""
    for index in np.ndindex(array.cells.shape):
        a = array.cells[index]
        at = _offset(array.shape, array.roles, index, step)
        put = f"put(&y{i}[{at}], {_value(a)});"
        if "units" in array.roles:
            yield a, f"if (has_row) EACH if (me.has(n)) {put}"
        else:
            yield a, f"if (has_row && me.block == 0 && me.lane == 0) {put}"
