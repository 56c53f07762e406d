"""Equations on arrays as operations on what one lane of a GPU holds of one row.

A kernel gives each row of the batch to a warp, and each unit to a lane. So of an array
[B, 4 H] a lane holds four numbers a unit, which are called atoms here. An array is
described by its entries in one row: which atom each of them is, and of which unit.

    gates [B, 2 H], H = 3     atoms  i i i f f f
                              units  1 2 3 1 2 3      0: the same for all units

Slices, splits, concatenations and reshapes move entries, which costs a kernel nothing.
What is left are element-wise operations, sums over units, and products.

Shape letters: B rows, H units, K and N multiples of H.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from lnrepro.functional.fast.equations import results_of
from lnrepro.functional.fast.gpu.atoms import (
    ELEMENTWISE,
    SAME,
    TF32,
    TYPES,
    Argument,
    Array,
    Atom,
    Place,
    Product,
)
from lnrepro.functional.fast.kernels import NoKernel

# Atoms of an array, each of which takes a register.
MOST_ATOMS = 64


class Tracer:
    """Evaluates equations on arrays of atoms.

    Attributes:
      batch, units: B, which may be more axes than one, and H.
      atoms: all atoms, in an order in which they can be made.
      products: all products.
    """

    def __init__(self, batch: tuple, units: int):
        """Start with no atoms."""
        self.batch, self.units = batch, units
        self._axes, self._one = len(batch), (1,) * len(batch)
        self.atoms: list[Atom] = []
        self.products: list[Product] = []
        self._memo: dict[tuple, Atom] = {}

    def array(self, value: Any) -> Array:
        """Return the array of an argument, or of numbers that are known."""
        if isinstance(value, Array):
            return value
        if not isinstance(value, Argument):
            value = np.asarray(value)
            numbers, inverse = np.unique(value, return_inverse=True)
            if numbers.size > MOST_ATOMS:
                raise NoKernel(f"a constant {value.shape} of many numbers")
            codes = np.concatenate([self._codes(self._literal(n)) for n in numbers])
            return Array(codes[inverse].reshape(value.shape), value.shape)
        shape, dtype = value.aval.shape, value.aval.dtype
        if dtype not in TYPES:
            raise NoKernel(f"an array of {dtype}")
        # Where B is a multiple of H, a vector of constants could be either. A wrong
        # guess makes units meet others, which is refused.
        has_row = self._has_rows(shape)
        has_row &= value.what != "constant" or len(shape) == self._axes + 1
        inner = shape[self._axes * has_row :]
        codes = []
        for offset, size in self._chunks(inner):
            place = Place(value, has_row, math.prod(inner), offset)
            atom = self._new("input", place, type=TYPES[dtype], per_unit=size > 1)
            codes.append(self._codes(atom))
        return Array(np.concatenate(codes).reshape(self._one * has_row + inner), shape)

    def stored(self, a: Array) -> Iterator[tuple[int, Atom, bool]]:
        """Yield (offset, atom, whether it stands for H units) of an array in memory."""
        if not self._has_rows(a.shape):
            raise NoKernel(f"a result {a.shape} without the batch")
        codes = self._one_row(a).codes.ravel()
        for offset, size in self._chunks(a.shape[self._axes :]):
            part = codes[offset : offset + size]
            atom = self.atoms[part[0] // (self.units + 1)]
            if atom.per_unit > (size > 1) or (part != self._codes(atom)).any():
                raise NoKernel("units that are not in their order")
            yield offset, atom, size > 1

    def _chunks(self, shape):
        """(first entry, number of entries) of what is one atom each in memory."""
        is_units = bool(shape) and shape[-1] % self.units == 0
        size = self.units if is_units else 1
        count = math.prod(shape) // size
        if count > MOST_ATOMS:
            raise NoKernel(f"an array {shape}: too many numbers for a lane")
        return [(i * size, size) for i in range(count)]

    def results(self, e: Any, inputs: Sequence) -> Sequence:
        """Return the arrays, or known numbers, that an equation makes of some.

        Raises:
          NoKernel: a kernel does not have the operation.
        """
        if e.effects:
            raise NoKernel(f"{e.primitive.name} has an effect")
        name, out = e.primitive.name, e.outvars[0].aval
        if name in SAME:
            return inputs
        if not any(isinstance(a, Array | Argument) for a in inputs):
            # Masks of gates are computed now.
            with jax.ensure_compile_time_eval():
                return [np.asarray(a) for a in results_of(e, inputs)]
        if name == "dot_general":
            return [self._product(e, *inputs)]
        arrays = [self.array(a) for a in inputs]
        if any(a.codes.shape != a.shape for a in arrays):
            arrays = [self._one_row(a) for a in arrays]
        if out.dtype not in TYPES:
            raise NoKernel(f"{name} of {out.dtype}")
        type = TYPES[out.dtype]
        if name == "convert_element_type":
            is_cast = e.invars[0].aval.dtype == bool and out.dtype != bool
            name = "one_if" if is_cast else "copy"
        if name == "integer_pow":
            return [self._power(e.params["y"], type, arrays, out.shape)]
        if name in ELEMENTWISE:
            return [self._elementwise(name, type, arrays, out.shape)]
        if name == "reduce_sum":
            return [self._reduce_sum(arrays[0], e.params["axes"], out.shape)]
        shapes = [v.aval.shape for v in e.outvars]
        is_row = arrays[0].codes.shape != arrays[0].shape
        if is_row and not all(map(self._has_rows, shapes)):
            raise NoKernel(f"{name} along the batch")
        return list(map(Array, self._moved(name, arrays, is_row, e.params), shapes))

    # Atoms.

    def _new(self, kind, how, args=(), type="float", per_unit=False):
        key = (kind, how, args, type)
        if key not in self._memo:
            number = len(self.atoms)
            atom = Atom(number, kind, how, args, type, per_unit)
            self._memo[key] = atom
            self.atoms.append(atom)
        return self._memo[key]

    def _literal(self, value):
        value = np.asarray(value).item()
        type = "bool" if isinstance(value, bool) else "float"
        return self._new("literal", value, type=type)

    def _operate(self, name, type, *args):
        """An element-wise operation, or a simpler atom of the same value."""
        # Masks of gates are literals.
        if name == "select_n" and args[0].kind == "literal":
            return args[1 + int(args[0].how)]
        if name == "copy" and args[0].type in (type, "bf16"):
            return args[0]
        return self._new("local", name, args, type, any(a.per_unit for a in args))

    def _times(self, atom, count):
        if count == 1:
            return atom
        factor = self._literal(float(count))
        return self._operate("mul", atom.type, atom, factor)

    # Arrays.

    def _codes(self, atom):
        """The codes of an atom: of all units, or of what they share."""
        units = np.arange(1, self.units + 1) if atom.per_unit else np.zeros(1, int)
        return atom.number * (self.units + 1) + units

    def _one_row(self, a):
        """An array with size 1 along the batch, if it has one."""
        if not self._has_rows(a.shape):
            return a
        first = a.codes[tuple(slice(n) for n in self._one)]
        if (a.codes != first).any():
            raise NoKernel("constants that differ between the rows")
        return Array(first, a.shape)

    def _has_rows(self, shape):
        return tuple(shape[: self._axes]) == self.batch

    def _power(self, exponent, type, arrays, shape):
        """An integer power by products."""
        result = arrays[0]
        if abs(exponent) == 2:
            result = self._elementwise("square", type, arrays, shape)
        else:
            for _ in range(abs(exponent) - 1):
                result = self._elementwise("mul", type, [result, *arrays], shape)
        if exponent > 0:
            return result
        one = self.array(np.float32(1))
        return self._elementwise("div", type, [one, result], shape)

    def _elementwise(self, name, type, arrays, shape):
        codes = np.broadcast_arrays(*(a.codes for a in arrays))
        sizes = codes[0].shape
        stacked = np.stack(codes).reshape(len(arrays), -1)
        atoms, units = np.divmod(stacked, self.units + 1)
        unit = units.max(0)
        if ((units != 0) & (units != unit)).any():
            raise NoKernel(f"{name} of different units")
        columns, inverse = np.unique(atoms, axis=1, return_inverse=True)
        made = [
            self._operate(name, type, *(self.atoms[i] for i in column))
            for column in columns.T
        ]
        first = np.array([a.number * (self.units + 1) for a in made])
        per_unit = np.array([a.per_unit for a in made])
        codes = first[inverse].ravel() + unit * per_unit[inverse].ravel()
        return Array(codes.reshape(sizes), shape)

    def _product(self, e, a, weight):
        """a [B, K] times a weight [K, N], or [N, K] transposed."""
        ((of_a, of_weight), batch) = e.params["dimension_numbers"]
        precision = e.params["precision"]
        if not {*(precision if isinstance(precision, tuple) else [precision])} <= TF32:
            raise NoKernel("a precision other than 'default' and 'tensorfloat32'")
        shapes, axes = [v.aval.shape for v in e.invars], self._axes
        is_weight = isinstance(weight, Argument) and weight.what == "constant"
        is_weight = is_weight and len(shapes[1]) == 2 and weight.aval.dtype in TYPES
        is_weight = is_weight and not any(n % self.units for n in shapes[1])
        if not is_weight or any(batch) or (len(shapes[0]), *of_a) != (axes + 1, axes):
            raise NoKernel(
                f"a product of {shapes[0]} and {shapes[1]}; it must be one of [B, K] "
                "and a weight [K, N], where H divides K and N"
            )
        inputs = tuple(atom for _, atom, _ in self.stored(self.array(a)))
        number, out = len(self.products), e.outvars[0].aval
        self.products.append(Product(weight, tuple(of_weight) == (1,), inputs))
        codes = []
        for chunk in range(out.shape[-1] // self.units):
            atom = self._new("product", (number, chunk), inputs, per_unit=True)
            # Sums of narrow numbers are in float32, and are rounded.
            atom = self._operate("copy", TYPES[out.dtype], atom)
            codes.append(self._codes(atom))
        return Array(np.concatenate(codes).reshape(*self._one, -1), out.shape)

    def _reduce_sum(self, a, axes, shape):
        if min(axes) < self._axes and a.codes.shape != a.shape:
            raise NoKernel("a sum over the batch")
        codes = np.moveaxis(a.codes, axes, range(-len(axes), 0))
        sizes = codes.shape[: len(shape)]
        sums = [self._sum(c) for c in codes.reshape(math.prod(sizes), -1)]
        return Array(np.array(sums).reshape(sizes), shape)

    def _sum(self, codes):
        """The code of the sum of some entries."""
        numbers, units = np.divmod(codes, self.units + 1)
        unit = units.max()
        is_one_unit = (units[units > 0] == unit).all()
        terms, of_units = [], []
        for number in np.unique(numbers):
            atom, counts = self.atoms[number], np.bincount(units[numbers == number])
            if not atom.per_unit or is_one_unit:
                terms.append(self._times(atom, counts.sum()))
            elif counts.size <= self.units or (counts[1:] != counts[1]).any():
                raise NoKernel("a sum over some of the units")
            else:
                of_units.append(self._times(atom, counts[1]))
        if of_units:
            terms.append(self._new("sums", "", tuple(of_units)))
        total, type = terms[0], self.atoms[numbers[0]].type
        for term in terms[1:]:
            total = self._operate("add", type, total, term)
        return total.number * (self.units + 1) + unit * total.per_unit

    def _moved(self, name, arrays, is_row, params):
        """The codes of the results of an operation that gives entries another place."""
        first, *others = (a.codes for a in arrays)
        match name:
            case "broadcast_in_dim":
                shape, axes = params["shape"], params["broadcast_dimensions"]
                if is_row and axes[: self._axes] != tuple(range(self._axes)):
                    raise NoKernel("a broadcast of the batch axis")
                sizes = [1] * len(shape)
                for size, axis in zip(first.shape, axes, strict=True):
                    sizes[axis] = size
                # Equal rows are kept once, as those of the batch are.
                if self._has_rows(shape) and set(sizes[: self._axes]) == {1}:
                    shape = (*self._one, *shape[self._axes :])
                return [np.broadcast_to(first.reshape(sizes), shape)]
            case "reshape":
                sizes = params["new_sizes"]
                shape = (*self._one, *sizes[self._axes :]) if is_row else sizes
                return [first.reshape(shape)]
            case "slice":
                starts, limits = params["start_indices"], params["limit_indices"]
                steps = params["strides"] or (1,) * len(starts)
                return [first[tuple(map(slice, starts, limits, steps))]]
            case "split":
                ends = np.cumsum(params["sizes"])[:-1]
                return np.split(first, ends, params["axis"])
            case "concatenate":
                return [np.concatenate([first, *others], params["dimension"])]
            case "pad":
                widths = np.array(params["padding_config"])
                if widths.min() >= 0 and not widths[:, 2].any():
                    return [np.pad(first, widths[:, :2], constant_values=others[0])]
        raise NoKernel(f"the operation {name}")
