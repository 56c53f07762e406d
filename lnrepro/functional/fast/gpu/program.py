"""The sequential part of a loop as rounds of one CUDA kernel.

    carry, inputs of a step --> [ element-wise | sums | product ] --> carry, outputs

A step is a few rounds. In each, a block computes what it can, sends what others need
(parts of sums, or the input of a product), computes what needs no answer, and waits.

What a sender overwrites, all have read: with two rounds in a step, each exchange proves
it for the other. With one round, what arrives has two buffers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional.fast.equations import evaluate, value_of
from lnrepro.functional.fast.gpu.atoms import Argument, Atom, Place, Product
from lnrepro.functional.fast.gpu.values import Tracer
from lnrepro.functional.fast.kernels import NoKernel
from lnrepro.functional.fast.parts import Parts


class Program(NamedTuple):
    """What a step computes, for any number of rows."""

    batch: tuple  # B of the equations, which may be more axes than one.
    units: int  # H.
    arguments: list[Place]  # Those that the kernel reads, from their first entries.
    carries: list[int]  # Numbers of the leaves of the carry that change.
    carry: list[tuple[Atom, Atom]]  # Before and after a step.
    results: list["Result"]
    inputs: list[Atom]
    products: list[Product]
    rounds: list["Round"]


class Result(NamedTuple):
    """A result of the kernel."""

    what: str  # "carry", "sum" over the steps, or "stack" [T, ...].
    row: jax.ShapeDtypeStruct  # A row of it, in a step.
    array: list  # (offset, atom, whether it stands for H units) of a row.


class Round(NamedTuple):
    """A round of a step. Sums and products are not sent in the same one."""

    first: list  # Atoms that are made before it sends.
    sums: list  # Exchanges, each of up to four sums, or of the two atoms of moments.
    product: list  # Atoms of products.
    then: list  # Atoms that are made while it waits.


def trace(parts: Parts) -> Program:
    """Return what a step of a kernel computes.

    Args:
      parts: the body of the loop, of which the kernel is the sequential part.

    Raises:
      NoKernel: there is none for these equations.
    """
    pairs = list(zip(parts.carry, parts.new_carry, strict=True))
    changing = [i for i, (old, new) in enumerate(pairs) if old is not new]
    carry = [parts.carry[i] for i in changing]
    shapes = [v.aval.shape for v in carry]
    if len({shape[:-1] for shape in shapes}) != 1 or len(shapes[0]) < 2:
        raise NoKernel(f"a carry of the shapes {shapes}; it must be [B, H]")
    if not all(isinstance(n, int) for shape in shapes for n in shape):
        raise NoKernel("a size is symbolic")
    batch = shapes[0][:-1]
    tracer = Tracer(batch, min(shape[-1] for shape in shapes))
    if tracer.units < 4:
        raise NoKernel(f"a carry of {tracer.units} units; at least 4 are needed")
    kinds = dict.fromkeys([*parts.constants, *parts.carry], "constant")
    kinds |= dict.fromkeys(carry, "carry") | dict.fromkeys(parts.to_loop, "stack")
    arguments = [Argument(i, v.aval, kinds[v]) for i, v in enumerate(kinds)]
    values: dict = dict(zip(kinds, arguments, strict=True))
    results = []

    def atoms_of(v):
        return list(tracer.stored(tracer.array(value_of(v, values))))

    def add(what, names):
        for v in names:
            dtype = jnp.float32 if what == "sum" else v.aval.dtype
            row = jax.ShapeDtypeStruct(v.aval.shape[len(batch) :], dtype)
            results.append(Result(what, row, atoms_of(v)))

    add("carry", carry)
    evaluate(parts.loop, values, tracer.results)
    new = [a for i in changing for _, a, _ in atoms_of(parts.new_carry[i])]
    add("sum", parts.to_sums)
    add("stack", parts.to_after)
    old = [a for result in results[: len(carry)] for _, a, _ in result.array]
    kept = [*new, *(a for result in results for _, a, _ in result.array)]
    _merge_moments(_needed(kept), tracer.units)
    atoms = _needed(kept)
    products = tracer.products
    read = {a.how[0] for a in atoms if a.kind == "product"}
    if not read or read != set(range(len(products))):
        raise NoKernel("a product that nothing reads, or none by a weight in a step")
    inputs = [a for a in atoms if a.kind == "input"]
    read = {p.weight: Place(p.weight, False, p.weight.aval.size, 0) for p in products}
    read |= {a.how.argument: a.how._replace(offset=0) for a in inputs}
    return Program(
        batch,
        tracer.units,
        [read[a] for a in arguments if a in read],
        changing,
        list(zip(old, new, strict=True)),
        results,
        inputs,
        products,
        _rounds(atoms),
    )


def _needed(atoms):
    """Atoms and those that they are made of, without literals, in order."""
    needed, waiting = set(), list(atoms)
    while waiting:
        a = waiting.pop()
        if a.kind != "literal" and a not in needed:
            needed.add(a)
            waiting += a.args
            waiting += [a.how] if isinstance(a.how, Atom) else []
    return sorted(needed, key=lambda a: a.number)


def _merge_moments(atoms, units):
    """Exchange sums of squared deviations with the sum that their mean is made of."""
    for a in atoms:
        if a.kind != "sums" or {x.how for x in a.args} != {"square"}:
            continue
        deviations = [x.args[0] for x in a.args]
        if {d.how for d in deviations} != {"sub"}:
            continue
        values, means = zip(*(d.args for d in deviations), strict=True)
        mean = means[0]
        if mean.how != "div" or {*means} != {mean}:
            continue
        total, count = mean.args
        is_mean = total.kind == "sums" and count.how == units * len(values)
        if is_mean and total.args == values:
            total.kind = a.kind = "moments"
            a.args, a.how = values, total


def _rounds(atoms):
    """Rounds of exchanges, as early as they can be."""
    done = {a for a in atoms if a.kind == "input"}
    todo = [a for a in atoms if a not in done]

    def is_made(a):
        return all(x.kind == "literal" or x in done for x in a.args)

    rounds = []
    while todo:
        ready = []
        for a in todo:
            if a.kind == "local" and is_made(a):
                ready.append(a)
                done.add(a)
        pending = [a for a in todo if a.kind != "local" and is_made(a)]
        sums = [a for a in pending if a.kind == "sums"]
        exchanges = [[a.how, a] for a in pending if isinstance(a.how, Atom)]
        exchanges += [sums[i : i + 4] for i in range(0, len(sums), 4)]
        product = [a for a in pending if a.kind == "product" and not exchanges]
        sent = [a for exchange in exchanges for a in exchange] + product
        urgent = set(_needed(sent))
        first = [a for a in ready if a in urgent]
        then = [a for a in ready if a not in urgent]
        rounds.append(Round(first, exchanges, product, then))
        done |= set(sent)
        todo = [a for a in todo if a not in done]
    return rounds
