"""What a kernel computes with: numbers of a lane, and arrays of them."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# The types of numbers in memory. A kernel computes in float32, and rounds the results
# of operations on bfloat16.
TYPES = {
    jnp.dtype(jnp.float32): "float",
    jnp.dtype(jnp.bfloat16): "bf16",
    jnp.dtype(jnp.bool_): "bool",
}
# In CUDA, by the name of JAX's primitive.
ELEMENTWISE = {
    "add": "{0} + {1}", "add_any": "{0} + {1}", "sub": "{0} - {1}",
    "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}", "square": "{0} * {0}",
    "max": "maximum({0}, {1})", "min": "minimum({0}, {1})", "abs": "fabsf({0})",
    "tanh": "tanh_({0})", "logistic": "sigmoid({0})", "exp": "expf({0})",
    "log": "logf({0})", "log1p": "log1pf({0})", "expm1": "expm1f({0})",
    "sqrt": "sqrtf({0})", "rsqrt": "rsqrtf({0})", "erf": "erff({0})",
    "pow": "powf({0}, {1})", "clamp": "minimum(maximum({1}, {0}), {2})",
    "sin": "sinf({0})", "cos": "cosf({0})", "exp2": "exp2f({0})",
    "floor": "floorf({0})", "ceil": "ceilf({0})",
    "select_n": "{0} ? {2} : {1}", "copy": "{0}", "copy_p": "{0}",
    "one_if": "{0} ? 1.f : 0.f",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "and": "{0} && {1}", "or": "{0} || {1}",
    "not": "!{0}", "is_finite": "isfinite({0})",
}  # fmt: skip
# Precisions that are TF32 on a GPU. HIGH is the one that is called "tensorfloat32".
TF32 = {
    None,
    jax.lax.Precision.DEFAULT,
    jax.lax.Precision.HIGH,
    jax.lax.DotAlgorithmPreset.TF32_TF32_F32,
}
# Where an array lies, over what it varies and what XLA fuses is nothing to a kernel,
# which is in one piece on one device.
SAME = frozenset(
    {"reshard", "sharding_constraint", "optimization_barrier", "pvary", "pcast"}
)


@dataclasses.dataclass(eq=False)
class Atom:
    """A number per unit of a row, or per row; or a literal, whose value is known."""

    number: int  # Its place among all atoms.
    kind: str  # "literal", "input", "local", "sums", "moments" or "product".
    # Of a literal its value, of an input its `Place`, of a local atom its name in
    # `ELEMENTWISE`, of a product (product, chunk), of squared deviations from a mean
    # the sum that the mean is of.
    how: Any
    args: tuple  # The atoms that it is made of.
    type: str = "float"  # A value of `TYPES`.
    per_unit: bool = False  # Whether units differ.


class Argument(NamedTuple):
    """An argument of the kernel."""

    number: int
    aval: Any  # Shape and dtype in one step.
    what: str  # "constant", "carry", or "stack" [T, ...].


class Place(NamedTuple):
    """Where an atom lies in memory, counted from the first entry of its row."""

    argument: Argument
    has_row: bool
    size: int  # Numbers of a row.
    offset: int


class Array(NamedTuple):
    """What every entry of one row of an array is."""

    # Atom number * (H + 1) + unit, of size 1 along a first axis that is the batch.
    codes: np.ndarray
    shape: tuple


class Product(NamedTuple):
    """A product of atoms, one a chunk of H, with the weight in an argument."""

    weight: Argument
    is_transposed: bool
    inputs: tuple
