"""Equations on arrays as operations on what one lane of a GPU holds of one row.

A kernel gives each row of the batch to a warp, and each unit to a lane. So of an array
[B, 4 H] a lane holds four numbers a unit, which are called atoms here. Every axis of an
array has a role:

    row      the batch, of which a warp has one row                        1 atom
    units    a multiple of H, in chunks of H such as gates                 an atom a chunk
    small    anything else of at most 64 entries, such as the statistics   an atom an entry
    same     all entries are equal: size 1, or a broadcast                 1 atom

Slices, splits, concatenations and reshapes of gates give atoms another place, and cost
nothing. What is left are element-wise operations, sums over units, and products.

Shape letters: B rows, H units, K and N multiples of H.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lnrepro.functional.fast.kernels import NoKernel

# The types of numbers in memory. A kernel computes in float32, and rounds the results
# of operations on bfloat16.
TYPES = {
    jnp.dtype(jnp.float32): "float",
    jnp.dtype(jnp.bfloat16): "bf16",
    jnp.dtype(jnp.bool_): "bool",
}
MOST_ENTRIES = 64  # of an axis that is neither batch nor units
ELEMENTWISE = {
    "add": "{0} + {1}", "add_any": "{0} + {1}", "sub": "{0} - {1}",
    "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}", "square": "{0} * {0}",
    "max": "fmaxf({0}, {1})", "min": "fminf({0}, {1})", "abs": "fabsf({0})",
    "tanh": "tanh_({0})", "logistic": "sigmoid({0})", "exp": "expf({0})",
    "log": "logf({0})", "log1p": "log1pf({0})", "expm1": "expm1f({0})",
    "sqrt": "sqrtf({0})", "rsqrt": "rsqrtf({0})", "erf": "erff({0})",
    "pow": "powf({0}, {1})", "clamp": "fminf(fmaxf({1}, {0}), {2})",
    "select_n": "{0} ? {2} : {1}", "copy": "{0}", "copy_p": "{0}",
    "stop_gradient": "{0}",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "and": "{0} && {1}", "or": "{0} || {1}",
    "not": "!{0}", "is_finite": "isfinite({0})",
}  # fmt: skip
CALLS = {"jit", "closed_call", "custom_jvp_call", "custom_vjp_call"}


@dataclasses.dataclass(eq=False)
class Atom:
    """A number per unit of a row, or per row; or a literal, whose value is known.

    Attributes:
      name: of the variable of the kernel.
      type: a value of `TYPES`.
      per_unit: whether units differ.
      value: that of a literal.
      varies: whether it differs from step to step.
      kind: "literal", "input", "local", "sum", "moments" or "product".
      how: of a local atom the expression; of an input its place; of a product (product,
        chunk); of the squared deviations of moments, their sum.
      args: the atoms that it is made of.
    """

    name: str = ""
    type: str = "float"
    per_unit: bool = False
    value: Any = None
    varies: bool = False
    kind: str = "literal"
    how: Any = None
    args: tuple = ()


class Array(NamedTuple):
    """An array of atoms, and the roles of its axes at their sizes."""

    cells: np.ndarray
    roles: tuple
    shape: tuple


class Argument(NamedTuple):
    """An argument of the kernel: "constant", "carry", or "stack" [T, ...]."""

    number: int
    aval: Any
    what: str


class Place(NamedTuple):
    """Where an atom lies in memory: the roles are those of the argument's axes."""

    argument: Argument
    roles: tuple
    index: tuple


class Product(NamedTuple):
    """A product of atoms, one a chunk, with the weight in an argument."""

    weight: Argument
    is_transposed: bool
    inputs: tuple


def literal(value: Any) -> Atom:
    """Return the atom of a number that is known."""
    return Atom(value=value, type="bool" if isinstance(value, bool) else "float")


class Tracer:
    """Evaluates equations on arrays of atoms.

    Attributes:
      atoms: all atoms but literals, in an order in which they can be made.
      products: all products.
      arguments: those that the equations may read.
    """

    def __init__(self, rows: Any, units: int):
        """Start with no atoms, for B rows and H units."""
        self.rows, self.units = rows, units
        self.atoms: list[Atom] = []
        self.products: list[Product] = []
        self.arguments: list[Argument] = []
        self._memo: dict[tuple, Atom] = {}

    def argument(self, aval: Any, what: str) -> Argument:
        """Return another argument of the kernel, whose shape has no axis of time."""
        self.arguments.append(Argument(len(self.arguments), aval, what))
        return self.arguments[-1]

    def roles(self, shape: Sequence, is_row: bool) -> tuple:
        """Return the roles of the axes of an array in memory."""
        roles = ["same" if n == 1 else "small" for n in shape]
        if len(shape) > is_row and self._is_units(shape[-1]):
            roles[-1] = "units"
        if is_row:
            roles[0] = "row"
        for role, n in zip(roles, shape, strict=True):
            if role == "small" and n > MOST_ENTRIES:
                raise NoKernel(
                    f"an array {shape}, of which an axis is no multiple of H"
                )
        return tuple(roles)

    def array(self, value: Any) -> Array:
        """Return an array of atoms for an argument or for numbers that are known."""
        if isinstance(value, Array):
            return value
        if not isinstance(value, Argument):
            return self._of_numbers(np.asarray(value))
        shape, dtype = value.aval.shape, value.aval.dtype
        if dtype not in TYPES:
            raise NoKernel(f"an array of {dtype}")
        # Where B is a multiple of H, a vector of constants could be either. A wrong
        # guess gives an axis two roles, which is refused.
        is_row = shape[:1] == (self.rows,)
        is_row = is_row and (value.what != "constant" or len(shape) == 2)
        if value.what == "carry" and not is_row:
            raise NoKernel(f"a carry {shape} without the batch")
        roles = self.roles(shape, is_row)
        sizes = [self._extent(r, n) for r, n in zip(roles, shape, strict=True)]
        cells = np.empty(sizes, object)
        for index in np.ndindex(cells.shape):
            cells[index] = self._new(
                "input",
                Place(value, roles, index),
                type=TYPES[dtype],
                per_unit="units" in roles,
                varies=value.what != "constant",
            )
        return Array(cells, roles, shape)

    def result(self, v: Any, values: dict) -> Array:
        """Return the atoms of a result of the kernel, one for each that is stored."""
        shape, dtype = v.aval.shape, v.aval.dtype
        if shape[:1] != (self.rows,) or dtype not in TYPES:
            raise NoKernel(f"a result {v.aval}; it must have the batch axis first")
        a = self.array(self._read(v, values))
        for axis, role in enumerate(self.roles(shape, True)):
            a = self._expand(a, axis, role)
        return a

    def evaluate(self, equations: Sequence, values: dict) -> None:
        """Evaluate equations in their order.

        Args:
          equations: those whose results are in `values` are passed over.
          values: {variable: array, argument, or numbers that are known}, to read and to
            add to.

        Raises:
          NoKernel: an operation that a kernel does not have.
        """
        for e in equations:
            if not all(v in values for v in e.outvars):
                inputs = [self._read(a, values) for a in e.invars]
                values.update(zip(e.outvars, self._results(e, inputs), strict=True))

    @staticmethod
    def _read(atom, values):
        return np.asarray(atom.val) if isinstance(atom, core.Literal) else values[atom]

    def _results(self, e, inputs):
        name, out = e.primitive.name, e.outvars[0].aval
        if name in CALLS:
            inner = e.params.get("call_jaxpr", e.params.get("jaxpr"))
            values = dict(zip(inner.jaxpr.constvars, inner.consts, strict=True))
            values |= dict(zip(inner.jaxpr.invars, inputs, strict=True))
            self.evaluate(inner.jaxpr.eqns, values)
            return [self._read(a, values) for a in inner.jaxpr.outvars]
        if not any(isinstance(a, Array | Argument) for a in inputs):
            # Masks of gates are computed now.
            with jax.ensure_compile_time_eval():
                results = e.primitive.bind(*inputs, **e.params)
            results = results if e.primitive.multiple_results else [results]
            return [np.asarray(a) for a in results]
        if name == "dot_general" and self._is_weight(inputs[1]):
            return [self._product(e, *inputs)]
        arrays = [self.array(a) for a in inputs]
        if name == "optimization_barrier":
            return arrays
        if out.dtype not in TYPES:
            raise NoKernel(f"{name} of {out.dtype}")
        if name == "convert_element_type":
            is_cast = e.invars[0].aval.dtype == bool and out.dtype != bool
            how = "({0} ? 1.f : 0.f)" if is_cast else "{0}"
            return [self._elementwise(name, how, out, arrays)]
        if name == "integer_pow":
            y = e.params["y"]
            how = "*".join(["{0}"] * abs(y))
            how = how if y > 0 else f"1.f / ({how})"
            return [self._elementwise(name, how, out, arrays)]
        if name in ELEMENTWISE:
            return [self._elementwise(name, ELEMENTWISE[name], out, arrays)]
        method = _METHODS.get(name)
        if method is None:
            raise NoKernel(f"the operation {name}")
        results = method(self, *arrays, **e.params)
        return results if e.primitive.multiple_results else [results]

    # Atoms.

    def _new(self, kind, how, args=(), **fields):
        key = [a if a.value is None else (a.type, a.value) for a in args]
        key = (kind, how, fields.get("type"), *key)
        if key not in self._memo:
            name = f"v{len(self.atoms)}"
            atom = Atom(name, kind=kind, how=how, args=tuple(args), **fields)
            self._memo[key] = atom
            self.atoms.append(atom)
        return self._memo[key]

    def _operate(self, name, how, type, *args):
        """An element-wise operation, or a simpler atom of the same value."""
        values = [a.value for a in args]
        # Masks of gates are literals, so 0 x is 0 here even where x is not finite.
        if name == "select_n" and values[0] is not None:
            return args[1 + int(values[0])]
        if name == "select_n" and len(args) != 3:
            raise NoKernel("select_n of more than two cases")
        if name == "mul" and 0 in values:
            return literal(0.0)
        if name in ("mul", "div") and values[1] == 1:
            return args[0]
        if name == "mul" and values[0] == 1:
            return args[1]
        if name in ("add", "add_any", "sub") and values[1] == 0:
            return args[0]
        if name in ("add", "add_any") and values[0] == 0:
            return args[1]
        if how == "{0}" and args[0].type in (type, "bf16"):
            return args[0]
        if type == "bf16":
            how = f"rounded({how})"
        return self._new(
            "local",
            how,
            args,
            type=type,
            per_unit=any(a.per_unit for a in args),
            varies=any(a.varies for a in args),
        )

    def _add(self, atoms, type):
        total = literal(0.0)
        for a in atoms:
            total = self._operate("add", "{0} + {1}", type, total, a)
        return total

    def _times(self, atom, factor, type):
        return self._operate("mul", "{0} * {1}", type, atom, literal(float(factor)))

    # Arrays.

    def _is_units(self, size):
        return size > 1 and size % self.units == 0

    def _extent(self, role, size):
        if role == "units":
            return size // self.units
        return size if role == "small" else 1

    def _expand(self, a, axis, role):
        """Give a role to an axis along which all is equal."""
        if a.roles[axis] == role:
            return a
        size = a.shape[axis]
        if a.roles[axis] != "same":
            raise NoKernel(f"axis {axis} of {a.shape} is {a.roles[axis]} and {role}")
        if role == "small" and size > MOST_ENTRIES:
            raise NoKernel(f"an axis of {size}, which is neither batch nor units")
        cells = np.repeat(a.cells, self._extent(role, size), axis)
        return Array(cells, (*a.roles[:axis], role, *a.roles[axis + 1 :]), a.shape)

    def _of_numbers(self, value):
        """An array of literals."""
        cells, roles = value, []
        for axis, size in enumerate(value.shape):
            parts = np.moveaxis(cells, axis, 0)
            role = "units" if self._is_units(size) else "small"
            if (parts == parts[:1]).all():
                role, cells = "same", cells.take([0], axis)
            elif role == "units":
                blocks = parts.reshape(-1, self.units, *parts.shape[1:])
                if not (blocks == blocks[:, :1]).all():
                    raise NoKernel("a constant that differs between the units")
                cells = cells.take(range(0, size, self.units), axis)
            elif size > MOST_ENTRIES:
                raise NoKernel(f"a constant {value.shape}")
            roles.append(role)
        atoms = np.empty(cells.shape, object)
        for index in np.ndindex(cells.shape):
            atoms[index] = literal(cells[index].item())
        return Array(atoms, tuple(roles), value.shape)

    def _elementwise(self, name, how, out, arrays):
        rank = len(out.shape)

        def with_axes(a):
            if len(a.shape) == rank:
                return a
            return Array(a.cells.reshape((1,) * rank), ("same",) * rank, out.shape)

        arrays = [with_axes(a) for a in arrays]
        roles = []
        for of_axis in zip(*(a.roles for a in arrays), strict=True):
            kinds = set(of_axis) - {"same"}
            if len(kinds) > 1:
                raise NoKernel(f"{name}: an axis is {' and '.join(sorted(kinds))}")
            roles.append(kinds.pop() if kinds else "same")

        def operate(*atoms):
            return self._operate(name, how, TYPES[out.dtype], *atoms)

        cells = np.empty(np.broadcast_shapes(*(a.cells.shape for a in arrays)), object)
        cells[...] = np.frompyfunc(operate, len(arrays), 1)(*(a.cells for a in arrays))
        return Array(cells, tuple(roles), out.shape)

    # Products and sums.

    def _is_weight(self, value):
        if not isinstance(value, Argument) or value.what != "constant":
            return False
        shape = value.aval.shape
        return len(shape) == 2 and all(map(self._is_units, shape))

    def _product(self, e, a, weight):
        """a [B, K] times a weight [K, N], or [N, K] transposed."""
        ((of_a, of_weight), batch) = e.params["dimension_numbers"]
        precision = e.params["precision"]
        precisions = precision if isinstance(precision, tuple) else (precision,)
        if any(p not in (None, jax.lax.Precision.DEFAULT) for p in precisions):
            raise NoKernel("products of a precision other than 'default'")
        a = self.array(a)
        is_known = weight.aval.dtype in TYPES
        if not is_known or any(batch) or len(a.shape) != 2 or tuple(of_a) != (1,):
            raise NoKernel(f"a product of {a.shape} and {weight.aval.shape}")
        inputs = tuple(self._expand(a, 1, "units").cells[0])
        is_transposed = tuple(of_weight) == (1,)
        number = len(self.products)
        self.products.append(Product(weight, is_transposed, inputs))
        out = e.outvars[0].aval
        cells = np.empty((1, out.shape[1] // self.units), object)
        for chunk in range(cells.size):
            atom = self._new(
                "product", (number, chunk), inputs, per_unit=True, varies=True
            )
            # The sums of narrow numbers are float32, and are rounded.
            cells[0, chunk] = self._operate("round", "{0}", TYPES[out.dtype], atom)
        return Array(cells, ("row", "units"), out.shape)

    def _small_product(self, a, b, *, dimension_numbers, **_):
        """A product with few rows or columns, such as of the scales of groups."""
        ((of_a,), (of_b,)), batch = dimension_numbers
        if any(batch) or len(a.shape) != 2 or len(b.shape) != 2:
            raise NoKernel("a product of other arrays than matrices")
        a = a if of_a == 1 else self._transpose(a, permutation=(1, 0))
        b = b if of_b == 1 else self._transpose(b, permutation=(1, 0))
        shape = (a.shape[0], b.shape[0], a.shape[1])
        a = self._broadcast_in_dim(a, shape=shape, broadcast_dimensions=(0, 2))
        b = self._broadcast_in_dim(b, shape=shape, broadcast_dimensions=(1, 2))
        out = jax.ShapeDtypeStruct(shape, jnp.float32)
        terms = self._elementwise("mul", "{0} * {1}", out, [a, b])
        return self._reduce_sum(terms, axes=(2,))

    def _reduce_sum(self, a, *, axes, **_):
        if any(a.roles[i] == "row" for i in axes):
            raise NoKernel("a sum over the batch")
        factor = math.prod(a.shape[i] for i in axes if a.roles[i] == "same")
        over_units = any(a.roles[i] == "units" for i in axes)
        kept = [i for i in range(len(a.shape)) if i not in axes]
        moved = a.cells.transpose([*kept, *axes])
        cells = np.empty(moved.shape[: len(kept)], object)
        for index in np.ndindex(cells.shape):
            atoms = [x for x in moved[index].ravel() if x.value != 0]
            type = atoms[0].type if atoms else "float"
            if over_units:
                # What is equal for all units of a row is counted H times.
                equal = self._add([x for x in atoms if not x.per_unit], type)
                of_units = [x for x in atoms if x.per_unit]
                atoms = [self._times(equal, self.units, type)]
                if of_units:
                    atoms.append(self._new("sum", "", of_units, varies=True))
            cells[index] = self._times(self._add(atoms, type), factor, type)
        shape = tuple(a.shape[i] for i in kept)
        return Array(cells, tuple(a.roles[i] for i in kept), shape)

    # Operations that give atoms another place.

    def _broadcast_in_dim(self, a, *, shape, broadcast_dimensions, **_):
        sizes, roles = [1] * len(shape), ["same"] * len(shape)
        for i, axis in enumerate(broadcast_dimensions):
            sizes[axis], roles[axis] = a.cells.shape[i], a.roles[i]
        return Array(a.cells.reshape(sizes), tuple(roles), tuple(shape))

    def _transpose(self, a, *, permutation):
        roles, shape = (tuple(x[i] for i in permutation) for x in (a.roles, a.shape))
        return Array(a.cells.transpose(permutation), roles, shape)

    def _squeeze(self, a, *, dimensions):
        kept = [i for i in range(len(a.shape)) if i not in dimensions]
        roles, shape = (tuple(x[i] for i in kept) for x in (a.roles, a.shape))
        return Array(a.cells.squeeze(tuple(dimensions)), roles, shape)

    def _reshape(self, a, *, new_sizes, **_):
        extents, roles = [], []
        for olds, news in _groups(a.shape, new_sizes):
            a, kinds = self._regroup(a, olds, [new_sizes[i] for i in news])
            roles += kinds
        for role, n in zip(roles, new_sizes, strict=True):
            extents.append(self._extent(role, n))
        return Array(a.cells.reshape(extents), tuple(roles), tuple(new_sizes))

    def _regroup(self, a, axes, sizes):
        """The atoms and roles of some neighbouring axes that get other sizes."""
        axes = [i for i in axes if a.shape[i] > 1]
        kinds = [a.roles[i] for i in axes]
        large = [i for i, n in enumerate(sizes) if n > 1]
        if len(axes) == 1 and len(large) == 1:
            return a, [kinds[0] if n > 1 else "same" for n in sizes]
        if all(kind == "same" for kind in kinds):
            return a, ["same"] * len(sizes)
        if "row" in kinds:
            raise NoKernel("a reshape of the batch axis")
        is_units = self._is_units(a.shape[axes[-1]]) and "units" not in kinds[:-1]
        for i in axes:
            if a.roles[i] == "same":
                role = "units" if i == axes[-1] and is_units else "small"
                a = self._expand(a, i, role)
        has_units = a.roles[axes[-1]] == "units"
        if "units" in kinds[:-1] or has_units and not self._is_units(sizes[large[-1]]):
            raise NoKernel("a reshape that splits the units")
        roles = ["small" if n > 1 else "same" for n in sizes]
        if has_units:
            roles[large[-1]] = "units"
        return a, roles

    def _take(self, a, axis, start, stop):
        role, size = a.roles[axis], stop - start
        shape = (*a.shape[:axis], size, *a.shape[axis + 1 :])
        if role == "same" or size == a.shape[axis]:
            return Array(a.cells, a.roles, shape)
        step = self.units if role == "units" else 1
        if role == "row" or start % step or size % step:
            raise NoKernel("a slice of the batch, or of the units of a gate")
        cells = a.cells.take(range(start // step, stop // step), axis)
        role = "same" if size == 1 else role
        return Array(cells, (*a.roles[:axis], role, *a.roles[axis + 1 :]), shape)

    def _slice(self, a, *, start_indices, limit_indices, strides):
        if strides is not None and any(s != 1 for s in strides):
            raise NoKernel("a slice with strides")
        bounds = zip(start_indices, limit_indices, strict=True)
        for axis, (start, stop) in enumerate(bounds):
            a = self._take(a, axis, start, stop)
        return a

    def _split(self, a, *, axis, sizes):
        ends = np.cumsum(sizes).tolist()
        starts = [0, *ends[:-1]]
        return [self._take(a, axis, *at) for at in zip(starts, ends, strict=True)]

    def _concatenate(self, *arrays, dimension):
        is_units = any(a.roles[dimension] == "units" for a in arrays)
        is_units |= all(self._is_units(a.shape[dimension]) for a in arrays)
        role = "units" if is_units else "small"
        arrays = [self._expand(a, dimension, role) for a in arrays]
        for i in range(len(arrays[0].shape)):
            for role in {a.roles[i] for a in arrays} - {"same"}:
                arrays = [self._expand(a, i, role) for a in arrays]
        size = sum(a.shape[dimension] for a in arrays)
        shape = (*arrays[0].shape[:dimension], size, *arrays[0].shape[dimension + 1 :])
        cells = np.concatenate([a.cells for a in arrays], dimension)
        return Array(cells, arrays[0].roles, shape)

    def _stack(self, *arrays, axis):
        def with_axis(a):
            shape = (*a.shape[:axis], 1, *a.shape[axis:])
            roles = (*a.roles[:axis], "same", *a.roles[axis:])
            return Array(np.expand_dims(a.cells, axis), roles, shape)

        return self._concatenate(*map(with_axis, arrays), dimension=axis)

    def _pad(self, a, value, *, padding_config):
        for axis, (low, high, interior) in enumerate(padding_config):
            if interior or min(low, high) < 0:
                raise NoKernel("pad between entries")
            for size, is_first in ((low, True), (high, False)):
                if size:
                    shape = (*a.shape[:axis], size, *a.shape[axis + 1 :])
                    cells = value.cells.reshape((1,) * len(shape))
                    more = Array(cells, ("same",) * len(shape), shape)
                    parts = (more, a) if is_first else (a, more)
                    a = self._concatenate(*parts, dimension=axis)
        return a


_METHODS = {
    "dot_general": Tracer._small_product,
    "reduce_sum": Tracer._reduce_sum,
    "broadcast_in_dim": Tracer._broadcast_in_dim,
    "transpose": Tracer._transpose,
    "squeeze": Tracer._squeeze,
    "reshape": Tracer._reshape,
    "slice": Tracer._slice,
    "split": Tracer._split,
    "concatenate": Tracer._concatenate,
    "stack": Tracer._stack,
    "pad": Tracer._pad,
}


def _groups(old, new):
    """Yield the axes of two shapes of the same size, in groups of the same size."""
    i = j = 0
    while i < len(old) or j < len(new):
        first, second = i, j
        sizes = [1, 1]
        while i + j == first + second or sizes[0] != sizes[1]:
            if j == len(new) or (i < len(old) and sizes[0] <= sizes[1]):
                sizes[0] *= old[i]
                i += 1
            else:
                sizes[1] *= new[j]
                j += 1
        yield range(first, i), range(second, j)
