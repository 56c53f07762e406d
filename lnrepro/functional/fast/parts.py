"""The parts of the body of a scan: what is sequential, and what is not.

    before   what depends on the inputs of a step alone
    loop     what the next carry depends on
    after    all other outputs

The loop reads values that `before` makes, and `after` reads values that the loop makes.
Which values these are is a minimum cut of the graph of equations: those of the fewest
bytes from which the rest follows without another sum or product.

What the body only adds to, such as the gradient of a gain, is no carry of the loop: the
terms of all steps are added up.

References:
  The minimum cut is that of functorch's `min_cut_rematerialization_partition`.
"""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lnrepro.functional.arrays import clone_keys
from lnrepro.functional.fast.equations import (
    inline,
    needed,
    reached,
    variables,
    variables_read,
    with_inner,
    with_made,
)
from lnrepro.functional.fast.minimum_cut import minimum_cut

# What the loop may compute again rather than read from a stack.
ELEMENTWISE = frozenset({
    "abs", "add", "add_any", "and", "broadcast_in_dim", "ceil", "clamp", "concatenate",
    "convert_element_type", "copy", "cos", "div", "eq", "exp", "exp2", "expm1", "floor",
    "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt",
    "max", "min", "mul", "ne", "neg", "not", "or", "pad", "pow", "reshape", "round",
    "rsqrt", "select_n", "sign", "sin", "slice", "split", "sqrt", "square", "squeeze",
    "sub", "tanh", "xor",
})  # fmt: skip
# Of a sum over steps they give the sum of what they give for each step.
LINEAR = frozenset({"convert_element_type", "reduce_sum", "reshape", "squeeze"})
# What is never computed again.
EXPENSIVE = frozenset(
    {
        "dot_general",
        "conv_general_dilated",
        "while",
        "scan",
        "cond",
        "pallas_call",
        "pure_callback",
        "custom_vjp_call",
    }
)
# Random bits stay in the loop, since those of some generators change under vmap.
RANDOM = frozenset(
    {
        "random_bits",
        "random_split",
        "random_fold_in",
        "rng_bit_generator",
        "rng_uniform",
    }
)


class Parts(NamedTuple):
    """The body of a scan, taken apart.

    `trace` puts all of it into the loop.

    Variables and equations are those of JAX's jaxprs; `function_of` makes functions of
    them.

    Attributes:
      steps: T.
      tree: structure of the outputs.
      carry, inputs: variables, the arguments of the body. What it only adds to is no
        carry here.
      new_carry, outputs: variables or literals, its results.
      terms: {leaf of the carry: what the body adds to it}, which `after` makes.
      sums: {leaf of the carry: what follows from the sums of `to_sums`}, and `of_sums`
        the equations from there.
      constants: {variable: value} of what is the same in every step.
      before, loop, after: the equations of each part, in order. `before` reads the
        constants and the inputs; the loop reads the constants, the carry and `to_loop`;
        `after` reads the constants, the inputs and `to_after`.
      to_loop: variables that `before` makes and the loop reads.
      to_after: variables that the loop makes or reads, and `after` reads.
      to_sums: variables that the loop makes, and adds up over the steps.
    """

    steps: int
    tree: Any
    carry: list
    inputs: list
    new_carry: list
    outputs: list
    terms: dict
    sums: dict
    of_sums: list
    constants: dict
    before: list
    loop: list
    after: list
    to_loop: list
    to_after: list
    to_sums: list


def trace(body: Callable, init: Any, xs: Any) -> Parts:
    """Trace the body of a scan, all of which is in the loop.

    Args:
      body: (carry, inputs of a step) -> (carry, outputs of a step).
      init: pytree, the carry before the first step.
      xs: pytree of arrays [T, ...], where T is not 0.
    """
    first = jax.tree.map(lambda a: a[0], clone_keys(xs))
    closed, shapes = jax.make_jaxpr(body, return_shape=True)(init, first)
    jaxpr, count = closed.jaxpr, len(jax.tree.leaves(init))
    constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    equations = []
    names = {v: v for v in (*constants, *jaxpr.invars)}
    made = inline(jaxpr, names, equations, constants)
    return Parts(
        steps=jax.tree.leaves(xs)[0].shape[0],
        tree=jax.tree.structure(shapes[1]),
        carry=jaxpr.invars[:count],
        inputs=jaxpr.invars[count:],
        new_carry=made[:count],
        outputs=made[count:],
        terms={},
        sums={},
        of_sums=[],
        constants=constants,
        before=[],
        loop=equations,
        after=[],
        to_loop=jaxpr.invars[count:],
        to_after=variables(made[count:]),
        to_sums=[],
    )


def take_products_apart(body: Callable, init: Any, xs: Any, in_loop: int = 0) -> Parts:
    """Leave a body as it is, but for products with weights that no carry needs.

    They, and what is computed of them, are `after`, as large products. This is what the
    gradient of x takes from the loop where a step computes all else by itself.

    Args:
      body, init, xs: as for `trace`.
      in_loop: number of the first outputs that the loop makes.
    """
    parts = trace(body, init, xs)
    changing = reached(parts.loop, parts.carry + parts.inputs)
    inputs, outputs = set(parts.inputs), set(variables(parts.outputs))
    effects = [e for e in parts.loop if e.effects]
    wanted = variables_read(effects, parts.new_carry + parts.outputs[:in_loop])
    of_loop = set(needed(parts.loop, wanted))
    first = []
    for e in parts.loop:
        read = variables(e.invars)
        is_large = e.primitive.name == "dot_general" and not changing.issuperset(read)
        # An input that is only cast, such as h, is there anyway.
        is_cast = inputs.issuperset(read) and not outputs.isdisjoint(e.outvars)
        if (is_large or is_cast) and e not in of_loop:
            first += e.outvars
    # What follows from them is not needed in the loop either.
    apart = reached(parts.loop, first)
    loop = [e for e in parts.loop if apart.isdisjoint(e.outvars)]
    made = [*parts.carry, *(v for e in loop for v in e.outvars)]
    after = needed(parts.loop, variables(parts.outputs), set(made))
    read = variables_read(after, parts.outputs)
    to_after = [v for v in made if v in read]
    return parts._replace(loop=loop, after=after, to_after=to_after)


def take_apart(
    body: Callable,
    init: Any,
    xs: Any,
    *,
    draw_before: bool = False,
    repeat: bool = True,
    adds: bool = False,
) -> Parts:
    """Find what is sequential in the body of a scan.

    Args:
      body, init, xs: as for `trace`.
      draw_before: whether random bits of JAX's default generator are drawn before the
        loop. They are the same under vmap, and take memory for all steps.
      repeat: whether `after` may compute again what the loop has computed. Otherwise
        the loop stacks more.
      adds: whether the loop adds up what it makes, rather than to stack it for a sum.
    """
    parts = trace(body, init, xs)
    carry, new_carry, outputs = parts.carry, parts.new_carry, parts.outputs
    equations = parts.loop
    terms = _without_additions(equations, carry, new_carry, outputs)

    # What changes from step to step, and what of that depends on the carry.
    stay = [e for e in equations if must_stay(e, draw_before)]
    drawn = [v for e in stay for v in e.outvars]
    sequential = reached(equations, [*carry, *drawn])
    varying = reached(equations, parts.inputs) - sequential

    # The loop: what the next carry needs, and what it computes again of the rest.
    sources = needed(equations, variables_read(stay, new_carry))
    sources = [e for e in sources if not sequential.isdisjoint(e.outvars)]
    made_in_loop = {*stay, *sources}
    loop = [e for e in equations if e in made_in_loop]
    reads = [v for v in variables_read(loop, new_carry) if v not in sequential]
    made_by = {v: e for e in equations for v in e.outvars}
    cut = minimum_cut(
        reads, made_by, can_repeat=lambda e: e.primitive.name in ELEMENTWISE
    )
    in_loop = made_in_loop.union(needed(equations, reads, cut))
    # What is the same in every step is computed here, and is a constant.
    to_loop = [v for v in cut if v in varying]
    changing = varying | sequential
    fixed = [e for e in equations if e.outvars and changing.isdisjoint(e.outvars)]
    constants = with_made(parts.constants, fixed)

    sums, to_sums = {}, {}
    if adds:
        for i, v in list(terms.items()):
            source = _source_of(v, made_by, made_in_loop)
            if source is not None:
                sums[i] = terms.pop(i)
                to_sums[source] = None

    # The rest: from what the loop stacks and from the inputs, which are there anyway.
    def can_repeat(e):
        is_costly = any(inner.primitive.name in EXPENSIVE for inner in with_inner(e))
        is_costly |= must_stay(e)
        return e not in made_in_loop or (repeat and not is_costly)

    wanted = variables([*outputs, *terms.values()])
    to_after = minimum_cut(
        wanted,
        made_by,
        can_repeat=can_repeat,
        can_stack=lambda v: v not in made_by or made_by[v] in made_in_loop,
        at_hand=lambda v: v not in sequential,
    )

    return parts._replace(
        terms=terms,
        sums=sums,
        of_sums=needed(equations, sums.values(), to_sums),
        constants=constants,
        before=needed(equations, to_loop, constants),
        loop=[e for e in equations if e in in_loop],
        after=needed(equations, wanted, {*to_after, *constants}),
        to_loop=to_loop,
        to_after=list(to_after),
        to_sums=list(to_sums),
    )


def _without_additions(equations, carry, new_carry, outputs):
    """Take out what is only added to, with these equations; {leaf of it: the term}."""
    made_by = {v: e for e in equations for v in e.outvars}
    reads = collections.Counter(variables([*new_carry, *outputs]))
    for e in equations:
        reads.update(variables(e.invars))
    terms = {}
    for i, (old, new) in enumerate(zip(carry, new_carry, strict=True)):
        if variables([new]) and reads[old] == reads[new] == 1 and new in made_by:
            e = made_by[new]
            others = [v for v in e.invars if v is not old]
            if e.primitive.name in ("add", "add_any") and len(others) == 1:
                terms[i] = others[0]
    taken = {new_carry[i] for i in terms}
    equations[:] = [e for e in equations if taken.isdisjoint(e.outvars)]
    for i in reversed(terms):
        del carry[i], new_carry[i]
    return terms


def _source_of(v, made_by, made_in_loop):
    """What the loop makes and linear equations turn into a variable, or None."""
    while variables([v]) and v in made_by:
        e = made_by[v]
        if e in made_in_loop:
            return v if jnp.issubdtype(v.aval.dtype, jnp.floating) else None
        if e.primitive.name not in LINEAR:
            return None
        v = e.invars[0]
    return None


def must_stay(equation: Any, draw_before: bool = True) -> bool:
    """Whether an equation draws random bits, or has an effect.

    Args:
      equation: the equation.
      draw_before: whether bits of JAX's default generator, which are the same for many
        steps at once, do not count.
    """

    def draws(e):
        is_default = any("key<fry>" in str(v.aval) for v in e.invars)
        return e.primitive.name in RANDOM and not (draw_before and is_default)

    return any(e.effects or draws(e) for e in with_inner(equation))
