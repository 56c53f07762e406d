"""The precisions of the operations of a traced function."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp

from lnrepro.functional.fast.equations import with_inner

# Operations that move numbers, round them, multiply matrices or hold other operations.
NOT_ELEMENTWISE = {
    "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p",
    "custom_jvp_call", "custom_vjp_call", "dot_general", "dynamic_slice",
    "dynamic_update_slice", "gather", "jit", "optimization_barrier", "pad", "reshape",
    "rev", "scan", "select_n", "slice", "split", "squeeze", "transpose", "while",
}  # fmt: skip


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, those inside of others included."""
    for equation in jaxpr.eqns:
        yield from with_inner(equation)


def precisions(jaxpr: Any) -> Iterator[Any]:
    """The precision of every matrix product."""
    for equation in equations(jaxpr):
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"]


def product_dtypes(jaxpr: Any) -> set[str]:
    """The dtypes of the results of matrix products."""
    return {
        str(equation.outvars[0].aval.dtype)
        for equation in equations(jaxpr)
        if equation.primitive.name == "dot_general"
    }


def narrow_operations(jaxpr: Any) -> set[str]:
    """Names of the element-wise operations and sums of less than float32."""
    return {
        equation.primitive.name
        for equation in equations(jaxpr)
        for result in equation.outvars
        if equation.primitive.name not in NOT_ELEMENTWISE
        and jnp.issubdtype(result.aval.dtype, jnp.floating)
        and jnp.finfo(result.aval.dtype).bits < 32
    }
