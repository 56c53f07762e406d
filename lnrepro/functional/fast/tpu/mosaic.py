"""Equations in forms that Mosaic knows, the compiler of Pallas' kernels for TPUs.

Mosaic lacks some operations of JAX, or some of their forms: products of more than one
contracted axis, reshapes of booleans, floating-point iota. `fast.tpu.loop` evaluates
the body of a loop with them replaced, and takes out of it what is the same in every
step.
"""

import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from lnrepro.functional.fast import equations
from lnrepro.functional.fast.parts import Parts


def evaluate(parts: Parts, names: Sequence, arguments: Sequence) -> list:
    """Evaluate the loop of a scan in forms that Mosaic compiles.

    Args:
      parts: the parts of the scan.
      names: variables that the loop reads.
      arguments: their values, with integers in place of booleans.

    Returns:
      Values of the new carry and of `to_after`.
    """
    # What becomes a boolean only after it is reshaped.
    numbers = dict(zip(names, arguments, strict=True))
    values = {v: a != 0 if v.aval.dtype == bool else a for v, a in numbers.items()}

    def results_in_mosaic(e, inputs):
        name = e.primitive.name
        # Barriers tell XLA what to fuse, which does not see the inside of a kernel.
        if name == "optimization_barrier":
            return inputs
        if name == "dot_general":
            return [_product(*inputs, **e.params)]
        # Mosaic counts in integers only.
        if name == "iota" and jnp.issubdtype(e.params["dtype"], jnp.floating):
            counts = e.primitive.bind(**e.params | {"dtype": jnp.dtype(jnp.int32)})
            return [counts.astype(e.params["dtype"])]
        if name == "reshape" and _regroups_units(inputs[0], e.params["new_sizes"]):
            return [_regrouped(inputs[0], e.params["new_sizes"])]
        is_boolean = e.outvars[0].aval.dtype == bool
        if name in ("reshape", "broadcast_in_dim") and is_boolean:
            # Mosaic reshapes no booleans, so the number is reshaped and compared again.
            number = jnp.asarray(inputs[0])
            for v in equations.variables(e.invars):
                number = numbers.get(v, number)
            number = e.primitive.bind(without_booleans(number), **e.params)
            numbers[e.outvars[0]] = number
            return [number != 0]
        return equations.results_of(e, inputs)

    equations.evaluate(parts.loop, values, results_in_mosaic)
    results = parts.new_carry + parts.to_after
    return [equations.value_of(a, values) for a in results]


def hoist(parts: Parts) -> Parts:
    """Take out of a loop what depends on its constants alone.

    What the loop does not read of its inputs is no `to_loop` then.
    """
    known, fixed = set(parts.constants), []
    for e in parts.loop:
        read = equations.variables(e.invars)
        is_known = read and known.issuperset(read) and not e.effects
        # What a broadcast makes larger stays in the loop, where it takes no memory.
        larger = sum(map(_size, e.outvars)) > sum(map(_size, read))
        stays = larger and e.primitive.name in ("broadcast_in_dim", "iota")
        # A boolean is made in the loop, from the number that lies in memory.
        stays |= any(v.aval.dtype == bool for v in e.outvars)
        if is_known and not stays:
            fixed.append(e)
            known.update(e.outvars)
    loop = [e for e in parts.loop if e not in fixed]
    read = equations.variables_read(loop, parts.new_carry + parts.to_after)
    return parts._replace(
        constants=equations.with_made(parts.constants, fixed),
        loop=loop,
        to_loop=[v for v in parts.to_loop if v in read],
    )


def _product(a, b, *, dimension_numbers, **params):
    """`dot_general` as Mosaic knows it: one contracted axis, leading batch axes.

    The weights of several gates and blocks ask for more. Narrow numbers are summed in
    float32.
    """
    (contracted_a, contracted_b), (batch_a, batch_b) = dimension_numbers
    dtype = params["preferred_element_type"] or jnp.result_type(a, b)
    params["preferred_element_type"] = jnp.promote_types(dtype, jnp.float32)
    params["out_sharding"] = None
    if len(contracted_a) == 1 and set(batch_a + batch_b) <= {0}:
        y = jax.lax.dot_general(a, b, dimension_numbers, **params)
        return y.astype(dtype)
    # Any other product is one of matrices, for each index of the batch axes.
    free_a = [i for i in range(a.ndim) if i not in contracted_a + batch_a]
    free_b = [i for i in range(b.ndim) if i not in contracted_b + batch_b]

    def in_order(a, *axes):
        sizes = [math.prod(a.shape[i] for i in group) for group in axes]
        return a.transpose([i for group in axes for i in group]).reshape(sizes)

    shape = [a.shape[i] for i in (*batch_a, *free_a)] + [b.shape[i] for i in free_b]
    a = in_order(a, batch_a, free_a, contracted_a)
    b = in_order(b, batch_b, contracted_b, free_b)
    y = jax.lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,))), **params)
    return y.reshape(shape).astype(dtype)


def _regroups_units(a, shape):
    """Whether a reshape changes the last axis, as from [..., N] to [..., 2, N / 2]."""
    before, after = (
        # An axis of size 1 is no part.
        [size for size in sizes[_common(a.shape, shape) :] if size > 1]
        for sizes in (a.shape, shape)
    )
    return a.dtype != bool and before != after and before[-1] != after[-1]


def _regrouped(a, shape):
    """Join and split the last axes by slices, which all TPUs can do at any size."""
    common = _common(a.shape, shape)
    while a.ndim > common + 1:
        count = a.shape[-2]
        parts = [jax.lax.index_in_dim(a, k, -2, False) for k in range(count)]
        a = jnp.concatenate(parts, -1)
    for count in shape[common:-1]:
        a = jnp.stack(jnp.split(a, count, -1), -2)
    return a


def _common(a, b):
    """The number of leading axes that two shapes share."""
    equal = (x == y for x, y in zip(a, b, strict=False))
    return sum(itertools.takewhile(bool, equal))


def _size(variable):
    return math.prod(variable.aval.shape)


def without_booleans(a: jax.Array) -> jax.Array:
    """Return booleans as integers, which Mosaic can reshape."""
    return a.astype(jnp.int32) if a.dtype == bool else a
