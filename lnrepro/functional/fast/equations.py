"""Equations of JAX's jaxprs: read, put in line, evaluated, made functions again."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.extend import core

# Primitives that evaluate an inner jaxpr. A kernel needs no rules of derivatives.
CALLS = frozenset({"jit", "closed_call", "custom_jvp_call", "custom_vjp_call"})


def variables(atoms: Iterable) -> list:
    """Return the variables among variables and literals."""
    return [a for a in atoms if not isinstance(a, core.Literal)]


def variables_read(equations: Iterable, results: Iterable) -> dict:
    """Return {variable: None} of all that some results, or equations, read."""
    read = variables(results)
    for e in equations:
        read += variables(e.invars)
    return dict.fromkeys(read)


def reached(equations: Iterable, start: Iterable) -> set:
    """Return some variables, and all that equations in order compute from them."""
    found = set(start)
    for e in equations:
        if not found.isdisjoint(variables(e.invars)):
            found.update(e.outvars)
    return found


def needed(equations: Iterable, wanted: Iterable, known: Collection = ()) -> list:
    """Return those of some equations, in order, that make variables of known ones."""
    missing, found = set(wanted).difference(known), []
    for e in reversed([*equations]):
        if not missing.isdisjoint(e.outvars):
            missing.update(v for v in variables(e.invars) if v not in known)
            found.append(e)
    return found[::-1]


def with_inner(equation: Any) -> Iterator:
    """Yield an equation, and all that stand in functions inside of it."""
    yield equation
    for jaxpr in core.jaxprs_in_params(equation.params):
        for e in jaxpr.eqns:
            yield from with_inner(e)


def function_of(
    equations: list, inputs: list, outputs: list, constants: Mapping
) -> Callable:
    """Return the function (*values of inputs) -> values of outputs of some equations.

    Args:
      equations: equations of a jaxpr, in order.
      inputs: variables.
      outputs: variables or literals.
      constants: {variable: value} of what else they read.
    """
    effects = frozenset().union(*(e.effects for e in equations))
    # The names of arguments and results are not known.
    info = core.DebugInfo("fission", "fission", None, None)
    jaxpr = core.Jaxpr([*constants], inputs, outputs, equations, effects, info)
    return core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, [*constants.values()]))


def with_made(constants: dict, equations: list) -> dict:
    """Return {variable: value} of constants and of what equations make of them."""
    made = [v for e in equations for v in e.outvars]
    values = function_of(equations, [], made, constants)()
    return constants | dict(zip(made, values, strict=True))


def value_of(atom: Any, values: dict) -> Any:
    """Return the value of a literal, or of a variable among {variable: value}."""
    return atom.val if isinstance(atom, core.Literal) else values[atom]


def results_of(equation: Any, inputs: Sequence) -> list:
    """Evaluate one equation by its primitive."""
    results = equation.primitive.bind(*inputs, **equation.params)
    return results if equation.primitive.multiple_results else [results]


def evaluate(
    equations: Iterable,
    values: dict,
    rule: Callable,
    *,
    calls: Collection = CALLS,
    read: Callable = value_of,
    constant: Callable = lambda value: value,
) -> None:
    """Evaluate equations in their order, inner functions in line.

    Args:
      equations: the equations.
      values: {variable: value}, to read and to add to.
      rule: (equation, values of its inputs) -> values of its results.
      calls: names of the primitives whose inner functions are evaluated.
      read: (variable or literal, values) -> its value.
      constant: (array that an inner function reads) -> its value.
    """
    for e in equations:
        inputs = [read(a, values) for a in e.invars]
        if e.primitive.name in calls:
            inner = e.params.get("call_jaxpr", e.params.get("jaxpr"))
            # Variables of an inner function are its own, wherever it is called.
            names = (*inner.jaxpr.constvars, *inner.jaxpr.invars)
            inputs = (*map(constant, inner.consts), *inputs)
            of_inner = dict(zip(names, inputs, strict=True))
            how = {"calls": calls, "read": read, "constant": constant}
            evaluate(inner.jaxpr.eqns, of_inner, rule, **how)
            results = [read(a, of_inner) for a in inner.jaxpr.outvars]
        else:
            results = rule(e, inputs)
        values.update(zip(e.outvars, results, strict=True))


def inline(jaxpr: Any, names: dict, equations: list, constants: dict) -> list:
    """Append the equations of a jaxpr to a list; return the results.

    An inner `jax.jit` is replaced by its equations, so that its parts can be told
    apart. Its jaxpr may occur twice, so each occurrence gets variables of its own.

    Args:
      jaxpr: the jaxpr.
      names: {variable: its new name} of the arguments.
      equations: list to append to.
      constants: {variable: value} to add to.
    """

    def renamed(atom, names):
        return atom if isinstance(atom, core.Literal) else names[atom]

    def constant(value):
        v = core.Var(jax.typeof(value))
        constants[v] = value
        return v

    def append(e, inputs):
        made = [core.Var(v.aval) for v in e.outvars]
        equations.append(e.replace(invars=inputs, outvars=made))
        return made

    how = {"calls": ["jit"], "read": renamed, "constant": constant}
    evaluate(jaxpr.eqns, names, append, **how)
    return [renamed(a, names) for a in jaxpr.outvars]
